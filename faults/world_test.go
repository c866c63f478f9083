package faults

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
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
const patience = 30 * time.Second

var drivers = []string{"pgx", "coalesce-pgx"}

// The truth is a table that nobody writes, of rows so long that they arrive in
// many packets.
const (
	truthRows = 400
	truth     = "SELECT n, v FROM truth ORDER BY n"
	makeTruth = `CREATE TABLE truth AS SELECT n, repeat('x', 300) || '<' || n || '>' || repeat('y', 300) AS v
		FROM generate_series(1, 400) n`
	// midRow passes in the middle of a row. What comes before it fits into the
	// receiver's buffer: a reset loses nothing of it.
	midRow = "<50>"
)

func truthRow(n int) string {
	return fmt.Sprintf("%s<%d>%s", strings.Repeat("x", 300), n, strings.Repeat("y", 300))
}

// world is a server of the test's own with a proxy before it.
type world struct {
	server *pgtest.Server
	addr   string // of the server
	proxy  *proxy
	root   *sql.DB // a superuser's, past the proxy
	opaque bool    // what passes the proxy cannot be read on its way
	pooled bool    // there is a pooler behind it, whose connections outlive ours
}

const (
	appName  = "under-test"
	password = "right"
)

func newWorld(t testing.TB, opt pgtest.Options) *world {
	t.Helper()
	w := worldOf(t, pgtest.Private(t, opt))
	w.do(t, "ALTER SYSTEM SET password_encryption = 'scram-sha-256'") // as it is by default from 14 on
	w.admit(t, anyone)
	w.do(t, makeTruth, "CREATE ROLE app LOGIN PASSWORD '"+password+"'", "GRANT ALL ON SCHEMA public TO app", "GRANT SELECT ON truth TO app")
	return w
}

func worldOf(t testing.TB, server *pgtest.Server) *world {
	t.Helper()
	w := &world{server: server}
	config, err := pgx.ParseConfig(w.server.DSN())
	must(t, err)
	w.addr = net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	w.proxy = newProxy(t, w.addr)
	w.root = sql.OpenDB(stdlib.GetConnector(*config, pinging(true)))
	t.Cleanup(func() { w.root.Close() })
	return w
}

// do runs statements as superuser.
func (w *world) do(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := w.root.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// ask reads one value as superuser.
func ask[T any](t testing.TB, w *world, query string, args ...any) (v T) {
	t.Helper()
	if err := w.root.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// dataFile writes a file of the server, as its user, and returns its path.
func (w *world) dataFile(t testing.TB, name, content string) string {
	t.Helper()
	return writeAs(t, ask[string](t, w, "SHOW data_directory"), name, content)
}

// writeAs writes a file that belongs to whom its directory does.
func writeAs(t testing.TB, dir, name, content string) string {
	t.Helper()
	info, err := os.Stat(dir)
	must(t, err)
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	if owner := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		must(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
	return path
}

// admit says in pg_hba.conf who comes in how, beside the superuser.
func (w *world) admit(t testing.TB, lines ...string) {
	t.Helper()
	w.dataFile(t, "pg_hba.conf", "host all postgres 127.0.0.1/32 trust\n"+strings.Join(lines, "\n")+"\n")
	w.reload(t)
}

// reload has the server read its configuration, and waits until it has.
func (w *world) reload(t testing.TB) {
	t.Helper()
	before := ask[time.Time](t, w, "SELECT pg_conf_load_time()")
	ask[bool](t, w, "SELECT pg_reload_conf()")
	until(t, "the configuration is loaded", func() bool {
		return ask[time.Time](t, w, "SELECT pg_conf_load_time()").After(before)
	})
}

// restart restarts the server; until it is up, new links are kept waiting.
func (w *world) restart(t testing.TB) {
	t.Helper()
	w.proxy.greet(held)
	must(t, w.server.Restart())
	w.proxy.greet(passing)
	w.proxy.turn(passing, held)
}

// dsn leads to the server by the proxy, for an ordinary user.
func (w *world) dsn(options ...string) string {
	query := strings.Join(append(options, "application_name="+appName), "&")
	if !strings.Contains(query, "sslmode=") {
		query += "&sslmode=disable"
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("app", password), Host: w.proxy.addr, Path: "/postgres", RawQuery: query}
	return u.String()
}

// backends is how many server processes work for the databases under test.
func (w *world) backends(t testing.TB) int {
	t.Helper()
	return ask[int](t, w, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", appName)
}

// accepting is the goroutine of a proxy that took connections again.
var accepting = goleak.IgnoreAnyFunction("github.com/coalesce-pgx/coalesce/faults.(*proxy).accept")

// leavesNothing fails at the end of the test, when all that was opened after
// this call is closed, if anything of it is left.
func (w *world) leavesNothing(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		until(t, "no link is left", func() bool { return w.proxy.open() == 0 })
		until(t, "no backend is left", func() bool { return w.pooled || w.backends(t) == 0 })
		var left error
		untilSays(t, func() bool {
			// On a busy machine pgx reads ahead on a connection until the next
			// answer: that of the superuser is given one.
			ask[int](t, w, "SELECT 1")
			left = goleak.Find(before, accepting)
			return left == nil
		}, func() string {
			return "no goroutine is left: " + left.Error()
		})
	})
}

// client is one sql.DB under test.
type client struct {
	testing.TB
	*sql.DB
	watch *watch
	stmt  *sql.Stmt // what reads, if not the database itself
}

type clientOptions struct {
	dsn    string // default: that of the world
	config coalesce.Config
	ping   bool // a connection is asked before it is used again; default: never
}

func (o clientOptions) with(c coalesce.Config) clientOptions {
	o.config = c
	return o
}

// open opens a database by the name of its driver. Unless the options say
// otherwise results are not held: each read meets the fault.
func (w *world) open(t testing.TB, name string, opt clientOptions) *client {
	t.Helper()
	if opt.dsn == "" {
		opt.dsn = w.dsn()
	}
	config, err := pgx.ParseConfig(opt.dsn)
	must(t, err)
	c := &client{TB: t, watch: newWatch()}
	config.Tracer = c.watch
	var connector driver.Connector = stdlib.GetConnector(*config, pinging(opt.ping))
	if name == "coalesce-pgx" {
		if opt.config.TTL == 0 {
			opt.config.TTL = -1
		}
		connector = coalesce.NewConnector(connector, opt.config)
	}
	c.DB = sql.OpenDB(connector)
	t.Cleanup(func() {
		c.Close()
		untilSays(t, func() bool { s := c.stats(); return s.Conns == 0 && s.Flights == 0 && s.StoredBytes == 0 }, func() string {
			return fmt.Sprintf("the closed database has nothing: %+v", c.stats())
		})
	})
	return c
}

// pinging says whether a connection of the pool is asked if it is alive before
// it is used again: not by the clock, as it would be by default.
func pinging(always bool) stdlib.OptionOpenDB {
	return stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return always })
}

// prepared lets the client read by a prepared statement.
func (c *client) prepared() *client {
	c.Helper()
	var err error
	c.stmt, err = c.Prepare(truth)
	must(c, err)
	return c
}

// outcome is how a read ended, as far as its caller can see.
type outcome struct {
	rows int
	err  error
}

func (o outcome) String() string {
	if o.err == nil {
		return fmt.Sprintf("%d rows", o.rows)
	}
	return fmt.Sprintf("%d rows, then %s", o.rows, describe(o.err))
}

// read reads the truth, row by row. What it reads is right, or the test fails.
func (c *client) read(ctx context.Context) outcome {
	query := func() (*sql.Rows, error) { return c.QueryContext(ctx, truth) }
	if c.stmt != nil {
		query = func() (*sql.Rows, error) { return c.stmt.QueryContext(ctx) }
	}
	rows, err := query()
	if err != nil {
		return outcome{err: err}
	}
	defer rows.Close()
	var o outcome
	for rows.Next() {
		var n int
		var v string
		if err := rows.Scan(&n, &v); err != nil {
			return outcome{o.rows, err}
		}
		o.rows++
		if n != o.rows || v != truthRow(n) {
			c.Errorf("row %d is wrong: %d %.10s…", o.rows, n, v)
		}
	}
	if o.err = rows.Err(); o.err == nil && o.rows != truthRows {
		c.Errorf("the answer ends after %d rows, without an error", o.rows)
	}
	return o
}

// begin is read beside the test.
func (c *client) begin(ctx context.Context) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { done <- c.read(ctx) }()
	return done
}

// warm has the client connect, and learn what it needs to share the read. It
// leaves no result behind.
func (c *client) warm() {
	c.Helper()
	if o := c.read(coalesce.TTL(bg, 0)); o.err != nil {
		c.Fatal(o.err)
	}
}

func (c *client) stats() coalesce.Stats { return coalesce.StatsOf(c.DB) }

// sameAll fails unless all of the outcomes to come are the same.
func sameAll(t testing.TB, who string, got chan outcome, want outcome) {
	t.Helper()
	count := make(map[string]int)
	for range cap(got) {
		count[receive(t, got).String()]++
	}
	for o, n := range count {
		if o != want.String() {
			t.Errorf("%d of %d %s:\n got %s\nwant %v", n, cap(got), who, o, want)
		}
	}
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

// localPort is what two connections' errors differ in by nature.
var localPort = regexp.MustCompile(`127\.0\.0\.1:\d+->`)

// describe is all of an error that a program can match, and what it says.
func describe(err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "%q: ", localPort.ReplaceAllString(err.Error(), "->"))
	}
	describeTypes(&b, err)
	for _, is := range []error{
		context.Canceled, context.DeadlineExceeded, sql.ErrConnDone, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF,
		net.ErrClosed, os.ErrDeadlineExceeded, pgconn.ErrConnClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE,
	} {
		if errors.Is(err, is) {
			fmt.Fprintf(&b, ", is %q", is)
		}
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		fmt.Fprintf(&b, ", SQLSTATE %s", pe.Code)
	}
	fmt.Fprintf(&b, ", safe to retry %v, timeout %v", pgconn.SafeToRetry(err), pgconn.Timeout(err))
	return b.String()
}

// describeTypes writes the types of all errors that err wraps.
func describeTypes(b *strings.Builder, err error) {
	fmt.Fprintf(b, "%T", err)
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		if inner := w.Unwrap(); inner != nil {
			b.WriteString(" > ")
			describeTypes(b, inner)
		}
	case interface{ Unwrap() []error }:
		for i, inner := range w.Unwrap() {
			b.WriteString([]string{" > (", " + "}[min(i, 1)])
			describeTypes(b, inner)
		}
		b.WriteString(")")
	}
}

// watch is a pgx tracer: it sees every attempt to connect and every query, on
// the goroutine that makes it, and can keep them waiting.
type watch struct {
	mu      sync.Mutex // guards all below
	opened  *sync.Cond
	shut    bool
	waiting int // attempts before the shut gate
	now     int // attempts under way
	most    int // that were ever under way at a time
	dials   int
	queries int
}

func newWatch() *watch {
	w := new(watch)
	w.opened = sync.NewCond(&w.mu)
	return w
}

func (w *watch) begin(count *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*count++
	w.now++
	w.most = max(w.most, w.now)
	w.waiting++
	for w.shut {
		w.opened.Wait()
	}
	w.waiting--
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
}

// gate shuts or opens the way to the server.
func (w *watch) gate(shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = shut
	w.opened.Broadcast()
}

// anew counts from zero.
func (w *watch) anew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most, w.dials, w.queries = w.now, 0, 0
}

func (w *watch) atGate() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

func (w *watch) seen() (dials, queries, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials, w.queries, w.most
}

func (w *watch) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	w.begin(&w.dials)
	return ctx
}
func (w *watch) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) { w.end() }

func (w *watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	w.begin(&w.queries)
	return ctx
}
func (w *watch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { w.end() }

// until waits for something to come true.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	untilSays(t, cond, func() string { return what })
}

func untilSays(t testing.TB, cond func() bool, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what())
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same fails unless got is what is wanted.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}
