package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/migrate"

	"github.com/coalesce-pgx/coalesce"
)

// bunSavePoint is the random name that bun gives to a save point.
var bunSavePoint = regexp.MustCompile(`SP_[0-9a-f]+`)

// bunLog records what bun sends, as a hook.
type bunLog struct{ r *run }

func (bunLog) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (l bunLog) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	l.r.see("bun "+e.Operation()+" "+bunSavePoint.ReplaceAllString(e.Query, "SP"), e.Err)
}

// bunQuiet opens a database for use from several goroutines.
func bunQuiet(pool *sql.DB) *bun.DB {
	db := bun.NewDB(pool, pgdialect.New())
	db.RegisterModel((*bunMember)(nil))
	return db
}

// bunOpen opens a database that tells what it sends.
func bunOpen(r *run, pool *sql.DB) *bun.DB {
	return bunQuiet(pool).WithQueryHook(bunLog{r})
}

// affected is what a result tells, of the methods that pgx has.
func affected(res sql.Result, err error) []any {
	if err != nil || res == nil {
		return []any{res, err}
	}
	n, nErr := res.RowsAffected()
	return []any{n, nErr, err}
}

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

type bunUser struct {
	bun.BaseModel `bun:"table:users,alias:u"`

	ID        int64  `bun:",pk,autoincrement"`
	Name      string `bun:",notnull"`
	Email     string `bun:",unique,nullzero"`
	Age       int
	Tags      []string       `bun:",array"`
	Scores    []int64        `bun:",array"`
	Meta      map[string]any `bun:"type:jsonb"`
	Address   bunAddress     `bun:"embed:address_"`
	Home      *bunAddress    `bun:"type:jsonb"`
	Balance   float64        `bun:"type:numeric(12,2)"`
	Picture   []byte
	Nick      *string
	Active    bool         `bun:",notnull,default:true"`
	Born      time.Time    `bun:"type:date,nullzero"`
	CreatedAt time.Time    `bun:",nullzero,notnull,default:current_timestamp"`
	UpdatedAt bun.NullTime `bun:",nullzero"`
	DeletedAt time.Time    `bun:",soft_delete,nullzero"`
	BossID    *int64
	Boss      *bunUser    `bun:"rel:belongs-to,join:boss_id=id"`
	Profile   *bunProfile `bun:"rel:has-one,join:id=user_id"`
	Orders    []*bunOrder `bun:"rel:has-many,join:id=user_id"`
	Groups    []bunGroup  `bun:"m2m:members,join:User=Group"`
}

type bunAddress struct{ Street, City string }

type bunProfile struct {
	bun.BaseModel `bun:"table:profiles"`

	ID     int64 `bun:",pk,autoincrement"`
	UserID int64 `bun:",unique"`
	Text   string
}

type bunOrder struct {
	bun.BaseModel `bun:"table:orders,alias:o"`

	ID     int64 `bun:",pk,autoincrement"`
	UserID int64
	User   *bunUser `bun:"rel:belongs-to,join:user_id=id"`
	Item   string
	Price  int64
	Lines  []bunLine `bun:"rel:has-many,join:id=order_id"`
}

type bunLine struct {
	bun.BaseModel `bun:"table:lines"`

	OrderID int64 `bun:",pk"`
	No      int   `bun:",pk"`
	Text    string
}

type bunGroup struct {
	bun.BaseModel `bun:"table:groups,alias:g"`

	ID    int64 `bun:",pk,autoincrement"`
	Name  string
	Users []bunUser `bun:"m2m:members,join:Group=User"`
}

type bunMember struct {
	bun.BaseModel `bun:"table:members"`

	UserID  int64     `bun:",pk"`
	User    *bunUser  `bun:"rel:belongs-to,join:user_id=id"`
	GroupID int64     `bun:",pk"`
	Group   *bunGroup `bun:"rel:belongs-to,join:group_id=id"`
}

func bunSchema(r *run, db *bun.DB) {
	r.Helper()
	for _, model := range []any{(*bunUser)(nil), (*bunProfile)(nil), (*bunOrder)(nil), (*bunLine)(nil), (*bunGroup)(nil), (*bunMember)(nil)} {
		for range 2 {
			_, err := db.NewCreateTable().Model(model).IfNotExists().Exec(bg)
			r.must(err)
		}
	}
	_, err := db.NewCreateIndex().Model((*bunUser)(nil)).Index("users_age").Column("age").Where("deleted_at IS NULL").IfNotExists().Exec(bg)
	r.must(err)
	_, err = db.ExecContext(bg, "ALTER TABLE orders ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE, ADD CHECK (price >= 0)")
	r.must(err)
}

func bunUsers(n int) []bunUser {
	list := make([]bunUser, n)
	for i := range list {
		list[i] = bunUser{Name: fmt.Sprintf("user%02d", i), Email: fmt.Sprintf("u%d@x.org", i), Age: 20 + i%4, Tags: []string{"t", fmt.Sprint(i)},
			Scores: []int64{int64(i), -1}, Meta: map[string]any{"n": i, "deep": map[string]any{"k": []int{i}}}, Balance: float64(i) / 4}
	}
	return list
}

func TestBunCreatesReadsUpdatesDeletes(t *testing.T) {
	same(t, func(r *run) {
		for _, pool := range []*sql.DB{r.db, r.open("default_query_exec_mode=simple_protocol"), r.open("default_query_exec_mode=exec", "TimeZone=Asia/Tokyo")} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			db := bunOpen(r, pool)
			bunSchema(r, db)
			bunCRUD(r, db)
			if r.shares() && pool != r.db {
				r.Logf("%+v", coalesce.StatsOf(pool))
			}
		}
	})
}

func bunCRUD(r *run, db *bun.DB) {
	look := func(after string) {
		r.Helper()
		for range 2 {
			var all []bunUser
			r.see(after, db.NewSelect().Model(&all).Order("id").Scan(bg), all)
		}
		n, err := db.NewSelect().Model((*bunUser)(nil)).Where("age > ?", 20).Count(bg)
		r.see(after, n, err)
		is, err := db.NewSelect().Model((*bunUser)(nil)).Where("name = ?", "ann").Exists(bg)
		r.see(after, is, err)
		var deleted []string
		r.see(after, db.NewSelect().Model((*bunUser)(nil)).Column("name").WhereDeleted().Order("id").Scan(bg, &deleted), deleted)
	}
	look("nothing")
	nick, at := "it's ?", time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.FixedZone("", 3600))
	u := &bunUser{Name: `ann \ "quoted"`, Email: "ann@x.org", Age: 40, Tags: []string{"a b", `"c"`, "", "NULL", `\`}, Scores: []int64{1, -2},
		Meta: map[string]any{"k": []any{1, nil, "today"}}, Address: bunAddress{"Road 1", "Town"}, Home: &bunAddress{"Lane 2", ""}, Balance: 12.5,
		Picture: []byte{0, 1, 0xff}, Nick: &nick, Born: at, CreatedAt: at, UpdatedAt: bun.NullTime{Time: at}}
	r.see("insert", affected(db.NewInsert().Model(u).Exec(bg)), u)
	look("insert")
	got := &bunUser{ID: u.ID}
	r.see("by key", db.NewSelect().Model(got).WherePK().Scan(bg), got)
	list := bunUsers(6)
	r.see("insert many", affected(db.NewInsert().Model(&list).Returning("id, active, created_at").Exec(bg)), list)
	look("insert many")
	r.see("insert a map", affected(db.NewInsert().Model(&map[string]any{"name": "map", "age": 5}).TableExpr("users").Exec(bg)))
	r.see("insert maps", affected(db.NewInsert().Model(&[]map[string]any{{"name": "m1"}, {"name": "m2"}}).TableExpr("users").Exec(bg)))
	look("insert maps")
	r.see("insert from a query", affected(db.NewInsert().TableExpr("users (name, age)").
		TableExpr("(SELECT name || '+', age FROM users WHERE age = ?) AS src", 21).Exec(bg)))
	look("insert from a query")

	// Each of these is a read that came just before, too.
	again := func(what string, values ...any) {
		r.Helper()
		r.see(what, values...)
		for range 2 {
			var now bunUser
			r.see(what, db.NewSelect().Model(&now).Where("u.id = ?", u.ID).Scan(bg), now)
		}
	}
	got.Name, got.Nick = "bob", nil
	again("update", affected(db.NewUpdate().Model(got).WherePK().Exec(bg)))
	again("update columns", affected(db.NewUpdate().Model(&bunUser{ID: u.ID, Age: 0, Name: "no"}).Column("age").WherePK().Exec(bg)))
	again("update not zero", affected(db.NewUpdate().Model(&bunUser{ID: u.ID, Name: "carl"}).OmitZero().WherePK().Exec(bg)))
	var age int
	_, err := db.NewUpdate().Model((*bunUser)(nil)).Set("age = age + ?", 3).Where("id = ?", u.ID).Returning("age").Exec(bg, &age)
	again("update returning", age, err)
	again("update an array", affected(db.NewUpdate().Model((*bunUser)(nil)).Set("tags = ?", pgdialect.Array([]string{"new", "er"})).
		Set("scores = ?", pgdialect.Array([]int{7})).Set("meta = meta || ?", map[string]any{"more": true}).Where("id = ?", u.ID).Exec(bg)))
	var changed []bunUser
	_, err = db.NewUpdate().Model(&changed).Set("active = FALSE").Where("age IN (?)", bun.List([]int{20, 21})).Returning("*").Exec(bg)
	slices.SortFunc(changed, func(a, b bunUser) int { return int(a.ID - b.ID) })
	again("update many", changed, err)
	look("update many")
	for i := range list {
		list[i].Age, list[i].Balance = 50+i, 1.5
	}
	again("bulk update", affected(db.NewUpdate().Model(&list).Column("age", "balance").Bulk().Exec(bg)))
	look("bulk update")
	again("update from values", affected(db.NewUpdate().With("_data", db.NewValues(&[]struct {
		ID  int64
		Age int
	}{{u.ID, 70}, {u.ID + 1, 71}})).Model((*bunUser)(nil)).TableExpr("_data").Set("age = _data.age").Where("u.id = _data.id").Exec(bg)))
	look("update from values")

	up := &bunUser{Name: "upserted", Email: "ann@x.org", Age: 1}
	again("upsert", affected(db.NewInsert().Model(up).On("CONFLICT (email) DO UPDATE").Set("name = EXCLUDED.name").Set("age = u.age + 1").Returning("*").Exec(bg)), up)
	again("upsert nothing", affected(db.NewInsert().Model(&bunUser{Name: "x", Email: "ann@x.org"}).On("CONFLICT (email) DO NOTHING").Exec(bg)))
	again("ignore", affected(db.NewInsert().Model(&bunUser{Name: "x", Email: "ann@x.org"}).Ignore().Exec(bg)))
	look("upsert")
	again("merge", affected(db.NewMerge().Model(new(bunUser)).With("_data", db.NewValues(&[]struct {
		Email string
		Age   int
	}{{"ann@x.org", 80}, {"merged@x.org", 81}})).Using("_data").On("u.email = _data.email").
		WhenUpdate("MATCHED", func(q *bun.UpdateQuery) *bun.UpdateQuery { return q.Set("age = _data.age") }).
		WhenInsert("NOT MATCHED", func(q *bun.InsertQuery) *bun.InsertQuery {
			return q.Value("name", "'merged'").Value("email", "_data.email").Value("age", "_data.age")
		}).Exec(bg)))
	look("merge")

	again("soft delete", affected(db.NewDelete().Model(u).WherePK().Exec(bg)))
	look("soft delete")
	var gone []int64
	_, err = db.NewDelete().Model((*bunUser)(nil)).Where("age > ?", 52).Returning("id").Exec(bg, &gone)
	slices.Sort(gone)
	r.see("delete returning", gone, err)
	look("delete returning")
	r.see("restore", affected(db.NewUpdate().Model((*bunUser)(nil)).WhereAllWithDeleted().Set("deleted_at = NULL").Where("id = ?", u.ID).Exec(bg)))
	look("restore")
	r.see("force delete", affected(db.NewDelete().Model((*bunUser)(nil)).Where("id = ?", u.ID).ForceDelete().Exec(bg)))
	look("force delete")
	r.see("raw", affected(db.NewRaw("UPDATE users SET nick = ? WHERE age < ?", "raw", 30).Exec(bg)))
	look("raw")
	r.see("truncate", affected(db.NewTruncateTable().Model((*bunUser)(nil)).Cascade().Exec(bg)))
	look("truncate")
}

func bunWorld(r *run, db *bun.DB) {
	r.Helper()
	list := bunUsers(6)
	for i := range list {
		if i > 0 {
			boss := int64(i)
			list[i].BossID = &boss
		}
	}
	groups := []bunGroup{{Name: "even"}, {Name: "all"}, {Name: "empty"}}
	_, err := db.NewInsert().Model(&list).Exec(bg)
	r.must(err)
	_, err = db.NewInsert().Model(&groups).Exec(bg)
	r.must(err)
	for i, u := range list {
		members := []bunMember{{UserID: u.ID, GroupID: 2}}
		if i%2 == 0 {
			members = append(members, bunMember{UserID: u.ID, GroupID: 1})
			_, err = db.NewInsert().Model(&bunProfile{UserID: u.ID, Text: "profile of " + u.Name}).Exec(bg)
			r.must(err)
		}
		_, err = db.NewInsert().Model(&members).Exec(bg)
		r.must(err)
		for j := range i {
			o := &bunOrder{UserID: u.ID, Item: fmt.Sprint("item", j), Price: int64(j)}
			_, err = db.NewInsert().Model(o).Exec(bg)
			r.must(err)
			_, err = db.NewInsert().Model(&[]bunLine{{OrderID: o.ID, No: 1, Text: "one"}, {OrderID: o.ID, No: 2, Text: "two"}}).Exec(bg)
			r.must(err)
		}
	}
}

func TestBunFollowsRelations(t *testing.T) {
	same(t, func(r *run) {
		db := bunOpen(r, r.db)
		bunSchema(r, bunQuiet(r.db))
		bunWorld(r, db)
		look := func(after string) {
			r.Helper()
			var all []bunUser
			r.see(after, db.NewSelect().Model(&all).Relation("Profile").Relation("Boss", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Column("name") }).
				Relation("Orders", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("price > ?", 0).Order("id DESC") }).
				Relation("Orders.Lines", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Order("order_id", "no") }).
				Relation("Groups", func(q *bun.SelectQuery) *bun.SelectQuery { return q.OrderExpr("g.id") }).Order("u.id").Scan(bg), all)
			var groups []bunGroup
			r.see(after, db.NewSelect().Model(&groups).Relation("Users", func(q *bun.SelectQuery) *bun.SelectQuery { return q.OrderExpr("u.id").Column("u.id", "u.name") }).Order("id").Scan(bg), groups)
			var orders []bunOrder
			r.see(after, db.NewSelect().Model(&orders).Relation("User.Profile").Where("?TableAlias.price > 1").Order("o.id").Scan(bg), orders)
			n, err := db.NewSelect().Model((*bunOrder)(nil)).Join("JOIN members m").JoinOn("m.user_id = o.user_id").JoinOn("m.group_id = ?", 1).Count(bg)
			r.see(after, n, err)
		}
		look("made")
		look("nothing")
		steps := []struct {
			name string
			do   func() (sql.Result, error)
		}{
			{"add member", func() (sql.Result, error) {
				return db.NewInsert().Model(&bunMember{UserID: 2, GroupID: 3}).Exec(bg)
			}},
			{"remove member", func() (sql.Result, error) {
				return db.NewDelete().Model(&bunMember{UserID: 1, GroupID: 1}).WherePK().Exec(bg)
			}},
			{"new order", func() (sql.Result, error) {
				return db.NewInsert().Model(&bunOrder{UserID: 1, Item: "late", Price: 9}).Exec(bg)
			}},
			{"new line", func() (sql.Result, error) {
				return db.NewInsert().Model(&bunLine{OrderID: 3, No: 3}).Exec(bg)
			}},
			{"new boss", func() (sql.Result, error) {
				return db.NewUpdate().Model(&bunUser{}).Set("boss_id = 6").Where("id < 3").Exec(bg)
			}},
			{"move profile", func() (sql.Result, error) {
				return db.NewUpdate().Model(&bunProfile{}).Set("user_id = 2").Where("user_id = 1").Exec(bg)
			}},
			{"soft delete", func() (sql.Result, error) {
				return db.NewDelete().Model(&bunUser{ID: 3}).WherePK().Exec(bg)
			}},
			// By the foreign key, which no statement names.
			{"cascade", func() (sql.Result, error) {
				return db.NewDelete().Model(&bunUser{ID: 5}).WherePK().ForceDelete().Exec(bg)
			}},
		}
		for _, s := range steps {
			r.see(s.name, affected(s.do()))
			look(s.name)
		}
	})
}

func TestBunQueries(t *testing.T) {
	same(t, func(r *run) {
		db := bunOpen(r, r.db)
		bunSchema(r, bunQuiet(r.db))
		bunWorld(r, db)
		quiet := bunQuiet(r.db)
		look := func(after string) {
			r.Helper()
			r.see(after)
			sel := func() *bun.SelectQuery { return db.NewSelect().Model((*bunUser)(nil)) }
			var names []string
			var ages []int
			r.see("columns", sel().Column("name", "age").Order("id").Limit(3).Offset(1).Scan(bg, &names, &ages), names, ages)
			var stats []struct {
				Age   int
				N     int64
				Total float64
				Names []string `bun:",array"`
			}
			r.see("group", sel().Column("age").ColumnExpr("count(*) AS n, sum(balance) AS total").ColumnExpr("array_agg(name ORDER BY name) AS names").
				Group("age").Having("count(*) > ?", 1).Order("age").Scan(bg, &stats), stats)
			var m map[string]any
			r.see("a map", sel().Column("id", "name", "balance", "tags", "meta", "created_at", "nick").Order("id").Limit(1).Scan(bg, &m), m)
			var ms []map[string]any
			r.see("maps", db.NewSelect().Table("orders").Order("id").Limit(3).Scan(bg, &ms), ms)
			var total float64
			var latest sql.NullString
			r.see("values", sel().ColumnExpr("sum(balance), max(nick)").Scan(bg, &total, &latest), total, latest)
			var tags, none []string
			var scores []int64
			r.see("arrays", sel().Column("tags", "scores").Where("id = 2").Scan(bg, pgdialect.Array(&tags), pgdialect.Array(&scores)), tags, scores)
			r.see("no rows", sel().Column("name").Where("name = 'nobody'").Scan(bg, &none), none)
			var one bunUser
			err := db.NewSelect().Model(&one).Where("name = ?", "nobody").Scan(bg)
			r.see("not found", isNoRows(err), err)
			rich := db.NewSelect().Model((*bunOrder)(nil)).Column("user_id").ColumnExpr("sum(price) AS spent").Group("user_id")
			var found []bunUser
			r.see("with", db.NewSelect().With("rich", rich).Model(&found).Join("JOIN rich ON rich.user_id = u.id").Where("spent > 1").Order("u.id").Scan(bg), found)
			found = nil
			r.see("a query in", db.NewSelect().Model(&found).Where("id IN (?)", db.NewSelect().Model((*bunOrder)(nil)).Column("user_id").Where("price > 2")).Order("id").Scan(bg), len(found))
			found = nil
			r.see("conditions", db.NewSelect().Model(&found).WhereGroup(" AND ", func(q *bun.SelectQuery) *bun.SelectQuery {
				return q.Where("age = ?", 20).WhereOr("name LIKE ?", "%5")
			}).Where("tags @> ?", pgdialect.Array([]string{"t"})).Where("meta->'deep' @> ?", map[string]any{"k": []int{5}}).Where("active").Scan(bg), len(found))
			tree := db.NewSelect().Model((*bunUser)(nil)).Column("id", "boss_id", "name").ColumnExpr("1 AS depth").Where("boss_id IS NULL").
				UnionAll(db.NewSelect().TableExpr("users AS x").ColumnExpr("x.id, x.boss_id, x.name, depth + 1").Join("JOIN tree ON tree.id = x.boss_id"))
			var depths []struct {
				Name  string
				Depth int
			}
			r.see("recursive", db.NewSelect().WithRecursive("tree", tree).TableExpr("tree").Column("name", "depth").Order("depth").Scan(bg, &depths), depths)
			names = nil
			r.see("union", sel().Column("name").Where("id = 1").Union(sel().Column("name").Where("id = 2")).Order("name").Scan(bg, &names), names)
			names = nil
			r.see("distinct", sel().DistinctOn("age").Column("name").Order("age", "name").Scan(bg, &names), names)
			names = nil
			r.see("in pairs", db.NewSelect().Model((*bunLine)(nil)).Column("text").Where("(order_id, no) IN ?", bun.Tuple([][]int{{1, 1}, {2, 2}})).Order("order_id").Scan(bg, &names), names)
			rows, err := sel().Order("id").Rows(bg)
			r.must(err)
			for rows.Next() {
				var u bunUser
				r.see("row", db.ScanRow(bg, rows, &u), u)
			}
			r.see("rows", rows.Err(), rows.Close())
			rows, err = db.QueryContext(bg, "SELECT id, name, tags, meta, created_at, balance FROM users WHERE age IN (?) ORDER BY id", bun.List([]int{20, 22}))
			r.rows("query", rows, err)
			var n int
			r.see("query row", db.QueryRowContext(bg, "SELECT count(*) FROM ?", bun.Ident("users")).Scan(&n), n)
			r.see("raw", db.NewRaw("SELECT name FROM users WHERE age = ? ORDER BY name", 21).Scan(bg, &names), names)
			// These are two statements at the same time.
			found = nil
			counted, err := quiet.NewSelect().Model(&found).Where("age > 20").Order("id").Limit(2).ScanAndCount(bg)
			r.see("scan and count", counted, err, found)
			var late int
			r.see("by now", sel().ColumnExpr("count(*)").Where("created_at <= now()").Scan(bg, &late), late)
			r.see("by a time", sel().ColumnExpr("count(*)").Where("created_at > ?", r.start.Add(-time.Hour)).Scan(bg, &late), late)
		}
		look("made")
		look("nothing")
		r.see("update", affected(db.NewUpdate().Model((*bunUser)(nil)).Set("age = 20, tags = tags || 'more'::varchar").Where("age = 21").Exec(bg)))
		look("update")
		r.see("delete with", affected(db.NewDelete().With("dear", db.NewSelect().Model((*bunOrder)(nil)).Column("id").Where("price > 2")).
			Model((*bunOrder)(nil)).Where("id IN (SELECT id FROM dear)").Exec(bg)))
		look("delete with")
		st, err := db.Prepare("SELECT name, age FROM users ORDER BY id")
		r.must(err)
		for i := range 3 {
			rows, err := st.Query()
			r.rows("prepared", rows, err)
			r.see("update", affected(db.NewUpdate().Model((*bunUser)(nil)).Set("age = ?", i).Where("TRUE").Exec(bg)))
		}
		r.see("close", st.Close())
	})
}

func TestBunTransactsAndLocks(t *testing.T) {
	same(t, func(r *run) {
		db := bunOpen(r, r.db)
		bunSchema(r, bunQuiet(r.db))
		bunWorld(r, bunQuiet(r.db))
		look := func(what string, db bun.IDB) {
			r.Helper()
			var names []string
			r.see(what, db.NewSelect().Model((*bunUser)(nil)).Column("name").Order("name").Scan(bg, &names), names)
			var orders []bunOrder
			r.see(what, db.NewSelect().Model(&orders).Relation("User").Where("price = 0").Order("o.id").Scan(bg), orders)
		}
		create := func(db bun.IDB, name string) error {
			_, err := db.NewInsert().Model(&bunUser{Name: name, Email: name}).Exec(bg)
			return err
		}
		wrong := errors.New("wrong")
		look("before", db)
		r.see("committed", db.RunInTx(bg, nil, func(ctx context.Context, tx bun.Tx) error {
			err := create(tx, "a")
			look("inside", tx)
			look("outside", db)
			return err
		}))
		look("committed", db)
		r.see("rolled back", db.RunInTx(bg, nil, func(ctx context.Context, tx bun.Tx) error {
			r.must(create(tx, "b"))
			_, err := tx.NewUpdate().Model((*bunOrder)(nil)).Set("price = 0").Where("TRUE").Exec(ctx)
			r.must(err)
			look("inside", tx)
			return wrong
		}))
		look("rolled back", db)
		r.see("nested", db.RunInTx(bg, nil, func(ctx context.Context, tx bun.Tx) error {
			r.must(create(tx, "c"))
			r.see("inner", tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				r.must(create(tx, "d"))
				r.see("innermost", tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return create(tx, "e") }))
				look("inner", tx)
				return wrong
			}))
			look("after inner", tx)
			r.see("duplicate", tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return create(tx, "a") }))
			look("after a duplicate", tx)
			return tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return create(tx, "f") })
		}))
		look("nested", db)
		r.see("failed", db.RunInTx(bg, nil, func(_ context.Context, tx bun.Tx) error {
			r.see("duplicate", create(tx, "a"))
			var n int
			r.see("after the failure", tx.NewSelect().Model((*bunUser)(nil)).ColumnExpr("count(*)").Scan(bg, &n))
			return nil
		}))
		look("failed", db)
		r.see("panicked", func() (v any) {
			defer func() { v = recover() }()
			return db.RunInTx(bg, nil, func(_ context.Context, tx bun.Tx) error {
				r.must(create(tx, "g"))
				panic("panic inside")
			})
		}())
		look("panicked", db)

		tx, err := db.BeginTx(bg, &sql.TxOptions{Isolation: sql.LevelSerializable})
		r.must(err)
		look("snapshot", tx)
		r.must(create(db, "h"))
		look("snapshot", tx)
		look("outside", db)
		r.see("rollback", tx.Rollback(), tx.Rollback())
		tx, err = db.BeginTx(bg, &sql.TxOptions{ReadOnly: true})
		r.must(err)
		look("read only", tx)
		r.see("read only", create(tx, "i"), tx.Commit())

		conn, err := db.Conn(bg)
		r.must(err)
		look("one connection", conn)
		r.see("one connection", conn.RunInTx(bg, nil, func(_ context.Context, tx bun.Tx) error { return create(tx, "j") }))
		look("one connection", conn)
		_, err = conn.ExecContext(bg, "SET TimeZone = 'Asia/Tokyo'")
		r.must(err)
		var born string
		r.inChangedSession(r.db, func() {
			for _, db := range []bun.IDB{conn, db} {
				r.see("in its zone", db.NewRaw("SELECT '2024-01-01 00:00:00+00'::timestamptz::text").Scan(bg, &born), born)
			}
		})
		_, err = conn.ExecContext(bg, "RESET TimeZone")
		r.see("close", err, conn.Close())
		renew(r.db)

		first := func(what string, db bun.IDB) {
			r.Helper()
			var u bunUser
			r.see(what, db.NewSelect().Model(&u).Order("id").Limit(1).For("UPDATE OF u SKIP LOCKED").Scan(bg), u.Name)
		}
		for range 2 {
			first("free", db)
			tx, err = db.BeginTx(bg, nil)
			r.must(err)
			first("locked", tx)
			first("skipped", db)
			var all []bunUser
			r.see("not waited for", db.NewSelect().Model(&all).For("SHARE NOWAIT").Scan(bg))
			_, err = tx.NewUpdate().Model((*bunUser)(nil)).Set("age = age + 1").Where("id = 1").Exec(bg)
			r.must(err)
			look("meanwhile", db)
			r.must(tx.Commit())
			look("committed", db)
		}
	})
}

// bunHooked has hooks that ask the database, and one that refuses.
type bunHooked struct {
	bun.BaseModel `bun:"table:hooked"`

	ID      int64 `bun:",pk,autoincrement"`
	Name    string
	Changed int64
	scanned bool
}

func (h *bunHooked) BeforeAppendModel(_ context.Context, q bun.Query) error {
	switch q.(type) {
	case *bun.InsertQuery:
		h.Name += "+"
	case *bun.UpdateQuery:
		h.Changed++
		if h.Name == "refused" {
			return errors.New("refused by the hook")
		}
	}
	return nil
}

func (h *bunHooked) AfterScanRow(context.Context) error {
	h.scanned = true
	return nil
}

// AfterInsert counts through the connection that inserted.
func (*bunHooked) AfterInsert(ctx context.Context, q *bun.InsertQuery) error {
	_, err := q.DB().NewRaw("INSERT INTO hook_log SELECT count(*) FROM hooked").Exec(ctx)
	return err
}

func (*bunHooked) BeforeSelect(_ context.Context, q *bun.SelectQuery) error {
	q.Where("name <> ?", "hidden+")
	return nil
}

func TestBunReportsErrorsAndRunsHooks(t *testing.T) {
	same(t, func(r *run) {
		db := bunOpen(r, r.db)
		bunSchema(r, bunQuiet(r.db))
		bunWorld(r, bunQuiet(r.db))
		count := func() {
			r.Helper()
			for range 2 {
				n, err := db.NewSelect().Model((*bunUser)(nil)).Count(bg)
				m, err2 := db.NewSelect().Model((*bunOrder)(nil)).Count(bg)
				r.see("counts", n, err, m, err2)
			}
		}
		fail := func(what string, _ sql.Result, err error) {
			r.Helper()
			r.see(what, err)
			count()
		}
		count()
		insert := func(model any) (sql.Result, error) { return db.NewInsert().Model(model).Exec(bg) }
		res, err := insert(&bunUser{Name: "x", Email: "u1@x.org"})
		fail("unique", res, err)
		res, err = insert(&[]bunUser{{Name: "x", Email: "new"}, {Name: "y", Email: "new"}})
		fail("unique in bulk", res, err)
		res, err = insert(&bunOrder{UserID: 99})
		fail("foreign key", res, err)
		res, err = insert(&bunOrder{UserID: 1, Price: -1})
		fail("check", res, err)
		res, err = db.NewRaw("INSERT INTO users (name) VALUES (NULL)").Exec(bg)
		fail("not null", res, err)
		for range 2 {
			var list []bunUser
			fail("no column", nil, db.NewSelect().Model(&list).Where("nocolumn = 1").Scan(bg))
			fail("no table", nil, db.NewSelect().Table("nowhere").Scan(bg, &list))
			fail("syntax", nil, db.NewRaw("SELEC 1").Scan(bg, &list))
			var n []int
			fail("division", nil, db.NewRaw("SELECT 1 / (id - 1) FROM users ORDER BY id DESC").Scan(bg, &n))
			fail("wrong type", nil, db.NewRaw("SELECT name FROM users").Scan(bg, &n))
			fail("unknown column", nil, db.NewRaw("SELECT id, 1 AS other FROM users").Scan(bg, &list))
		}
		gone, cancel := context.WithCancel(bg)
		cancel()
		var list []bunUser
		fail("cancelled", nil, db.NewSelect().Model(&list).Scan(gone))
		res, err = db.NewInsert().Model(&bunUser{Name: "x"}).Exec(gone)
		fail("cancelled insert", res, err)
		fail("cancelled transaction", nil, db.RunInTx(gone, nil, func(context.Context, bun.Tx) error { return nil }))

		r.exec(`CREATE TABLE hook_log (n bigint)`)
		_, err = db.NewCreateTable().Model((*bunHooked)(nil)).Exec(bg)
		r.must(err)
		look := func(after string) {
			r.Helper()
			var all []bunHooked
			r.see(after, db.NewSelect().Model(&all).Order("id").Scan(bg), all)
			var log []int64
			r.see(after, db.NewSelect().Table("hook_log").Column("n").Order("n").Scan(bg, &log), log)
		}
		look("nothing")
		for _, name := range []string{"a", "b", "hidden"} {
			r.see("insert", affected(insert(&bunHooked{Name: name})))
			look("insert")
		}
		r.see("update", affected(db.NewUpdate().Model(&bunHooked{ID: 1, Name: "c"}).WherePK().Exec(bg)))
		look("update")
		r.see("refused", affected(db.NewUpdate().Model(&bunHooked{ID: 1, Name: "refused"}).WherePK().Exec(bg)))
		look("refused")
	})
}

func bunMigrations(r *run) *migrate.Migrations {
	m := migrate.NewMigrations()
	r.must(m.Discover(fstest.MapFS{
		"20240101000000_items.up.sql":       {Data: []byte("CREATE TABLE items (id serial PRIMARY KEY, name text)\n--bun:split\nINSERT INTO items (name) VALUES ('first')\n")},
		"20240101000000_items.down.sql":     {Data: []byte("DROP TABLE items")},
		"20240102000000_codes.tx.up.sql":    {Data: []byte("ALTER TABLE items ADD code text DEFAULT 'none';\n--bun:split\nUPDATE items SET code = 'c' || id;")},
		"20240102000000_codes.tx.down.sql":  {Data: []byte("ALTER TABLE items DROP code")},
		"20240104000000_broken.tx.up.sql":   {Data: []byte("INSERT INTO items (name) VALUES ('broken');\n--bun:split\nINSERT INTO nowhere VALUES (1)")},
		"20240104000000_broken.tx.down.sql": {Data: []byte("DELETE FROM items WHERE name = 'broken'")},
	}))
	m.Add(migrate.Migration{
		Name: "20240103000000", Comment: "by_go",
		Up: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			var n int
			err := m.DB().NewSelect().Table("items").ColumnExpr("count(*)").Scan(ctx, &n)
			r.see("in the migration", n, err)
			_, err = m.DB().NewInsert().Model(&map[string]any{"name": fmt.Sprint("the ", n+1)}).TableExpr("items").Exec(ctx)
			return err
		},
		Down: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().NewDelete().Table("items").Where("name LIKE 'the %'").Exec(ctx)
			return err
		},
	})
	return m
}

func TestBunMigrates(t *testing.T) {
	same(t, func(r *run) {
		for _, opts := range [][]migrate.MigratorOption{{}, {migrate.WithMarkAppliedOnSuccess(true), migrate.WithUpsert(true), migrate.WithTableName("done"), migrate.WithLocksTableName("locked")}} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			db := bunOpen(r, r.db)
			m := migrate.NewMigrator(db, bunMigrations(r), opts...)
			look := func(after string) {
				r.Helper()
				status, err := m.MigrationsWithStatus(bg)
				r.see(after, err, status.String(), status.Applied().String(), status.Unapplied().String(), status.LastGroupID())
				applied, err := m.AppliedMigrations(bg)
				r.see(after, err, applied.String())
				missing, err := m.MissingMigrations(bg)
				r.see(after, err, missing.String())
				var rows []map[string]any
				r.see(after, db.NewSelect().Table("items").Order("id").Scan(bg, &rows), rows)
			}
			look("nothing")
			r.see("init", m.Init(bg), m.Init(bg))
			look("init")
			r.see("lock", m.Lock(bg))
			r.see("locked", migrate.NewMigrator(bunOpen(r, r.open()), bunMigrations(r), opts...).Lock(bg))
			for range 2 {
				group, err := m.Migrate(bg)
				r.see("migrate", group.String(), err)
				look("migrate")
			}
			for range 3 {
				group, err := m.Rollback(bg)
				r.see("rollback", group.String(), err)
				look("rollback")
			}
			group, err := m.Migrate(bg, migrate.WithNopMigration())
			r.see("marked only", group.String(), err)
			look("marked only")
			r.see("run one", m.RunMigration(bg, "20240101000000"))
			look("run one")
			r.see("unlock", m.Unlock(bg), m.Lock(bg), m.Unlock(bg))
			r.see("reset", m.Reset(bg))
			look("reset")
		}
	})
}

func TestBunMigratesByModels(t *testing.T) {
	same(t, func(r *run) {
		type Thing struct {
			bun.BaseModel `bun:"table:things"`

			ID   int64 `bun:",pk,autoincrement"`
			Name string
			Old  string
		}
		type Later struct {
			bun.BaseModel `bun:"table:things"`

			ID   int64 `bun:",pk,autoincrement"`
			Name string
			Code bool
		}
		db := bunOpen(r, r.db)
		look := func(after string) {
			r.Helper()
			var rows []map[string]any
			// The two columns that stay: which connection follows a migration
			// of bun's, and whether its plan is stale, varies.
			r.see(after, db.NewSelect().TableExpr("things").ColumnExpr("id, name").Order("id").Scan(bg, &rows), rows)
		}
		look("nothing")
		for _, model := range []any{(*Thing)(nil), (*Thing)(nil), (*Later)(nil), (*Later)(nil)} {
			// Quiet: bun makes columns and changes in no order.
			m, err := migrate.NewAutoMigrator(bunQuiet(r.db), migrate.WithModel(model), migrate.WithMigrationsDirectoryAuto(r.TempDir()))
			r.must(err)
			_, err = m.Migrate(bg)
			r.see("migrate", err)
			look("migrate")
			_, err = db.NewInsert().Model(&map[string]any{"name": "x"}).TableExpr("things").Exec(bg)
			r.see("insert", err)
			look("insert")
			look("nothing")
		}
		r.see("add column", affected(db.NewAddColumn().Model((*Later)(nil)).ColumnExpr("additional int DEFAULT 7").IfNotExists().Exec(bg)))
		rows := func(after string) {
			r.Helper()
			for range 2 {
				rows, err := db.QueryContext(bg, "SELECT additional FROM things ORDER BY id")
				r.rows(after, rows, err)
			}
		}
		rows("add column")
		r.see("drop column", affected(db.NewDropColumn().Model((*Later)(nil)).Column("additional").Exec(bg)))
		rows("drop column")
		r.see("create index", affected(db.NewCreateIndex().Model((*Later)(nil)).Index("things_name").Column("name").Exec(bg)))
		r.see("drop index", affected(db.NewDropIndex().Model((*Later)(nil)).Index("things_name").Exec(bg)))
		look("indexed")
		r.see("drop table", affected(db.NewDropTable().Model((*Later)(nil)).IfExists().Cascade().Exec(bg)))
		look("dropped")
		look("dropped")
		// Their ids are in the order of the changes.
		r.exec(`DROP TABLE bun_migrations`)
	})
}

func TestBunReadsAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.db.SetMaxOpenConns(8)
		db := bunQuiet(r.db)
		bunSchema(r, db)
		bunWorld(r, db)
		read := func() (any, error) {
			var all []bunUser
			err := db.NewSelect().Model(&all).Relation("Profile").Relation("Orders", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Order("o.id") }).
				Relation("Groups", func(q *bun.SelectQuery) *bun.SelectQuery { return q.OrderExpr("g.id") }).Order("u.id").Scan(bg)
			if err != nil {
				return nil, err
			}
			n, err := db.NewSelect().Model((*bunUser)(nil)).Where("age > ?", 21).Count(bg)
			if err != nil {
				return nil, err
			}
			one := bunUser{ID: 3}
			err = db.NewSelect().Model(&one).WherePK().Scan(bg)
			return []any{all, n, one}, err
		}
		const readers, texts = 30, 5
		before := coalesce.StatsOf(r.db)
		saw := make([]any, readers)
		atOnce(r, readers, func(i int) (err error) {
			saw[i], err = read()
			return err
		})
		after := coalesce.StatsOf(r.db)
		for _, v := range saw[1:] {
			if !reflect.DeepEqual(v, saw[0]) {
				r.Fatalf("two readers saw\n%s\nand\n%s", printer.Sdump(saw[0]), printer.Sdump(v))
			}
		}
		r.see("read at once", saw[0])
		if led, private := after.Led-before.Led, after.Private-before.Private; r.shares() && (led != texts || private != 0) {
			r.Errorf("of %d reads, %d were led and %d private; want %d and 0 (%+v)", after.Reads-before.Reads, led, private, texts, after)
		}

		atOnce(r, 6, func(i int) error {
			id := int64(i + 1)
			for n := 1; n < 6; n++ {
				err := db.RunInTx(bg, nil, func(ctx context.Context, tx bun.Tx) error {
					if _, err := tx.NewUpdate().Model((*bunUser)(nil)).Set("age = ?", n).Where("id = ?", id).Exec(ctx); err != nil {
						return err
					}
					_, err := tx.NewInsert().Model(&bunOrder{UserID: id, Item: "at once"}).Exec(ctx)
					return err
				})
				if err != nil {
					return err
				}
				u := bunUser{ID: id}
				if err := db.NewSelect().Model(&u).Relation("Orders").WherePK().Scan(bg); err != nil {
					return err
				}
				if u.Age != n || len(u.Orders) != i+n {
					return fmt.Errorf("user %d has age %d and %d orders after change %d", id, u.Age, len(u.Orders), n)
				}
				if _, err := read(); err != nil {
					return err
				}
			}
			return nil
		})
		var all []bunUser
		r.see("written at once", db.NewSelect().Model(&all).Order("id").Scan(bg), all)
		// The orders are numbered in the order of who came first.
		r.exec(`UPDATE orders SET id = -id`, `UPDATE orders o SET id = n FROM
			(SELECT id, row_number() OVER (ORDER BY user_id, item, id DESC) n FROM orders) x WHERE x.id = o.id`)
	})
}
