package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// standbyOf starts a server that follows another.
func standbyOf(t *testing.T, primary *world) *world {
	t.Helper()
	w := worldOf(t, pgtest.Private(t, pgtest.Options{}))
	from, to := ask[string](t, primary, "SHOW data_directory"), ask[string](t, w, "SHOW data_directory")
	conf, err := os.ReadFile(filepath.Join(to, "pgtest.conf"))
	must(t, err)
	must(t, w.server.Stop())
	must(t, os.RemoveAll(to))
	must(t, primary.server.Stop()) // what lies still may be copied
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host, port, err := net.SplitHostPort(primary.addr)
	must(t, err)
	writeAs(t, to, "pgtest.conf", string(conf)+ // the port is its own
		fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres sslmode=disable'\n", host, port))
	writeAs(t, to, "standby.signal", "")
	must(t, primary.server.Restart())
	must(t, w.server.Restart())
	return w
}

func TestFailoverToAnotherServer(t *testing.T) {
	a := newWorld(t, pgtest.Options{})
	a.admit(t, anyone, "host replication postgres 127.0.0.1/32 trust")
	a.do(t, "CREATE TABLE written (n int)", "ALTER TABLE written OWNER TO app")
	b := standbyOf(t, a)
	b.leavesNothing(t)
	t.Cleanup(func() { until(t, "no link is left", func() bool { return a.proxy.open() == 0 }) })

	both := func(attrs string) clientOptions {
		dsn := a.dsn("target_session_attrs=" + attrs)
		return clientOptions{dsn: strings.Replace(dsn, a.proxy.addr, a.proxy.addr+","+b.proxy.addr, 1)}
	}
	type pair struct{ plain, shared *client }
	pairs := make(map[string]pair)
	for _, attrs := range []string{"read-write", "any"} {
		p := pair{a.open(t, "pgx", both(attrs)), a.open(t, "coalesce-pgx", both(attrs))}
		p.plain.warm()
		p.shared.warm()
		pairs[attrs] = p
	}
	rw := pairs["read-write"]
	if _, err := rw.shared.Exec("INSERT INTO written VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	holding := a.open(t, "coalesce-pgx", clientOptions{dsn: both("read-write").dsn, config: coalesce.Config{TTL: coalesce.DefaultTTL}})
	if o := holding.read(bg); o.err != nil {
		t.Fatal(o)
	}
	lsn := ask[string](t, a, "SELECT pg_current_wal_lsn()")
	until(t, "the standby has it all", func() bool {
		return ask[bool](t, b, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn)
	})

	// The primary goes amid a row of each, and takes no connection any more.
	const waiters = 15
	a.trap()
	type reads struct{ plain, leader, waiters chan outcome }
	began := make(map[string]reads)
	for attrs, p := range pairs {
		r := reads{make(chan outcome, 1), make(chan outcome, 1), make(chan outcome, waiters)}
		began[attrs] = r
		go func() { r.plain <- p.plain.read(bg) }()
		before := p.shared.stats()
		go func() { r.leader <- p.shared.read(bg) }()
		until(t, "somebody leads", func() bool { return p.shared.stats().Led > before.Led })
		for range waiters {
			go func() { r.waiters <- p.shared.read(bg) }()
		}
		until(t, "all others wait", func() bool { return p.shared.stats().Joined-before.Joined == waiters })
	}
	until(t, "all answers are held amid a row", func() bool { return a.proxy.in(held) == 2*len(pairs) })
	a.proxy.disarm()
	a.proxy.refuse()
	must(t, a.server.Stop())
	a.proxy.all(closed)

	again := make(map[string]outcome)
	for attrs, p := range pairs {
		want := receive(t, began[attrs].plain)
		again[attrs] = p.plain.read(bg)
		t.Logf("%s, pgx: %v; again: %v", attrs, want, again[attrs])
		same(t, attrs+", leader", receive(t, began[attrs].leader).String(), want.String())
		sameAll(t, attrs+", waiters", began[attrs].waiters, again[attrs])
	}
	if again["read-write"].err == nil || again["any"].err != nil {
		t.Error("without a primary there is an answer for those who may read elsewhere, and no other")
	}
	failTogether(t, a, rw.shared, again["read-write"])
	retryAll(t, rw.shared, again["read-write"])
	if o := holding.read(bg); o.err != nil {
		t.Errorf("what is held: %v", o)
	}

	ask[bool](t, b, "SELECT pg_promote()")
	for _, p := range pairs {
		for _, c := range []*client{p.plain, p.shared} {
			if o := c.read(bg); o.err != nil {
				t.Errorf("the first read after the failover: %v", o)
			}
		}
	}
	for n := 2; n < 4; n++ {
		var have int
		if err := rw.shared.QueryRow("SELECT count(*) FROM written").Scan(&have); err != nil || have != n-1 {
			t.Errorf("read %d, %v; want %d", have, err, n-1)
		}
		if _, err := rw.shared.Exec("INSERT INTO written VALUES ($1)", n); err != nil {
			t.Error(err)
		}
	}
}
