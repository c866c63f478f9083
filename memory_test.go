package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coalesce-pgx/coalesce"
)

// kilobytes gives n strings of a kilobyte, and then end.
func kilobytes(n int, end error) *fakeRows {
	return &fakeRows{next: func() (driver.Value, error) {
		if n == 0 {
			return nil, end
		}
		n--
		return strings.Repeat("x", 1<<10), nil
	}}
}

// wantBeingRead compares what is being read with kilobytes.
func wantBeingRead(t *testing.T, when string, db *sql.DB, least, most int64) {
	t.Helper()
	if n := coalesce.BeingRead(db); n < least<<10 || n > most<<10 {
		t.Errorf("%s: %d bytes are being read; want %d kB to %d kB", when, n, least, most)
	}
}

func skip(rows *sql.Rows, n int) {
	for range n {
		rows.Next()
	}
}

func TestTheBufferOfAStreamIsChargedUntilItIsReadOrClosed(t *testing.T) {
	for name, c := range map[string]struct {
		last error
		end  func(rows *sql.Rows, cancel func())
	}{
		"closed-early":         {io.EOF, func(rows *sql.Rows, _ func()) { rows.Close() }},
		"read-past-the-buffer": {io.EOF, func(rows *sql.Rows, _ func()) { skip(rows, 150) }},
		"read-to-the-end":      {io.EOF, func(rows *sql.Rows, _ func()) { skip(rows, 1000) }},
		"error-at-the-end":     {errServer, func(rows *sql.Rows, _ func()) { skip(rows, 1000) }},
		"context-ends":         {io.EOF, func(_ *sql.Rows, cancel func()) { cancel(); synctest.Wait() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
					return kilobytes(500, c.last), nil
				}}
				db := openFake(t, f, coalesce.Config{MaxResultBytes: 256 << 10})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				rows, err := db.QueryContext(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				wantBeingRead(t, "before the first row", db, 250, 258)
				skip(rows, 1)
				wantBeingRead(t, "at the first row", db, 250, 258)
				skip(rows, 150) // what was delivered goes, in steps
				wantBeingRead(t, "in mid-buffer", db, 80, 190)
				c.end(rows, cancel)
				wantBeingRead(t, name, db, 0, 0)
				rows.Close()
				wantBeingRead(t, "closed", db, 0, 0)
			})
		})
	}
}

func TestAStreamWhoseLeaderHasLeftIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.rows = func() (driver.Rows, error) { return kilobytes(500, io.EOF), nil }
		db := openFake(t, &fake{query: g.query}, coalesce.Config{MaxResultBytes: 256 << 10})
		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx, db, 1)
		synctest.Wait()
		waiter := make(chan *sql.Rows, 1)
		go func() {
			rows, err := db.QueryContext(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			waiter <- rows
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(g.open)
		rows := <-waiter
		defer rows.Close()
		synctest.Wait()
		wantBeingRead(t, "the waiter reads on its own", db, 0, 0)
	})
}

func TestALargeResultIsChargedUntilItsLastReaderCloses(t *testing.T) {
	for name, c := range map[string]struct {
		ttl   time.Duration
		end   error
		hangs bool                           // the first read does, so that the second answers both
		leave func(t *testing.T, db *sql.DB) // nil: it is not held at all
	}{
		"joined-only":          {0, io.EOF, false, nil},
		"joined-that-had-hung": {0, io.EOF, true, nil},
		"failed":               {time.Minute, errServer, false, nil},
		"written": {time.Minute, io.EOF, false, func(t *testing.T, db *sql.DB) {
			db.Exec("UPDATE t SET v = 2")
			one(t.Context(), db, q)
		}},
		"written-having-hung": {time.Minute, io.EOF, true, func(t *testing.T, db *sql.DB) {
			db.Exec("UPDATE t SET v = 2")
			one(t.Context(), db, q)
		}},
		"out-of-date": {30 * time.Second, io.EOF, false, func(t *testing.T, db *sql.DB) {
			time.Sleep(30 * time.Second)
			one(t.Context(), db, q)
		}},
		"evicted": {time.Minute, io.EOF, false, func(t *testing.T, db *sql.DB) {
			for i := range 4 {
				one(t.Context(), db, fmt.Sprintf("SELECT v FROM t WHERE v > %d", i))
			}
		}},
		"closed": {time.Minute, io.EOF, false, func(_ *testing.T, db *sql.DB) { db.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				g.rows = func() (driver.Rows, error) { return kilobytes(200, c.end), nil }
				f := &fake{}
				f.query = func(ctx context.Context, text string, conn *fakeConn) (driver.Rows, error) {
					if c.hangs && f.queries.Load() == 1 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return g.query(ctx, text, conn)
				}
				db := openFake(t, f, coalesce.Config{MaxBytes: 900 << 10})
				ctx := coalesce.TTL(t.Context(), c.ttl)
				readers := make(chan *sql.Rows, 3)
				read := func() {
					rows, err := db.QueryContext(ctx, q)
					if err != nil {
						t.Error(err)
					}
					rows.Next()
					readers <- rows
				}
				go read()
				synctest.Wait()
				if c.hangs {
					time.Sleep(11 * time.Second)
				}
				go read()
				synctest.Wait()
				close(g.open)
				synctest.Wait()
				if c.leave != nil {
					read()
					wantBeingRead(t, "it could go at any time", db, 0, 0)
					c.leave(t, db)
				}
				for n := len(readers); n > 0; n-- {
					wantBeingRead(t, fmt.Sprintf("%d readers", n), db, 200, 220)
					rows := <-readers
					rows.Close()
					rows.Close()
				}
				wantBeingRead(t, "no reader", db, 0, 0)
				used, held := coalesce.Used(db)
				if c.leave == nil && held != 0 || used != held || held > 900<<10 {
					t.Errorf("%d bytes are used, %d are held", used, held)
				}
			})
		})
	}
}

func TestWhatALeaderHasOfALostConnectionIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{query: func(_ context.Context, _ string, c *fakeConn) (driver.Rows, error) {
			if c.id > 1 {
				return ints(1), nil
			}
			<-release
			c.dead = true
			return kilobytes(200, io.ErrUnexpectedEOF), nil
		}}
		db := openFake(t, f, coalesce.Config{})
		leader := make(chan *sql.Rows, 1)
		go func() {
			rows, err := db.QueryContext(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			leader <- rows
		}()
		synctest.Wait()
		waiter := ask(t.Context(), db, 1)
		synctest.Wait()
		close(release)
		rows := <-leader
		if a := <-waiter; a.err != nil || a.n != 1 {
			t.Errorf("the waiter got %v, %v", a.n, a.err)
		}
		wantBeingRead(t, "the leader has its rows", db, 200, 220)
		rows.Close()
		wantBeingRead(t, "the leader has closed them", db, 0, 0)
	})
}

// bomb is a Scanner that panics.
type bomb struct{}

func (bomb) Scan(any) error { panic("boom") }

// Rows whose Scan has panicked cannot be closed any more: database/sql keeps
// their lock.
func TestRowsThatAreNeverClosedAreNotChargedForEver(t *testing.T) {
	for name, n := range map[string]int{"result": 200, "stream": 500} {
		t.Run(name, func(t *testing.T) {
			f := &fake{query: func(context.Context, string, *fakeConn) (driver.Rows, error) {
				return kilobytes(n, io.EOF), nil
			}}
			db := openFake(t, f, coalesce.Config{MaxResultBytes: 256 << 10})
			end := endOf(func() {
				rows, err := db.QueryContext(coalesce.TTL(context.Background(), 0), q)
				if err != nil {
					t.Error(err)
					return
				}
				wantBeingRead(t, "open", db, 200, 260)
				rows.Next()
				rows.Scan(bomb{})
			})
			if end != "panic" {
				t.Fatalf("ended by %q", end)
			}
			until(t, func() bool { runtime.GC(); return coalesce.BeingRead(db) == 0 }, says("nothing is charged"))
		})
	}
}

func TestReadsGoOnWhileCallersWhoDoNotReadKeepTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{query: func(_ context.Context, text string, _ *fakeConn) (driver.Rows, error) {
			switch {
			case strings.Contains(text, "large"):
				return kilobytes(500, io.EOF), nil
			case strings.Contains(text, "medium"):
				time.Sleep(time.Second)
				return kilobytes(200, io.EOF), nil
			}
			time.Sleep(time.Second)
			return ints(1), nil
		}}
		db := openFake(t, f, coalesce.Config{MaxBytes: 1 << 20, MaxResultBytes: 256 << 10})
		const small, medium = q, "SELECT medium FROM t"
		together := func(text string, callers int, want int) {
			t.Helper()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					rows, err := db.QueryContext(t.Context(), text)
					if err != nil {
						t.Error(err)
						return
					}
					n := 0
					for rows.Next() {
						n++
					}
					if n != want || rows.Err() != nil {
						t.Errorf("%s: got %d rows, %v; want %d", text, n, rows.Err(), want)
					}
				})
			}
			wg.Wait()
		}
		var open []*sql.Rows
		for i := range 8 {
			rows, err := db.QueryContext(t.Context(), fmt.Sprintf("SELECT large FROM t WHERE v > %d", i))
			if err != nil {
				t.Fatal(err)
			}
			skip(rows, 1)
			open = append(open, rows)
		}
		wantBeingRead(t, "streams", db, 800, 896)
		made := func(when string, want int64) {
			t.Helper()
			if n := f.queries.Swap(0); n != want {
				t.Errorf("%s: %d queries; want %d", when, n, want)
			}
		}
		f.queries.Store(0)
		together(small, 5, 1)
		together(small, 1, 1)
		made("a small one, joined and held", 1)
		together(medium, 5, 200)
		made("one that finds no room", 5)
		together(small, 1, 1)
		made("the small one is held still", 0)
		for _, rows := range open {
			rows.Close()
		}
		together(medium, 5, 200)
		together(medium, 1, 200)
		made("one that finds room again, joined and held", 1)
		wantBeingRead(t, "nobody reads", db, 0, 0)
	})
}

func TestAResultThatCanNeverBeHeldDoesNotKeepClearingTheMemo(t *testing.T) {
	f := &fake{query: func(_ context.Context, text string, _ *fakeConn) (driver.Rows, error) {
		if strings.Contains(text, "large") {
			return kilobytes(950, io.EOF), nil
		}
		return ints(1), nil
	}}
	db := openFake(t, f, coalesce.Config{MaxBytes: 1 << 20}) // its results may have 4 MiB
	for range 3 {
		one(t.Context(), db, q)
		rows, err := db.Query("SELECT large FROM t")
		if err != nil {
			t.Fatal(err)
		}
		skip(rows, 1000)
	}
	s := coalesce.StatsOf(db)
	if s.TooBig != 1 || s.Evicted != 1 || s.Held != 1 {
		t.Errorf("too big %d, evicted %d, held %d; want 1 each: the first read of the large one makes room in vain", s.TooBig, s.Evicted, s.Held)
	}
}

func TestTheBudgetAddsUpUnderLoad(t *testing.T) {
	const limit = 1 << 20
	f := &fake{query: func(_ context.Context, text string, c *fakeConn) (driver.Rows, error) {
		n := 0
		fmt.Sscanf(text, "SELECT v FROM t WHERE v > %d", &n)
		switch n % 4 {
		case 0:
			return kilobytes(n*30, errServer), nil
		case 1:
			if c.dead = rand.IntN(4) == 0; c.dead {
				return kilobytes(n*30, io.ErrUnexpectedEOF), nil
			}
		}
		return kilobytes(n*30, io.EOF), nil
	}}
	db := openFake(t, f, coalesce.Config{MaxBytes: limit, MaxResultBytes: 256 << 10})
	stop := make(chan struct{})
	var watcher, wg sync.WaitGroup
	watcher.Go(func() {
		for {
			if used, held := coalesce.Used(db); held < 0 || used < held || used > limit {
				t.Errorf("%d bytes are used, %d are held", used, held)
				return
			}
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	for i := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, i))
			var open []*sql.Rows
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(4) == 0 {
					ctx = coalesce.TTL(ctx, 0)
				}
				switch r.IntN(8) {
				case 0:
					go cancel()
				case 1:
					db.Exec("UPDATE t SET v = 1")
				}
				rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT v FROM t WHERE v > %d", r.IntN(14)))
				if err == nil {
					skip(rows, r.IntN(400))
					open = append(open, rows)
				}
				if len(open) > 3 {
					open[0].Close()
					open = open[1:]
				}
				defer cancel()
			}
			for _, rows := range open {
				rows.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	watcher.Wait()
	until(t, func() bool { return coalesce.BeingRead(db) == 0 }, func() string {
		return fmt.Sprintf("nothing is being read; %d bytes are, stats %+v", coalesce.BeingRead(db), coalesce.StatsOf(db))
	})
}
