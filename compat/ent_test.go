package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/dialect/sql/sqljson"
	"github.com/google/uuid"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/card"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/group"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/hook"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/pet"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/predicate"
	_ "github.com/coalesce-pgx/coalesce/compat/internal/ent/runtime"
	"github.com/coalesce-pgx/coalesce/compat/internal/ent/user"
)

// entVaries is what differs in ent's log each time: the names of transactions,
// and the order of the ids in the arguments.
var entVaries = regexp.MustCompile(`\([0-9a-f-]{36}\)|args=(?s:.*)`)

// entOpen opens a client that tells what it sends.
func entOpen(r *run, db *sql.DB) *ent.Client {
	drv := dialect.DebugWithContext(entsql.OpenDB(dialect.Postgres, db), func(_ context.Context, v ...any) {
		r.see(entVaries.ReplaceAllString(fmt.Sprint(v...), ""))
	})
	return ent.NewClient(ent.Driver(drv))
}

// entQuiet opens a client for use from several goroutines.
func entQuiet(db *sql.DB) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db)))
}

// seeEnt records the outcome of a call.
func seeEnt[T any](r *run, what string, v T, err error) T {
	r.Helper()
	if err == nil {
		r.see(what, shown(v))
		return v
	}
	r.see(what, err)
	r.see(what, ent.IsNotFound(err), ent.IsConstraintError(err), ent.IsValidationError(err), ent.IsNotSingular(err), ent.IsNotLoaded(err))
	return v
}

// shown makes entities readable: they refer to their client.
func shown(v any) any {
	switch v := v.(type) {
	case *ent.User:
		return showUser(v)
	case []*ent.User:
		return showAll(v, showUser)
	case []*ent.Pet:
		return showAll(v, showPet)
	case *ent.Pet:
		return showPet(v)
	case []*ent.Group:
		return showAll(v, showGroup)
	case *ent.Group:
		return showGroup(v)
	case []*ent.Card:
		return showAll(v, showCard)
	case *ent.Card:
		return showCard(v)
	}
	return v
}

func showAll[T any](list []T, show func(T) []any) [][]any {
	out := make([][]any, len(list))
	for i, v := range list {
		out[i] = show(v)
	}
	return out
}

func showUser(u *ent.User) []any {
	if u == nil {
		return nil
	}
	out := []any{u.ID, u.Name, u.Email, u.Age, u.Role, u.Settings, u.Tags, u.Active, u.Balance, u.Picture, u.Token, u.SeenAt, u.Born,
		u.Version, u.Note, u.CreateTime, u.UpdateTime}
	if c, err := u.Edges.CardOrErr(); err == nil {
		out = append(out, "card", showCard(c))
	}
	if p, err := u.Edges.PetsOrErr(); err == nil {
		out = append(out, "pets", showAll(p, showPet))
	}
	if g, err := u.Edges.GroupsOrErr(); err == nil {
		out = append(out, "groups", showAll(g, showGroup))
	}
	if f, err := u.Edges.FriendsOrErr(); err == nil {
		names := make([]string, len(f))
		for i, friend := range f {
			names[i] = friend.Name
		}
		out = append(out, "friends", names)
	}
	if s, err := u.Edges.SpouseOrErr(); err == nil {
		out = append(out, "spouse", s.Name)
	}
	if m, err := u.Edges.ManagerOrErr(); err == nil {
		out = append(out, "manager", m.Name)
	}
	return out
}

func showPet(p *ent.Pet) []any {
	if p == nil {
		return nil
	}
	out := []any{p.ID, p.Name, p.Kind}
	if o, err := p.Edges.OwnerOrErr(); err == nil {
		out = append(out, "owner", o.Name)
	}
	return out
}

func showGroup(g *ent.Group) []any {
	if g == nil {
		return nil
	}
	out := []any{g.ID, g.Name, g.Size}
	if us, err := g.Edges.UsersOrErr(); err == nil {
		out = append(out, "users", showAll(us, showUser))
	}
	return out
}

func showCard(c *ent.Card) []any {
	if c == nil {
		return nil
	}
	return []any{c.ID, c.Issued, c.Limit}
}

// entToken gives each user a token that is the same in each run.
func entToken(i int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, i)) }

func entUsers(c *ent.Client, n int) []*ent.UserCreate {
	list := make([]*ent.UserCreate, n)
	for i := range list {
		list[i] = c.User.Create().SetName(fmt.Sprintf("user%02d", i)).SetEmail(fmt.Sprintf("u%d@x.org", i)).SetAge(20 + i%4).
			SetRole([]user.Role{user.RoleMember, user.RoleEditor}[i%2]).SetTags([]string{"t", fmt.Sprint(i)}).SetToken(entToken(i)).
			SetBalance(float64(i) / 4)
	}
	return list
}

func TestEntMigrates(t *testing.T) {
	same(t, func(r *run) {
		c := entOpen(r, r.db)
		look := func(after string) {
			r.Helper()
			us, err := c.User.Query().Order(user.ByID()).All(bg)
			seeEnt(r, after, us, err)
			n, err := c.Pet.Query().Count(bg)
			seeEnt(r, after, n, err)
		}
		look("nothing")
		for range 2 {
			r.see("migrate", c.Schema.Create(bg))
			look("migrate")
		}
		_, err := c.User.CreateBulk(entUsers(c, 2)...).Save(bg)
		r.see("create", err)
		look("create")

		// What an earlier version of the program left.
		r.exec(`DROP INDEX user_role_age`, `ALTER TABLE users DROP COLUMN note`, `ALTER TABLE users ADD COLUMN old text DEFAULT 'old'`,
			`ALTER TABLE users ALTER COLUMN name TYPE varchar(10)`, `DROP TABLE group_users, groups`,
			`CREATE INDEX user_old ON users (old)`, `ALTER TABLE pets DROP CONSTRAINT pets_users_pets`)
		look("earlier")
		look("earlier")
		r.see("migrate", c.Schema.Create(bg))
		look("migrate")
		look("migrate")
		r.see("migrate, dropping", c.Schema.Create(bg, entschema.WithDropColumn(true), entschema.WithDropIndex(true), entschema.WithForeignKeys(true)))
		look("migrate, dropping")
		look("migrate, dropping")
		r.see("migrate", c.Schema.Create(bg, entschema.WithDropColumn(true), entschema.WithDropIndex(true)))
		_, err = c.User.CreateBulk(entUsers(c, 4)[2:]...).Save(bg)
		r.see("create", err)
		look("create")

		tx, err := c.Tx(bg)
		r.must(err)
		r.see("in a transaction", tx.User.Create().SetName("inside").Exec(bg), tx.Rollback())
		look("rolled back")
	})
}

func TestEntCreatesReadsUpdatesDeletes(t *testing.T) {
	same(t, func(r *run) {
		for _, db := range []*sql.DB{r.db, r.open("default_query_exec_mode=simple_protocol"), r.open("default_query_exec_mode=exec", "TimeZone=Asia/Tokyo")} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			r.must(entQuiet(db).Schema.Create(bg))
			entCRUD(r, entOpen(r, db))
			if r.shares() && db != r.db {
				r.Logf("%+v", coalesce.StatsOf(db))
			}
		}
	})
}

func entCRUD(r *run, c *ent.Client) {
	look := func(after string) {
		r.Helper()
		for range 2 {
			us, err := c.User.Query().Order(user.ByID()).All(bg)
			seeEnt(r, after, us, err)
		}
		first, err := c.User.Query().Order(ent.Desc(user.FieldVersion), user.ByName()).First(bg)
		seeEnt(r, after, first, err)
		n, err := c.User.Query().Where(user.AgeGT(20)).Count(bg)
		seeEnt(r, after, n, err)
		is, err := c.User.Query().Where(user.Name("ann")).Exist(bg)
		seeEnt(r, after, is, err)
	}
	look("nothing")
	at := time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.FixedZone("", 3600))
	u, err := c.User.Create().SetName("ann").SetEmail("ann@x.org").SetAge(40).SetRole(user.RoleOwner).
		SetSettings(map[string]any{"a": []any{1, "b", nil}, "deep": map[string]any{"k": true}}).SetTags([]string{"x", "y z"}).
		SetPicture([]byte{0, 1, 0xff}).SetToken(entToken(100)).SetSeenAt(at).SetBorn(at).SetBalance(12.5).SetNote("today").Save(bg)
	seeEnt(r, "create", u, err)
	look("create")
	loaded, err := c.User.Get(bg, u.ID)
	seeEnt(r, "get", loaded, err)
	us, err := c.User.CreateBulk(entUsers(c, 6)...).Save(bg)
	seeEnt(r, "create bulk", us, err)
	look("create bulk")
	us, err = c.User.MapCreateBulk([]string{"p", "q"}, func(uc *ent.UserCreate, i int) { uc.SetName([]string{"p", "q"}[i]) }).Save(bg)
	seeEnt(r, "map create bulk", us, err)
	look("map create bulk")

	// The id of the one loaded is read again after each of its changes.
	again := func(what string, changed *ent.User, err error) {
		r.Helper()
		seeEnt(r, what, changed, err)
		now, err := c.User.Get(bg, u.ID)
		seeEnt(r, what+": get", now, err)
		only, err := c.User.Query().Where(user.IDEQ(u.ID)).Only(bg)
		seeEnt(r, what+": only", only, err)
	}
	up, err := loaded.Update().SetName("bob").AddAge(1).ClearPicture().Save(bg)
	again("update", up, err)
	up, err = c.User.UpdateOneID(u.ID).AppendTags([]string{"z"}).SetSettings(map[string]any{"b": 2}).ClearSeenAt().Save(bg)
	again("update by id", up, err)
	up, err = c.User.UpdateOneID(u.ID).Where(user.Version(1)).AddVersion(1).SetBalance(1).Save(bg)
	again("optimistic", up, err)
	up, err = c.User.UpdateOneID(u.ID).Where(user.Version(1)).AddVersion(1).SetBalance(2).Save(bg)
	again("optimistic, too late", up, err)
	n, err := c.User.Update().Where(user.AgeLT(22)).SetActive(false).AddAge(10).Save(bg)
	seeEnt(r, "update many", n, err)
	look("update many")
	n, err = c.User.Update().Where(user.RoleEQ(user.RoleEditor)).Modify(func(u *entsql.UpdateBuilder) {
		u.Set(user.FieldName, entsql.Expr("upper(name)")).Add(user.FieldVersion, 5)
	}).Save(bg)
	seeEnt(r, "modify", n, err)
	look("modify")
	up, err = c.User.UpdateOneID(u.ID).SetName("").Save(bg)
	again("not valid", up, err)

	id, err := c.User.Create().SetName("new").SetEmail("ann@x.org").SetAge(1).OnConflictColumns(user.FieldEmail).UpdateNewValues().ID(bg)
	seeEnt(r, "upsert", id, err)
	again("upsert", nil, nil)
	id, err = c.User.Create().SetName("newer").SetEmail("ann@x.org").OnConflict(entsql.ConflictColumns(user.FieldEmail)).
		Update(func(s *ent.UserUpsert) { s.SetNote("upserted").AddVersion(1).UpdateName() }).ID(bg)
	seeEnt(r, "upsert some", id, err)
	again("upsert some", nil, nil)
	err = c.User.CreateBulk(c.User.Create().SetName("i").SetEmail("ann@x.org"), c.User.Create().SetName("j").SetEmail("j@x.org")).
		OnConflictColumns(user.FieldEmail).Ignore().Exec(bg)
	r.see("upsert bulk", err)
	look("upsert bulk")
	err = c.User.Create().SetName("k").SetEmail("j@x.org").OnConflictColumns(user.FieldEmail).DoNothing().Exec(bg)
	r.see("upsert nothing", err, errors.Is(err, sql.ErrNoRows))
	look("upsert nothing")

	r.see("delete one", c.User.DeleteOneID(u.ID).Exec(bg))
	again("delete one", nil, nil)
	r.see("delete one", c.User.DeleteOneID(u.ID).Exec(bg))
	n, err = c.User.Delete().Where(user.NameHasPrefix("user"), user.Not(user.NameContainsFold("R02"))).Exec(bg)
	seeEnt(r, "delete", n, err)
	look("delete")
	res, err := c.ExecContext(bg, `INSERT INTO users (name, create_time, update_time, age, role, active, balance, version)
		SELECT 'raw' || g, $1, $1, g, 'member', true, 0, 1 FROM generate_series(1, 2) g`, at)
	r.must(err)
	affected, err := res.RowsAffected()
	r.see("raw", affected, err)
	look("raw")
	rows, err := c.QueryContext(bg, `UPDATE users SET age = age + 1 WHERE name LIKE 'raw%' RETURNING id, age`)
	r.rows("raw query", rows, err)
	look("raw query")
	for range 2 {
		rows, err = c.QueryContext(bg, `SELECT id, name, role, balance, settings, create_time FROM users ORDER BY id`)
		r.rows("raw read", rows, err)
	}
}

// entWorld has two groups of six users, with cards and pets.
func entWorld(r *run, c *ent.Client) []*ent.User {
	r.Helper()
	us, err := c.User.CreateBulk(entUsers(c, 6)...).Save(bg)
	r.must(err)
	for i, u := range us {
		if i%2 == 0 {
			r.must(c.Card.Create().SetID(fmt.Sprint("card", i)).SetOwner(u).Exec(bg))
		}
		for j := range i % 3 {
			r.must(c.Pet.Create().SetName(fmt.Sprint("pet", j)).SetKind(pet.KindCat).SetOwner(u).Exec(bg))
		}
	}
	r.must(c.Pet.Create().SetName("stray").Exec(bg))
	r.must(c.Group.Create().SetName("even").AddUsers(us[0], us[2], us[4]).Exec(bg))
	r.must(c.Group.Create().SetName("all").AddUsers(us...).Exec(bg))
	r.must(us[0].Update().AddFriends(us[1], us[2]).SetSpouse(us[3]).Exec(bg))
	r.must(us[0].Update().AddReports(us[4], us[5]).Exec(bg))
	return us
}

func TestEntFollowsEdges(t *testing.T) {
	same(t, func(r *run) {
		r.must(entQuiet(r.db).Schema.Create(bg))
		c := entOpen(r, r.db)
		us := entWorld(r, c)
		look := func(after string) {
			r.Helper()
			all, err := c.User.Query().Order(user.ByID()).WithCard().WithPets(func(q *ent.PetQuery) { q.Order(pet.ByID(entsql.OrderDesc())).WithOwner() }).
				WithGroups(func(q *ent.GroupQuery) { q.Where(group.NameNEQ("none")).Order(group.ByID()) }).
				WithFriends(func(q *ent.UserQuery) { q.Order(user.ByID()) }).WithSpouse().WithManager().All(bg)
			seeEnt(r, after+": all", all, err)
			pets, err := c.User.Query().Where(user.HasPets()).QueryPets().Where(pet.KindEQ(pet.KindCat)).Order(pet.ByID()).All(bg)
			seeEnt(r, after+": pets", pets, err)
			cards, err := c.Card.Query().Where(card.HasOwnerWith(user.AgeGTE(20), user.HasGroupsWith(group.Name("even")))).Order(card.ByID()).All(bg)
			seeEnt(r, after+": cards", cards, err)
			names, err := c.Group.Query().Where(group.Name("even")).QueryUsers().QueryFriends().Order(user.ByName()).Select(user.FieldName).Strings(bg)
			seeEnt(r, after+": friends", names, err)
			boss, err := us[4].QueryManager().OnlyID(bg)
			seeEnt(r, after+": manager", boss, err)
			reports, err := us[0].QueryReports().Order(user.ByID()).IDs(bg)
			seeEnt(r, after+": reports", reports, err)
			owner, err := c.Pet.Query().Where(pet.Name("stray")).QueryOwner().Exist(bg)
			seeEnt(r, after+": owner", owner, err)
			most, err := c.User.Query().Order(user.ByPetsCount(entsql.OrderDesc()), user.ByID()).Limit(2).IDs(bg)
			seeEnt(r, after+": most pets", most, err)
			limited, err := c.Group.Query().Order(group.ByID()).WithUsers(func(q *ent.UserQuery) { q.Order(user.ByID()).Limit(2) }).All(bg)
			seeEnt(r, after+": groups", limited, err)
		}
		look("made")
		look("nothing")
		evens, err := c.Group.Query().Where(group.Name("even")).Only(bg)
		r.must(err)
		steps := []struct {
			name string
			do   func() error
		}{
			{"remove users", func() error { return evens.Update().RemoveUsers(us[0]).AddUsers(us[1]).Exec(bg) }},
			{"clear friends", func() error { return us[0].Update().ClearFriends().Exec(bg) }},
			{"add friends", func() error { return us[1].Update().AddFriends(us[4], us[5]).Exec(bg) }},
			{"marry again", func() error { return us[1].Update().SetSpouse(us[2]).Exec(bg) }},
			{"clear spouse", func() error { return us[0].Update().ClearSpouse().Exec(bg) }},
			{"replace card", func() error {
				return c.Card.Create().SetID("late").SetOwner(us[1]).SetLimit(5).Exec(bg)
			}},
			{"a card too many", func() error { return c.Card.Create().SetID("later").SetOwner(us[1]).Exec(bg) }},
			{"give pet", func() error { return c.Pet.Update().Where(pet.Name("stray")).SetOwner(us[0]).Exec(bg) }},
			{"same pet", func() error { return us[2].Update().AddPetIDs(1).Exec(bg) }},
			{"remove pets", func() error { return us[5].Update().ClearPets().Exec(bg) }},
			{"new manager", func() error { return us[1].Update().AddReports(us[4]).ClearManager().Exec(bg) }},
			{"no manager", func() error { return us[4].Update().ClearManager().Exec(bg) }},
			// By the foreign keys, which no statement names.
			{"delete user", func() error { return c.User.DeleteOne(us[2]).Exec(bg) }},
			{"delete group", func() error { _, err := c.Group.Delete().Where(group.Name("all")).Exec(bg); return err }},
		}
		for _, s := range steps {
			err := s.do()
			seeEnt(r, s.name, 0, err)
			look(s.name)
		}
	})
}

func TestEntQueries(t *testing.T) {
	same(t, func(r *run) {
		r.must(entQuiet(r.db).Schema.Create(bg))
		c := entOpen(r, r.db)
		entWorld(r, c)
		look := func(after string) {
			r.Helper()
			var groups []struct {
				Role  user.Role `json:"role"`
				Age   int       `json:"age"`
				Count int       `json:"count"`
				Sum   float64   `json:"sum"`
				Max   int       `json:"max"`
				Min   int       `json:"min"`
				Mean  float64   `json:"avg"`
			}
			err := c.User.Query().Order(user.ByRole(), user.ByAge()).GroupBy(user.FieldRole, user.FieldAge).Aggregate(
				ent.Count(), ent.Sum(user.FieldBalance), ent.Max(user.FieldVersion), ent.Min(user.FieldVersion), ent.Mean(user.FieldAge)).Scan(bg, &groups)
			seeEnt(r, after+": group by", groups, err)
			sum, err := c.User.Query().Aggregate(ent.Sum(user.FieldAge)).Int(bg)
			seeEnt(r, after+": sum", sum, err)
			var many []struct {
				Name string
				N    int `sql:"n"`
			}
			err = c.User.Query().Modify(func(s *entsql.Selector) {
				t := entsql.Table(pet.Table)
				s.LeftJoin(t).On(s.C(user.FieldID), t.C(pet.OwnerColumn)).GroupBy(s.C(user.FieldName)).OrderBy(s.C(user.FieldName)).
					Select(s.C(user.FieldName), entsql.As(entsql.Count(t.C(pet.FieldID)), "n")).Having(entsql.GT(entsql.Count(t.C(pet.FieldID)), 0))
			}).Scan(bg, &many)
			seeEnt(r, after+": having", many, err)
			for page := range 3 {
				us, err := c.User.Query().Order(user.ByName(entsql.OrderDesc())).Offset(page * 2).Limit(2).All(bg)
				seeEnt(r, fmt.Sprint(after, ": page ", page), us, err)
			}
			last := 0
			for {
				ids, err := c.User.Query().Where(user.IDGT(last)).Order(user.ByID()).Limit(4).IDs(bg)
				seeEnt(r, after+": cursor", ids, err)
				if len(ids) == 0 {
					break
				}
				last = ids[len(ids)-1]
			}
			where := []predicate.User{
				user.AgeIn(20, 22), user.NameHasSuffix("5"), user.EmailContains("u1"), user.SeenAtIsNil(), user.RoleIn(user.RoleEditor),
				user.Or(user.NameEQ("user00"), user.And(user.AgeGT(21), user.BalanceLTE(1))), user.Token(entToken(2)), user.HasSpouse(),
				user.CreateTimeGT(r.start.Add(-time.Hour)), user.Not(user.HasPetsWith(pet.Name("pet1"))), user.NameEqualFold("USER03"),
				func(s *entsql.Selector) { s.Where(sqljson.ValueContains(user.FieldTags, "3")) },
				func(s *entsql.Selector) {
					s.Where(sqljson.ValueEQ(user.FieldSettings, 2, sqljson.DotPath("a.b")))
				},
				func(s *entsql.Selector) { s.Where(sqljson.LenGT(user.FieldTags, 1)) },
				func(s *entsql.Selector) {
					t := entsql.Table(pet.Table)
					s.Where(entsql.In(s.C(user.FieldID), entsql.Select(t.C(pet.OwnerColumn)).From(t).Where(entsql.NotNull(t.C(pet.OwnerColumn)))))
				},
			}
			for i, p := range where {
				ids, err := c.User.Query().Where(p).Order(user.ByID()).IDs(bg)
				seeEnt(r, fmt.Sprint(after, ": where ", i), ids, err)
			}
			distinct, err := c.User.Query().Unique(true).Order(user.ByRole()).Select(user.FieldRole).Strings(bg)
			seeEnt(r, after+": distinct", distinct, err)
			var part []struct {
				Name string    `json:"name"`
				At   time.Time `json:"create_time"`
			}
			err = c.User.Query().Order(user.ByID()).Select(user.FieldName, user.FieldCreateTime).Scan(bg, &part)
			seeEnt(r, after+": select", part, err)
			none, err := c.User.Query().Where(user.Name("nobody")).Only(bg)
			seeEnt(r, after+": none", none, err)
			several, err := c.User.Query().Where(user.AgeLT(99)).Only(bg)
			seeEnt(r, after+": several", several, err)
			late, err := c.User.Query().Where(func(s *entsql.Selector) { s.Where(entsql.ExprP("update_time <= now()")) }).Count(bg)
			seeEnt(r, after+": by now", late, err)
			bad, err := c.User.Query().Where(func(s *entsql.Selector) { s.Where(entsql.ExprP("nocolumn = 1")) }).Count(bg)
			seeEnt(r, after+": bad", bad, err)
		}
		look("made")
		look("nothing")
		n, err := c.User.Update().Where(user.AgeEQ(20)).SetRole(user.RoleOwner).SetSettings(map[string]any{"a": map[string]any{"b": 2}}).AddVersion(1).Save(bg)
		seeEnt(r, "update", n, err)
		look("update")
		n, err = c.Pet.Delete().Where(pet.HasOwnerWith(user.AgeGT(21))).Exec(bg)
		seeEnt(r, "delete", n, err)
		look("delete")
	})
}

func TestEntTransactsAndLocks(t *testing.T) {
	same(t, func(r *run) {
		r.must(entQuiet(r.db).Schema.Create(bg))
		c := entOpen(r, r.db)
		entWorld(r, c)
		look := func(what string, c *ent.UserClient) {
			r.Helper()
			us, err := c.Query().Order(user.ByID()).WithPets(func(q *ent.PetQuery) { q.Order(pet.ByID()) }).All(bg)
			seeEnt(r, what, us, err)
		}
		for _, end := range []func(*ent.Tx) error{(*ent.Tx).Rollback, (*ent.Tx).Commit} {
			look("before", c.User)
			tx, err := c.Tx(bg)
			r.must(err)
			u, err := tx.User.Create().SetName("inside").Save(bg)
			seeEnt(r, "create", u, err)
			look("inside", tx.User)
			look("outside", c.User)
			r.see("pet", tx.Pet.Create().SetName("hen").SetOwner(u).Exec(bg))
			n, err := tx.User.Update().Where(user.AgeGT(20)).AddAge(1).Save(bg)
			seeEnt(r, "update", n, err)
			look("inside", tx.User)
			tx.OnCommit(func(next ent.Committer) ent.Committer {
				return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
					look("before the commit", tx.User)
					err := next.Commit(ctx, tx)
					look("after the commit", c.User)
					return err
				})
			})
			tx.OnRollback(func(next ent.Rollbacker) ent.Rollbacker {
				return ent.RollbackFunc(func(ctx context.Context, tx *ent.Tx) error {
					err := next.Rollback(ctx, tx)
					look("after the rollback", c.User)
					return err
				})
			})
			r.see("end", end(tx))
			look("ended", c.User)
			r.see("ended twice", end(tx))
			r.see("pet of the one inside", u.Unwrap().QueryPets().CountX(bg))
		}

		tx, err := c.BeginTx(bg, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		r.must(err)
		look("snapshot", tx.User)
		r.must(c.User.UpdateOneID(1).AddVersion(1).Exec(bg))
		look("snapshot", tx.User)
		look("outside", c.User)
		r.see("conflict", tx.User.UpdateOneID(1).AddVersion(1).Exec(bg))
		seeEnt(r, "failed", 0, tx.Pet.Create().SetName("x").Exec(bg))
		r.see("rollback", tx.Rollback())
		look("rolled back", c.User)
		tx, err = c.BeginTx(bg, &sql.TxOptions{ReadOnly: true})
		r.must(err)
		look("read only", tx.User)
		seeEnt(r, "read only", 0, tx.User.UpdateOneID(1).AddVersion(1).Exec(bg))
		r.see("rollback", tx.Rollback())

		free := func(what string, c *ent.UserClient) {
			r.Helper()
			u, err := c.Query().Order(user.ByID()).Limit(1).ForUpdate(entsql.WithLockAction(entsql.SkipLocked)).All(bg)
			seeEnt(r, what, u, err)
		}
		for range 2 {
			free("free", c.User)
			tx, err = c.Tx(bg)
			r.must(err)
			free("locked", tx.User)
			free("skipped", c.User)
			us, err := c.User.Query().Order(user.ByID()).ForShare(entsql.WithLockAction(entsql.NoWait), entsql.WithLockTables(user.Table)).All(bg)
			seeEnt(r, "not waited for", us, err)
			r.see("taken", tx.User.UpdateOneID(1).AddVersion(1).Exec(bg))
			look("meanwhile", c.User)
			r.see("commit", tx.Commit())
			look("committed", c.User)
		}

		gone, cancel := context.WithCancel(bg)
		cancel()
		_, err = c.Tx(gone)
		r.see("cancelled", err)
		_, err = c.User.Query().All(gone)
		seeEnt(r, "cancelled", 0, err)
		seeEnt(r, "cancelled", 0, c.User.Create().SetName("gone").Exec(gone))
		look("cancelled", c.User)
	})
}

func TestEntReportsErrorsAndRunsHooks(t *testing.T) {
	same(t, func(r *run) {
		r.must(entQuiet(r.db).Schema.Create(bg))
		c := entOpen(r, r.db)
		us := entWorld(r, c)
		count := func(after string) {
			r.Helper()
			for range 2 {
				n, err := c.User.Query().Count(bg)
				seeEnt(r, after, n, err)
				names, err := c.Pet.Query().Order(pet.ByID()).Select(pet.FieldName).Strings(bg)
				seeEnt(r, after, names, err)
			}
		}
		fail := func(what string, err error) {
			r.Helper()
			seeEnt(r, what, 0, err)
			count(what)
		}
		count("made")
		fail("unique", c.User.Create().SetName("x").SetEmail("u1@x.org").Exec(bg))
		fail("unique in bulk", c.User.CreateBulk(c.User.Create().SetName("x"), c.User.Create().SetName("y").SetEmail("u1@x.org")).Exec(bg))
		fail("unique in an update", us[0].Update().SetEmail("u1@x.org").Exec(bg))
		fail("unique key", c.Card.Create().SetID("card0").SetOwner(us[1]).Exec(bg))
		fail("unique index", c.Pet.Create().SetName("pet0").SetOwner(us[1]).Exec(bg))
		fail("foreign key", c.Pet.Create().SetName("x").SetOwnerID(999).Exec(bg))
		fail("edge", us[0].Update().AddFriendIDs(999).Exec(bg))
		fail("edge twice", us[0].Update().AddFriends(us[1]).Exec(bg))
		fail("required edge", c.Card.Create().SetID("x").Exec(bg))
		fail("too long", c.User.Create().SetName(fmt.Sprintf("%061d", 0)).Exec(bg))
		fail("not one of", c.User.Create().SetName("x").SetRole("king").Exec(bg))
		fail("hook of the schema", c.Pet.Create().SetName("nobody").Exec(bg))
		fail("not there", c.User.UpdateOneID(999).SetName("x").Exec(bg))

		// This hook asks the database before and after.
		c.Pet.Use(func(next ent.Mutator) ent.Mutator {
			return hook.PetFunc(func(ctx context.Context, m *ent.PetMutation) (ent.Value, error) {
				ids, err := m.IDs(ctx)
				seeEnt(r, "ids", ids, err)
				count("before " + m.Op().String())
				if m.Op().Is(ent.OpUpdateOne) {
					name, err := m.OldName(ctx)
					seeEnt(r, "old name", name, err)
				}
				v, err := next.Mutate(ctx, m)
				count("after " + m.Op().String())
				return v, err
			})
		})
		c.User.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
				v, err := next.Query(ctx, q)
				if list, ok := v.([]*ent.User); ok {
					r.see("intercepted", len(list))
				}
				return v, err
			})
		}))
		p, err := c.Pet.Create().SetName("hooked").SetOwner(us[0]).Save(bg)
		seeEnt(r, "create", p, err)
		p, err = p.Update().SetName("again").Save(bg)
		seeEnt(r, "update", p, err)
		n, err := c.Pet.Update().Where(pet.NameHasPrefix("pet")).SetKind(pet.KindDog).Save(bg)
		seeEnt(r, "update many", n, err)
		owner, err := p.QueryOwner().WithPets().Only(bg)
		seeEnt(r, "owner", owner, err)
		seeEnt(r, "delete", 0, c.Pet.DeleteOne(p).Exec(bg))
		left, err := c.User.Query().Order(user.ByID()).All(bg)
		seeEnt(r, "left", left, err)
	})
}

func TestEntReadsAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.db.SetMaxOpenConns(8)
		c := entQuiet(r.db)
		r.must(c.Schema.Create(bg))
		us := entWorld(r, c)
		read := func() (any, error) {
			all, err := c.User.Query().Order(user.ByID()).WithCard().WithPets(func(q *ent.PetQuery) { q.Order(pet.ByID()) }).All(bg)
			if err != nil {
				return nil, err
			}
			n, err := c.User.Query().Where(user.HasPets()).Count(bg)
			if err != nil {
				return nil, err
			}
			one, err := c.User.Get(bg, us[3].ID)
			return []any{shown(all), n, shown(one)}, err
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

		atOnce(r, len(us), func(i int) error {
			for n := 1; n < 6; n++ {
				p, err := c.Pet.Create().SetName(fmt.Sprint("at once ", n)).Save(bg)
				if err != nil {
					return err
				}
				if err := c.User.UpdateOneID(us[i].ID).AddVersion(1).AddPets(p).Exec(bg); err != nil {
					return err
				}
				u, err := c.User.Query().Where(user.IDEQ(us[i].ID)).WithPets().Only(bg)
				if err != nil {
					return err
				}
				if want := int64(1 + n); u.Version != want || len(u.Edges.Pets) != i%3+n {
					return fmt.Errorf("user %d has version %d and %d pets after change %d", u.ID, u.Version, len(u.Edges.Pets), n)
				}
				if _, err := read(); err != nil {
					return err
				}
				again, err := c.User.Get(bg, us[i].ID)
				if err != nil || again.Version != u.Version {
					return fmt.Errorf("user %d: %v, %w", us[i].ID, again, err)
				}
			}
			return nil
		})
		all, err := c.User.Query().Order(user.ByID()).All(bg)
		seeEnt(r, "written at once", all, err)
		// The pets are numbered in the order of who came first.
		r.exec(`UPDATE pets SET id = -id`, `UPDATE pets p SET id = n FROM
			(SELECT id, row_number() OVER (ORDER BY user_pets, name) n FROM pets) x WHERE x.id = p.id`)
	})
}
