package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/catalog"
)

// gate is a query that waits until it is opened or its context ends.
type gate struct {
	open    chan struct{}
	rows    func() (driver.Rows, error)
	stopped chan struct{} // closed when a query was cancelled
	once    sync.Once
}

func newGate(values ...int64) *gate {
	return &gate{
		open: make(chan struct{}), stopped: make(chan struct{}),
		rows: func() (driver.Rows, error) { return ints(values...), nil },
	}
}

func (g *gate) query(ctx context.Context, _ string, _ *fakeConn) (driver.Rows, error) {
	select {
	case <-g.open:
		return g.rows()
	case <-ctx.Done():
		g.once.Do(func() { close(g.stopped) })
		return nil, ctx.Err()
	}
}

type answer struct {
	n   int64
	err error
}

// ask reads q on n goroutines and returns their answers as they come.
func ask(ctx context.Context, db *sql.DB, n int) <-chan answer {
	out := make(chan answer, n)
	for range n {
		go func() {
			v, err := one(ctx, db, q)
			out <- answer{v, err}
		}()
	}
	return out
}

func wantStats(t *testing.T, db *sql.DB, held, joined, led, private uint64) {
	t.Helper()
	s := coalesce.StatsOf(db)
	if s.Held != held || s.Joined != joined || s.Led != led || s.Private != private {
		t.Errorf("stats are held %d, joined %d, led %d, private %d; want %d, %d, %d, %d", s.Held, s.Joined, s.Led, s.Private, held, joined, led, private)
	}
	if s.Reads != s.Held+s.Joined+s.Led+s.Private {
		t.Errorf("the sums of %+v do not add up", s)
	}
}

func TestConcurrentIdenticalReadsShareOneQueryAndOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(7)
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		got := ask(t.Context(), db, 2000)
		synctest.Wait()
		close(g.open)
		for range 2000 {
			if a := <-got; a.err != nil || a.n != 7 {
				t.Fatalf("got %v, %v; want 7", a.n, a.err)
			}
		}
		if f.queries.Load() != 1 || f.dials.Load() != 1 {
			t.Errorf("%d queries on %d connections; want 1 on 1", f.queries.Load(), f.dials.Load())
		}
		wantStats(t, db, 0, 1999, 1, 0)
	})
}

func TestAReadThatHangsIsJoinedForTenSecondsAndThenMadeOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts, stopped atomic.Int64
		hang := int64(1) // how many attempts do
		f := &fake{query: func(ctx context.Context, _ string, c *fakeConn) (driver.Rows, error) {
			if attempts.Add(1) <= hang {
				<-ctx.Done()
				stopped.Add(1)
				c.dead = true
				return nil, ctx.Err()
			}
			return ints(5), nil
		}}
		db := openFake(t, f, coalesce.Config{})
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		leader := ask(ctx, db, 1)
		synctest.Wait()
		gone := ask(ctx, db, 1)
		early := ask(t.Context(), db, 50)
		time.Sleep(10*time.Second - time.Nanosecond)
		late := ask(t.Context(), db, 50)
		synctest.Wait()
		if n := attempts.Load(); n != 1 {
			t.Errorf("%d attempts within ten seconds; want 1", n)
		}
		wantStats(t, db, 0, 101, 1, 0)
		time.Sleep(time.Nanosecond)
		// Whoever comes now asks again, and the answer is good for all.
		for _, got := range []<-chan answer{ask(t.Context(), db, 50), early, late, leader, gone} {
			for range cap(got) {
				if a := <-got; a.err != nil || a.n != 5 {
					t.Fatalf("got %v, %v; want 5", a.n, a.err)
				}
			}
		}
		synctest.Wait()
		if attempts.Load() != 2 || stopped.Load() != 1 {
			t.Errorf("%d attempts, %d of them stopped; want 2, 1", attempts.Load(), stopped.Load())
		}
		if s := coalesce.StatsOf(db); s.Flights != 0 || s.Led != 2 || s.Cancelled != 0 || s.Errors != 0 {
			t.Errorf("stats are %+v", s)
		}
		if n := f.open.Load(); n != 1 {
			t.Errorf("%d connections open; want 1", n)
		}
	})
}

func TestReadsThatHangOneAfterAnotherAreAllEndedByTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		f := &fake{query: func(ctx context.Context, _ string, c *fakeConn) (driver.Rows, error) {
			switch attempts.Add(1) {
			case 1, 2, 4:
				<-ctx.Done()
				c.dead = true
				return nil, ctx.Err()
			case 3:
				return nil, errServer
			}
			return ints(6), nil
		}}
		db := openFake(t, f, coalesce.Config{})
		var waiting []<-chan answer
		for i := range 5 {
			callers := 10
			if i == 2 {
				callers = 1 // others might come when it is over
			}
			got := ask(t.Context(), db, callers)
			synctest.Wait()
			if i == 2 { // a failure ends nobody else's waiting
				for range cap(got) {
					if a := <-got; !errors.Is(a.err, errServer) {
						t.Errorf("got %v, %v; want %v", a.n, a.err, errServer)
					}
				}
				continue
			}
			waiting = append(waiting, got)
			time.Sleep(10 * time.Second)
		}
		for _, got := range waiting {
			for range cap(got) {
				if a := <-got; a.err != nil || a.n != 6 {
					t.Fatalf("got %v, %v; want 6", a.n, a.err)
				}
			}
		}
		synctest.Wait()
		if s := coalesce.StatsOf(db); s.Flights != 0 || attempts.Load() != 5 {
			t.Errorf("%d attempts, stats %+v", attempts.Load(), s)
		}
	})
}

// Of those that hang, some lose all their callers, and some are overtaken by a
// write before they are old.
func TestNobodyIsForgottenAmongReadsThatHang(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, db *sql.DB){
		"a reader who leaves": func(t *testing.T, db *sql.DB) {
			ctx, leave := context.WithCancel(t.Context())
			got := ask(ctx, db, 1)
			time.Sleep(10 * time.Second)
			last := ask(t.Context(), db, 1)
			synctest.Wait()
			leave()
			if a := <-got; !errors.Is(a.err, context.Canceled) {
				t.Errorf("who leaves got %v, %v", a.n, a.err)
			}
			if a := <-last; a.err != nil || a.n != 5 {
				t.Errorf("the last got %v, %v; want 5", a.n, a.err)
			}
		},
		"a write": func(t *testing.T, db *sql.DB) {
			if _, err := db.ExecContext(t.Context(), "UPDATE t SET v = 5"); err != nil {
				t.Error(err)
			}
			for range 6 {
				one(t.Context(), db, q)
				time.Sleep(2 * time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hanging, attempts := int64(1), atomic.Int64{}
				if name != "a write" {
					hanging = 2
				}
				f := &fake{query: func(ctx context.Context, _ string, c *fakeConn) (driver.Rows, error) {
					if attempts.Add(1) <= hanging {
						<-ctx.Done()
						c.dead = true
						return nil, ctx.Err()
					}
					time.Sleep(time.Second)
					return ints(5), nil
				}}
				db := openFake(t, f, coalesce.Config{TTL: -1})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first := ask(ctx, db, 1)
				synctest.Wait()
				if name != "a write" {
					time.Sleep(10 * time.Second)
				}
				between(t, db)
				synctest.Wait()
				select {
				case a := <-first:
					if a.err != nil || a.n != 5 {
						t.Errorf("the first got %v, %v; want 5", a.n, a.err)
					}
				default:
					t.Error("the first still waits")
				}
			})
		})
	}
}

func TestACatalogThatNoConnectionSurvivesIsDoneWithout(t *testing.T) {
	f := &fake{catalog: func(context.Context) error { return errServer }} // and the connection is dead
	db := openFake(t, f, coalesce.Config{})
	var failed int
	for range 10 {
		if _, err := one(t.Context(), db, "SELECT v FROM t"); err != nil {
			failed++
		}
	}
	if n := f.catalogs.Load(); failed != 1 || n > 3 {
		t.Errorf("%d of 10 reads failed, %d connections were lost", failed, n)
	}
}

// The server may have been in trouble: what it cost is not lost for a minute.
func TestACatalogThatConnectionsWereLostOverIsAskedForLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := false
		f := &fake{catalog: func(context.Context) error {
			if well {
				return nil
			}
			return errServer
		}}
		db := openFake(t, f, coalesce.Config{})
		read := func(seconds int) (failed int, lost int64) {
			before := f.catalogs.Load()
			for range seconds {
				if _, err := one(t.Context(), db, q); err != nil {
					failed++
				}
				time.Sleep(time.Second)
			}
			return failed, f.catalogs.Load() - before
		}
		if failed, lost := read(60); failed != 1 || lost > 8 {
			t.Errorf("the first minute: %d reads failed, %d connections were lost", failed, lost)
		}
		if failed, lost := read(600); failed != 0 || lost > 11 {
			t.Errorf("ten minutes: %d reads failed, %d connections were lost", failed, lost)
		}
		well = true
		read(60)
		for _, trouble := range []int{1, 2, 3} {
			db.Exec("CREATE TABLE u (v int)") // has the catalog loaded anew
			well = false
			for range trouble {
				one(t.Context(), db, q)
			}
			well = true
			time.Sleep(time.Second)
			led := coalesce.StatsOf(db).Led
			if _, err := one(t.Context(), db, q); err != nil || coalesce.StatsOf(db).Led != led+1 {
				t.Errorf("a second after %d reads in trouble: %v, and it is not shared", trouble, err)
			}
		}
	})
}

func TestACatalogThatTakesLongerThanAMinuteIsDoneWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{catalog: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		db := openFake(t, f, coalesce.Config{})
		if _, err := one(t.Context(), db, "SELECT v FROM t"); err != nil {
			t.Errorf("a read without it: %v", err)
		}
		if s := coalesce.StatsOf(db); s.Private != 1 {
			t.Errorf("stats are %+v", s)
		}
	})
}

// Whatever becomes of a read, it is counted.
func TestReadsOfAServerThatCannotBeReachedAreCounted(t *testing.T) {
	db, err := sql.Open("coalesce-pgx", "host=/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, query := range []string{"SELECT 1", "SELECT v FROM t", "SELECT nextval('s')", "INSERT INTO t VALUES (1) RETURNING v"} {
		if _, err := one(t.Context(), db, query); err == nil {
			t.Errorf("%s: no error", query)
		}
		if s := coalesce.StatsOf(db); s.Reads != uint64(i+1) {
			t.Errorf("%s: %d reads, want %d", query, s.Reads, i+1)
		}
	}
}

func TestACatalogThatTakesLongerThanAnyCallerHasIsLoadedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{catalog: func(ctx context.Context) error {
			select {
			case <-time.After(700 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		db := openFake(t, f, coalesce.Config{})
		write := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			_, err := db.ExecContext(ctx, "UPDATE t SET v = 1")
			return err
		}
		for range 10 {
			if err := write(); err != nil {
				t.Errorf("a write: %v", err)
			}
		}
		// The first to need it after the last write has not the time; it goes on.
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		one(ctx, db, "SELECT v FROM t")
		cancel()
		time.Sleep(time.Second)
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			_, err := one(ctx, db, "SELECT v FROM t")
			cancel()
			if err != nil {
				t.Errorf("a read once it is there: %v", err)
			}
		}
		if n := f.catalogs.Load(); n > 4 {
			t.Errorf("it was asked for %d times; want once a second at most", n)
		}
		if s := coalesce.StatsOf(db); s.Held < 3 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestACatalogThatIsLoadedAgainHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, broken atomic.Bool
		f := &fake{catalog: func(ctx context.Context) error {
			if broken.Load() {
				return errors.New("the catalog is gone")
			}
			if slow.Load() {
				time.Sleep(700 * time.Millisecond)
			}
			return nil
		}}
		db := openFake(t, f, coalesce.Config{})
		read := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			_, err := one(ctx, db, "SELECT v FROM t")
			return err
		}
		if err := read(); err != nil {
			t.Fatal(err)
		}
		slow.Store(true)
		time.Sleep(time.Minute)
		errs := make(chan error)
		for range 50 {
			go func() { errs <- read() }()
		}
		for range 50 {
			if err := <-errs; err != nil {
				t.Errorf("while it is loaded again: %v", err)
			}
		}
		time.Sleep(time.Second)
		if err := read(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if n, s := f.catalogs.Load(), coalesce.StatsOf(db); n != 2 || s.Private != 0 {
			t.Errorf("it was asked for %d times, want twice; stats %+v", n, s)
		}

		// What cannot be loaded again is judged by for one more minute.
		broken.Store(true)
		time.Sleep(time.Minute)
		if err := read(); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		if s := coalesce.StatsOf(db); s.Private != 0 {
			t.Errorf("a minute later: %+v", s)
		}
		time.Sleep(time.Minute)
		if err, s := read(), coalesce.StatsOf(db); err == nil && s.Private != 1 {
			t.Errorf("two minutes later it is judged by: %+v", s)
		}
	})
}

func TestOpeningDialsNothing(t *testing.T) {
	f := &fake{}
	db := openFake(t, f, coalesce.Config{})
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := f.dials.Load(); n != 0 {
		t.Errorf("%d dials before the first query; want none", n)
	}
	if err := c.PingContext(t.Context()); err != nil || f.dials.Load() != 1 {
		t.Errorf("ping: %v, after %d dials; want 1", err, f.dials.Load())
	}
}

func TestAResultIsHeldForTheTTLFromTheMomentItResolves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
			time.Sleep(2 * time.Second)
			return ints(1), nil
		}}
		db := openFake(t, f, coalesce.Config{})
		read := func(want int64) {
			t.Helper()
			if _, err := one(t.Context(), db, q); err != nil {
				t.Fatal(err)
			}
			if n := f.queries.Load(); n != want {
				t.Fatalf("%d queries; want %d", n, want)
			}
		}
		read(1)
		time.Sleep(30*time.Second - time.Nanosecond)
		read(1)
		time.Sleep(time.Nanosecond)
		read(2)
	})
}

func TestTTLOfAContextHoldsAndAcceptsForThatLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{})
		read := func(ctx context.Context, want int64) {
			t.Helper()
			if _, err := one(ctx, db, q); err != nil {
				t.Fatal(err)
			}
			if n := f.queries.Load(); n != want {
				t.Fatalf("%d queries; want %d", n, want)
			}
		}
		joinOnly := coalesce.TTL(t.Context(), 0)
		read(joinOnly, 1)
		read(joinOnly, 2)
		read(t.Context(), 3) // what joinOnly read was not held
		read(joinOnly, 4)    // and takes nothing held
		time.Sleep(10 * time.Second)
		read(coalesce.TTL(t.Context(), 10*time.Second), 5)
		read(t.Context(), 5)
	})
}

func TestFreshGoesPastEverythingAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{})
		fresh := coalesce.Fresh(t.Context())
		one(fresh, db, q)
		one(fresh, db, q)
		one(t.Context(), db, q)
		one(fresh, db, q)
		one(t.Context(), db, q)
		if n := f.queries.Load(); n != 4 {
			t.Errorf("%d queries; want 4: three fresh ones and one other", n)
		}
		wantStats(t, db, 1, 0, 1, 3)
		if s := coalesce.StatsOf(db); s.PrivateBy[coalesce.CauseFresh] != 3 {
			t.Errorf("private by cause: %v; want 3 fresh", s.PrivateBy)
		}
	})
}

func TestScopesShareNothing(t *testing.T) {
	f := &fake{}
	db := openFake(t, f, coalesce.Config{})
	for _, scope := range []string{"a", "b", "a", "b", "ab", ""} {
		one(coalesce.Scope(t.Context(), scope), db, q)
	}
	one(t.Context(), db, q)
	if n := f.queries.Load(); n != 4 {
		t.Errorf("%d queries for the scopes a, b, ab and none; want 4", n)
	}
}

func TestALeaderWhoLeavesIsNotNoticedByItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(7)
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		leader := ask(ctx, db, 1)
		synctest.Wait()
		waiters := ask(t.Context(), db, 2)
		synctest.Wait()
		cancel()
		if a := <-leader; !errors.Is(a.err, context.Canceled) {
			t.Errorf("leader got %v; want context.Canceled", a.err)
		}
		late := ask(t.Context(), db, 1)
		synctest.Wait()
		close(g.open)
		for _, a := range []answer{<-waiters, <-waiters, <-late} {
			if a.err != nil || a.n != 7 {
				t.Errorf("waiter got %v, %v; want 7", a.n, a.err)
			}
		}
		if n := f.queries.Load(); n != 1 {
			t.Errorf("%d queries; want 1", n)
		}
		if s := coalesce.StatsOf(db); s.Cancelled != 1 {
			t.Errorf("%d cancelled; want 1", s.Cancelled)
		}
	})
}

func TestAWaiterObeysItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(7)
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		leader := ask(t.Context(), db, 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if a := <-ask(ctx, db, 1); !errors.Is(a.err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("waiter got %v after %v; want a deadline of 1s", a.err, time.Since(start))
		}
		close(g.open)
		if a := <-leader; a.err != nil || a.n != 7 {
			t.Errorf("leader got %v, %v; want 7", a.n, a.err)
		}
	})
}

func TestTheQueryStopsWhenNobodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(7)
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		got := ask(ctx, db, 3)
		synctest.Wait()
		cancel()
		for range 3 {
			if a := <-got; !errors.Is(a.err, context.Canceled) {
				t.Errorf("got %v; want context.Canceled", a.err)
			}
		}
		<-g.stopped
		synctest.Wait()
		if s := coalesce.StatsOf(db); s.Flights != 0 || s.StoredBytes != 0 {
			t.Errorf("stats after all left: %+v; want no flight and nothing stored", s)
		}
		// The next caller does not join what is being cancelled.
		close(g.open)
		if a := <-ask(t.Context(), db, 1); a.err != nil || a.n != 7 {
			t.Errorf("next caller got %v, %v; want 7", a.n, a.err)
		}
	})
}

func TestTheFlightSeesTheLeadersValuesAndNotItsDeadline(t *testing.T) {
	type key struct{}
	f := &fake{query: func(ctx context.Context, _ string, _ *fakeConn) (driver.Rows, error) {
		if ctx.Value(key{}) != "trace" {
			t.Error("the query did not see the leader's context value")
		}
		if _, has := ctx.Deadline(); has {
			t.Error("the query saw the leader's deadline")
		}
		return ints(1), nil
	}}
	db := openFake(t, f, coalesce.Config{})
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "trace"), time.Minute)
	defer cancel()
	if _, err := one(ctx, db, q); err != nil {
		t.Error(err)
	}
}

func TestAnErrorGoesToAllWhoWaitAndLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.rows = func() (driver.Rows, error) { return nil, errServer }
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		got := ask(t.Context(), db, 10)
		synctest.Wait()
		close(g.open)
		for range 10 {
			if a := <-got; a.err != errServer {
				t.Errorf("got %v; want the server's own error value", a.err)
			}
		}
		if n := f.queries.Load(); n != 1 {
			t.Errorf("%d queries for 10 concurrent callers; want 1", n)
		}
		g.rows = func() (driver.Rows, error) { return ints(3), nil }
		if n, err := one(t.Context(), db, q); n != 3 || err != nil {
			t.Errorf("after the failure got %v, %v; want 3", n, err)
		}
	})
}

func TestAnErrorInMidResultIsReplayedInItsPlaceAndNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.rows = func() (driver.Rows, error) { return failAfter(errServer, 1, 2), nil }
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				got, err := all(t.Context(), db, q)
				if !slices.Equal(got, []int64{1, 2}) || err != errServer {
					t.Errorf("got %v, %v; want [1 2] and the server's error", got, err)
				}
			})
		}
		synctest.Wait()
		close(g.open)
		wg.Wait()
		all(t.Context(), db, q)
		if n := f.queries.Load(); n != 2 {
			t.Errorf("%d queries; want 2: the failure was not held", n)
		}
	})
}

func TestANoRowsResultIsHeldLikeAnyOther(t *testing.T) {
	f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) { return ints(), nil }}
	db := openFake(t, f, coalesce.Config{})
	for range 2 {
		if _, err := one(t.Context(), db, q); err != sql.ErrNoRows {
			t.Errorf("got %v; want sql.ErrNoRows", err)
		}
	}
	if n := f.queries.Load(); n != 1 {
		t.Errorf("%d queries; want 1", n)
	}
}

func TestAReadThatWasNotSentIsSentAgainOnAFreshConnection(t *testing.T) {
	f := &fake{query: func(_ context.Context, _ string, c *fakeConn) (driver.Rows, error) {
		if c.id == 1 {
			c.dead = true
			return nil, driver.ErrBadConn
		}
		return ints(5), nil
	}}
	db := openFake(t, f, coalesce.Config{})
	if n, err := one(t.Context(), db, q); n != 5 || err != nil {
		t.Errorf("got %v, %v; want 5", n, err)
	}
	if f.open.Load() > 1 {
		t.Errorf("%d connections open; want 1 at most", f.open.Load())
	}
}

func TestErrBadConnIsNeverGivenToAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := newGate()
		bad.rows = func() (driver.Rows, error) { return nil, driver.ErrBadConn }
		f := &fake{query: bad.query}
		db := openFake(t, f, coalesce.Config{})
		// A pinned connection: database/sql does not try again on another.
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		leaderErr := make(chan error, 1)
		go func() { _, err := one(t.Context(), c, q); leaderErr <- err }()
		synctest.Wait()
		waiters := ask(t.Context(), db, 3)
		synctest.Wait()
		close(bad.open)
		if err := <-leaderErr; !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("leader got %v; want driver.ErrBadConn, as plain pgx gives", err)
		}
		for range 3 {
			if a := <-waiters; a.err == nil || errors.Is(a.err, driver.ErrBadConn) {
				t.Errorf("waiter got %v; want an error other than driver.ErrBadConn", a.err)
			}
		}
		if n := f.queries.Load(); n != 2 {
			t.Errorf("%d attempts; want 2: one and one more", n)
		}
	})
}

func TestOneWaiterSucceedsALeaderWhoseConnectionDied(t *testing.T) {
	for _, when := range []string{"before-the-first-row", "in-mid-result"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var second sync.Once
				release := make(chan struct{})
				f := &fake{}
				f.query = func(_ context.Context, _ string, c *fakeConn) (driver.Rows, error) {
					if c.id > 1 {
						second.Do(func() {})
						return ints(5), nil
					}
					<-release
					c.dead = true
					if when == "in-mid-result" {
						return failAfter(io.ErrUnexpectedEOF, 1), nil
					}
					return nil, io.ErrUnexpectedEOF
				}
				db := openFake(t, f, coalesce.Config{})
				leader := ask(t.Context(), db, 1)
				synctest.Wait()
				waiters := ask(t.Context(), db, 10)
				synctest.Wait()
				close(release)
				leaderGot := <-leader
				if when == "before-the-first-row" && leaderGot.err != io.ErrUnexpectedEOF {
					t.Errorf("leader got %v; want what its connection died of", leaderGot.err)
				}
				for range 10 {
					if a := <-waiters; a.err != nil || a.n != 5 {
						t.Errorf("waiter got %v, %v; want 5", a.n, a.err)
					}
				}
				if n := f.queries.Load(); n != 2 {
					t.Errorf("%d queries; want 2: the leader's and one successor's", n)
				}
			})
		})
	}
}

func TestASuccessorThatFailsTooIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{query: func(_ context.Context, _ string, c *fakeConn) (driver.Rows, error) {
			<-release
			c.dead = true
			return nil, io.ErrUnexpectedEOF
		}}
		db := openFake(t, f, coalesce.Config{})
		got := ask(t.Context(), db, 10)
		synctest.Wait()
		close(release)
		for range 10 {
			if a := <-got; a.err != io.ErrUnexpectedEOF {
				t.Errorf("got %v; want what the connection died of", a.err)
			}
		}
		if n := f.queries.Load(); n != 2 {
			t.Errorf("%d queries; want 2", n)
		}
	})
}

func TestARefusedDialIsTriedOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := make(chan struct{})
		f := &fake{dial: func(context.Context) error { <-refuse; return errServer }}
		db := openFake(t, f, coalesce.Config{})
		got := ask(t.Context(), db, 50)
		synctest.Wait()
		close(refuse)
		for range 50 {
			if a := <-got; a.err != errServer {
				t.Errorf("got %v; want the refusal", a.err)
			}
		}
		if n := f.dials.Load(); n != 1 {
			t.Errorf("%d dials; want 1", n)
		}
	})
}

type valuer func() (driver.Value, error)

func (v valuer) Value() (driver.Value, error) { return v() }

func TestUserCodeThatPanicsHurtsItsOwnCallerOnly(t *testing.T) {
	inValuer := func(ctx context.Context, db *sql.DB, boom func()) {
		one(ctx, db, "SELECT v FROM t WHERE v = $1", valuer(func() (driver.Value, error) { boom(); return nil, nil }))
	}
	for name, boom := range map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name+"-in-an-argument", func(t *testing.T) {
			db := openFake(t, &fake{}, coalesce.Config{})
			for range 2 {
				if got := endOf(func() { inValuer(t.Context(), db, boom) }); got != name {
					t.Errorf("caller ended by %q; want %q", got, name)
				}
			}
			if n, err := one(t.Context(), db, q); n != 1 || err != nil {
				t.Errorf("a read after it got %v, %v; want 1", n, err)
			}
		})
		t.Run(name+"-in-the-flight", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
					<-release
					boom()
					return nil, nil
				}}
				db := openFake(t, f, coalesce.Config{})
				end := make(chan string, 1)
				go func() { end <- endOf(func() { one(t.Context(), db, q) }) }()
				synctest.Wait()
				waiters := ask(t.Context(), db, 3)
				synctest.Wait()
				close(release)
				if got := <-end; got != name {
					t.Errorf("leader ended by %q; want %q", got, name)
				}
				for range 3 {
					if a := <-waiters; a.err == nil {
						t.Error("a waiter got no error")
					}
				}
				f.query = nil
				if n, err := one(t.Context(), db, q); n != 1 || err != nil {
					t.Errorf("a read after it got %v, %v; want 1", n, err)
				}
				if n := f.open.Load(); n != 1 {
					t.Errorf("%d server connections open; want 1", n)
				}
			})
		})
	}
}

// endOf tells how f ended: "panic", "goexit" or "return".
func endOf(f func()) string {
	how := make(chan string, 1)
	go func() {
		end := "goexit"
		defer func() {
			if recover() != nil {
				end = "panic"
			}
			how <- end
		}()
		f()
		end = "return"
	}()
	return <-how
}

func TestAResultTooLargeIsStreamedToItsLeaderAndToNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 10_000
		release := make(chan struct{})
		f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
			<-release
			values := make([]int64, rows)
			for i := range values {
				values[i] = int64(i)
			}
			return ints(values...), nil
		}}
		db := openFake(t, f, coalesce.Config{MaxResultBytes: 4 << 10})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				got, err := all(t.Context(), db, q)
				if err != nil || len(got) != rows || got[0] != 0 || got[rows-1] != rows-1 {
					t.Errorf("got %d rows and %v; want %d", len(got), err, rows)
				}
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if n := f.queries.Load(); n != 5 {
			t.Errorf("%d queries; want 5: each on its own", n)
		}
		wantStats(t, db, 0, 0, 1, 4)
		all(t.Context(), db, q) // nobody queues up behind it for a while
		wantStats(t, db, 0, 0, 1, 5)
		time.Sleep(30 * time.Second)
		all(t.Context(), db, q)
		wantStats(t, db, 0, 0, 2, 5)
		if s := coalesce.StatsOf(db); s.StoredBytes != 0 || s.TooBig != 2 {
			t.Errorf("stats: %+v; want nothing stored and two results too big", s)
		}
	})
}

func TestAStreamClosedEarlyStopsTheQuery(t *testing.T) {
	f := &fake{}
	cancelled := make(chan struct{})
	f.query = func(ctx context.Context, _ string, _ *fakeConn) (driver.Rows, error) {
		n := int64(0)
		return &fakeRows{
			next:   func() (driver.Value, error) { n++; return n, nil },
			closed: func() { <-ctx.Done(); close(cancelled) },
		}, nil
	}
	db := openFake(t, f, coalesce.Config{MaxResultBytes: 4 << 10})
	rows, err := db.QueryContext(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		rows.Next()
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	<-cancelled
}

func TestTheLeastRecentlyUsedResultsMakeRoom(t *testing.T) {
	f := &fake{}
	db := openFake(t, f, coalesce.Config{MaxBytes: 64 << 10})
	text := func(i int) string { return fmt.Sprintf("SELECT v FROM t WHERE v > %d", i) }
	for i := range 1000 {
		if _, err := one(t.Context(), db, text(i)); err != nil {
			t.Fatal(err)
		}
		one(t.Context(), db, text(0)) // always in use
		if s := coalesce.StatsOf(db); s.StoredBytes > 64<<10 {
			t.Fatalf("%d bytes stored; want 64 KiB at most", s.StoredBytes)
		}
	}
	if s := coalesce.StatsOf(db); s.Evicted == 0 {
		t.Error("nothing was evicted")
	}
	before := f.queries.Load()
	one(t.Context(), db, text(0))
	if f.queries.Load() != before {
		t.Error("the result in use was evicted")
	}
	one(t.Context(), db, text(1))
	if f.queries.Load() == before {
		t.Error("the result not in use was not evicted")
	}
}

func TestOwnWritesAreSeenAtOnce(t *testing.T) {
	for name, write := range map[string]func(*sql.DB) error{
		"exec": func(db *sql.DB) error { _, err := db.Exec("UPDATE t SET v = 2"); return err },
		"returning": func(db *sql.DB) error {
			_, err := all(context.Background(), db, "INSERT INTO t VALUES (2) RETURNING v")
			return err
		},
		"failed": func(db *sql.DB) error { db.Exec("UPDATE t SET v = 2 WHERE fail"); return nil },
		"prepared": func(db *sql.DB) error {
			st, err := db.Prepare("UPDATE t SET v = 2")
			if err != nil {
				return err
			}
			defer st.Close()
			_, err = st.Exec()
			return err
		},
		"transaction": func(db *sql.DB) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			tx.Exec("UPDATE t SET v = 2")
			return tx.Commit()
		},
		"manual-commit": func(db *sql.DB) error {
			c, err := db.Conn(context.Background())
			if err != nil {
				return err
			}
			defer c.Close()
			for _, s := range []string{"BEGIN", "UPDATE t SET v = 2", "COMMIT"} {
				if _, err := c.ExecContext(context.Background(), s); err != nil {
					return err
				}
			}
			return nil
		},
		"invalidate": func(db *sql.DB) error { return coalesce.Invalidate(db, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{exec: func(_ context.Context, q string) error {
				if strings.Contains(q, "fail") {
					return errServer
				}
				return nil
			}}
			reads := 0
			f.query = func(_ context.Context, text string, _ *fakeConn) (driver.Rows, error) {
				if text == q {
					reads++
				}
				return ints(1), nil
			}
			db := openFake(t, f, coalesce.Config{})
			one(t.Context(), db, q)
			one(t.Context(), db, q)
			if reads != 1 {
				t.Fatalf("%d reads before the write; want 1", reads)
			}
			if err := write(db); err != nil {
				t.Fatal(err)
			}
			one(t.Context(), db, q)
			if reads != 2 {
				t.Errorf("%d reads after the write; want 2", reads)
			}
		})
	}
}

func TestARolledBackTransactionInvalidatesNothing(t *testing.T) {
	f := &fake{}
	db := openFake(t, f, coalesce.Config{})
	one(t.Context(), db, q)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	tx.Exec("UPDATE t SET v = 2")
	one(t.Context(), tx, q)
	tx.Rollback()
	one(t.Context(), db, q)
	if n := f.queries.Load(); n != 2 {
		t.Errorf("%d queries; want 2: the first and the one in the transaction", n)
	}
}

func TestAWriteDetachesTheFlightUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newGate(1)
		f := &fake{query: old.query}
		db := openFake(t, f, coalesce.Config{})
		before := ask(t.Context(), db, 2)
		synctest.Wait()
		if _, err := db.Exec("UPDATE t SET v = 2"); err != nil {
			t.Fatal(err)
		}
		f.query = func(context.Context, string, *fakeConn) (driver.Rows, error) { return ints(2), nil }
		if a := <-ask(t.Context(), db, 1); a.n != 2 {
			t.Errorf("a read after the write got %v, %v; want 2", a.n, a.err)
		}
		close(old.open)
		for range 2 {
			if a := <-before; a.n != 1 {
				t.Errorf("a read before the write got %v, %v; want 1", a.n, a.err)
			}
		}
		// The old answer, resolved last, replaces nothing.
		if n, err := one(t.Context(), db, q); n != 2 {
			t.Errorf("got %v, %v; want 2", n, err)
		}
	})
}

func TestNothingIsSharedInATransaction(t *testing.T) {
	for name, begin := range map[string]func(*sql.Conn) error{
		"begin-tx": func(c *sql.Conn) error { _, err := c.BeginTx(context.Background(), nil); return err },
		"by-hand":  func(c *sql.Conn) error { _, err := c.ExecContext(context.Background(), "BEGIN"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			db := openFake(t, f, coalesce.Config{})
			one(t.Context(), db, q)
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := begin(c); err != nil {
				t.Fatal(err)
			}
			one(t.Context(), c, q)
			one(t.Context(), c, q)
			if n := f.queries.Load(); n != 3 {
				t.Errorf("%d queries; want 3", n)
			}
		})
	}
}

func TestAChangedSessionSharesNothing(t *testing.T) {
	f := &fake{}
	db := openFake(t, f, coalesce.Config{})
	one(t.Context(), db, q)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func(want int64) {
		t.Helper()
		one(t.Context(), c, q)
		if n := f.queries.Load(); n != want {
			t.Errorf("%d queries; want %d", n, want)
		}
	}
	read(1)
	c.ExecContext(t.Context(), "SET search_path = other")
	read(2)
	c.ExecContext(t.Context(), "RESET ALL")
	read(3)
	c.ExecContext(t.Context(), "DISCARD ALL") // which nobody knows this driver to mean
	read(4)
}

func TestClosingTheDatabaseEndsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		f := &fake{query: g.query}
		db := openFake(t, f, coalesce.Config{})
		got := ask(t.Context(), db, 3)
		synctest.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if a := <-got; !errors.Is(a.err, coalesce.ErrClosed) {
				t.Errorf("got %v; want ErrClosed", a.err)
			}
		}
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d server connections open; want none", n)
		}
	})
}

func TestNoMoreServerConnectionsThanMaxConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		most := int64(0)
		var mu sync.Mutex
		f.query = func(context.Context, string, *fakeConn) (driver.Rows, error) {
			mu.Lock()
			most = max(most, f.open.Load())
			mu.Unlock()
			time.Sleep(time.Second)
			return ints(1), nil
		}
		db := openFake(t, f, coalesce.Config{MaxConns: 3})
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				// Half of them share, half run on their own.
				text := fmt.Sprintf("SELECT v FROM t WHERE v > %d", i%20)
				if i%2 == 0 {
					text = "SELECT random() FROM t"
				}
				if _, err := one(t.Context(), db, text); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most > 3 {
			t.Errorf("%d server connections at once; want 3 at most", most)
		}
		if n := f.dials.Load(); n > 6 {
			t.Errorf("%d dials for 3 places; connections are not handed on", n)
		}
	})
}

func TestAWaiterLendsItsConnectionToTheFlightItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{MaxConns: 1})
		// holder has the only place; the leader has none and waits for it.
		holder, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if err := holder.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		leader := ask(t.Context(), db, 1)
		synctest.Wait()
		if n, err := one(t.Context(), holder, q); n != 1 || err != nil {
			t.Errorf("holder got %v, %v; want 1", n, err)
		}
		if a := <-leader; a.n != 1 || a.err != nil {
			t.Errorf("leader got %v, %v; want 1", a.n, a.err)
		}
		if n := f.dials.Load(); n != 1 {
			t.Errorf("%d dials; want 1", n)
		}
		// It has it back.
		if err := holder.PingContext(t.Context()); err != nil || f.dials.Load() != 1 {
			t.Errorf("ping: %v, after %d dials; want 1", err, f.dials.Load())
		}
	})
}

func TestWaitingForAPlaceObeysTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openFake(t, &fake{}, coalesce.Config{MaxConns: 1})
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for name, read := range map[string]string{"shared": q, "private": "SELECT random()"} {
			if _, err := one(ctx, db, read); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s read got %v; want the context's error", name, err)
			}
		}
		tx.Rollback()
		synctest.Wait()
		if n, err := one(t.Context(), db, q); n != 1 || err != nil {
			t.Errorf("after the place is free: %v, %v; want 1", n, err)
		}
	})
}

func TestAPlaceThatComesAsItsWaiterLeavesGoesOn(t *testing.T) {
	// Which of the two the waiter sees is for the scheduler: hence the rounds.
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.query = func(_ context.Context, query string, c *fakeConn) (driver.Rows, error) {
			c.dead = query == "SELECT 'the last'"
			return ints(1), nil
		}
		db := openFake(t, f, coalesce.Config{MaxConns: 1})
		private := coalesce.Fresh(t.Context())
		for round := range 500 {
			holder, err := db.Conn(private)
			if err != nil {
				t.Fatal(err)
			}
			query := q
			if round%2 == 0 {
				query = "SELECT 'the last'" // and its place comes without a link
			}
			if _, err := one(private, holder, query); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(private)
			left := make(chan struct{})
			go func() {
				defer close(left)
				one(ctx, db, q)
			}()
			synctest.Wait()
			cancel()
			holder.Close()
			<-left
			if n, err := one(private, db, q); n != 1 || err != nil {
				t.Fatalf("round %d: the next got %v, %v; want 1", round, n, err)
			}
		}
	})
}

func TestAStampedeLeavesItsConnectionToThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{TTL: -1})
		for range 20 {
			g := newGate(1)
			f.query = g.query
			got := ask(t.Context(), db, 100)
			synctest.Wait()
			close(g.open)
			for range 100 {
				<-got
			}
			synctest.Wait()
		}
		if n := f.dials.Load(); n > 5 {
			t.Errorf("%d dials for 20 stampedes; want the connection kept", n)
		}
	})
}

func TestArgumentsMayChangeOnceTheCallReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sent := make(chan []byte, 1)
		f := &argFake{release: release, sent: sent}
		db := sql.OpenDB(coalesce.NewConnector(f, coalesce.Config{}))
		defer db.Close()
		ctx, cancel := context.WithCancel(t.Context())
		arg := []byte("before")
		left := make(chan error, 1)
		go func() { _, err := one(ctx, db, "SELECT v FROM t WHERE b = $1", arg); left <- err }()
		synctest.Wait()
		other := make(chan error, 1)
		go func() { _, err := one(t.Context(), db, "SELECT v FROM t WHERE b = $1", []byte("before")); other <- err }()
		synctest.Wait()
		cancel()
		<-left
		copy(arg, "after!")
		close(release)
		if err := <-other; err != nil {
			t.Error(err)
		}
		if got := <-sent; string(got) != "before" {
			t.Errorf("the server was sent %q; want what the caller had at its call", got)
		}
	})
}

// argFake reads its argument when it is released.
type argFake struct {
	release chan struct{}
	sent    chan []byte
}

func (f *argFake) Driver() driver.Driver                        { return nil }
func (f *argFake) Connect(context.Context) (driver.Conn, error) { return argConn{f}, nil }

type argConn struct{ *argFake }

func (argConn) Prepare(string) (driver.Stmt, error) { return nil, errServer }
func (argConn) Close() error                        { return nil }
func (argConn) Begin() (driver.Tx, error)           { return nil, errServer }
func (c argConn) QueryContext(_ context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	if q == catalog.Query {
		return &catalogRows{}, nil
	}
	<-c.release
	c.sent <- slices.Clone(args[0].Value.([]byte))
	return ints(1), nil
}

func TestAValuerIsAskedOncePerCall(t *testing.T) {
	db := openFake(t, &fake{}, coalesce.Config{})
	for _, text := range []string{"SELECT v FROM t WHERE v = $1", "SELECT random() FROM t WHERE v = $1"} {
		asked := 0
		one(t.Context(), db, text, valuer(func() (driver.Value, error) { asked++; return int64(1), nil }))
		if asked != 1 {
			t.Errorf("%s: Value was called %d times; want once", text, asked)
		}
	}
}

func TestRowsOfOneCallerAreNoOtherCallers(t *testing.T) {
	held := []byte("abc")
	f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
		done := false
		return &fakeRows{next: func() (driver.Value, error) {
			if done {
				return nil, io.EOF
			}
			done = true
			return held, nil
		}}, nil
	}}
	db := openFake(t, f, coalesce.Config{})
	for range 3 {
		rows, err := db.QueryContext(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var raw sql.RawBytes
		rows.Next()
		rows.Scan(&raw)
		if string(raw) != "abc" {
			t.Fatalf("got %q; want abc", raw)
		}
		for i := range raw {
			raw[i] = 'Z'
		}
		rows.Close()
		copy(held, "ZZZ") // nor is the driver's buffer the held result
		held = []byte("abc")
	}
}

func TestColumnNamesOfOneCallerAreNoOtherCallers(t *testing.T) {
	db := openFake(t, &fake{}, coalesce.Config{})
	for range 3 {
		rows, err := db.QueryContext(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		names, err := rows.Columns()
		if err != nil || names[0] != "v" {
			t.Fatalf("got %v, %v; want [v]", names, err)
		}
		names[0] = "changed"
		rows.Close()
	}
}

func TestColumnTypesOfADriverThatTellsThem(t *testing.T) {
	db, mock := mockDB(t)
	mock.ExpectQuery(q).WillReturnRows(sqlmock.NewRowsWithColumnDefinition(
		sqlmock.NewColumn("v").OfType("NUMERIC", 1.5).Nullable(true).WithPrecisionAndScale(9, 2).WithLength(7),
	).AddRow(1.5))
	for _, how := range []string{"led", "held"} {
		rows, err := db.Query(q)
		if err != nil {
			t.Fatal(err)
		}
		types, err := rows.ColumnTypes()
		if err != nil {
			t.Fatal(err)
		}
		ct := types[0]
		null, nullOK := ct.Nullable()
		p, s, decOK := ct.DecimalSize()
		n, lenOK := ct.Length()
		if ct.DatabaseTypeName() != "NUMERIC" || ct.ScanType() != reflect.TypeFor[float64]() || !null || !nullOK || p != 9 || s != 2 || !decOK || n != 7 || !lenOK {
			t.Errorf("%s: column type is %v %v %v %v %v %v %v %v %v", how, ct.DatabaseTypeName(), ct.ScanType(), null, nullOK, p, s, decOK, n, lenOK)
		}
		rows.Close()
	}
}

func TestAPanicKeepsNoPlace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	f := &fake{begin: func() { panic("boom") }}
	db := openFake(t, f, coalesce.Config{MaxConns: 1})
	if end := endOf(func() { db.Begin() }); end != "panic" {
		t.Errorf("Begin ended by %q", end)
	}
	for _, text := range []string{"SELECT v FROM t WHERE v = $1", "SELECT random() FROM t WHERE v = $1"} {
		if err := db.PingContext(ctx); err != nil {
			t.Fatal(err)
		}
		end := endOf(func() { one(t.Context(), db, text, valuer(func() (driver.Value, error) { panic("boom") })) })
		if end != "panic" {
			t.Errorf("ended by %q", end)
		}
	}
	if err := db.PingContext(ctx); err != nil {
		t.Errorf("ping after panics: %v; the place is lost", err)
	}
}

func TestAHookThatPanicsKeepsNoPlace(t *testing.T) {
	boom := true
	f := &fake{dial: func(context.Context) error {
		if boom {
			panic("boom")
		}
		return nil
	}}
	for what, call := range map[string]func(*sql.DB){
		"led":     func(db *sql.DB) { one(t.Context(), db, q) },
		"private": func(db *sql.DB) { one(t.Context(), db, "SELECT random()") },
		"ping":    func(db *sql.DB) { db.Ping() },
	} {
		db := openFake(t, f, coalesce.Config{MaxConns: 1})
		boom = true
		if end := endOf(func() { call(db) }); end != "panic" {
			t.Errorf("%s ended by %q", what, end)
		}
		boom = false
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := db.PingContext(ctx); err != nil {
			t.Errorf("ping after the panic of %s: %v; the place is lost", what, err)
		}
	}
}

func TestAWriteDoesNotWaitLongForTheCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{catalog: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		for has, waits := range map[time.Duration]time.Duration{time.Hour: 2 * time.Second, time.Second: time.Second / 2} {
			db := openFake(t, f, coalesce.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), has)
			defer cancel()
			began := time.Now()
			if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > waits {
				t.Errorf("a write that has %v took %v, want %v", has, d, waits)
			}
		}
	})
}

func TestACatalogThatNobodyWaitsForLeavesNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{catalog: func(context.Context) error { time.Sleep(time.Second); return nil }}
		db := openFake(t, f, coalesce.Config{})
		db.SetMaxIdleConns(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := one(ctx, db, q); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d connections are open, and the pool has none", n)
		}
	})
}

func TestFurtherResultSetsGoToTheirCallerOnly(t *testing.T) {
	db, mock := mockDB(t)
	for range 2 {
		mock.ExpectQuery(q).WillReturnRows(
			sqlmock.NewRows([]string{"v"}).AddRow(1),
			sqlmock.NewRows([]string{"w"}).AddRow(2),
		)
	}
	for range 2 {
		rows, err := db.Query(q)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		var names []string
		for {
			columns, _ := rows.Columns()
			names = append(names, columns...)
			for rows.Next() {
				var n int
				rows.Scan(&n)
				got = append(got, n)
			}
			if !rows.NextResultSet() {
				break
			}
		}
		rows.Close()
		if !slices.Equal(got, []int{1, 2}) || !slices.Equal(names, []string{"v", "w"}) {
			t.Errorf("got %v of %v; want [1 2] of [v w]", got, names)
		}
	}
}

// severalRows are the first of several results.
type severalRows struct{ *fakeRows }

func (severalRows) HasNextResultSet() bool { return true }
func (severalRows) NextResultSet() error   { return io.EOF }

// What the driver has registered with the caller's context ends with it.
func TestTheContextOfAReadEndsWithItsRows(t *testing.T) {
	for name, made := range map[string]driver.Rows{
		"shared":          ints(1),
		"too big":         kilobytes(3, io.EOF),
		"several results": severalRows{ints(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent context.Context
				f := &fake{query: func(ctx context.Context, _ string, _ *fakeConn) (driver.Rows, error) {
					sent = ctx
					return made, nil
				}}
				db := openFake(t, f, coalesce.Config{MaxResultBytes: 1 << 10})
				rows, err := db.QueryContext(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				skip(rows, 5)
				rows.Close()
				synctest.Wait()
				if sent.Err() == nil {
					t.Error("it goes on")
				}
			})
		})
	}
}

func TestARowErrorOfTheDriverReachesTheCallerUnchanged(t *testing.T) {
	db, mock := mockDB(t)
	mock.ExpectQuery(q).WillReturnRows(sqlmock.NewRows([]string{"v"}).AddRow(1).AddRow(2).RowError(1, errServer))
	got, err := all(t.Context(), db, q)
	if !slices.Equal(got, []int64{1}) || err != errServer {
		t.Errorf("got %v, %v; want [1] and the driver's error", got, err)
	}
}

func mockDB(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	plain, mock, err := sqlmock.NewWithDSN(t.Name(), sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	mock.ExpectQuery(catalog.Query).WillReturnRows(sqlmock.NewRows(make([]string, 5)).AddRow("relation", "t", "r", "", nil))
	db := sql.OpenDB(coalesce.NewConnector(dsnConnector{plain.Driver(), t.Name()}, coalesce.Config{}))
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		mock.ExpectClose()
		db.Close()
	})
	return db, mock
}

// dsnConnector connects as database/sql does for a driver of the old kind.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

func TestStatsAddUpUnderLoad(t *testing.T) {
	f := &fake{query: func(_ context.Context, text string, _ *fakeConn) (driver.Rows, error) {
		if strings.Contains(text, "bad") {
			return nil, errServer
		}
		return ints(1), nil
	}}
	db := openFake(t, f, coalesce.Config{MaxBytes: 8 << 10})
	const callers, each = 16, 200
	stop := make(chan struct{})
	var watcher, wg sync.WaitGroup
	watcher.Go(func() {
		for {
			s := coalesce.StatsOf(db)
			sum := uint64(0)
			for _, n := range s.PrivateBy {
				sum += n
			}
			if s.Reads != s.Held+s.Joined+s.Led+s.Private || s.Private != sum {
				t.Errorf("the sums of %+v do not add up", s)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				ctx := t.Context()
				text := fmt.Sprintf("SELECT v FROM t WHERE v > %d", j%7)
				switch (i + j) % 5 {
				case 1:
					text = "SELECT random()"
				case 2:
					ctx = coalesce.Fresh(ctx)
				case 3:
					text = "SELECT bad FROM t"
				}
				one(ctx, db, text)
			}
		})
	}
	wg.Wait()
	close(stop)
	watcher.Wait()
	if s := coalesce.StatsOf(db); s.Reads != callers*each {
		t.Errorf("%d reads counted; want %d", s.Reads, callers*each)
	}
}

func TestAPinnedConnectionThatReadsSharedRowsAgainHasOneLink(t *testing.T) {
	for how, then := range map[string]func(context.Context, *sql.Conn) error{
		"led":     func(ctx context.Context, c *sql.Conn) error { _, err := one(ctx, c, q+" WHERE v < 2"); return err },
		"private": func(ctx context.Context, c *sql.Conn) error { _, err := one(coalesce.Fresh(ctx), c, q); return err },
		"written": func(ctx context.Context, c *sql.Conn) error {
			_, err := c.ExecContext(ctx, "CREATE TABLE o()")
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				db := openFake(t, f, coalesce.Config{MaxConns: 3})
				for range 3 {
					if _, err := one(t.Context(), db, q); err != nil {
						t.Fatal(err)
					}
					c, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := one(t.Context(), c, q); err != nil { // gives up its link
						t.Fatal(err)
					}
					time.Sleep(2 * time.Minute) // and the catalog is to be loaded again
					if err := then(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.Close()
				}
				db.SetMaxIdleConns(-1)
				if n := f.open.Load(); n > 1 {
					t.Errorf("%d server connections are left of a pool without any", n)
				}
				db.Close()
				if n := f.open.Load(); n != 0 {
					t.Errorf("%d server connections are left of a closed database", n)
				}
			})
		})
	}
}

func TestAPlaceGoesToItsWaiterThoughThePoolKeepsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{MaxConns: 1})
		private := coalesce.Fresh(t.Context())
		holder, err := db.Conn(private)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one(private, holder, q); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := one(private, db, q)
			read <- err
		}()
		synctest.Wait() // it waits for the place
		holder.Close()
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

func TestNobodyIsLeftForASpareConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, let := &fake{}, make(chan struct{})
		db := openFake(t, f, coalesce.Config{})
		db.SetMaxIdleConns(-1)
		private := coalesce.Fresh(t.Context())
		first, err := db.Conn(private)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one(private, first, q); err != nil {
			t.Fatal(err)
		}
		f.dial = func(context.Context) error {
			<-let
			return nil
		}
		read := make(chan error, 1)
		go func() {
			_, err := one(private, db, q)
			read <- err
		}()
		synctest.Wait() // it dials
		first.Close()
		close(let)
		if err := <-read; err != nil {
			t.Error(err)
		}
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d server connections are kept for nobody", n)
		}
	})
}

func TestAClosedDatabaseKeepsNoSpareConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{})
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := db.Conn(t.Context()) // whose caller's hook has panicked, and which nobody ever closes
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := one(coalesce.Fresh(t.Context()), c, q); err != nil {
			t.Error(err)
		}
		db.Close()
		c.Close()
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d server connections are left", n)
		}
	})
}

func TestAConnectionWithOpenRowsIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{query: func(_ context.Context, query string, _ *fakeConn) (driver.Rows, error) {
			if query == q {
				return ints(1), nil
			}
			return ints(make([]int64, 1000)...), nil
		}}
		db := openFake(t, f, coalesce.Config{MaxConns: 1, MaxResultBytes: 1000})
		if _, err := one(t.Context(), db, q); err != nil {
			t.Fatal(err)
		}
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		rows, err := c.QueryContext(t.Context(), q+" WHERE v < 2") // too big to share
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if _, err := one(t.Context(), c, q); err != nil { // held
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := db.PingContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another used it while its rows were open: %v", err)
		}
	})
}

func TestAnIdleConnectionWhoseSessionWasChangedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		db := openFake(t, f, coalesce.Config{})
		if _, err := one(coalesce.Fresh(t.Context()), db, q); err != nil {
			t.Fatal(err)
		}
		locks, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := locks.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
			t.Fatal(err)
		}
		locks.Close()
		if err := other.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := f.open.Load(); n != 2 {
			t.Errorf("%d server connections are open: that which has the lock was closed", n)
		}
	})
}
