package compat

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
	"github.com/jmoiron/sqlx/types"
)

// sqlx looks the driver's name up to know the placeholders.
func init() { sqlx.BindDriver("coalesce-pgx", sqlx.DOLLAR) }

// sqlxAttributes are a JSON column.
type sqlxAttributes map[string]any

func (a sqlxAttributes) Value() (driver.Value, error) { return json.Marshal(a) }

func (a *sqlxAttributes) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*a = nil
		return nil
	case []byte:
		return json.Unmarshal(v, a)
	case string:
		return json.Unmarshal([]byte(v), a)
	}
	return fmt.Errorf("cannot scan %T", v)
}

type sqlxTimes struct {
	CreatedAt time.Time    `db:"created_at"`
	DeletedAt sql.NullTime `db:"deleted_at"`
}

type sqlxPlace struct {
	ID   int64
	City string
}

type sqlxPerson struct {
	sqlxTimes
	ID         int64
	FirstName  string          `db:"first_name"`
	Email      *string         `db:"email"`
	Score      sql.NullFloat64 `db:"score"`
	Attributes sqlxAttributes  `db:"attributes"`
	Raw        types.JSONText  `db:"raw"`
	PlaceID    sql.NullInt64   `db:"place_id"`
	Place      *sqlxPlace      `db:"place"`
}

var sqlxSchema = []string{
	`CREATE TABLE place (id bigserial PRIMARY KEY, city text NOT NULL UNIQUE)`,
	`CREATE TABLE person (id bigserial PRIMARY KEY, first_name text NOT NULL, email text UNIQUE, score float8, attributes jsonb, raw json NOT NULL DEFAULT '[1]',
		place_id bigint REFERENCES place, created_at timestamptz NOT NULL DEFAULT '2001-02-03 04:05:06Z', deleted_at timestamptz)`,
	`INSERT INTO place (city) VALUES ('Bern'), ('Oslo')`,
}

// sqlxWays are the ways to have sqlx know that the driver is of PostgreSQL.
var sqlxWays = []struct {
	name string
	open func(r *run) *sqlx.DB
}{
	{"bind-driver", func(r *run) *sqlx.DB {
		db, err := sqlx.Connect(r.driver, r.dsn)
		r.must(err)
		r.Cleanup(func() { db.Close() })
		r.watch(db.DB)
		return db
	}},
	{"new-db", func(r *run) *sqlx.DB { return sqlx.NewDb(r.db, "pgx") }},
}

func sqlxSame(t *testing.T, program func(r *run, db *sqlx.DB)) {
	for _, way := range sqlxWays {
		t.Run(way.name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(sqlxSchema...)
				program(r, way.open(r))
			})
		})
	}
}

func TestSqlxPlaceholders(t *testing.T) {
	t.Parallel()
	sqlxSame(t, func(r *run, db *sqlx.DB) {
		r.see("bind type", sqlx.BindType(db.DriverName()))
		r.see("rebind", db.Rebind(`SELECT * FROM person WHERE first_name = ? AND email = '?' AND id = ?`))
		text, args, err := db.BindNamed(`SELECT * FROM person WHERE first_name = :name AND id > :id AND '1'::text = '1' AND email = ':x'`, map[string]any{"name": "a", "id": 1})
		r.see("bind named", text, args, err)
		text, args, err = db.BindNamed(`INSERT INTO place (city) VALUES (:city)`, []sqlxPlace{{City: "a"}, {City: "b"}})
		r.see("bind named", text, args, err)
		_, _, err = db.BindNamed(`SELECT :nothing`, map[string]any{})
		r.see("bind named", err)
	})
}

func TestSqlxReadsAndWrites(t *testing.T) {
	t.Parallel()
	sqlxSame(t, func(r *run, db *sqlx.DB) {
		const all = `SELECT * FROM person ORDER BY id`
		const joined = `SELECT p.*, pl.id AS "place.id", pl.city AS "place.city" FROM person p JOIN place pl ON pl.id = p.place_id ORDER BY p.id`
		check := func() {
			r.Helper()
			for range 2 {
				var people []sqlxPerson
				r.see("select", db.SelectContext(bg, &people, all), people)
				var pointers []*sqlxPerson
				r.see("select pointers", db.Select(&pointers, joined), len(pointers))
				for _, p := range pointers {
					r.see("joined", *p)
				}
				var person sqlxPerson
				r.see("get", db.GetContext(bg, &person, `SELECT * FROM person WHERE first_name = $1`, "Anna"), person)
				var n int
				r.see("get scalar", db.Get(&n, `SELECT count(*) FROM person`), n)
				var names []string
				r.see("select scalars", db.Select(&names, `SELECT first_name FROM person ORDER BY id`), names)
				r.see("get none", db.Get(&person, `SELECT * FROM person WHERE id = $1`, -1))
			}
		}
		check()
		email := "anna@example.org"
		anna := sqlxPerson{FirstName: "Anna", Email: &email, Score: sql.NullFloat64{Float64: 1.5, Valid: true}, Attributes: sqlxAttributes{"a": []any{1.0, "x"}}, Raw: types.JSONText(`{"k": [1,  2]}`), PlaceID: sql.NullInt64{Int64: 1, Valid: true}}
		const insert = `INSERT INTO person (first_name, email, score, attributes, raw, place_id) VALUES (:first_name, :email, :score, :attributes, :raw, :place_id)`
		result, err := db.NamedExecContext(bg, insert, anna)
		r.must(err)
		n, err := result.RowsAffected()
		r.see("named exec", n, err)
		check()
		_, err = db.NamedExec(insert, &anna)
		r.see("named exec twice", err)
		_, err = db.NamedExec(insert, []map[string]any{
			{"first_name": "Bea", "email": nil, "score": 2, "attributes": nil, "raw": "{}", "place_id": 2},
			{"first_name": "Cem", "email": "c@example.org", "score": nil, "attributes": `{"c": 1}`, "raw": "[]", "place_id": nil},
		})
		r.see("named exec of many", err)
		check()
		rows, err := db.NamedQueryContext(bg, `INSERT INTO person (first_name) VALUES (:name) RETURNING id, first_name, raw`, map[string]any{"name": "Dov"})
		r.must(err)
		for rows.Next() {
			var p sqlxPerson
			r.see("struct scan", rows.StructScan(&p), p)
		}
		r.see("end", rows.Err(), rows.Close())
		check()

		for range 2 {
			rows, err := db.NamedQuery(`SELECT id, first_name FROM person WHERE first_name = :first_name OR id = :id ORDER BY id`, sqlxPerson{FirstName: "Bea", ID: 1})
			r.must(err)
			for rows.Next() {
				into := map[string]any{}
				r.see("map scan", rows.MapScan(into), into)
			}
			r.see("end", rows.Err(), rows.Close())
			rows, err = db.QueryxContext(bg, all)
			r.must(err)
			for rows.Next() {
				values, err := rows.SliceScan()
				r.see("slice scan", values, err)
			}
			r.see("end", rows.Err(), rows.Close())
			into := map[string]any{}
			r.see("row map scan", db.QueryRowx(`SELECT * FROM person WHERE id = $1`, 1).MapScan(into), into)
			values, err := db.QueryRowxContext(bg, `SELECT * FROM person WHERE id = $1`, 1).SliceScan()
			r.see("row slice scan", values, err)
			var p sqlxPerson
			r.see("row struct scan", db.QueryRowx(`SELECT id, first_name FROM person WHERE id = $1`, 2).StructScan(&p), p)
			columns, err := db.QueryRowx(`SELECT id, first_name FROM person`).Columns()
			r.see("row columns", columns, err)
			_, err = db.Exec(`UPDATE person SET score = coalesce(score, 0) + 1`)
			r.must(err)
		}

		// In, with slices.
		for range 2 {
			for _, args := range [][]any{{[]int{1, 2, 4}, "Bea"}, {[]int{1}, "Cem"}, {[]int64{}, "x"}, {1, "Anna"}} {
				text, flat, err := sqlx.In(`SELECT first_name FROM person WHERE id IN (?) AND first_name <> ? ORDER BY id`, args...)
				if err != nil {
					r.see("in", err)
					continue
				}
				var names []string
				r.see("in", db.Rebind(text), db.Select(&names, db.Rebind(text), flat...), names)
			}
			text, args, err := sqlx.Named(`SELECT count(*) FROM person WHERE id IN (:ids)`, map[string]any{"ids": []int{1, 2, 3}})
			r.must(err)
			text, args, err = sqlx.In(text, args...)
			r.must(err)
			var n int
			r.see("named in", db.Get(&n, db.Rebind(text), args...), n)
			var names []string
			r.see("any", db.Select(&names, `SELECT first_name FROM person WHERE id = ANY ($1) ORDER BY id`, []int64{2, 3}), names)
			db.MustExec(`DELETE FROM person WHERE id = $1`, 3)
		}

		// What does not fit.
		var few struct{ ID int64 }
		r.see("missing destination", db.Get(&few, `SELECT id, first_name FROM person WHERE id = 1`))
		r.see("missing destination", db.Unsafe().Get(&few, `SELECT id, first_name FROM person WHERE id = 1`), few)
		var name string
		r.see("null into string", db.Get(&name, `SELECT email FROM person WHERE id = $1`, 2))
		r.see("two columns into one", db.Get(&name, `SELECT email, id FROM person`))
		r.see("bad query", db.Select(&name, `SELECT nope FROM person`), db.Get(&name, `SELECT nope FROM person`))
		_, err = db.NamedExec(`UPDATE person SET score = :nothing`, sqlxPlace{})
		r.see("missing name", err)
		_, err = db.NamedQuery(`SELECT id FROM person WHERE nope = :first_name`, anna)
		r.see("bad column", err)
		check()
	})
}

func TestSqlxPreparedStatements(t *testing.T) {
	t.Parallel()
	sqlxSame(t, func(r *run, db *sqlx.DB) {
		insert, err := db.PrepareNamedContext(bg, `INSERT INTO person (first_name, score) VALUES (:first_name, :score) RETURNING *`)
		r.must(err)
		defer insert.Close()
		get, err := db.Preparex(`SELECT * FROM person WHERE first_name = $1`)
		r.must(err)
		defer get.Close()
		named, err := db.PrepareNamed(`SELECT id, first_name, score FROM person WHERE score >= :score ORDER BY id`)
		r.must(err)
		defer named.Close()
		_, err = db.Preparex(`SELECT nope FROM person`)
		r.see("bad", err)
		_, err = db.PrepareNamed(`SELECT :a::text`)
		r.see("bad", err)
		for i := range 3 {
			var p sqlxPerson
			r.see("insert", insert.GetContext(bg, &p, sqlxPerson{FirstName: fmt.Sprint("P", i), Score: sql.NullFloat64{Float64: float64(i), Valid: true}}), p)
			for range 2 {
				var p sqlxPerson
				r.see("get", get.Get(&p, fmt.Sprint("P", i)), p)
				r.see("row", get.QueryRowxContext(bg, "P0").StructScan(&p), p)
				var people []sqlxPerson
				r.see("select", named.Select(&people, map[string]any{"score": 1}), people)
				rows, err := named.Queryx(sqlxPerson{Score: sql.NullFloat64{Float64: 0, Valid: true}})
				r.must(err)
				for rows.Next() {
					var p sqlxPerson
					r.see("row", rows.StructScan(&p), p)
				}
				r.see("end", rows.Err(), rows.Close())
				r.see("none", get.Get(&p, "nobody"))
			}
			tx := db.MustBegin()
			_, err := tx.Exec(`UPDATE person SET score = score + 10`)
			r.must(err)
			for range 2 {
				r.see("in the transaction", tx.Stmtx(get).Get(&p, "P0"), p)
				var people []sqlxPerson
				r.see("in the transaction", tx.NamedStmt(named).Select(&people, map[string]any{"score": 10}), people)
				r.see("outside", get.Get(&p, "P0"), p)
			}
			if i == 1 {
				r.see("rollback", tx.Rollback())
			} else {
				r.see("commit", tx.Commit())
			}
			for range 2 {
				r.see("afterwards", get.Get(&p, "P0"), p)
			}
		}
	})
}

func TestSqlxTransactions(t *testing.T) {
	t.Parallel()
	sqlxSame(t, func(r *run, db *sqlx.DB) {
		count := func(what string, q sqlx.QueryerContext) {
			r.Helper()
			for range 2 {
				var n int
				r.see(what, sqlx.GetContext(bg, q, &n, `SELECT count(*) FROM place WHERE city <> $1`, "none"), n)
			}
		}
		count("before", db)
		tx, err := db.BeginTxx(bg, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		r.must(err)
		r.see("bind type", sqlx.BindType(tx.DriverName()))
		_, err = tx.NamedExec(`INSERT INTO place (city) VALUES (:city)`, sqlxPlace{City: "Rome"})
		r.must(err)
		count("inside", tx)
		count("outside", db)
		var ids []int64
		r.see("select", tx.Select(&ids, tx.Rebind(`SELECT id FROM place WHERE city = ? OR id = ? ORDER BY id`), "Rome", 1), ids)
		r.see("commit", tx.Commit())
		count("after", db)
		tx = db.MustBeginTx(bg, nil)
		tx.MustExec(`DELETE FROM place`)
		count("inside", tx)
		_, err = tx.NamedQuery(`SELECT nope FROM place WHERE id = :id`, sqlxPlace{})
		r.see("failed", err)
		_, err = tx.Exec(`SELECT 1`)
		r.see("failed", err)
		r.see("commit", tx.Commit())
		count("after", db)
		func() {
			defer func() { r.see("panic", recover()) }()
			db.MustExec(`INSERT INTO place (city) VALUES ('Bern')`)
		}()
		count("after", db)
		_, err = sqlx.LoadFile(db, "no such file")
		r.see("load", err)

		conn, err := db.Connx(bg)
		r.must(err)
		_, err = conn.ExecContext(bg, `SET my.city = 'Oslo'`)
		r.must(err)
		r.inChangedSession(db.DB, func() {
			for range 2 {
				var place sqlxPlace
				r.see("conn", conn.GetContext(bg, &place, `SELECT * FROM place WHERE city = current_setting('my.city')`), place)
				r.see("no such setting", db.GetContext(bg, &place, `SELECT * FROM place WHERE city = current_setting('my.city')`))
			}
		})
		r.must(conn.Close())
		renew(db.DB)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		var n int
		r.see("cancelled", db.GetContext(ctx, &n, `SELECT count(*) FROM place WHERE city <> $1`, "none"))
		count("after", db)
	})
}

// A mapper of the program's own, and columns named after it.
func TestSqlxMappers(t *testing.T) {
	t.Parallel()
	sqlxSame(t, func(r *run, db *sqlx.DB) {
		own := sqlx.NewDb(db.DB, db.DriverName())
		own.Mapper = reflectx.NewMapperFunc("json", sqlx.NameMapper)
		type place struct {
			Number int64  `json:"id"`
			Name   string `json:"city"`
		}
		for range 2 {
			var places []place
			r.see("select", own.Select(&places, `SELECT * FROM place ORDER BY id`), places)
			_, err := own.NamedExec(`UPDATE place SET city = city || :city WHERE id = :id`, place{1, "!"})
			r.must(err)
			var one place
			r.see("get", own.Get(&one, `SELECT * FROM place WHERE id = 1`), one)
			r.see("get", own.Get(&one, `SELECT * FROM place WHERE id = 1`), one)
			r.see("none", errors.Is(own.Get(&one, `SELECT * FROM place WHERE id = 100`), sql.ErrNoRows))
		}
	})
}
