package faults

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// where is the place in which a fault meets a read.
type where uint8

const (
	idle    where = iota // before it is sent: its connection lies in the pool
	locked               // the server has it, and waits for a lock
	amidRow              // a part of its answer has come, up to the middle of a row
)

// fault befalls a read.
type fault struct {
	name  string
	where where
	times int // 2: the read made in its place as well
	// strike brings it about for the read of the backend pid. nil: the server
	// does by itself.
	strike func(t *testing.T, w *world, pid int)
	heal   func(t *testing.T, w *world) // nil: nothing to do
	option string                       // of the DSN
	// dies: the connection dies of it. Else it is the outcome of the read, for
	// all who wait for it.
	dies bool
}

var faults = []fault{
	{name: "terminated", where: locked, times: 1, dies: true, strike: terminate},
	{name: "terminated-twice", where: locked, times: 2, dies: true, strike: terminate},
	{name: "server-stopped", where: locked, times: 1, dies: true, strike: stopServer, heal: startServer},
	{name: "server-restarted", where: locked, times: 1, dies: true, strike: restartServer},
	{name: "backend-crashed", where: locked, times: 1, dies: true, strike: crash},
	{name: "cancelled", where: locked, times: 1, strike: cancel},
	{name: "statement-timeout", where: locked, times: 2, option: "statement_timeout=1000"},
	{name: "lock-timeout", where: locked, times: 2, option: "lock_timeout=100"},
	{name: "reset-amid-row", where: amidRow, times: 1, dies: true, strike: turn(reset)},
	{name: "reset-amid-row-twice", where: amidRow, times: 2, dies: true, strike: turn(reset)},
	{name: "closed-amid-row", where: amidRow, times: 1, dies: true, strike: turn(closed)},
	{name: "stalled-amid-row", where: amidRow, times: 1, strike: turn(passing)},
	{name: "slow", where: amidRow, times: 1, strike: slow, heal: fast},
	{name: "terminated-while-idle", where: idle, times: 1, dies: true, strike: terminate},
	{name: "closed-while-idle", where: idle, times: 1, dies: true, strike: turn(closed)},
	{name: "reset-while-idle", where: idle, times: 1, dies: true, strike: turn(reset)},
	{name: "server-restarted-while-idle", where: idle, times: 1, dies: true, strike: restartServer},
	{name: "server-stopped-while-idle", where: idle, times: 1, dies: true, strike: stopServer, heal: startServer},
}

// A read that a fault befalls has the outcome it has on pgx. Where it takes the
// connection with it, the read is made once more for those who waited.
func TestFaultIsTheLeadersAndTheWaitersGetASuccessor(t *testing.T) {
	w := newWorld(t, pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "1"}})
	for _, f := range faults {
		for _, ping := range []bool{false, true} {
			name := f.name
			if ping {
				name += "-and-pinged"
				if f.where != idle {
					continue // a connection in use is not asked whether it lives
				}
			}
			t.Run(name, func(t *testing.T) {
				w.leavesNothing(t)
				opt := clientOptions{ping: ping}
				if f.option != "" {
					opt.dsn = w.dsn(f.option)
				}
				plain := f.alone(t, w, w.open(t, "pgx", opt))
				t.Logf("pgx: %v; again: %v", plain[0], plain[1])
				want := sentAgain(plain)
				sameOutcomes(t, "alone", f.alone(t, w, w.open(t, "coalesce-pgx", opt)), want)
				for _, crowd := range []coalesce.Config{crowd, freeCrowd} {
					f.together(t, w, w.open(t, "coalesce-pgx", opt.with(crowd)), want)
				}
				sameOutcomes(t, "a big result", f.alone(t, w, w.open(t, "coalesce-pgx", opt.with(tiny))), plain)

				plain = f.alone(t, w, w.open(t, "pgx", opt).prepared())
				sameOutcomes(t, "prepared", f.alone(t, w, w.open(t, "coalesce-pgx", opt).prepared()), sentAgain(plain))
			})
		}
	}
	for name, to := range map[string]fate{"catalog-reset": reset, "catalog-closed": closed} {
		t.Run(name, func(t *testing.T) {
			w.leavesNothing(t)
			fault{where: amidRow, times: 1, dies: true, strike: turn(to)}.catalog(t, w)
		})
	}
}

// sentAgain is what becomes of outcomes where a read that never reached the
// server is sent again: nobody hears of it.
func sentAgain(plain [2]outcome) [2]outcome {
	if pgconn.SafeToRetry(plain[0].err) {
		return [2]outcome{plain[1], plain[1]}
	}
	return plain
}

func sameOutcomes(t *testing.T, who string, got, want [2]outcome) {
	t.Helper()
	for i := range want {
		same(t, fmt.Sprintf("%s, read %d", who, i+1), got[i].String(), want[i].String())
	}
}

// alone lets a fault befall the read of one caller, who reads again at once.
func (f fault) alone(t *testing.T, w *world, c *client) (got [2]outcome) {
	t.Helper()
	c.warm()
	s := f.lay(t, w)
	for i := range got {
		answer := c.begin(bg)
		if i < f.times {
			s.strike()
		}
		got[i] = receive(t, answer)
		if !f.dies {
			break // the second read would be another matter
		}
	}
	f.recovered(t, w, s, c)
	return got
}

// A crowd has one server connection for all, or as many as it likes, and holds
// what it may.
var (
	crowd     = coalesce.Config{MaxConns: 1, TTL: coalesce.DefaultTTL}
	freeCrowd = coalesce.Config{TTL: coalesce.DefaultTTL}
)

// together lets a fault befall the read of many callers.
func (f fault) together(t *testing.T, w *world, c *client, want [2]outcome) {
	t.Helper()
	const waiters = 31
	c.warm()
	s := f.lay(t, w)
	c.watch.anew()
	c.watch.gate(true)
	before := c.stats()
	leader := c.begin(bg)
	until(t, "somebody leads", func() bool { return c.stats().Led > before.Led })
	rest := make(chan outcome, waiters)
	for range waiters {
		go func() { rest <- c.read(bg) }()
	}
	until(t, "all others wait", func() bool { return c.stats().Joined-before.Joined == waiters })
	c.watch.gate(false)
	for range f.times {
		s.strike()
		if !f.dies {
			break // there is no second read that it could befall
		}
	}
	same(t, "leader", receive(t, leader).String(), want[0].String())
	queries := 1
	if f.dies {
		queries, want[0] = 2, want[1]
	}
	sameAll(t, "waiters", rest, want[0])
	_, sent, most := c.watch.seen()
	if sent > queries {
		t.Errorf("%d queries, want at most %d", sent, queries)
	}
	same(t, "attempts at a time", most, 1)
	f.recovered(t, w, s, c)
}

// recovered ends the fault, whereupon the first read must succeed.
func (f fault) recovered(t *testing.T, w *world, s *scene, c *client) {
	t.Helper()
	if f.heal != nil {
		f.heal(t, w)
	}
	s.clear()
	if o := c.read(bg); o.err != nil {
		t.Errorf("the first read after the recovery: %v", o)
	}
	same(t, "pool connections in use", c.DB.Stats().InUse, 0)
	c.Close()
}

// scene is a place laid for a fault.
type scene struct {
	t      *testing.T
	w      *world
	f      fault
	left   int // how often it has yet to strike
	dead   map[int]bool
	unlock func()
}

func (f fault) lay(t *testing.T, w *world) *scene {
	t.Helper()
	s := &scene{t: t, w: w, f: f, left: f.times, dead: make(map[int]bool), unlock: func() {}}
	switch f.where {
	case idle:
		s.strike()
		until(t, "the client can know", func() bool { return w.proxy.open() == 0 })
	case locked:
		s.unlock = lock(t, w)
	case amidRow:
		w.trap()
	}
	return s
}

// strike lets the fault befall the read that has come to its place.
func (s *scene) strike() {
	s.t.Helper()
	if s.left == 0 {
		return
	}
	s.left--
	var pid int
	switch s.f.where {
	case idle:
		pid = s.backend("state = 'idle'")
	case locked:
		pid = s.backend("wait_event_type = 'Lock'")
	case amidRow:
		until(s.t, "the answer is held amid a row", func() bool { return s.w.proxy.in(held) == 1 })
		if s.left == 0 {
			s.w.proxy.disarm()
		}
	}
	if s.f.strike == nil {
		return
	}
	s.f.strike(s.t, s.w, pid)
	if s.left == 0 {
		s.unlock()
	}
}

// backend waits for a server process that the fault has not befallen yet.
func (s *scene) backend(condition string) (pid int) {
	s.t.Helper()
	until(s.t, condition, func() bool {
		err := s.w.root.QueryRow("SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND "+condition+" ORDER BY backend_start DESC LIMIT 1", appName).Scan(&pid)
		return err == nil && !s.dead[pid]
	})
	s.dead[pid] = s.f.dies
	return pid
}

// trap holds the answer to the next read in the middle of a row.
func (w *world) trap() {
	if w.opaque {
		w.proxy.trapAfter(20 << 10)
	} else {
		w.proxy.trap(midRow)
	}
}

func (s *scene) clear() {
	s.unlock()
	s.w.proxy.disarm()
}

// lock keeps the readers of the truth waiting until unlock is called. It
// outlives the server: else what stops that would let the reader go first.
func lock(t *testing.T, w *world) (unlock func()) {
	t.Helper()
	c, err := w.root.Conn(bg)
	must(t, err)
	defer c.Close()
	for _, s := range []string{"BEGIN", "LOCK TABLE truth IN ACCESS EXCLUSIVE MODE", "PREPARE TRANSACTION 'lock'"} {
		_, err := c.ExecContext(bg, s)
		must(t, err)
	}
	unlock = func() { w.root.Exec("ROLLBACK PREPARED 'lock'") } // may be done, or to be done later
	t.Cleanup(unlock)
	return unlock
}

func terminate(t *testing.T, w *world, pid int) {
	ask[bool](t, w, "SELECT pg_terminate_backend($1)", pid)
}

func cancel(t *testing.T, w *world, pid int) {
	ask[bool](t, w, "SELECT pg_cancel_backend($1)", pid)
}

// crash kills a backend, whereupon the server starts anew.
func crash(t *testing.T, w *world, pid int) {
	w.proxy.greet(held)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	until(t, "the server is up again", func() bool {
		var young bool
		err := w.root.QueryRow("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&young)
		return err == nil && young
	})
	w.proxy.greet(passing)
	w.proxy.turn(passing, held)
}

func stopServer(t *testing.T, w *world, _ int) {
	w.proxy.refuse()
	must(t, w.server.Stop())
}

func startServer(t *testing.T, w *world) {
	must(t, w.server.Restart())
	w.proxy.listen(t)
}

func restartServer(t *testing.T, w *world, _ int) { w.restart(t) }

func turn(to fate) func(*testing.T, *world, int) {
	return func(t *testing.T, w *world, _ int) {
		if w.proxy.in(held) > 0 {
			w.proxy.turn(to, held)
		} else {
			w.proxy.all(to)
		}
	}
}

func slow(t *testing.T, w *world, _ int) {
	w.proxy.slow(20 * time.Millisecond)
	w.proxy.turn(passing, held)
}

func fast(_ *testing.T, w *world) { w.proxy.slow(0) }

// catalog has a fault befall what the first readers of a database need, and
// what is read for all of them at once.
func (f fault) catalog(t *testing.T, w *world) {
	const callers = 32
	want := f.alone(t, w, w.open(t, "pgx", clientOptions{}))[0]
	want.rows = 0
	c := w.open(t, "coalesce-pgx", clientOptions{})
	s := &scene{t: t, w: w, f: f, left: f.times, unlock: func() {}}
	w.proxy.trap("relation\x00\x00\x00\x05truth") // two columns of a row of it
	got := make(chan outcome, callers)
	for range callers {
		go func() { got <- c.read(bg) }()
	}
	until(t, "all wait", func() bool { return c.DB.Stats().InUse == callers })
	s.strike()
	failed := 0
	for range callers {
		if o := receive(t, got); o.err != nil {
			failed++
			same(t, "the caller that read the catalog", o.String(), want.String())
		}
	}
	same(t, "callers that failed", failed, 1)
	if _, _, most := c.watch.seen(); most != 1 {
		t.Errorf("%d attempts at a time", most)
	}
}

// A catalog that a busy server did not give in time says nothing about the
// server: there is sharing as soon as it gives it.
func TestCatalogThatWasCancelledIsReadAgain(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.leavesNothing(t)
	c := w.open(t, "coalesce-pgx", clientOptions{})
	tx, err := w.root.Begin()
	must(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("LOCK TABLE pg_catalog.pg_inherits IN ACCESS EXCLUSIVE MODE") // which the catalog's query reads
	must(t, err)
	got := c.begin(bg)
	s := &scene{t: t, w: w, dead: make(map[int]bool)}
	cancel(t, w, s.backend("wait_event_type = 'Lock'"))
	if o := receive(t, got); o.err != nil && sqlState(o.err) != "57014" {
		t.Errorf("got %v", o)
	}
	must(t, tx.Rollback())
	untilSays(t, func() bool {
		if o := c.read(bg); o.err != nil {
			t.Error(o)
		}
		return c.stats().Led > 0
	}, func() string {
		e, err := coalesce.Explain(bg, c.DB, truth)
		return fmt.Sprintf("the read is shared; it is %s: %s (%v)", e.Verdict, e.Reason, err)
	})
}
