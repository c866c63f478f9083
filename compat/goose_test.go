package compat

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// gooseKinds is migration 4: it reads what it has to write in its transaction.
func gooseKinds() *goose.Migration {
	up := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `ALTER TABLE accounts ADD kind text NOT NULL DEFAULT ''`); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT id, balance >= 20 FROM accounts ORDER BY id`)
		if err != nil {
			return err
		}
		kinds := make(map[int64]string)
		for rows.Next() {
			var id int64
			var large bool
			if err := rows.Scan(&id, &large); err != nil {
				return err
			}
			kinds[id] = "small"
			if large {
				kinds[id] = "large"
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for id, kind := range kinds {
			if _, err := tx.ExecContext(ctx, `UPDATE accounts SET kind = $1 WHERE id = $2`, kind, id); err != nil {
				return err
			}
		}
		var left int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM accounts WHERE kind = ''`).Scan(&left); err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%d accounts without a kind", left)
		}
		return nil
	}
	down := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `ALTER TABLE accounts DROP kind`)
		return err
	}
	m := goose.NewGoMigration(4, &goose.GoFunc{RunTx: up}, &goose.GoFunc{RunTx: down})
	m.Source = "00004_kinds.go"
	return m
}

// gooseOutside is migration 6, which runs on the pool.
func gooseOutside() *goose.Migration {
	count := func(ctx context.Context, db *sql.DB) (n int, err error) {
		err = db.QueryRowContext(ctx, `SELECT count(*) FROM accounts`).Scan(&n)
		return n, err
	}
	change := func(statement string, by int) func(context.Context, *sql.DB) error {
		return func(ctx context.Context, db *sql.DB) error {
			before, err := count(ctx, db)
			if err != nil {
				return err
			}
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
			after, err := count(ctx, db)
			if err == nil && after != before+by {
				err = fmt.Errorf("%d accounts before and %d after", before, after)
			}
			return err
		}
	}
	m := goose.NewGoMigration(6,
		&goose.GoFunc{RunDB: change(`INSERT INTO accounts (name, kind) VALUES ('edsger', 'small')`, 1)},
		&goose.GoFunc{RunDB: change(`DELETE FROM accounts WHERE name = 'edsger'`, -1)})
	m.Source = "00006_edsger.go"
	return m
}

func (r *run) gooseProvider(dir string, options ...goose.ProviderOption) *goose.Provider {
	r.Helper()
	options = append(options, goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(goose.DialectPostgres, r.db, os.DirFS(dir), options...)
	r.must(err)
	return p
}

// gooseResults records what a provider says it did, without how long it took.
func (r *run) gooseResults(what string, results []*goose.MigrationResult, err error) {
	r.Helper()
	for _, m := range results {
		if m != nil {
			r.see(what, *m.Source, m.Direction, m.Empty, m.Error)
		}
	}
	r.see(what, err)
}

func (r *run) gooseResult(what string, result *goose.MigrationResult, err error) {
	r.Helper()
	r.gooseResults(what, []*goose.MigrationResult{result}, err)
}

// gooseState records what provider and program find, each asked twice: the
// second answer may be a held one.
func (r *run) gooseState(p *goose.Provider, queries ...string) {
	r.Helper()
	for range 2 {
		status, err := p.Status(bg)
		for _, s := range status {
			r.see("status", *s.Source, s.State, s.AppliedAt)
		}
		r.see("status", err)
		current, target, err := p.GetVersions(bg)
		r.see("versions", current, target, err)
		pending, err := p.HasPending(bg)
		r.see("pending", pending, err)
		version, err := p.GetDBVersion(bg)
		r.see("version", version, err)
		for _, q := range queries {
			r.anew(r.db, q)
		}
	}
}

// anew is query on a pool whose connections may know the text from before a
// DDL statement: pgx reports that once for each of them, so whichever the pool
// has handed out says nothing about the driver.
func (r *run) anew(db *sql.DB, query string, args ...any) {
	r.Helper()
	for {
		rows, err := db.QueryContext(bg, query, args...)
		if pe, ok := err.(*pgconn.PgError); ok && pe.Message == "cached plan must not change result type" {
			continue
		}
		r.rows(query, rows, err)
		return
	}
}

var gooseQueries = []string{
	`SELECT * FROM goose_db_version ORDER BY id`,
	`SELECT * FROM accounts ORDER BY id`,
	`SELECT count(*), sum(was) FROM history`,
	`SELECT * FROM totals ORDER BY kind`,
	`SELECT kind FROM accounts WHERE name = 'ada'`,
	`SELECT to_regclass('history') IS NULL, to_regclass('accounts_balance') IS NULL`,
}

func TestGooseProvider(t *testing.T) {
	same(t, func(r *run) {
		p := r.gooseProvider("testdata/goose", goose.WithGoMigrations(gooseKinds(), gooseOutside()))
		state := func() { r.gooseState(p, gooseQueries...) }
		one := func(what string, step func(context.Context) (*goose.MigrationResult, error)) {
			result, err := step(bg)
			r.gooseResult(what, result, err)
			state()
		}
		many := func(what string, step func(context.Context) ([]*goose.MigrationResult, error)) {
			results, err := step(bg)
			r.gooseResults(what, results, err)
			state()
		}
		to := func(step func(context.Context, int64) ([]*goose.MigrationResult, error), version int64) func(context.Context) ([]*goose.MigrationResult, error) {
			return func(ctx context.Context) ([]*goose.MigrationResult, error) { return step(ctx, version) }
		}
		apply := func(version int64, up bool) func(context.Context) (*goose.MigrationResult, error) {
			return func(ctx context.Context) (*goose.MigrationResult, error) { return p.ApplyVersion(ctx, version, up) }
		}
		for _, s := range p.ListSources() {
			r.see("source", *s)
		}
		r.see("ping", p.Ping(bg))
		state()
		one("up by one", p.UpByOne)
		many("up to 3", to(p.UpTo, 3))
		many("up", p.Up)
		many("up again", p.Up)
		one("up by one, none left", p.UpByOne)
		one("down", p.Down)
		one("redo: down", p.Down)
		one("redo: up", p.UpByOne)
		many("down to 1", to(p.DownTo, 1))
		one("apply 2", apply(2, true))
		one("apply 2 again", apply(2, true))
		one("unapply 2", apply(2, false))
		one("unapply 2 again", apply(2, false))
		one("apply an unknown one", apply(99, true))
		many("up", p.Up)
		many("down to 0", to(p.DownTo, 0))
		one("down, none left", p.Down)
		many("up", p.Up)
	})
}

// gooseLog hides how long a migration took, and when it was applied, in the
// lines that the package functions print.
type gooseLog struct{ r *run }

var gooseTimes = regexp.MustCompile(`\([\d.]+[µnm]?s\)|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}`)

func (l gooseLog) Printf(format string, args ...any) {
	l.r.see("log", gooseTimes.ReplaceAllString(fmt.Sprintf(format, args...), "<time>"))
}

func (l gooseLog) Fatalf(format string, args ...any) { l.r.Fatalf(format, args...) }

func TestGoosePackageFunctions(t *testing.T) {
	same(t, func(r *run) {
		goose.SetLogger(gooseLog{r})
		goose.ResetGlobalMigrations()
		r.Cleanup(func() {
			goose.SetLogger(goose.NopLogger())
			goose.ResetGlobalMigrations()
		})
		r.must(goose.SetDialect("postgres"))
		r.must(goose.SetGlobalMigrations(gooseKinds(), gooseOutside()))

		const dir = "testdata/goose"
		step := func(what string, err error) {
			r.see(what, err)
			for range 2 {
				r.see("status", goose.Status(r.db, dir))
				r.see("version", goose.Version(r.db, dir))
				version, err := goose.GetDBVersion(r.db)
				r.see("version", version, err)
				for _, q := range gooseQueries {
					r.anew(r.db, q)
				}
			}
		}
		version, err := goose.EnsureDBVersion(r.db)
		step("ensure", err)
		r.see("ensured", version)
		step("up by one", goose.UpByOne(r.db, dir))
		step("up to 3", goose.UpTo(r.db, dir, 3))
		step("redo", goose.Redo(r.db, dir))
		step("up", goose.Up(r.db, dir))
		step("up again", goose.Up(r.db, dir))
		step("up by one, none left", goose.UpByOne(r.db, dir))
		step("down", goose.Down(r.db, dir))
		step("redo", goose.Redo(r.db, dir))
		step("down to 2", goose.DownTo(r.db, dir, 2))
		step("run up", goose.RunContext(bg, "up", r.db, dir))
		step("reset", goose.Reset(r.db, dir))
		step("up", goose.Up(r.db, dir))

		goose.ResetGlobalMigrations()
		r.must(goose.Up(r.db, "testdata/goose-fixed", goose.WithNoVersioning()))
		r.query(`SELECT * FROM ledger ORDER BY n`)
	})
}

func TestGooseOutOfOrder(t *testing.T) {
	same(t, func(r *run) {
		all := goose.WithGoMigrations(gooseKinds())
		first := r.gooseProvider("testdata/goose", all, goose.WithExcludeVersions([]int64{2, 5}))
		results, err := first.Up(bg)
		r.gooseResults("without 2", results, err)
		r.gooseState(first, gooseQueries...)

		strict := r.gooseProvider("testdata/goose", all)
		results, err = strict.Up(bg)
		r.gooseResults("refused", results, err)
		r.gooseState(strict, gooseQueries...)

		lenient := r.gooseProvider("testdata/goose", all, goose.WithAllowOutofOrder(true))
		r.gooseState(lenient)
		one, err := lenient.UpByOne(bg)
		r.gooseResult("2 late", one, err)
		r.gooseState(lenient, gooseQueries...)
		results, err = lenient.Up(bg)
		r.gooseResults("the rest", results, err)
		r.gooseState(lenient, gooseQueries...)
		one, err = lenient.Down(bg)
		r.gooseResult("down", one, err)
		r.gooseState(lenient, gooseQueries...)

		goose.SetLogger(gooseLog{r})
		r.Cleanup(func() { goose.SetLogger(goose.NopLogger()) })
		r.must(goose.SetDialect("postgres"))
		r.exec(`DELETE FROM goose_db_version WHERE version_id = 2`, `DROP TABLE history`, `DROP FUNCTION remember CASCADE`)
		r.must(goose.SetGlobalMigrations(gooseKinds()))
		r.Cleanup(goose.ResetGlobalMigrations)
		r.see("refused", goose.Up(r.db, "testdata/goose"))
		r.see("late", goose.Up(r.db, "testdata/goose", goose.WithAllowMissing()))
		r.see("status", goose.Status(r.db, "testdata/goose"))
	})
}

func TestGooseFailingMigration(t *testing.T) {
	same(t, func(r *run) {
		broken, fixed := r.gooseProvider("testdata/goose-broken"), r.gooseProvider("testdata/goose-fixed")
		queries := []string{
			`SELECT n FROM ledger ORDER BY n`,
			`SELECT count(*) FROM undone`,
			`SELECT version_id, is_applied FROM goose_db_version ORDER BY id`,
		}
		failed := func(what string, err error) {
			r.see(what, err)
			if pe, ok := err.(*goose.PartialError); ok {
				r.gooseResults(what+": applied", pe.Applied, nil)
				r.see(what+": failed", *pe.Failed.Source, pe.Failed.Direction, pe.Failed.Empty, pe.Failed.Error)
			}
		}
		for range 2 {
			_, err := broken.Up(bg)
			failed("up", err)
			r.gooseState(broken, queries...)
		}
		result, err := fixed.UpByOne(bg)
		r.gooseResult("repaired", result, err)
		r.gooseState(fixed, queries...)

		// Without a transaction the first half stays.
		_, err = broken.UpByOne(bg)
		failed("half", err)
		r.gooseState(broken, queries...)
		results, err := fixed.Up(bg)
		r.gooseResults("repaired", results, err)
		r.gooseState(fixed, queries...)
		result, err = fixed.Down(bg)
		r.gooseResult("down", result, err)
		r.gooseState(fixed, queries...)

		r.exec(`DROP TABLE ledger`)
		result, err = fixed.Down(bg)
		r.gooseResult("down without its table", result, err)
		failed("down without its table", err)
		r.gooseState(fixed, queries...)
	})
}

// gooseEntrant tells when a runner has come to the lock.
type gooseEntrant struct {
	lock.SessionLocker
	came func()
}

func (e gooseEntrant) SessionLock(ctx context.Context, conn *sql.Conn) error {
	e.came()
	return e.SessionLocker.SessionLock(ctx, conn)
}

type gooseTableEntrant struct {
	lock.Locker
	came func()
}

func (e gooseTableEntrant) Lock(ctx context.Context, db *sql.DB) error {
	e.came()
	return e.Locker.Lock(ctx, db)
}

func TestGooseRunnersAtOnce(t *testing.T) {
	lockers := map[string]func(r *run, came func()) goose.ProviderOption{
		"session-lock": func(r *run, came func()) goose.ProviderOption {
			l, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60), lock.WithUnlockTimeout(1, 60))
			r.must(err)
			return goose.WithSessionLocker(gooseEntrant{l, came})
		},
		"table-lock": func(r *run, came func()) goose.ProviderOption {
			l, err := lock.NewPostgresTableLocker(lock.WithTableLockTimeout(20*time.Millisecond, 3000))
			r.must(err)
			return goose.WithLocker(gooseTableEntrant{l, came})
		},
	}
	for name, locker := range lockers {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				var came sync.WaitGroup
				came.Add(2) // runners
				var runs atomic.Int32
				// It keeps the lock until every runner wants it.
				meet := goose.NewGoMigration(7, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
					came.Wait()
					runs.Add(1)
					_, err := tx.ExecContext(ctx, `INSERT INTO accounts (name, kind) VALUES ('barbara', 'small')`)
					return err
				}}, nil)

				var wg sync.WaitGroup
				var mu sync.Mutex
				var applied []int64
				another := r.open()
				r.changesSessions(another, "goose reads on the connection that has its lock")
				r.inChangedSession(r.db, func() { // for the same reason
					for _, db := range []*sql.DB{another, r.db} {
						var once sync.Once
						p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("testdata/goose"), goose.WithDisableGlobalRegistry(true),
							goose.WithGoMigrations(gooseKinds(), gooseOutside(), meet), locker(r, func() { once.Do(came.Done) }))
						r.must(err)
						wg.Go(func() {
							results, err := p.Up(bg)
							if err != nil {
								r.Errorf("runner: %v", err)
							}
							mu.Lock()
							defer mu.Unlock()
							for _, m := range results {
								applied = append(applied, m.Source.Version)
							}
						})
					}
					wg.Wait()
				})
				// The lock was given back: its connection need not be renewed.
				r.query(`SELECT count(*) FROM accounts`)
				slices.Sort(applied)
				r.see("applied", applied, runs.Load())

				// Runners that create the version table at once, which goose does
				// before it locks, may leave its sequence another name. A DO block
				// makes its session private, so not on a pool in use.
				aside := r.open()
				_, err := aside.Exec(`DO $$ BEGIN
					EXECUTE format('ALTER SEQUENCE %s RENAME TO goose_versions', pg_get_serial_sequence('goose_db_version', 'id'));
				END $$`)
				r.must(err)
				r.must(aside.Close())
				p := r.gooseProvider("testdata/goose", goose.WithGoMigrations(gooseKinds(), gooseOutside(), meet))
				r.gooseState(p, gooseQueries...)
				if name == "table-lock" {
					r.query(`SELECT locked, locked_by IS NULL FROM goose_lock`)
					r.exec(`UPDATE goose_lock SET locked_by = ''`)
				}
			})
		})
	}
}
