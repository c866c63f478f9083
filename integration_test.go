package coalesce_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

var bg = context.Background()

// patience bounds what has to happen without our help. Nothing is measured
// against it: a test that reaches it has failed.
const patience = 20 * time.Second

// watcher sees, as a pgx tracer, what goes to the server and how often it is
// dialled.
type watcher struct {
	mu    sync.Mutex
	sent  []string
	dials atomic.Int64

	// during, if set before the first query, is called on the goroutine that
	// sends one. It may block or panic.
	during func(query string)
}

func (w *watcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	w.mu.Lock()
	w.sent = append(w.sent, d.SQL)
	w.mu.Unlock()
	if w.during != nil {
		w.during(d.SQL)
	}
	return ctx
}

func (*watcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (w *watcher) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	w.dials.Add(1)
	return ctx
}

func (*watcher) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) {}

// queries counts the queries sent whose text contains part.
func (w *watcher) queries(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.sent {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// fixture is a database of its own with two ways to it.
type fixture struct {
	testing.TB
	dsn   string
	plain *sql.DB // pgx untouched: for what others do, and to observe
	db    *sql.DB // under test
	seen  *watcher
}

// appName is the application_name of the connections under test.
const appName = "under-test"

type setup struct {
	config coalesce.Config
	pgx    func(*pgx.ConnConfig)
	opts   []stdlib.OptionOpenDB
	during func(query string) // see watcher
}

func newFixture(t testing.TB, s setup) *fixture { return newFixtureOn(t, pgtest.Database(t), s) }

func newFixtureOn(t testing.TB, dsn string, s setup) *fixture {
	t.Helper()
	f := &fixture{TB: t, dsn: dsn, plain: openPlain(t, dsn), seen: &watcher{during: s.during}}
	cfg := f.pgxConfig(s.pgx)
	if s.opts == nil && s.config == (coalesce.Config{}) {
		f.db = openRegistered(t, cfg)
		return f
	}
	f.db = sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(cfg, s.opts...), s.config))
	t.Cleanup(func() { f.db.Close() })
	return f
}

func openRegistered(t testing.TB, cfg pgx.ConnConfig) *sql.DB {
	t.Helper()
	name := stdlib.RegisterConnConfig(&cfg)
	t.Cleanup(func() { stdlib.UnregisterConnConfig(name) })
	return openCoalesce(t, name)
}

// lacks reports whether the server is too old for a statement.
func (f *fixture) lacks(statement string) bool {
	f.Helper()
	since15 := strings.Contains(statement, "MERGE") || strings.Contains(statement, "security_invoker")
	return since15 && get[int](f, f.plain, "SELECT current_setting('server_version_num')::int") < 150000
}

func openPlain(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// openCoalesce opens the DSN, with further options, by the driver's name.
func openCoalesce(t testing.TB, dsn string, options ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("coalesce-pgx", dsnWith(dsn, options...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func dsnWith(dsn string, options ...string) string {
	for _, o := range options {
		sep := "?"
		if strings.Contains(dsn, "?") {
			sep = "&"
		}
		dsn += sep + o
	}
	return dsn
}

// pgxConfig is the configuration of a watched connection to the database.
func (f *fixture) pgxConfig(change func(*pgx.ConnConfig)) pgx.ConnConfig {
	f.Helper()
	cfg, err := pgx.ParseConfig(f.dsn)
	if err != nil {
		f.Fatal(err)
	}
	cfg.Tracer = f.seen
	cfg.RuntimeParams["application_name"] = appName
	if change != nil {
		change(cfg)
	}
	return *cfg
}

// by runs statements on the plain connection.
func (f *fixture) by(statements ...string) {
	f.Helper()
	for _, s := range statements {
		if _, err := f.plain.Exec(s); err != nil {
			f.Fatalf("%s: %v", s, err)
		}
	}
}

// do runs statements on the database under test.
func (f *fixture) do(statements ...string) {
	f.Helper()
	for _, s := range statements {
		mustExec(f, f.db, s)
	}
}

func (f *fixture) stats() coalesce.Stats { return coalesce.StatsOf(f.db) }

// serverConns is how many connections of the database under test the server
// has.
func (f *fixture) serverConns() int {
	f.Helper()
	return get[int](f, f.plain, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '"+appName+"'")
}

// running is how many of those run a query that contains part.
func (f *fixture) running(part string) int {
	f.Helper()
	return get[int](f, f.plain, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = '`+appName+`' AND state = 'active' AND position($1 IN query) > 0`, part)
}

// lock keeps every reader of a table waiting until release is called. It may
// be called more than once.
func (f *fixture) lock(table string) (release func()) {
	f.Helper()
	tx, err := f.plain.Begin()
	if err == nil {
		_, err = tx.Exec("LOCK TABLE " + table + " IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		f.Fatal(err)
	}
	release = sync.OnceFunc(func() { tx.Rollback() })
	f.Cleanup(release)
	return release
}

// sharing waits until n callers are in flights together.
func (f *fixture) sharing(n int) {
	f.Helper()
	var s coalesce.Stats
	until(f, func() bool { s = f.stats(); return int(s.Joined+s.Led) >= n }, func() string {
		return fmt.Sprintf("%d callers joined or lead; stats %+v", n, s)
	})
}

// quiet fails if anything is left of the reads under test: flights, borrowed
// connections, memory that is said to be in use.
func (f *fixture) quiet() {
	f.Helper()
	until(f, func() bool {
		return f.db.Stats().InUse == 0 && f.stats().Flights == 0 && coalesce.BeingRead(f.db) == 0
	}, func() string {
		return fmt.Sprintf("nothing in use; %d in use, %d bytes being read, stats %+v", f.db.Stats().InUse, coalesce.BeingRead(f.db), f.stats())
	})
}

// until waits for something to come true.
func until(t testing.TB, cond func() bool, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what())
		}
	}
}

func says(s string) func() string { return func() string { return s } }

type queryer interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// one reads the one value that a query gives.
func get[T any](t testing.TB, q queryer, query string, args ...any) T {
	t.Helper()
	return getIn[T](t, bg, q, query, args...)
}

func getIn[T any](t testing.TB, ctx context.Context, q queryer, query string, args ...any) T {
	t.Helper()
	var v T
	if err := q.QueryRowContext(ctx, query, args...).Scan(&v); err != nil {
		t.Errorf("%s %v: %v", query, args, err)
	}
	return v
}

// all reads the first column of all rows.
func column[T any](ctx context.Context, q queryer, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var vs []T
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return vs, err
		}
		vs = append(vs, v)
	}
	return vs, rows.Err()
}

func mustExec(t testing.TB, e execer, query string, args ...any) {
	t.Helper()
	if _, err := e.ExecContext(bg, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// want fails unless got is what is wanted.
func same[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}

// wantSeq fails unless got is what is wanted, in order.
func sameSeq[T comparable](t testing.TB, what string, got []T, wanted ...T) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}

// pinned is a connection for this test alone.
func pinned(t testing.TB, db *sql.DB) *sql.Conn {
	t.Helper()
	c, err := db.Conn(bg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answer is what one caller was given.
type given[T any] struct {
	v   T
	err error
}

// ask runs a read of one value beside the test.
func askFor[T any](ctx context.Context, q queryer, query string, args ...any) <-chan given[T] {
	c := make(chan given[T], 1)
	go func() {
		var a given[T]
		a.err = q.QueryRowContext(ctx, query, args...).Scan(&a.v)
		c <- a
	}()
	return c
}

// receive takes what will come, if the code under test does not hang.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("hangs")
		panic("unreachable")
	}
}

// sameAnswer fails unless a caller was given the value.
func sameAnswer[T comparable](t testing.TB, who string, c <-chan given[T], wanted T) {
	t.Helper()
	a := receive(t, c)
	if a.err != nil {
		t.Errorf("%s: %v", who, a.err)
	} else {
		same(t, who, a.v, wanted)
	}
}

// together runs f n times at once and returns the errors, some nil.
func together(n int, f func(i int) error) <-chan []error {
	done := make(chan []error, 1)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	go func() { wg.Wait(); done <- errs }()
	return done
}

// noErrors fails for the first few of the errors, and counts them.
func noErrors(t testing.TB, errs []error) {
	t.Helper()
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if n++; n <= 3 {
			t.Error(err)
		}
	}
	if n > 0 {
		t.Errorf("%d of %d callers got an error", n, len(errs))
	}
}

// sqlState is the code of a server's error, "" if err is none.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// leakCheck fails at the end of the test for goroutines that it left. The test
// must not run in parallel with others, and open its databases afterwards.
func leakCheck(t testing.TB) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

// valve stops what is read from the server on the first connection dialled, so
// that an answer that the server has given stays on its way.
type valve struct {
	dialled atomic.Int64
	mu      sync.Mutex
	opened  chan struct{} // nil: open; guarded by mu
	lost    atomic.Bool   // what is behind it never arrives
}

// lose breaks the connection instead of letting through what has come.
func (g *valve) lose() {
	g.lost.Store(true)
	g.open()
}

func (g *valve) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

func (g *valve) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *valve) pass() {
	g.mu.Lock()
	c := g.opened
	g.mu.Unlock()
	if c != nil {
		<-c
	}
}

// dial is for pgx.ConnConfig.DialFunc.
func (g *valve) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || g.dialled.Add(1) > 1 {
		return c, err
	}
	return valvedConn{c, g}, nil
}

type valvedConn struct {
	net.Conn
	valve *valve
}

func (c valvedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.valve.pass()
	if c.valve.lost.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
