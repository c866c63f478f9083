package compat

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
)

// migrateDrivers are golang-migrate's two drivers that take a *sql.DB.
var migrateDrivers = map[string]func(*sql.DB) (database.Driver, error){
	"pgx": func(db *sql.DB) (database.Driver, error) {
		return migratepgx.WithInstance(db, &migratepgx.Config{})
	},
	"pgx-one-statement-at-a-time": func(db *sql.DB) (database.Driver, error) {
		return migratepgx.WithInstance(db, &migratepgx.Config{
			MigrationsTable:       `"public"."the versions"`,
			MigrationsTableQuoted: true,
			MultiStatementEnabled: true,
			StatementTimeout:      time.Minute,
		})
	},
	"postgres": func(db *sql.DB) (database.Driver, error) {
		return postgres.WithInstance(db, &postgres.Config{})
	},
}

// migrator works on a *sql.DB of its own, which its Close closes.
func (r *run) migrator(dir string, driver func(*sql.DB) (database.Driver, error)) *migrate.Migrate {
	r.Helper()
	return r.migratorOn(r.open(), dir, driver)
}

func (r *run) migratorOn(db *sql.DB, dir string, driver func(*sql.DB) (database.Driver, error)) *migrate.Migrate {
	r.Helper()
	src, err := iofs.New(os.DirFS("testdata"), dir)
	r.must(err)
	r.changesSessions(db, "golang-migrate has one connection, and locks on it")
	d, err := driver(db)
	r.must(err)
	m, err := migrate.NewWithInstance("iofs", src, "database", d)
	r.must(err)
	return m
}

// migrateState records what golang-migrate and the program find, each asked
// twice: the second answer may be a held one.
func (r *run) migrateState(m *migrate.Migrate, queries ...string) {
	r.Helper()
	for range 2 {
		version, dirty, err := m.Version()
		r.see("version", version, dirty, err)
		for _, q := range queries {
			r.anew(r.db, q)
		}
	}
}

var migrateQueries = []string{
	`SELECT * FROM accounts ORDER BY id`,
	`SELECT name, balance FROM accounts ORDER BY id`,
	`SELECT * FROM totals`,
	`SELECT to_regclass('accounts_balance') IS NULL`,
}

func TestMigrate(t *testing.T) {
	for name, driver := range migrateDrivers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				const last = 4
				queries := append(slices.Clone(migrateQueries), `SELECT version, dirty FROM schema_migrations`)
				m, other := r.migratorOn(r.db, "migrate", driver), r.open()
				step := func(what string, err error) {
					r.see(what, err)
					if err != nil && !errors.Is(err, migrate.ErrNoChange) && !strings.Contains(what, "refused") {
						r.Fatalf("%s: %v", what, err)
					}
					r.migrateState(m, queries...)
					for range 2 {
						for _, q := range queries {
							r.anew(other, q)
						}
					}
				}
				step("version table", nil)
				step("one", m.Steps(1))
				step("two more", m.Steps(2))
				step("the last", m.Up())
				step("up, none left", m.Up())
				step("one down", m.Steps(-1))
				step("to 1", m.Migrate(1))
				step("to the last", m.Migrate(last))
				step("to the last again", m.Migrate(last))
				step("refused: to none", m.Migrate(9))
				step("refused: too many steps", m.Steps(9))
				step("down", m.Down())
				step("down, none left", m.Down())
				step("up again", m.Up())
				r.exec(`INSERT INTO accounts (name) VALUES ('edsger')`)
				step("forced", m.Force(2))
				step("forced back", m.Force(last))

				r.see("drop", m.Drop())
				for range 2 {
					for _, q := range queries {
						r.anew(r.db, q)
						r.anew(other, q)
					}
				}
				// Another table of versions, on another connection.
				second := r.migrator("migrate", driver)
				r.must(second.Migrate(2))
				r.migrateState(second, queries...)
				sourceErr, err := second.Close()
				r.see("close", sourceErr, err)
				sourceErr, err = m.Close()
				r.see("close", sourceErr, err)
			})
		})
	}
}

func TestMigrateDirty(t *testing.T) {
	for name, driver := range migrateDrivers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				queries := []string{`SELECT n FROM ledger ORDER BY n`, `SELECT version, dirty FROM schema_migrations`}
				broken, fixed := r.migrator("migrate-broken", driver), r.migrator("migrate-fixed", driver)
				state := func() {
					r.migrateState(broken, queries...)
					r.migrateState(fixed, queries...)
				}
				r.see("up", broken.Up())
				state()
				r.see("up, dirty", broken.Up())
				r.see("up, dirty", fixed.Up())
				r.see("steps, dirty", fixed.Steps(1))
				state()
				r.must(fixed.Force(1))
				state()
				r.exec(`DELETE FROM ledger WHERE n = 2`)
				r.must(fixed.Steps(1))
				state()

				// It leaves its connection in a failed transaction, with the lock.
				r.see("third", broken.Steps(1))
				version, dirty, err := broken.Version()
				r.see("version in a failed transaction", version, dirty, err)
				r.see("force in a failed transaction", broken.Force(2))
				sourceErr, err := broken.Close()
				r.see("close", sourceErr, err)

				r.migrateState(fixed, queries...)
				r.must(fixed.Force(2))
				r.migrateState(fixed, queries...)
				r.must(fixed.Up())
				r.migrateState(fixed, queries...)
				sourceErr, err = fixed.Close()
				r.see("close", sourceErr, err)
			})
		})
	}
}

// migrateWaiting returns when so many sessions wait for an advisory lock in
// the database of this run.
func (r *run) migrateWaiting(sessions int) {
	r.Helper()
	conn, err := pgx.Connect(bg, r.dsn)
	r.must(err)
	defer conn.Close(bg)
	for {
		var n int
		r.must(conn.QueryRow(bg, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
		if n == sessions {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestMigrateLock(t *testing.T) {
	for name, driver := range migrateDrivers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				locked := r.open()
				r.changesSessions(locked, "golang-migrate has one connection, and locks on it")
				first, err := driver(locked)
				r.must(err)
				runners := []*migrate.Migrate{r.migrator("migrate", driver), r.migrator("migrate", driver)}
				r.see("lock", first.Lock(), first.Lock())

				var wg sync.WaitGroup
				ended := make([]string, len(runners))
				for i, m := range runners {
					wg.Go(func() {
						err := m.Migrate(3)
						if err != nil && !errors.Is(err, migrate.ErrNoChange) {
							r.Errorf("runner: %v", err)
						}
						ended[i] = fmt.Sprint(err)
					})
				}
				r.migrateWaiting(len(runners))
				r.see("unlock", first.Unlock())
				wg.Wait()
				slices.Sort(ended)
				r.see("ended", ended)
				r.see("unlock again", first.Unlock())
				for _, m := range runners {
					r.migrateState(m, migrateQueries...)
					sourceErr, err := m.Close()
					r.see("close", sourceErr, err)
				}
				version, dirty, err := first.Version()
				r.see("version", version, dirty, err)
				r.see("close", first.Close())
			})
		})
	}
}
