package compat

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Masterminds/squirrel"
	"github.com/doug-martin/goqu/v9"
	_ "github.com/doug-martin/goqu/v9/dialect/postgres"
	"github.com/doug-martin/goqu/v9/exp"
	"github.com/georgysavva/scany/v2/dbscan"
	"github.com/georgysavva/scany/v2/sqlscan"
	"github.com/jackc/pgx/v5/pgtype"
)

// Programs that build their texts.

var builderSchema = []string{
	`CREATE TABLE author (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, bio text, tags text[], born date)`,
	`CREATE TABLE book (id bigserial PRIMARY KEY, author_id bigint NOT NULL REFERENCES author ON DELETE CASCADE, title text NOT NULL, price numeric(9,2) NOT NULL DEFAULT 0, at timestamptz NOT NULL DEFAULT '2001-02-03Z')`,
}

func TestSquirrel(t *testing.T) {
	t.Parallel()
	runners := map[string]func(r *run) squirrel.BaseRunner{
		"database":  func(r *run) squirrel.BaseRunner { return r.db },
		"statement": func(r *run) squirrel.BaseRunner { return squirrel.NewStmtCache(r.db) },
		"proxy":     func(r *run) squirrel.BaseRunner { return squirrel.NewStmtCacheProxy(r.db) },
	}
	for _, name := range []string{"database", "statement", "proxy"} {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(builderSchema...)
				runner := runners[name](r)
				q := squirrel.StatementBuilder.PlaceholderFormat(squirrel.Dollar).RunWith(runner)
				check := func() {
					r.Helper()
					for range 2 {
						rows, err := q.Select("id", "name", "bio", "tags", "born").From("author").OrderBy("id").Query()
						r.rows("authors", rows, err)
						rows, err = q.Select("a.name", "count(b.id) AS books", "sum(b.price)").From("author a").LeftJoin("book b ON b.author_id = a.id").
							GroupBy("a.name").Having("count(b.id) >= ?", 0).OrderBy("a.name").Limit(10).Offset(0).Query()
						r.rows("books", rows, err)
						var n int
						r.see("count", q.Select("count(*)").From("book").Where(squirrel.Gt{"price": "1.00"}).QueryRow().Scan(&n), n)
						var title string
						r.see("title", q.Select("title").From("book").Where("id = ?", 1).QueryRow().Scan(&title), title)
					}
				}
				check()
				var id int64
				for i, author := range []string{"Ada", "Ben", "Cleo"} {
					r.see("insert", q.Insert("author").Columns("name", "bio", "tags").Values(author, nil, []string{"a", fmt.Sprint(i)}).Suffix("RETURNING id").QueryRow().Scan(&id), id)
					check()
					result, err := q.Insert("book").SetMap(map[string]any{"author_id": id, "title": "of " + author, "price": "9.99"}).Exec()
					r.must(err)
					n, err := result.RowsAffected()
					r.see("book", n, err)
					check()
				}
				_, err := q.Insert("author").Columns("name").Values("Ada").Exec()
				r.see("again", err)
				_, err = q.Insert("author").Columns("name").Values("Ada").Suffix("ON CONFLICT (name) DO UPDATE SET bio = ?", "conflict").Exec()
				r.see("conflict", err)
				check()
				rows, err := q.Insert("book").Columns("author_id", "title").Select(squirrel.Select("id", "'another'").From("author").Where(squirrel.Eq{"name": []string{"Ada", "Ben"}})).Suffix("RETURNING id, title").Query()
				r.rows("insert select", rows, err)
				check()
				for range 2 {
					rows, err = q.Select("*").From("book").Where(squirrel.And{squirrel.Eq{"author_id": []int{1, 2}}, squirrel.Or{squirrel.Like{"title": "of%"}, squirrel.NotEq{"price": nil}}}).OrderBy("id").Query()
					r.rows("where", rows, err)
					rows, err = q.Select("name").From("author").Where(squirrel.Expr("id IN (SELECT author_id FROM book WHERE price > ?)", 1)).Where("tags @> ?", []string{"a"}).OrderBy("name").Query()
					r.rows("expr", rows, err)
					rows, err = q.Select().Column(squirrel.Alias(squirrel.Case("name").When("'Ada'", "1").Else("0"), "ada")).From("author").OrderBy("id").Query()
					r.rows("case", rows, err)
					_, err = q.Update("book").Set("price", squirrel.Expr("price + ?", 1)).Set("title", "renamed").Where(squirrel.Eq{"id": 1}).Exec()
					r.see("update", err)
				}
				check()
				rows, err = q.Update("book").Set("price", 5).Where(squirrel.Lt{"id": 3}).Suffix("RETURNING id, price").Query()
				r.rows("update returning", rows, err)
				check()
				rows, err = q.Delete("book").Where(squirrel.Eq{"title": "another"}).Suffix("RETURNING *").Query()
				r.rows("delete returning", rows, err)
				check()
				rows, err = q.Select("name").From("author").Where("id = ?", 1).Suffix("FOR UPDATE").Query()
				r.rows("for update", rows, err)
				rows, err = q.Select("nope").From("author").Query()
				r.rows("bad", rows, err)
				err = q.Select("name").From("author").Where("id = ?", -1).QueryRow().Scan(new(string))
				r.see("none", err)

				tx, err := r.db.BeginTx(bg, nil)
				r.must(err)
				_, err = q.RunWith(tx).Delete("author").Where(squirrel.Eq{"name": "Ada"}).ExecContext(bg)
				r.see("in a transaction", err)
				rows, err = q.RunWith(tx).Select("name").From("author").OrderBy("id").Query()
				r.rows("in a transaction", rows, err)
				check()
				r.must(tx.Commit())
				check()
				if cache, ok := runner.(*squirrel.StmtCache); ok {
					r.see("clear", cache.Clear())
					check()
				}
			})
		})
	}
}

type goquAuthor struct {
	ID   int64          `db:"id" goqu:"skipinsert,skipupdate"`
	Name string         `db:"name"`
	Bio  sql.NullString `db:"bio"`
	Born *time.Time     `db:"born"`
}

func TestGoqu(t *testing.T) {
	t.Parallel()
	for _, prepared := range []bool{false, true} {
		t.Run(fmt.Sprintf("prepared-%v", prepared), func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(builderSchema...)
				db := goqu.New("postgres", r.db)
				from := func(table any) *goqu.SelectDataset { return db.From(table).Prepared(prepared) }
				check := func() {
					r.Helper()
					for range 2 {
						var authors []goquAuthor
						r.see("structs", from("author").Order(goqu.I("id").Asc()).ScanStructs(&authors), authors)
						var author goquAuthor
						found, err := from("author").Where(goqu.C("name").Eq("Ada")).ScanStruct(&author)
						r.see("struct", found, err, author)
						var names []string
						r.see("values", from("author").Order(goqu.C("name").Desc()).Pluck(&names, "name"), names)
						n, err := from("book").Where(goqu.C("price").Gt(1.5), goqu.Ex{"author_id": []int{1, 2}}).Count()
						r.see("count", n, err)
						var price string
						found, err = from("book").Select(goqu.SUM("price")).ScanVal(&price)
						r.see("value", found, err, price)
						found, err = from("author").Select("name").Where(goqu.C("id").Eq(-1)).ScanVal(&price)
						r.see("none", found, err)
						var joined []struct {
							Name  string `db:"name"`
							Title string `db:"title"`
						}
						r.see("join", from(goqu.T("author").As("a")).Join(goqu.T("book").As("b"), goqu.On(goqu.I("b.author_id").Eq(goqu.I("a.id")))).
							Select(goqu.I("a.name"), goqu.I("b.title")).Order(goqu.I("b.id").Asc()).ScanStructs(&joined), joined)
					}
				}
				check()
				born := time.Date(1815, 12, 10, 0, 0, 0, 0, time.UTC)
				result, err := db.Insert("author").Prepared(prepared).Rows(goquAuthor{Name: "Ada", Born: &born}, goquAuthor{Name: "Ben", Bio: sql.NullString{String: "it's", Valid: true}}).Executor().Exec()
				r.must(err)
				n, err := result.RowsAffected()
				r.see("insert", n, err)
				check()
				var ids []int64
				r.see("insert returning", db.Insert("author").Prepared(prepared).Rows(goqu.Record{"name": "Cleo"}).Returning("id").Executor().ScanVals(&ids), ids)
				check()
				r.see("books", db.Insert("book").Prepared(prepared).Cols("author_id", "title", "price").FromQuery(
					goqu.From("author").Select(goqu.C("id"), goqu.L("'of ' || name"), goqu.V(2.5))).Returning("id").Executor().ScanVals(&ids), ids)
				check()
				_, err = db.Insert("author").Prepared(prepared).Rows(goqu.Record{"name": "Ada"}).Executor().Exec()
				r.see("again", err)
				_, err = db.Insert("author").Prepared(prepared).Rows(goqu.Record{"name": "Ada", "bio": "new"}).OnConflict(goqu.DoUpdate("name", goqu.Record{"bio": goqu.I("excluded.bio")})).Executor().Exec()
				r.see("conflict", err)
				check()
				_, err = db.Insert("author").Prepared(prepared).Rows(goqu.Record{"name": "Ada"}).OnConflict(goqu.DoNothing()).Executor().Exec()
				r.see("nothing", err)
				check()
				for range 2 {
					result, err = db.Update("book").Prepared(prepared).Set(goqu.Record{"price": goqu.L("price + ?", 1), "title": goqu.Case().Value(goqu.C("id")).When(1, "first").Else(goqu.C("title"))}).Where(goqu.C("id").In(1, 2)).Executor().Exec()
					r.must(err)
					n, err = result.RowsAffected()
					r.see("update", n, err)
					check()
				}
				var updated []goquAuthor
				r.see("update returning", db.Update("author").Prepared(prepared).Set(goquAuthor{Name: "Ben", Born: &born}).Where(goqu.Ex{"name": "Ben"}).Returning(goqu.Star()).Executor().ScanStructs(&updated) == nil)
				check()
				var one int64
				found, err := from("author").With("old", goqu.From("author").Where(goqu.C("born").IsNotNull())).From("old").Select(goqu.COUNT("*")).ScanVal(&one)
				r.see("with", found, err, one)
				found, err = from("author").Select("id").Where(goqu.C("name").Eq("Ada")).ForUpdate(exp.SkipLocked).ScanVal(&one)
				r.see("for update", found, err, one)
				_, err = from("nowhere").Count()
				r.see("bad", err)

				r.see("transaction", db.WithTx(func(tx *goqu.TxDatabase) error {
					if _, err := tx.Delete("author").Prepared(prepared).Where(goqu.C("name").Eq("Ada")).Executor().Exec(); err != nil {
						return err
					}
					n, err := tx.From("book").Prepared(prepared).Count()
					r.see("inside", n, err)
					check()
					return err
				}))
				check()
				r.see("rolled back", db.WithTx(func(tx *goqu.TxDatabase) error {
					_, err := tx.Delete("author").Executor().Exec()
					return errors.Join(err, errRefused)
				}))
				check()
				scanner, err := from("author").Order(goqu.I("id").Asc()).Executor().Scanner()
				r.must(err)
				for scanner.Next() {
					var author goquAuthor
					r.see("scanner", scanner.ScanStruct(&author), author)
				}
				r.see("scanner", scanner.Err(), scanner.Close())
				_, err = db.Truncate("author").Cascade().Identity("RESTART").Executor().Exec()
				r.see("truncate", err)
				check()
			})
		})
	}
}

type scanyAuthor struct {
	ID   int64
	Name string
	Bio  *string
	Tags pgtype.FlatArray[string] `db:"-"`
	Born sql.NullTime
}

type scanyBook struct {
	Title  string
	Author *scanyAuthor `db:"author"`
}

func TestScany(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(builderSchema...)
		check := func() {
			r.Helper()
			for range 2 {
				var authors []*scanyAuthor
				r.see("select", sqlscan.Select(bg, r.db, &authors, `SELECT id, name, bio, born FROM author ORDER BY id`), len(authors))
				for _, a := range authors {
					r.see("author", *a)
				}
				var author scanyAuthor
				err := sqlscan.Get(bg, r.db, &author, `SELECT id, name, bio, born FROM author WHERE name = $1`, "Ada")
				r.see("get", err, sqlscan.NotFound(err), author)
				var n int
				r.see("scalar", sqlscan.Get(bg, r.db, &n, `SELECT count(*) FROM book`), n)
				var names []string
				r.see("scalars", sqlscan.Select(bg, r.db, &names, `SELECT name FROM author ORDER BY name DESC`), names)
				var maps []map[string]any
				r.see("maps", sqlscan.Select(bg, r.db, &maps, `SELECT * FROM author ORDER BY id`), maps)
				var books []scanyBook
				r.see("nested", sqlscan.Select(bg, r.db, &books, `SELECT b.title, a.id AS "author.id", a.name AS "author.name" FROM book b JOIN author a ON a.id = b.author_id ORDER BY b.id`), books)
			}
		}
		check()
		var author scanyAuthor
		for _, name := range []string{"Ada", "Ben"} {
			r.see("insert", sqlscan.Get(bg, r.db, &author, `INSERT INTO author (name, bio) VALUES ($1, $2) RETURNING id, name, bio, born`, name, "bio of "+name), author)
			check()
			r.see("insert", sqlscan.Get(bg, r.db, &author, `INSERT INTO author (name, bio) VALUES ($1, $2) RETURNING id, name, bio, born`, name, "twice"))
			_, err := r.db.ExecContext(bg, `INSERT INTO book (author_id, title) SELECT id, $1 FROM author`, "by "+name)
			r.must(err)
			check()
		}
		var updated []scanyAuthor
		r.see("update", sqlscan.Select(bg, r.db, &updated, `UPDATE author SET bio = NULL, born = $1 RETURNING id, name, bio, born`, "2001-02-03"), updated)
		check()
		var few struct{ ID int64 }
		r.see("no such field", sqlscan.Get(bg, r.db, &few, `SELECT id, name FROM author WHERE id = 1`))
		r.see("many rows", sqlscan.Get(bg, r.db, &few, `SELECT id FROM author`))
		r.see("bad", sqlscan.Select(bg, r.db, &updated, `SELECT nope FROM author`))
		r.see("no row", sqlscan.NotFound(sqlscan.Get(bg, r.db, &few, `SELECT id FROM author WHERE id = -1`)))
		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		r.see("delete", sqlscan.Select(bg, tx, &updated, `DELETE FROM author WHERE name = $1 RETURNING id, name, bio, born`, "Ada"), updated)
		check()
		r.must(tx.Commit())
		check()
		lenient, err := sqlscan.NewDBScanAPI(dbscan.WithAllowUnknownColumns(true))
		r.must(err)
		api, err := sqlscan.NewAPI(lenient)
		r.must(err)
		for range 2 {
			r.see("lenient", api.Get(bg, r.db, &few, `SELECT id, name FROM author WHERE name = $1`, "Ben"), few)
			rows, err := r.db.QueryContext(bg, `SELECT id, name, bio, born FROM author ORDER BY id`)
			r.must(err)
			scanner := sqlscan.NewRowScanner(rows)
			for rows.Next() {
				var a scanyAuthor
				r.see("row", scanner.Scan(&a), a)
			}
			r.see("end", rows.Err(), rows.Close())
			r.exec(`UPDATE author SET bio = coalesce(bio, '') || '+'`)
		}
	})
}
