package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// tiny makes the truth too big to share: it is streamed to its leader.
var tiny = coalesce.Config{MaxResultBytes: 4 << 10}

func TestServerThatTakesNoConnectionIsTriedOnceAtATime(t *testing.T) {
	w := newWorld(t, pgtest.Options{MaxConnections: 12, Settings: map[string]string{"hot_standby": "off"}})
	for _, f := range []struct {
		name   string
		strike func(*testing.T, *world) (heal func())
		code   string // SQLSTATE, if the server says anything
	}{
		{"stopped", stop, ""},
		{"in-recovery", recovery, "57P03"},
		{"out-of-connections", occupy, "53300"},
		{"password-changed", alter("PASSWORD 'another'", "PASSWORD '"+password+"'"), "28P01"},
		{"login-revoked", alter("NOLOGIN", "LOGIN"), "28000"},
		{"closed-at-startup", greeting(closed), ""},
		{"reset-at-startup", greeting(reset), ""},
	} {
		t.Run(f.name, func(t *testing.T) {
			w.leavesNothing(t)
			plain := w.open(t, "pgx", clientOptions{})
			shared := w.open(t, "coalesce-pgx", clientOptions{})
			stream := w.open(t, "coalesce-pgx", clientOptions{config: tiny})
			known := w.open(t, "coalesce-pgx", clientOptions{config: tiny})
			known.SetMaxIdleConns(0)
			known.warm() // its result is known to be too big
			heal := sync.OnceFunc(f.strike(t, w))
			t.Cleanup(heal)

			want := plain.read(bg)
			if want.err == nil || sqlState(want.err) != f.code {
				t.Fatalf("pgx: got %v, want an error with SQLSTATE %q", want, f.code)
			}
			t.Logf("pgx: %v", want)
			same(t, "a read", shared.read(bg).String(), want.String())
			same(t, "a read of a big result", stream.read(bg).String(), want.String())
			same(t, "a read whose result is known to be big", known.read(bg).String(), want.String())
			e, err := coalesce.Explain(bg, shared.DB, truth)
			same(t, "Explain", describe(err), describe(want.err))
			if told := fmt.Sprint(e, err, want); strings.Contains(told, password) {
				t.Errorf("the password is in %s", told)
			}
			for what, call := range map[string]func(*client) error{
				"Ping":    func(c *client) error { return c.PingContext(bg) },
				"Prepare": func(c *client) error { _, err := c.Prepare(truth); return err },
				"Begin":   func(c *client) error { _, err := c.Begin(); return err },
				"Exec":    func(c *client) error { _, err := c.Exec("DELETE FROM truth"); return err },
			} {
				same(t, what, describe(call(shared)), describe(call(plain)))
			}
			failTogether(t, w, shared, want)
			retryAll(t, shared, want)
			retryAll(t, known, want)

			heal()
			for _, c := range []*client{plain, shared, stream, known} {
				if o := c.read(bg); o.err != nil {
					t.Errorf("the first read after the recovery: %v", o)
				}
			}
		})
	}
}

// failTogether has callers of one read wait for one attempt, which fails.
func failTogether(t *testing.T, w *world, c *client, want outcome) {
	t.Helper()
	const callers = 32
	got := make(chan outcome, callers)
	before := c.stats().Joined
	c.watch.anew()
	c.watch.gate(true)
	for range callers {
		go func() {
			// A text without names needs no catalog, so all meet in its flight.
			got <- outcome{err: c.QueryRow("SELECT 42").Scan(new(int))}
		}()
	}
	until(t, "all wait for one attempt", func() bool {
		return c.stats().Joined-before == callers-1 && c.watch.atGate() == 1
	})
	links := w.proxy.dialled()
	c.watch.gate(false)
	sameAll(t, "callers", got, want)
	dials, queries, _ := c.watch.seen()
	same(t, "dials for all", dials, 1)
	same(t, "queries for all", queries, 0)
	if n := w.proxy.dialled() - links; n > 1 {
		t.Errorf("%d links for all, want at most 1", n)
	}
}

// retryAll has callers of one read ask again and again.
func retryAll(t *testing.T, c *client, want outcome) {
	t.Helper()
	const callers, tries = 16, 5
	c.watch.anew()
	got := make(chan outcome, callers*tries)
	for range callers {
		go func() {
			for range tries {
				got <- c.read(bg)
			}
		}()
	}
	sameAll(t, "tries", got, want)
	if _, _, most := c.watch.seen(); most != 1 {
		t.Errorf("%d attempts at a time for one read", most)
	}
}

func sqlState(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code
	}
	return ""
}

func stop(t *testing.T, w *world) (heal func()) {
	must(t, w.server.Stop())
	w.proxy.refuse()
	return func() {
		must(t, w.server.Restart())
		w.proxy.listen(t)
	}
}

// recovery makes the server a standby that nobody may ask until it is
// promoted.
func recovery(t *testing.T, w *world) (heal func()) {
	dir := ask[string](t, w, "SHOW data_directory")
	writeAs(t, dir, "standby.signal", "")
	restarted := make(chan error, 1)
	go func() { restarted <- w.server.Restart() }() // returns when it is promoted
	pidFile := func() []string {
		b, _ := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
		return strings.Split(string(b), "\n")
	}
	until(t, "the server is in recovery", func() bool {
		lines := pidFile()
		if len(lines) < 8 || strings.TrimSpace(lines[7]) != "standby" {
			return false
		}
		conn, err := pgx.Connect(bg, w.server.DSN())
		if err == nil {
			conn.Close(bg)
		}
		return sqlState(err) == "57P03"
	})
	return func() {
		writeAs(t, dir, "promote", "")
		pid, err := strconv.Atoi(pidFile()[0])
		must(t, err)
		must(t, syscall.Kill(pid, syscall.SIGUSR1))
		must(t, receive(t, restarted))
	}
}

// occupy takes all connections that an ordinary user can have.
func occupy(t *testing.T, w *world) (heal func()) {
	var conns []*pgx.Conn
	dsn := strings.Replace(w.dsn(), appName, "occupier", 1)
	for {
		conn, err := pgx.Connect(bg, dsn)
		if sqlState(err) == "53300" {
			break
		}
		must(t, err)
		conns = append(conns, conn)
	}
	return func() {
		for _, c := range conns {
			c.Close(bg)
		}
		until(t, "the occupiers are gone", func() bool {
			return ask[int](t, w, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'occupier'") == 0
		})
	}
}

func alter(strike, heal string) func(*testing.T, *world) func() {
	return func(t *testing.T, w *world) func() {
		w.do(t, "ALTER ROLE app "+strike)
		return func() { w.do(t, "ALTER ROLE app "+heal) }
	}
}

func greeting(f fate) func(*testing.T, *world) func() {
	return func(_ *testing.T, w *world) func() {
		w.proxy.greet(f)
		return func() { w.proxy.greet(passing) }
	}
}
