package faults

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// silence is a way to get no answer, and no word that there will be none.
type silence struct {
	name   string
	lay    func(*world, *client)      // before the read is made
	there  func(*world, *client) bool // whether the read has come to its place
	strike func(*world)               // on the read there; nil: nothing more to do
	dial   bool                       // it begins with the first connection
	ends   bool                       // what was sent arrives in the end
}

var silences = []silence{
	{name: "dial-unanswered", dial: true, lay: func(w *world, _ *client) { w.proxy.greet(lost) }, there: linkIs(lost)},
	{name: "dial-stalled", dial: true, ends: true, lay: func(w *world, _ *client) { w.proxy.greet(held) }, there: linkIs(held)},
	{name: "idle-connection-lost", lay: lose, there: sent},
	{name: "lost-amid-row", lay: trapped, there: linkIs(held), strike: func(w *world) { w.proxy.turn(lost, held) }},
	{name: "stalled-amid-row", ends: true, lay: trapped, there: linkIs(held)},
}

func lose(w *world, c *client) {
	c.warm()
	w.proxy.all(lost)
	c.watch.anew()
}

func trapped(w *world, c *client) {
	c.warm()
	w.proxy.trap(midRow)
}

func linkIs(f fate) func(*world, *client) bool {
	return func(w *world, _ *client) bool { return w.proxy.in(f) == 1 }
}

func sent(_ *world, c *client) bool {
	_, queries, _ := c.watch.seen()
	return queries == 1
}

// begun has a read fall into the silence.
func (s silence) begun(t *testing.T, w *world, c *client, ctx context.Context) <-chan outcome {
	t.Helper()
	s.lay(w, c)
	got := c.begin(ctx)
	until(t, "the read has come to its place", func() bool { return s.there(w, c) })
	w.proxy.disarm()
	if s.strike != nil {
		s.strike(w)
	}
	return got
}

// heal breaks what was silent.
func (s silence) heal(w *world) {
	w.proxy.greet(passing)
	w.proxy.disarm()
	w.proxy.turn(reset, held, lost)
}

func TestSilenceKeepsNobodyBeyondTheirContext(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	for _, s := range silences {
		for _, part := range []struct {
			name     string
			test     func(silence, *testing.T, *world, clientOptions)
			maxConns int
		}{
			{"everybody-may-leave", silence.testLeaving, 0},
			{"everybody-may-leave-the-only-place", silence.testLeaving, 1},
			{"other-reads-go-on", silence.testOthers, 0},
			{"other-reads-go-on-in-two-places", silence.testOthers, 2},
			{"close-ends-it", silence.testClose, 0},
			{"close-ends-it-in-the-only-place", silence.testClose, 1},
		} {
			t.Run(s.name+"/"+part.name, func(t *testing.T) {
				w.leavesNothing(t)
				t.Cleanup(func() { s.heal(w) })
				part.test(s, t, w, clientOptions{config: coalesce.Config{MaxConns: part.maxConns}})
			})
		}
	}
}

func (s silence) testLeaving(t *testing.T, w *world, opt clientOptions) {
	plain := w.open(t, "pgx", clientOptions{})
	ctx, cancel := context.WithCancel(bg)
	got := s.begun(t, w, plain, ctx)
	cancel()
	want := receive(t, got)
	t.Logf("pgx: %v", want)
	if !errors.Is(want.err, context.Canceled) {
		t.Fatalf("pgx: got %v, want context.Canceled", want)
	}
	s.heal(w)
	tries := s.triesUntilWell(t, plain)
	plain.Close()

	c := w.open(t, "coalesce-pgx", opt)
	leaderCtx, leaderLeaves := context.WithCancel(bg)
	leader := s.begun(t, w, c, leaderCtx)
	waiterCtx, waiterLeaves := context.WithCancel(bg)
	waiter := c.begin(waiterCtx)
	lastCtx, lastLeaves := context.WithCancel(bg)
	last := c.begin(lastCtx)
	until(t, "all wait", func() bool { return c.DB.Stats().InUse == 3 })
	soon, done := context.WithTimeout(bg, time.Millisecond)
	defer done()
	if o := c.read(soon); !errors.Is(o.err, context.DeadlineExceeded) {
		t.Errorf("a caller whose time is over: got %v", o)
	}
	for _, caller := range []struct {
		who    string
		leaves func()
		got    <-chan outcome
		left   int
	}{
		{"a waiter", waiterLeaves, waiter, 2},
		{"the leader", leaderLeaves, leader, 1},
	} {
		caller.leaves()
		if o := receive(t, caller.got); !errors.Is(o.err, context.Canceled) || o.rows != 0 {
			t.Errorf("%s: got %v, want context.Canceled", caller.who, o)
		}
		same(t, "callers that still wait", c.DB.Stats().InUse, caller.left)
	}
	if s.ends {
		w.proxy.greet(passing)
		w.proxy.turn(passing, held)
		if o := receive(t, last); o.err != nil {
			t.Errorf("the last: got %v, want the answer", o)
		}
	} else {
		lastLeaves()
		if o := receive(t, last); !errors.Is(o.err, context.Canceled) {
			t.Errorf("the last: got %v, want context.Canceled", o)
		}
	}
	lastLeaves()
	s.heal(w)
	if n := s.triesUntilWell(t, c); n > tries {
		t.Errorf("%d tries until all is well, %d with pgx", n, tries)
	}
	until(t, "no flight is left", func() bool { return c.stats().Flights == 0 })
}

// triesUntilWell reads until an answer comes.
func (s silence) triesUntilWell(t *testing.T, c *client) int {
	t.Helper()
	for n := 1; n < 5; n++ {
		if o := c.read(bg); o.err == nil {
			return n
		}
	}
	t.Error("no answer after the recovery")
	return 0
}

func (s silence) testOthers(t *testing.T, w *world, opt clientOptions) {
	if s.dial {
		return // there are no others until the first has got through
	}
	c := w.open(t, "coalesce-pgx", opt)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	silent := s.begun(t, w, c, ctx)
	for _, query := range []string{"SELECT n FROM truth WHERE n = 42", "SELECT 42"} {
		var n int
		if err := c.QueryRow(query).Scan(&n); err != nil || n != 42 {
			t.Errorf("%s: %d, %v", query, n, err)
		}
	}
	if o := c.read(coalesce.Fresh(bg)); o.err != nil {
		t.Errorf("the same read, fresh: %v", o)
	}
	cancel()
	receive(t, silent)
}

func (s silence) testClose(t *testing.T, w *world, opt clientOptions) {
	c := w.open(t, "coalesce-pgx", opt)
	got := s.begun(t, w, c, bg)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	if o := receive(t, got); !errors.Is(o.err, coalesce.ErrClosed) {
		t.Errorf("a caller: got %v, want ErrClosed", o)
	}
	must(t, receive(t, closed))
}

// Where callers come without end, some are always left to wait for what is
// silent. Those who come after others have waited in vain need not.
func TestSilentReadIsNotJoinedForEver(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	for _, s := range []silence{silences[0], silences[2], silences[3]} {
		for _, driver := range drivers {
			t.Run(s.name+"/"+driver, func(t *testing.T) {
				w.leavesNothing(t)
				t.Cleanup(func() { s.heal(w) })
				c := w.open(t, driver, clientOptions{})
				first, leave := context.WithCancel(bg)
				silent := s.begun(t, w, c, first)
				w.proxy.greet(passing)

				answered := make(chan struct{})
				var once sync.Once
				var callers sync.WaitGroup
				stop := time.After(patience)
				every := time.NewTicker(200 * time.Millisecond)
				defer every.Stop()
			coming:
				for {
					callers.Go(func() {
						ctx, cancel := context.WithTimeout(bg, 2*time.Second)
						defer cancel()
						if o := c.read(ctx); o.err == nil {
							once.Do(func() { close(answered) })
						}
					})
					select {
					case <-every.C:
					case <-answered:
						break coming
					case <-stop:
						t.Error("nobody is answered, though all but one connection work")
						break coming
					}
				}
				callers.Wait()
				leave()
				receive(t, silent)
			})
		}
	}
}

// The server is not there to be asked to stop the read: that keeps nobody.
func TestLeaderHearsOfALostConnectionBeforeItIsCleanedUp(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	c := w.open(t, "coalesce-pgx", clientOptions{})
	trapped(w, c)
	led := c.begin(bg)
	until(t, "the read is trapped", func() bool { return w.proxy.in(held) == 1 })
	w.proxy.disarm()
	waited := c.begin(bg)
	until(t, "both wait", func() bool { return c.DB.Stats().InUse == 2 })
	w.proxy.greet(lost)
	w.proxy.turn(reset, held)
	select {
	case o := <-led:
		if o.err == nil {
			t.Error("the leader got an answer")
		}
	case <-time.After(10 * time.Second): // pgx takes 15 to give the connection up
		t.Error("the leader hears nothing")
	}
	w.proxy.greet(passing)
	w.proxy.turn(reset, lost)
	receive(t, waited)
}

// A server that does not answer keeps no place for long.
func TestPlaceOfASilentConnectionIsGivenBack(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.leavesNothing(t)
	c := w.open(t, "coalesce-pgx", clientOptions{config: coalesce.Config{MaxConns: 1}})
	c.warm()
	w.proxy.all(lost)
	ctx, leave := context.WithTimeout(bg, 100*time.Millisecond)
	defer leave()
	if o := receive(t, c.begin(ctx)); o.err == nil {
		t.Error("a silent server answers")
	}
	ctx, cancel := context.WithTimeout(bg, 10*time.Second) // pgx takes 15 to give the connection up
	defer cancel()
	if o := receive(t, c.begin(ctx)); o.err != nil {
		t.Errorf("the next read: %v", o.err)
	}
	w.proxy.turn(reset, lost)
}

// What asks the server to stop a read may be lost as well.
func TestServerIsAskedAgainToStopAReadThatNobodyWaitsFor(t *testing.T) {
	w := newWorld(t, pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "1"}})
	w.leavesNothing(t)
	c := w.open(t, "coalesce-pgx", clientOptions{})
	c.warm()
	lock(t, w)
	waiting := func() int {
		return ask[int](t, w, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", appName)
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	got := c.begin(ctx)
	until(t, "the read waits", func() bool { return waiting() == 1 })
	w.proxy.deafen(true)
	cancel()
	receive(t, got)
	until(t, "the first request is lost", func() bool { return w.proxy.in(lost) == 1 })
	w.proxy.deafen(false)
	until(t, "the read is stopped", func() bool { return waiting() == 0 })
	w.proxy.turn(reset, lost)
}
