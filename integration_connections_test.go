package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// Virtual connections: who dials, how often, and who does not.

func TestTwoThousandReadersShareOneQueryAndOneConnection(t *testing.T) {
	t.Parallel()
	const callers = 2000
	const read = "SELECT sum(n) FROM stock WHERE n > $1"
	burst := func(f *fixture, db *sql.DB, read func() (int, error)) {
		f.Helper()
		f.db = db
		release := f.lock("stock")
		errs := together(callers, func(int) error {
			n, err := read()
			if err == nil && n != 55 {
				err = fmt.Errorf("read %d", n)
			}
			return err
		})
		f.sharing(callers)
		same(f, "server connections while all wait", f.serverConns(), 1)
		same(f, "pool connections while all wait", db.Stats().InUse, callers)
		release()
		noErrors(f, receive(f, errs))
		same(f, "queries", f.seen.queries("sum(n)"), 1)
		same(f, "dials", int(f.seen.dials.Load()), 1)
		same(f, "Stats.Conns", f.stats().Conns, 1)
		s := f.stats()
		same(f, "led", s.Led, 1)
		same(f, "joined", s.Joined, callers-1)
		f.quiet()
	}
	prepare := func(t *testing.T) *fixture {
		t.Parallel()
		f := newFixture(t, setup{})
		f.by("CREATE TABLE stock AS SELECT n FROM generate_series(1, 10) n")
		return f
	}
	scan := func(r *sql.Row) (n int, err error) { return n, r.Scan(&n) }

	t.Run("by-connector", func(t *testing.T) {
		f := prepare(t)
		burst(f, f.db, func() (int, error) { return scan(f.db.QueryRow(read, 0)) })
	})
	t.Run("prepared", func(t *testing.T) {
		f := prepare(t)
		st, err := f.db.Prepare(read)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		burst(f, f.db, func() (int, error) { return scan(st.QueryRow(0)) })
	})
	t.Run("by-registered-name", func(t *testing.T) {
		f := prepare(t)
		cfg := f.pgxConfig(nil)
		name := stdlib.RegisterConnConfig(&cfg)
		defer stdlib.UnregisterConnConfig(name)
		db := openCoalesce(t, name)
		burst(f, db, func() (int, error) { return scan(db.QueryRow(read, 0)) })
	})
	t.Run("by-dsn", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, setup{})
		f.by("CREATE TABLE stock AS SELECT n FROM generate_series(1, 10) n")
		f.db = openCoalesce(t, f.dsn, "application_name="+appName)
		release := f.lock("stock")
		errs := together(callers, func(int) error { _, err := scan(f.db.QueryRow(read, 0)); return err })
		f.sharing(callers)
		same(t, "server connections", f.serverConns(), 1)
		release()
		noErrors(t, receive(t, errs))
		same(t, "led", f.stats().Led, 1)
	})
}

// Which database a connector leads to, and so which writes it must heed, may
// be known only once it has dialled. That must not split its first flight.
func TestFirstBurstOfConnectorSharesOneQueryAfterWritesByAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	writer := openCoalesce(t, f.dsn)
	mustExec(t, writer, "CREATE TABLE shared_burst AS SELECT 1 AS n")
	mustExec(t, writer, "INSERT INTO shared_burst VALUES (2)")
	release := f.lock("shared_burst")
	const callers, read = 50, "SELECT count(*) FROM shared_burst"
	first := askFor[int](bg, f.db, read)
	until(t, func() bool { return f.running("shared_burst") == 1 }, says("the leader's query waits for the lock"))
	errs := together(callers, func(int) error {
		var n int
		return f.db.QueryRow(read).Scan(&n)
	})
	f.sharing(callers + 1)
	release()
	noErrors(t, receive(t, errs))
	sameAnswer(t, "first", first, 2)
	same(t, "queries", f.seen.queries("shared_burst"), 1)
	// And the two share versions from the first moment on.
	mustExec(t, writer, "INSERT INTO shared_burst VALUES (3)")
	same(t, "after the other's write", get[int](t, f.db, read), 3)
}

func TestTenThousandCallersFitIntoThreePlaces(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{MaxConnections: 5})
	observer, err := pgx.Connect(bg, server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close(bg)
	if _, err := observer.Exec(bg, "CREATE TABLE entries AS SELECT g AS id, g % 20 AS repo FROM generate_series(1, 2000) g"); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(logOf(t, server), "connection received")
	db := openCoalesce(t, server.DSN(), "coalesce_max_conns=3", "application_name="+appName)

	most := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				most <- n
				return
			default:
				var now int
				observer.QueryRow(bg, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+appName+"'").Scan(&now)
				n = max(n, now)
			}
		}
	}()
	errs := together(10_000, func(i int) error {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM entries WHERE repo = $1", i%20).Scan(&n); err != nil {
			return err
		}
		if n != 100 {
			return fmt.Errorf("read %d", n)
		}
		return nil
	})
	noErrors(t, receive(t, errs))
	close(stop)
	if n := <-most; n > 3 {
		t.Errorf("%d server connections at once, want at most 3", n)
	}
	log := logOf(t, server)
	if n := strings.Count(log, "connection received") - before; n > 20 {
		t.Errorf("the server was dialled %d times for 20 reads", n)
	}
	if strings.Contains(log, "too many clients") {
		t.Error("the server refused a connection")
	}
	s := coalesce.StatsOf(db)
	same(t, "led", s.Led, 20)
	same(t, "reads", s.Reads, 10_000)
	if s.Conns > 3 {
		t.Errorf("Stats.Conns is %d", s.Conns)
	}
}

func logOf(t testing.TB, s *pgtest.Server) string {
	t.Helper()
	log, err := s.Log()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// More reads than places, without a burst: a place must come free whenever a
// caller is done, whatever the pool keeps.
func TestPlacesGoRoundAmongPrivateAndSharedReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 2}})
	f.by("CREATE TABLE round(n int)", "INSERT INTO round VALUES (1)")
	errs := together(200, func(i int) error {
		var n int
		var err error
		switch i % 5 {
		case 0:
			err = f.db.QueryRowContext(coalesce.Fresh(bg), "SELECT n FROM round").Scan(&n)
		case 1:
			err = f.db.QueryRow("SELECT n + 0 * $1 FROM round", i).Scan(&n)
		case 2:
			err = f.db.QueryRow("SELECT n FROM round FOR SHARE").Scan(&n)
		case 3:
			var tx *sql.Tx
			if tx, err = f.db.Begin(); err == nil {
				err = errors.Join(tx.QueryRow("SELECT n FROM round").Scan(&n), tx.Commit())
			}
		case 4:
			n = 1
			_, err = f.db.Exec("UPDATE round SET n = 1")
		}
		if err == nil && n != 1 {
			err = fmt.Errorf("read %d", n)
		}
		return err
	})
	noErrors(t, receive(t, errs))
	if n := f.serverConns(); n > 2 {
		t.Errorf("%d server connections, want at most 2", n)
	}
	f.quiet()
}

// Who reads a shared result and asks for more with each row needs a place beside
// the connection it reads from, which needs none.
func TestReadersOfSharedRowsKeepNoPlace(t *testing.T) {
	t.Parallel()
	const places = 2
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: places}})
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	f.by("CREATE TABLE list AS SELECT generate_series(1, 3) AS n")
	query := func(i int) string { return fmt.Sprintf("SELECT n FROM list WHERE n < %d", 1000+i) }
	st, err := f.db.Prepare(query(0))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	readers := map[string]func(i int) (*sql.Rows, error){
		"held":     func(int) (*sql.Rows, error) { return f.db.QueryContext(ctx, "SELECT n FROM list") },
		"led":      func(i int) (*sql.Rows, error) { return f.db.QueryContext(ctx, query(1+i)) },
		"joined":   func(int) (*sql.Rows, error) { return f.db.QueryContext(ctx, "SELECT n + 0 FROM list") },
		"prepared": func(int) (*sql.Rows, error) { return st.QueryContext(ctx) },
	}
	get[int](t, f.db, "SELECT n FROM list")
	for how, read := range readers {
		t.Run(how, func(t *testing.T) {
			var idle [places]*sql.Conn // with the places
			for i := range idle {
				idle[i] = pinned(t, f.db)
				get[int](t, idle[i], "SELECT 1 FROM list WHERE n = 1 FOR SHARE")
			}
			for _, c := range idle {
				c.Close()
			}
			all := make([]*sql.Rows, 4*places)
			errs := together(len(all), func(i int) (err error) {
				all[i], err = read(i)
				return err
			})
			noErrors(t, receive(t, errs))
			errs = together(len(all), func(i int) error {
				rows := all[i]
				defer rows.Close()
				sum := 0
				for rows.Next() {
					var n, m int
					if err := rows.Scan(&n); err != nil {
						return err
					}
					if err := f.db.QueryRowContext(ctx, "SELECT n FROM list WHERE n = $1 FOR SHARE", n).Scan(&m); err != nil {
						return err
					}
					sum += m
				}
				if sum != 6 {
					return fmt.Errorf("the rows add up to %d", sum)
				}
				return rows.Err()
			})
			noErrors(t, receive(t, errs))
		})
	}
	if n := f.serverConns(); n > places {
		t.Errorf("%d server connections for %d places", n, places)
	}
}

// To be asked whether it still has advisory locks tells a caller nothing of the
// session, though it is done on it.
func TestReaderWhoseConnectionHadLocksKeepsNoPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 1}})
	f.by("CREATE TABLE list AS SELECT generate_series(1, 3) AS n")
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	// The pool gives the one that was closed last next: it has the link.
	a, b := pinned(t, f.db), pinned(t, f.db)
	getIn[int](t, ctx, a, "SELECT n FROM list")
	a.Close()
	if _, err := b.ExecContext(ctx, "SELECT pg_advisory_lock(7), pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	rows, err := f.db.QueryContext(ctx, "SELECT n FROM list")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		getIn[int](t, ctx, f.db, "SELECT n FROM list LIMIT 1 FOR SHARE")
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}

// A caller may know the session of a connection that it keeps.
func TestPinnedConnectionKeepsItsSessionWhileItReadsSharedRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 1}})
	f.by("CREATE TABLE list AS SELECT 17 AS n")
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	for _, how := range []string{"led", "held"} {
		c, other := pinned(t, f.db), pinned(t, f.db)
		pid := getIn[int](t, ctx, c, "SELECT pg_backend_pid()")
		same(t, how, getIn[int](t, ctx, c, "SELECT n FROM list"), 17)
		a := askFor[int](coalesce.Fresh(ctx), other, "SELECT n FROM list")
		until(t, func() bool { return coalesce.WaitingForPlace(f.db) == 1 || len(a) == 1 }, says("the other neither waits nor was served"))
		same(t, "session after a read that was "+how, getIn[int](t, ctx, c, "SELECT pg_backend_pid()"), pid)
		c.Close()
		sameAnswer(t, "the other", a, 17)
		other.Close()
	}
}

func TestCallerStopsWaitingForPlaceWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 1}})
	tx, err := f.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"SELECT 1", "SELECT 1 FOR UPDATE"} {
		short, cancel := context.WithCancel(bg)
		a := askFor[int](short, f.db, query)
		cancel()
		if err := receive(t, a).err; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", query, err)
		}
	}
	tx.Rollback()
	same(t, "read once the place is free", get[int](t, f.db, "SELECT 2"), 2)
	f.quiet()
}

// database/sql closes a statement on connections that lie idle in the pool,
// whose server connections may be on loan to others at that moment.
func TestStatementsCloseWhileIdleConnectionsLendTheirPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE lend(n int)", "INSERT INTO lend VALUES (1)")
	for range 20 {
		db := openCoalesce(t, f.dsn, "coalesce_max_conns=1")
		other := pinned(t, db) // has no server connection yet
		st, err := db.Prepare("SELECT n + 1 FROM lend")
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := st.QueryRow().Scan(&n); err != nil || n != 2 {
			t.Fatalf("prepared: %d, %v", n, err)
		}
		// Now the only server connection lies idle with the statement on it.
		taken := askFor[int](coalesce.Fresh(bg), other, "SELECT n FROM lend")
		if err := st.Close(); err != nil {
			t.Errorf("closing the statement: %v", err)
		}
		sameAnswer(t, "read on the connection taken over", taken, 1)
		other.Close()
		db.Close()
	}
}

func TestConnectionsOfDriverOpenShareNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE opened AS SELECT 17 AS n")
	db := sql.OpenDB(dsnConnector{&coalesce.Driver{}, f.dsn})
	defer db.Close()
	get[int](t, f.db, "SELECT n FROM opened")
	same(t, "at first", get[int](t, db, "SELECT n FROM opened"), 17)
	mustExec(t, f.plain, "UPDATE opened SET n = 18")
	same(t, "written by others", get[int](t, db, "SELECT n FROM opened"), 18)
	get[int](t, f.db, "SELECT n FROM opened")
	mustExec(t, db, "UPDATE opened SET n = 19")
	same(t, "own write, seen by the other database", get[int](t, f.db, "SELECT n FROM opened"), 19)
}

func TestOpeningAConnectionDialsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	c := pinned(t, f.db)
	same(t, "dials after Conn", f.seen.dials.Load(), 0)
	if err := c.Raw(func(any) error { return nil }); err != nil {
		t.Error(err)
	}
	same(t, "dials after an empty Raw", f.seen.dials.Load(), 0)
	same(t, "a read", get[int](t, c, "SELECT 7"), 7)
	same(t, "dials after a read", f.seen.dials.Load(), 1)
	same(t, "a held read elsewhere", get[int](t, pinned(t, f.db), "SELECT 7"), 7)
	same(t, "dials after a held read", f.seen.dials.Load(), 1)
}

func TestHeldReadNeedsNoServerButPingDoes(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	f := newFixtureOn(t, server.DSN(), setup{})
	f.by("CREATE TABLE kept(n int)", "INSERT INTO kept VALUES (5)")
	st, err := f.db.Prepare("SELECT n FROM kept WHERE n < $1")
	if err != nil {
		t.Fatal(err)
	}
	read := func(when string) {
		t.Helper()
		same(t, when, get[int](t, f.db, "SELECT n FROM kept"), 5)
		var n int
		if err := st.QueryRow(10).Scan(&n); err != nil || n != 5 {
			t.Errorf("%s, prepared: %d, %v", when, n, err)
		}
	}
	read("server up")
	if err := f.db.Ping(); err != nil {
		t.Errorf("Ping with the server up: %v", err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	dials := f.seen.dials.Load()
	// More connections than lie in the pool: new ones do not dial either.
	conns := []*sql.Conn{pinned(t, f.db), pinned(t, f.db), pinned(t, f.db), pinned(t, f.db)}
	for _, c := range conns {
		same(t, "server down", get[int](t, c, "SELECT n FROM kept"), 5)
	}
	read("server down")
	same(t, "dials by held reads", f.seen.dials.Load()-dials, 0)
	for _, c := range conns {
		c.Close()
	}
	if err := f.db.Ping(); err == nil {
		t.Error("Ping succeeds with the server down")
	}
	read("server down, after Ping")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := f.db.Ping(); err != nil {
		t.Errorf("Ping with the server up again: %v", err)
	}
	same(t, "another read with the server up again", get[int](t, f.db, "SELECT n + 1 FROM kept"), 6)
}

func TestPingAsksTheServerOnEachCall(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"log_statement": "all"}})
	db := openCoalesce(t, server.DSN())
	for range 3 {
		if err := db.Ping(); err != nil {
			t.Fatal(err)
		}
	}
	// pgx may add one of its own where a connection was idle for a while.
	if n := strings.Count(logOf(t, server), "-- ping"); n < 3 {
		t.Errorf("the server saw %d pings, want 3", n)
	}
	c := pinned(t, db)
	if err := c.PingContext(bg); err != nil {
		t.Error(err)
	}
	server.Stop()
	if err := c.PingContext(bg); err == nil {
		t.Error("Ping on a connection that is lost succeeds")
	}
}

func justBegin(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	return tx.Rollback()
}

func justPrepare(db *sql.DB) error {
	st, err := db.Prepare("SELECT 3")
	if err != nil {
		return err
	}
	return st.Close()
}

func TestDeadIdleConnectionIsReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	uses := map[string]func(*fixture) error{
		"led":      func(f *fixture) error { var n int; return f.db.QueryRow("SELECT 2").Scan(&n) },
		"private":  func(f *fixture) error { var n int; return f.db.QueryRow("SELECT 2 FOR UPDATE").Scan(&n) },
		"exec":     func(f *fixture) error { _, err := f.db.Exec("CREATE TABLE x()"); return err },
		"begin":    func(f *fixture) error { return justBegin(f.db) },
		"ping":     func(f *fixture) error { return f.db.Ping() },
		"prepare":  func(f *fixture) error { return justPrepare(f.db) },
		"prepared": nil,
	}
	for name, use := range uses {
		for _, catalog := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, catalog %v", name, catalog), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, setup{})
				f.by("CREATE TABLE known AS SELECT 5 AS n")
				use := use
				if catalog && use != nil {
					get[int](t, f.db, "SELECT n FROM known")
				} else {
					st, err := f.db.Prepare("SELECT n + 1 FROM known")
					if err != nil {
						t.Fatal(err)
					}
					if use == nil {
						use = func(*fixture) error { var n int; return st.QueryRow().Scan(&n) }
					}
				}
				f.by("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '" + appName + "'")
				until(t, func() bool { return f.serverConns() == 0 }, says("the connection is gone"))
				if err := use(f); err != nil {
					t.Error(err)
				}
				same(t, "dials", f.seen.dials.Load(), 2)
			})
		}
	}
}

func TestRefusedDialIsTriedOnceForAllWaiters(t *testing.T) {
	t.Parallel()
	const callers = 100
	run := func(t *testing.T, dsn string, check func(error) error, gone func()) {
		waiting := make(chan struct{})
		var attempts atomic.Int64
		f := newFixtureOn(t, dsn, setup{pgx: func(c *pgx.ConnConfig) {
			c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				attempts.Add(1)
				<-waiting
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}})
		gone()
		errs := together(callers, func(int) error {
			var n int
			return f.db.QueryRow("SELECT 1").Scan(&n)
		})
		f.sharing(callers)
		close(waiting)
		for _, err := range receive(t, errs) {
			if err = check(err); err != nil {
				t.Error(err)
				break
			}
		}
		same(t, "attempts", attempts.Load(), 1)
		same(t, "Stats.Errors", f.stats().Errors, 1)
		same(t, "Stats.Conns", f.stats().Conns, 0)
		f.quiet()
	}
	t.Run("server-down", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Private(t, pgtest.Options{})
		run(t, server.DSN(), func(err error) error {
			var ce *pgconn.ConnectError
			if !errors.As(err, &ce) {
				return fmt.Errorf("got %w, want a *pgconn.ConnectError", err)
			}
			return nil
		}, func() { server.Stop() })
	})
	t.Run("too-many-clients", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Private(t, pgtest.Options{MaxConnections: 4})
		run(t, server.DSN(), func(err error) error {
			if sqlState(err) != "53300" {
				return fmt.Errorf("got %w, want SQLSTATE 53300", err)
			}
			return nil
		}, func() {
			for range 4 {
				c, err := pgx.Connect(bg, server.DSN())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close(bg) })
			}
		})
	})
	t.Run("no-such-database", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.WithDatabase(pgtest.DSN(t), "nowhere_at_all")
		run(t, dsn, func(err error) error {
			if sqlState(err) != "3D000" {
				return fmt.Errorf("got %w, want SQLSTATE 3D000", err)
			}
			return nil
		}, func() {})
	})
}

func TestBadStatementIsReportedByPrepare(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	if _, err := f.db.Prepare("SELEC 1"); sqlState(err) != "42601" {
		t.Errorf("got %v, want SQLSTATE 42601", err)
	}
	if _, err := f.db.Prepare("SELECT * FROM nowhere"); sqlState(err) != "42P01" {
		t.Errorf("got %v, want SQLSTATE 42P01", err)
	}
	f.do("CREATE TABLE nowhere(n int)")
	st, err := f.db.Prepare("SELECT count(*) FROM nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Query(1); err == nil || errors.Is(err, driver.ErrSkip) {
		t.Errorf("an argument too many: got %v", err)
	}
	st.Close()
	f.do("DROP TABLE nowhere")
	// It was known to be good, and is no more.
	for range 2 { // a connection that the server has to be asked on anyway, and a new one
		if _, err := pinned(t, f.db).PrepareContext(bg, "SELECT count(*) FROM nowhere"); sqlState(err) != "42P01" {
			t.Errorf("after DROP TABLE: got %v, want SQLSTATE 42P01", err)
		}
	}
}

func TestPreparedStatementGivesWhatTheQueryGives(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	st, err := f.db.Prepare("SELECT $1::int4 + 1")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, n := range []int{7, 8} {
			var a int
			if err := st.QueryRow(n).Scan(&a); err != nil || a != n+1 {
				t.Errorf("%d: %d, %v", n, a, err)
			}
			same(t, "by query", get[int](t, f.db, "SELECT $1::int4 + 1", n), n+1)
		}
	}
	for _, args := range [][]any{{}, {1, 2}} {
		_, err := st.Query(args...)
		if err == nil || errors.Is(err, driver.ErrSkip) || strings.Contains(err.Error(), "deprecated") {
			t.Errorf("%d arguments: got %v", len(args), err)
		}
	}
	if _, err := st.Exec(1); err != nil {
		t.Errorf("Exec: %v", err)
	}
	tx, err := f.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var a int
	if err := tx.Stmt(st).QueryRow(1).Scan(&a); err != nil || a != 2 {
		t.Errorf("in a transaction: %d, %v", a, err)
	}
}

func TestPoolOfOneServesManyReaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.db.SetMaxOpenConns(1)
	f.by("CREATE TABLE single AS SELECT 3 AS n")
	release := f.lock("single")
	errs := together(50, func(int) error {
		var n int
		return f.db.QueryRow("SELECT n FROM single").Scan(&n)
	})
	until(t, func() bool { return f.db.Stats().WaitCount == 49 && f.running("single") == 1 }, says("49 wait for the pool"))
	s := f.db.Stats()
	same(t, "OpenConnections", s.OpenConnections, 1)
	same(t, "InUse", s.InUse, 1)
	release()
	noErrors(t, receive(t, errs))
	same(t, "queries", f.seen.queries("single"), 1)
	st := f.stats()
	same(t, "led", st.Led, 1)
	same(t, "held", st.Held, 49)
	same(t, "Idle", f.db.Stats().Idle, 1)
}

func TestPoolKnobsBoundServerConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE knobs AS SELECT 3 AS n")
	use := func(n int) {
		t.Helper()
		release := f.lock("knobs")
		errs := together(n, func(i int) error {
			var v int
			return f.db.QueryRowContext(coalesce.TTL(bg, 0), "SELECT n FROM knobs WHERE n < $1", 100+i).Scan(&v)
		})
		until(t, func() bool { return f.running("knobs") == min(n, max(f.db.Stats().MaxOpenConnections, 1)) }, says("all that may are at the server"))
		release()
		noErrors(t, receive(t, errs))
	}
	f.db.SetMaxOpenConns(3)
	f.db.SetMaxIdleConns(3)
	use(10)
	if n := f.serverConns(); n > 3 || n == 0 {
		t.Errorf("MaxOpenConns 3: %d server connections", n)
	}
	same(t, "Stats.Conns", f.stats().Conns, f.serverConns())
	same(t, "OpenConnections", f.db.Stats().OpenConnections, 3)

	f.db.SetMaxIdleConns(1)
	until(t, func() bool { return f.serverConns() <= 1 }, says("MaxIdleConns 1 closes the others"))
	same(t, "Idle", f.db.Stats().Idle, 1)
	same(t, "MaxIdleClosed", f.db.Stats().MaxIdleClosed, 2)

	f.db.SetMaxIdleConns(-1)
	until(t, func() bool { return f.serverConns() == 0 }, says("no idle connection is left"))
	use(1)
	until(t, func() bool { return f.serverConns() == 0 }, says("no idle connection is kept"))

	f.db.SetMaxIdleConns(2)
	use(1)
	same(t, "kept", f.serverConns(), 1)
	f.db.SetConnMaxLifetime(time.Millisecond)
	until(t, func() bool { return f.serverConns() == 0 && f.db.Stats().MaxLifetimeClosed > 0 }, says("the lifetime is over"))
	f.db.SetConnMaxLifetime(0)
	use(1)
	same(t, "kept", f.serverConns(), 1)
	f.db.SetConnMaxIdleTime(time.Millisecond)
	until(t, func() bool { return f.serverConns() == 0 && f.db.Stats().MaxIdleTimeClosed > 0 }, says("the idle time is over"))
}

func TestBurstAfterBurstNeedsFewConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE again AS SELECT 3 AS n")
	const bursts, callers = 10, 100
	for burst := range bursts {
		release := f.lock("again")
		errs := together(callers, func(int) error {
			var n int
			return f.db.QueryRow("SELECT n FROM again WHERE n < $1", 100+burst).Scan(&n)
		})
		f.sharing(callers * (burst + 1))
		if n := f.serverConns(); n > 2 { // what the pool keeps idle
			t.Errorf("%d server connections", n)
		}
		release()
		noErrors(t, receive(t, errs))
		f.quiet()
	}
	same(t, "queries", f.seen.queries("again"), bursts)
	// The pool keeps two of a hundred connections: mostly, not always, the one
	// that led or that it was left to.
	if n := f.seen.dials.Load(); n > bursts/2+1 {
		t.Errorf("%d dials for %d bursts", n, bursts)
	}
}

func TestCloseEndsFlightsAndLeavesNothing(t *testing.T) {
	dsn := pgtest.Database(t)
	for _, places := range []int{0, 2} {
		t.Run(fmt.Sprintf("max-conns-%d", places), func(t *testing.T) {
			var f *fixture
			db := func() *sql.DB {
				f = newFixtureOn(t, dsn, setup{config: coalesce.Config{MaxConns: places}})
				f.by("DROP TABLE IF EXISTS closing", "CREATE TABLE closing AS SELECT 3 AS n")
				get[int](t, f.plain, "SELECT 1")
				leakCheck(t)
				return sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(f.pgxConfig(nil)), coalesce.Config{MaxConns: places}))
			}()
			f.db = db
			release := f.lock("closing")
			const callers = 60 // of three reads; with two places, one flight waits for one
			errs := together(callers, func(i int) error {
				var n int
				return db.QueryRow("SELECT n FROM closing WHERE n < $1", 100+i%3).Scan(&n)
			})
			f.sharing(callers)
			atServer := 3
			if places > 0 {
				atServer = places
			}
			until(t, func() bool { return f.running("closing") == atServer }, says("all that may are at the server"))
			closed := make(chan error, 1)
			go func() { closed <- db.Close() }()
			if err := receive(t, closed); err != nil {
				t.Errorf("Close: %v", err)
			}
			for _, err := range receive(t, errs) {
				if err == nil {
					t.Error("a caller whose table is still locked was given an answer")
				} else if !errors.Is(err, coalesce.ErrClosed) && !strings.Contains(err.Error(), "database is closed") {
					t.Errorf("got %v", err)
					break
				}
			}
			until(t, func() bool { return f.serverConns() == 0 }, says("no server connection is left"))
			same(t, "Stats.StoredBytes", f.stats().StoredBytes, 0)
			same(t, "Stats.Conns", f.stats().Conns, 0)
			same(t, "Stats.Flights", f.stats().Flights, 0)
			if err := db.QueryRow("SELECT 1").Scan(new(int)); err == nil {
				t.Error("a closed database answers")
			}
			if err := db.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			release()
		})
	}
}

func TestCloseFreesWhatIsHeldAndReopeningStartsEmpty(t *testing.T) {
	dsn := pgtest.Database(t)
	plain := openPlain(t, dsn)
	if _, err := plain.Exec("CREATE TABLE reopened AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	leakCheck(t)
	open := func() *sql.DB {
		db, err := sql.Open("coalesce-pgx", dsnWith(dsn, "application_name="+appName))
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	same(t, "first", get[int](t, db, "SELECT n FROM reopened"), 1)
	if coalesce.StatsOf(db).StoredBytes == 0 {
		t.Error("nothing is held")
	}
	if _, err := plain.Exec("UPDATE reopened SET n = 2"); err != nil {
		t.Fatal(err)
	}
	same(t, "held", get[int](t, db, "SELECT n FROM reopened"), 1)
	db.Close()
	same(t, "held bytes after Close", coalesce.StatsOf(db).StoredBytes, 0)
	db = open()
	same(t, "reopened", get[int](t, db, "SELECT n FROM reopened"), 2)
	same(t, "reads of the reopened", coalesce.StatsOf(db).Reads, 1)
	db.Close()
}

func TestOpenRowsOutliveClose(t *testing.T) {
	// As with pgx: what is being read may be read on, or closed.
	dsn := pgtest.Database(t)
	leakCheck(t)
	db, err := sql.Open("coalesce-pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"SELECT generate_series(1, 3)",
		endless,
	} {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		defer rows.Close()
	}
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	receive(t, closed)
}

// endless has more rows than anybody can wait for. In FROM the function's
// whole result would be spooled before its first row.
const endless = "SELECT generate_series(1, 2000000000)"

func TestPoolConnector(t *testing.T) {
	dsn := pgtest.Database(t)
	plain := openPlain(t, dsn)
	if _, err := plain.Exec("CREATE TABLE pooled AS SELECT 3 AS n"); err != nil {
		t.Fatal(err)
	}
	leakCheck(t)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(bg, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db := sql.OpenDB(coalesce.NewConnector(stdlib.GetPoolConnector(pool), coalesce.Config{MaxConns: 2}))
	defer db.Close()
	db.SetMaxIdleConns(0)
	errs := together(100, func(i int) error {
		var n int
		short, cancel := context.WithTimeout(bg, patience/4)
		defer cancel()
		return db.QueryRowContext(short, "SELECT n FROM pooled WHERE n < $1", 100+i%5).Scan(&n)
	})
	noErrors(t, receive(t, errs))
	same(t, "led", coalesce.StatsOf(db).Led, 5)
	short, cancel := context.WithTimeout(bg, patience/4)
	defer cancel()
	tx, err := db.BeginTx(short, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "UPDATE pooled SET n = 4")
	tx.Commit()
	same(t, "after a write", getIn[int](t, short, db, "SELECT n FROM pooled WHERE n < $1", 100), 4)
	until(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, says("all connections are back in pgx's pool"))
	same(t, "Stats.Conns", coalesce.StatsOf(db).Conns, 0)
}

func TestConnectorHooksRunAsOnPgx(t *testing.T) {
	t.Parallel()
	var before, after, reset atomic.Int64
	f := newFixture(t, setup{opts: []stdlib.OptionOpenDB{
		stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
			before.Add(1)
			c.RuntimeParams["search_path"] = "hooked"
			return nil
		}),
		stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
			after.Add(1)
			_, err := c.Exec(ctx, "SET TimeZone = 'Asia/Tokyo'")
			return err
		}),
		stdlib.OptionResetSession(func(context.Context, *pgx.Conn) error {
			reset.Add(1)
			return nil
		}),
	}})
	f.by("CREATE SCHEMA hooked", "CREATE TABLE hooked.t AS SELECT 'by hook' AS v", "CREATE TABLE public.t AS SELECT 'public' AS v")
	f.db.SetMaxOpenConns(1)
	if _, err := coalesce.Explain(bg, f.db, "SELECT v FROM t"); err != nil { // loads the catalog
		t.Fatal(err)
	}
	reset.Store(0)
	for range 2 {
		same(t, "search_path", get[string](t, f.db, "SELECT v FROM t"), "by hook")
	}
	same(t, "time zone", get[string](t, f.db, "SELECT '2024-01-01 00:00:00+00'::timestamptz::text"), "2024-01-01 09:00:00+09")
	same(t, "BeforeConnect", before.Load(), 1)
	same(t, "AfterConnect", after.Load(), 1)
	// The first use is not the connection's first: that was the catalog's.
	same(t, "ResetSession, once for each use of the server connection", reset.Load(), 2)
	for range 3 {
		get[string](t, f.db, "SELECT v FROM t")
	}
	same(t, "ResetSession after held reads", reset.Load(), 2)
	get[string](t, f.db, "SELECT v FROM t FOR SHARE")
	same(t, "ResetSession after a private read", reset.Load(), 3)
}

func TestFailingHookFailsAllWaiters(t *testing.T) {
	t.Parallel()
	refuse := errors.New("not today")
	waiting := make(chan struct{})
	f := newFixture(t, setup{opts: []stdlib.OptionOpenDB{
		stdlib.OptionAfterConnect(func(context.Context, *pgx.Conn) error { <-waiting; return refuse }),
	}})
	errs := together(20, func(int) error { return f.db.QueryRow("SELECT 1").Scan(new(int)) })
	f.sharing(20)
	close(waiting)
	for _, err := range receive(t, errs) {
		if !errors.Is(err, refuse) {
			t.Fatalf("got %v", err)
		}
	}
	same(t, "dials", f.seen.dials.Load(), 1)
	f.quiet()
}

func TestRegisteredNameAnswersForItsOwnDatabase(t *testing.T) {
	t.Parallel()
	a, b := pgtest.Database(t), pgtest.Database(t)
	config := func(dsn string) *pgx.ConnConfig {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	const current = "SELECT v FROM whoami"
	for dsn, v := range map[string]string{a: "a", b: "b"} {
		if _, err := openPlain(t, dsn).Exec("CREATE TABLE whoami AS SELECT '" + v + "' AS v"); err != nil {
			t.Fatal(err)
		}
	}
	na, nb := stdlib.RegisterConnConfig(config(a)), stdlib.RegisterConnConfig(config(b))
	da, db := openCoalesce(t, na), openCoalesce(t, nb)
	for range 2 {
		same(t, "a", get[string](t, da, current), "a")
		same(t, "b", get[string](t, db, current), "b")
	}
	stdlib.UnregisterConnConfig(na)
	same(t, "a, unregistered after Open", get[string](t, da, current), "a")
	stdlib.UnregisterConnConfig(nb)
	if gone, err := sql.Open("coalesce-pgx", na); err == nil {
		defer gone.Close()
		if err := gone.Ping(); err == nil {
			t.Error("a name that is registered no more connects")
		}
	}
	same(t, "by DSN", get[string](t, openCoalesce(t, b), current), "b")
}

// A burst of statements on one connection that loses its link to another must
// not lose what it prepared: the statement is prepared where it runs.
func TestPreparedStatementRunsWhereverItsConnectionIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 1, TTL: -1}})
	f.by("CREATE TABLE wander AS SELECT 3 AS n")
	f.db.SetMaxIdleConns(4)
	var stmts []*sql.Stmt
	for range 4 {
		c := pinned(t, f.db)
		st, err := f.db.Prepare("SELECT n FROM wander WHERE n < $1")
		if err != nil {
			t.Fatal(err)
		}
		stmts = append(stmts, st)
		c.Close()
	}
	var wg sync.WaitGroup
	for round := range 10 {
		for i, st := range stmts {
			wg.Go(func() {
				var n int
				if err := st.QueryRow(100 + i).Scan(&n); err != nil || n != 3 {
					t.Errorf("round %d: %d, %v", round, n, err)
				}
				if _, err := st.Exec(100 + i); err != nil {
					t.Errorf("round %d: Exec: %v", round, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestNothingThatIsToldShowsThePassword(t *testing.T) {
	// Not parallel: it listens to the process's log.
	const password = "s3cr/et word"
	var told strings.Builder
	log.SetOutput(&told) // slog's default handler writes here too
	defer log.SetOutput(os.Stderr)

	config, err := pgx.ParseConfig(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	kv := fmt.Sprintf("host='%s' port=%d dbname=%s user=%s sslmode=disable connect_timeout=5 password='%s'", config.Host, config.Port, config.Database, config.User, password)
	for _, dsn := range []string{
		kv,
		kv + " dbname=no_such_database",
		kv + " user=no_such_user",
		kv + " host=/no/such/socket",
		kv + " host=127.0.0.1 port=1",
		kv + " sslmode=verify-full sslrootcert=/no/such/file",
		kv + " coalesce_ttl=never",
		"postgres://u:" + url.QueryEscape(password) + "@127.0.0.1:1/d",
		"postgres://u:" + url.QueryEscape(password) + "@127.0.0.1:1/d?coalesce_what=1",
		"postgres://u:" + password + "@127.0.0.1:1/d",
	} {
		db, err := sql.Open("coalesce-pgx", dsn)
		if err != nil {
			fmt.Fprintf(&told, "%v %+v %#v\n", err, err, err)
			continue
		}
		ctx, cancel := context.WithTimeout(bg, patience)
		for _, err := range []error{
			db.PingContext(ctx),
			db.QueryRowContext(ctx, "SELECT 1 FROM pg_class, nowhere").Scan(new(int)),
			db.QueryRowContext(ctx, "SELECT 1").Scan(new(int)),
		} {
			fmt.Fprintf(&told, "%v %+v\n", err, err)
		}
		if conn, err := db.Conn(bg); err != nil {
			t.Error(err)
		} else {
			fmt.Fprintln(&told, coalesce.Raw(conn, func(*pgx.Conn) error { return nil }))
			conn.Close()
		}
		e, err := coalesce.Explain(ctx, db, "SELECT n FROM nowhere")
		fmt.Fprintf(&told, "%+v %v %+v\n", e, err, coalesce.StatsOf(db))
		fmt.Fprintln(&told, coalesce.Invalidate(db), db.Stats())
		cancel()
		db.Close()
	}
	for _, secret := range []string{password, url.QueryEscape(password), url.PathEscape(password), "s3cr"} {
		if i := strings.Index(told.String(), secret); i >= 0 {
			t.Errorf("%q is in: …%s…", secret, told.String()[max(0, i-200):min(told.Len(), i+100)])
		}
	}
}

func TestAHookOfAResetThatPanicsKeepsNoPlace(t *testing.T) {
	var boom atomic.Bool
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: 1, TTL: -1}, opts: []stdlib.OptionOpenDB{
		stdlib.OptionResetSession(func(context.Context, *pgx.Conn) error {
			if boom.Swap(false) {
				panic("boom")
			}
			return nil
		}),
	}})
	for _, query := range []string{"SELECT 41", "SELECT random()"} {
		get[float64](t, f.db, query)
		boom.Store(true)
		if end := endOf(func() { get[float64](t, f.db, query) }); end != "panic" {
			t.Errorf("%s ended by %q", query, end)
		}
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		if err := f.db.PingContext(ctx); err != nil {
			t.Errorf("ping after the panic of %s: %v; the place is lost", query, err)
		}
	}
	same(t, "server connections", f.serverConns(), 1)
}
