package compat

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	"github.com/jackc/pgx/v5"
	"github.com/ngrok/sqlmw"
	sqldblogger "github.com/simukti/sqldb-logger"
	"golang.org/x/sync/errgroup"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// counter counts what passes a wrapper.
type counter struct {
	sqlmw.NullInterceptor
	n atomic.Int64
}

func (c *counter) ConnQueryContext(ctx context.Context, conn driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	c.n.Add(1)
	rows, err := conn.QueryContext(ctx, query, args)
	return ctx, rows, err
}

func (c *counter) Log(context.Context, sqldblogger.Level, string, map[string]any) { c.n.Add(1) }

// wrappers open a database through a wrapper around the driver of a run. Two
// know connectors; the third calls Driver.Open for each connection.
var wrappers = map[string]func(r *run, c *counter) *sql.DB{
	"otelsql": func(r *run, _ *counter) *sql.DB {
		db, err := otelsql.Open(r.driver, r.dsn)
		r.must(err)
		return db
	},
	"sqlmw": func(r *run, c *counter) *sql.DB {
		name := "sqlmw of " + r.Name()
		sql.Register(name, sqlmw.Driver(r.db.Driver(), c))
		db, err := sql.Open(name, r.dsn)
		r.must(err)
		return db
	},
	"sqldb-logger": func(r *run, c *counter) *sql.DB { return sqldblogger.OpenDriver(r.dsn, r.db.Driver(), c) },
}

func TestWrappers(t *testing.T) {
	for name, open := range wrappers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(`CREATE TABLE notes (id int PRIMARY KEY, text text, tags text[])`, `INSERT INTO notes VALUES (1, 'one', '{a,b}'), (2, NULL, NULL)`)
				r.query(`SELECT count(*) FROM notes`) // what requireSharing sees is r.db
				r.query(`SELECT count(*) FROM notes`)
				c := new(counter)
				db := open(r, c)
				defer db.Close()
				look := func(what string) {
					r.Helper()
					for range 3 {
						rows, err := db.QueryContext(bg, `SELECT id, text, tags FROM notes WHERE id < $1 ORDER BY id`, 100)
						r.rows(what, rows, err)
					}
				}
				look("at first")
				_, err := db.ExecContext(bg, `UPDATE notes SET text = $1 WHERE id = 2`, "two")
				r.must(err)
				look("updated")
				tx, err := db.BeginTx(bg, nil)
				r.must(err)
				_, err = tx.Exec(`INSERT INTO notes VALUES (3, 'three', '{}')`)
				r.must(err)
				look("not committed")
				r.must(tx.Commit())
				look("committed")
				st, err := db.PrepareContext(bg, `SELECT text FROM notes WHERE id = $1`)
				r.must(err)
				for range 2 {
					var text string
					r.see("prepared", st.QueryRow(3).Scan(&text), text)
				}
				r.must(st.Close())
				_, err = db.ExecContext(bg, `INSERT INTO notes VALUES (1, 'again')`)
				r.see("duplicate", err)
				if name != "otelsql" && c.n.Load() == 0 {
					r.Error("the wrapper was passed by")
				}
			})
		})
	}
}

// Some wrappers, sqldb-logger for one, do not pass on the IsValid by which a
// driver hears that the pool has a connection back.
func TestWrappersKeepNoConnectionOpen(t *testing.T) {
	for name, open := range wrappers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(`CREATE TABLE notes (n int)`)
				r.query(`SELECT n FROM notes`)
				r.query(`SELECT n FROM notes`)
				config, err := pgx.ParseConfig(r.dsn)
				r.must(err)
				r.dsn = config.ConnString() + "&application_name=wrapped"
				db := open(r, new(counter))
				count := func() (n int) {
					r.must(r.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'wrapped'`).Scan(&n))
					return n
				}
				for range 10 {
					_, err := db.ExecContext(bg, `INSERT INTO notes VALUES (1)`)
					r.must(err)
				}
				r.see("connections", count())
				// The limit that wrappers leave to database/sql.
				db.SetMaxOpenConns(1)
				var writers errgroup.Group
				for range 4 {
					writers.Go(func() error {
						for range 5 {
							if _, err := db.ExecContext(bg, `INSERT INTO notes VALUES (1)`); err != nil {
								return err
							}
						}
						return nil
					})
				}
				r.see("limited", writers.Wait())
				r.see("limited", count())
				// A transaction by hand that its caller forgets.
				sc, err := db.Conn(bg)
				r.must(err)
				_, err = sc.ExecContext(bg, `BEGIN; LOCK TABLE notes`)
				r.must(err)
				r.must(sc.Close())
				ctx, cancel := context.WithTimeout(bg, 20*time.Second)
				defer cancel()
				_, err = db.ExecContext(ctx, `INSERT INTO notes VALUES (2)`)
				r.see("after a transaction that was left open", err)
				r.must(db.Close())
				for start := time.Now(); count() > 0; time.Sleep(time.Millisecond) {
					if time.Since(start) > 20*time.Second {
						r.Fatalf("%d connections are open after Close", count())
					}
				}
			})
		})
	}
}

// Reads through a wrapper that knows connectors are shared; what asks for our own
// driver does so of a database beside it.
func TestWrappersShare(t *testing.T) {
	for name, open := range wrappers {
		t.Run(name, func(t *testing.T) {
			r := &run{T: t, driver: "coalesce-pgx", dsn: pgtest.Database(t)}
			r.db = r.open()
			r.exec(`CREATE TABLE notes AS SELECT 1 AS n`)
			db := open(r, new(counter))
			defer db.Close()
			plain, err := sql.Open("pgx", r.dsn)
			r.must(err)
			defer plain.Close()
			read := func() (n int) {
				t.Helper()
				r.must(db.QueryRow(`SELECT n FROM notes`).Scan(&n))
				return n
			}
			if n := read(); n != 1 {
				t.Fatalf("read %d, want 1", n)
			}
			_, err = plain.Exec(`UPDATE notes SET n = 2`)
			r.must(err)
			want := map[bool]int{false: 1, true: 2}[name == "sqldb-logger"]
			if n := read(); n != want {
				t.Errorf("read %d, want %d: one that calls Driver.Open shares nothing, the others do", n, want)
			}
			if s := coalesce.StatsOf(db); s.Reads != 0 {
				t.Errorf("StatsOf of a wrapped database: %+v", s)
			}
			_, err = coalesce.Explain(bg, db, `SELECT 1`)
			sc, connErr := db.Conn(bg)
			r.must(connErr)
			rawErr := coalesce.Raw(sc, func(*pgx.Conn) error { return nil })
			r.must(sc.Close())
			for what, err := range map[string]error{"Explain": err, "Raw": rawErr} {
				if err == nil || errors.Is(err, driver.ErrBadConn) {
					t.Errorf("%s of a wrapped database: %v, want an error that says so", what, err)
				}
			}
			r.must(coalesce.Invalidate(r.db, "notes"))
			if n := read(); n != 2 {
				t.Errorf("read %d after Invalidate beside the wrapper, want 2", n)
			}
		})
	}
}
