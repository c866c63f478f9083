package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
)

// Flights: who waits, who leaves, and how they end.

// flightFixture has a table with one row, 17, whose readers can be held up.
func flightFixture(t *testing.T, s setup) *fixture {
	t.Helper()
	f := newFixture(t, s)
	f.by("CREATE TABLE fl AS SELECT 17 AS n")
	return f
}

const readFl = "SELECT n FROM fl"

func TestCancelledLeaderDoesNotHurtWaiters(t *testing.T) {
	t.Parallel()
	for _, places := range []int{0, 1} {
		t.Run(fmt.Sprintf("max-conns-%d", places), func(t *testing.T) {
			t.Parallel()
			f := flightFixture(t, setup{config: coalesce.Config{MaxConns: places}})
			release := f.lock("fl")
			leaderCtx, cancel := context.WithCancel(bg)
			leader := askFor[int](leaderCtx, f.db, readFl)
			f.sharing(1)
			first := askFor[int](bg, f.db, readFl)
			f.sharing(2)
			cancel()
			// At once: the table is still locked.
			if err := receive(t, leader).err; !errors.Is(err, context.Canceled) {
				t.Errorf("leader: got %v, want context.Canceled", err)
			}
			second := askFor[int](bg, f.db, readFl)
			f.sharing(3)
			release()
			sameAnswer(t, "waiter from before", first, 17)
			sameAnswer(t, "waiter from after", second, 17)
			if n := f.seen.queries(readFl); n > 2 {
				t.Errorf("%d queries, want at most 2", n)
			}
			f.quiet()
			errs := together(50, func(i int) error {
				var n int
				return f.db.QueryRow("SELECT n FROM fl WHERE n > $1", -i).Scan(&n)
			})
			noErrors(t, receive(t, errs))
			f.quiet()
			same(t, "Stats.Cancelled", f.stats().Cancelled, 1)
			if n := f.serverConns(); places > 0 && n > places {
				t.Errorf("%d server connections for %d places", n, places)
			}
		})
	}
}

func TestPinnedLeaderWhoLeftCanGoOnAtOnce(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	f.by("CREATE TABLE other AS SELECT 1 AS n")
	release := f.lock("fl")
	c := pinned(t, f.db)
	get[int](t, c, "SELECT 5") // so that it has a server connection to lose
	leaderCtx, cancel := context.WithCancel(bg)
	leader := askFor[int](leaderCtx, c, readFl)
	f.sharing(2)
	waiter := askFor[int](bg, f.db, readFl)
	f.sharing(3)
	cancel()
	if err := receive(t, leader).err; !errors.Is(err, context.Canceled) {
		t.Errorf("leader: %v", err)
	}
	same(t, "private read of the leader, the flight still under way", getIn[int](t, coalesce.Fresh(bg), c, "SELECT n FROM other"), 1)
	tx, err := c.BeginTx(bg, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, tx, "UPDATE other SET n = 2")
	tx.Commit()
	release()
	sameAnswer(t, "waiter", waiter, 17)
	same(t, "leader again", get[int](t, c, readFl), 17)
	c.Close()
	f.quiet()
}

func TestWaiterLeavesWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	release := f.lock("fl")
	leader := askFor[int](bg, f.db, readFl)
	f.sharing(1)

	cancelled, cancel := context.WithCancel(bg)
	waiter := askFor[int](cancelled, f.db, readFl)
	f.sharing(2)
	cancel()
	if err := receive(t, waiter).err; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled waiter: got %v", err)
	}
	short, cancel := context.WithTimeout(bg, 1)
	defer cancel()
	if err := f.db.QueryRowContext(short, readFl).Scan(new(int)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiter past its deadline: got %v", err)
	}
	// The others are not hurt, and whoever comes now finds the same flight.
	late := askFor[int](bg, f.db, readFl)
	until(t, func() bool { return f.stats().Joined >= 2 && f.db.Stats().InUse == 2 }, says("the late one has joined"))
	release()
	sameAnswer(t, "leader", leader, 17)
	sameAnswer(t, "late one", late, 17)
	same(t, "queries", f.seen.queries(readFl), 1)
	f.quiet()
}

func TestServerStopsWhenAllHaveLeft(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	release := f.lock("fl")
	all, cancel := context.WithCancel(bg)
	var asked []<-chan given[int]
	for i := range 3 {
		asked = append(asked, askFor[int](all, f.db, readFl))
		f.sharing(i + 1)
	}
	until(t, func() bool { return f.running(readFl) == 1 }, says("the server runs the query"))
	cancel()
	for _, a := range asked {
		if err := receive(t, a).err; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	until(t, func() bool { return f.running(readFl) == 0 }, says("the server has stopped, the lock still held"))
	f.quiet()
	same(t, "Stats.StoredBytes", f.stats().StoredBytes, 0)
	same(t, "Stats.Cancelled", f.stats().Cancelled, 3)
	next := askFor[int](bg, f.db, readFl)
	f.sharing(4)
	release()
	sameAnswer(t, "next caller", next, 17)
	same(t, "queries", f.seen.queries(readFl), 2)
}

func TestDeadLeaderConnectionHurtsTheLeaderOnly(t *testing.T) {
	t.Parallel()
	for _, followers := range []int{0, 1, 10} {
		for _, places := range []int{0, 2} {
			t.Run(fmt.Sprintf("%d-followers-max-conns-%d", followers, places), func(t *testing.T) {
				t.Parallel()
				f := flightFixture(t, setup{config: coalesce.Config{MaxConns: places}})
				release := f.lock("fl")
				leader := askFor[int](bg, f.db, readFl)
				until(t, func() bool { return f.running(readFl) == 1 }, says("the server runs the query"))
				var waiters []<-chan given[int]
				for range followers {
					waiters = append(waiters, askFor[int](bg, f.db, readFl))
				}
				f.sharing(1 + followers)
				f.by("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" + appName + "' AND datname = current_database()")
				if err := receive(t, leader).err; sqlState(err) != "57P01" || errors.Is(err, driver.ErrBadConn) {
					t.Errorf("leader: got %v, want SQLSTATE 57P01", err)
				}
				if followers > 0 {
					until(t, func() bool { return f.running(readFl) == 1 }, says("a follower runs the query again"))
				}
				release()
				for _, w := range waiters {
					sameAnswer(t, "follower", w, 17)
				}
				wanted := 1
				if followers > 0 {
					wanted = 2
				}
				same(t, "queries", f.seen.queries(readFl), wanted)
				same(t, "dials", int(f.seen.dials.Load()), wanted)
				f.quiet()
				same(t, "read afterwards", get[int](t, f.db, readFl), 17)
			})
		}
	}
}

func TestSuccessorThatDiesTooIsTheLast(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	release := f.lock("fl")
	errs := together(11, func(int) error { return f.db.QueryRow(readFl).Scan(new(int)) })
	f.sharing(11)
	for try := range 2 {
		until(t, func() bool { return f.seen.queries(readFl) == try+1 && f.running(readFl) == 1 }, says("the server runs the query"))
		f.by("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" + appName + "' AND datname = current_database()")
	}
	for _, err := range receive(t, errs) {
		if sqlState(err) != "57P01" {
			t.Errorf("got %v, want SQLSTATE 57P01", err)
		}
	}
	same(t, "queries", f.seen.queries(readFl), 2)
	release()
	f.quiet()
}

func TestErrorGoesToAllWhoWaitAndIsKeptFromLaterOnes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE er(a int, v text)", "INSERT INTO er VALUES (1, 'x')")
	const read = "SELECT v::int4 FROM er"
	release := f.lock("er")
	errs := together(10, func(int) error { return f.db.QueryRow(read).Scan(new(int)) })
	f.sharing(10)
	release()
	failed := receive(t, errs)
	for _, err := range failed {
		if sqlState(err) != "22P02" {
			t.Errorf("got %v, want SQLSTATE 22P02", err)
		}
	}
	ownErrors(t, failed)
	same(t, "queries", f.seen.queries(read), 1)
	f.by("UPDATE er SET v = '3'")
	same(t, "right after", get[int](t, f.db, read), 3)

	// A table that is not there yet. Nobody is told for long that it is not.
	for range 2 {
		if err := f.db.QueryRow("SELECT count(*) FROM later").Scan(new(int)); sqlState(err) != "42P01" {
			t.Errorf("got %v, want SQLSTATE 42P01", err)
		}
	}
	f.by("CREATE TABLE later()")
	same(t, "table made by another", get[int](t, f.db, "SELECT count(*) FROM later"), 0)
}

// ownErrors requires that each caller has a server's error of its own, which it
// may change.
func ownErrors(t *testing.T, errs []error) {
	t.Helper()
	seen := make(map[*pgconn.PgError]bool)
	for _, err := range errs {
		var own *pgconn.PgError
		if !errors.As(err, &own) {
			t.Errorf("got %v, want an error of the server", err)
		} else if seen[own] {
			t.Error("two callers have the same error")
		}
		seen[own] = true
	}
}

func TestNoRowsIsAnAnswerLikeAnyOther(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	for range 3 {
		if err := f.db.QueryRow("SELECT n FROM fl WHERE n < 0").Scan(new(int)); err != sql.ErrNoRows {
			t.Errorf("got %v, want sql.ErrNoRows", err)
		}
	}
	same(t, "queries", f.seen.queries("n < 0"), 1)
	f.do("INSERT INTO fl VALUES (-1)")
	same(t, "after the insert", get[int](t, f.db, "SELECT n FROM fl WHERE n < 0"), -1)
}

func TestErrorInMidResultComesAfterTheRowsBeforeIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE mid AS SELECT 1000 - g AS d FROM generate_series(1, 2000) g")
	const read = "SELECT 1 / d FROM mid"
	check := func(who string, rows []int, err error) {
		t.Helper()
		if len(rows) != 999 || sqlState(err) != "22012" {
			t.Errorf("%s: got %d rows and %v, want 999 and SQLSTATE 22012", who, len(rows), err)
		}
	}
	rows, err := column[int](bg, f.plain, read)
	check("plain pgx", rows, err)
	release := f.lock("mid")
	errs := together(5, func(int) error {
		rows, err := column[int](bg, f.db, read)
		if len(rows) != 999 || sqlState(err) != "22012" {
			return fmt.Errorf("got %d rows and %v, want 999 and SQLSTATE 22012", len(rows), err)
		}
		return err
	})
	f.sharing(5)
	release()
	ownErrors(t, receive(t, errs))
	same(t, "queries", f.seen.queries(read), 1)
	rows, err = column[int](bg, f.db, read)
	check("later one", rows, err)
	same(t, "queries: an error is not held", f.seen.queries(read), 2)
	f.by("UPDATE mid SET d = 1")
	rows, err = column[int](bg, f.db, read)
	if len(rows) != 2000 || err != nil {
		t.Errorf("repaired: %d rows, %v", len(rows), err)
	}
	f.quiet()
}

// badValue is an argument whose encoding goes wrong in the caller's code.
type badValue struct{ do func() }

func (b badValue) Value() (driver.Value, error) { b.do(); return "x", nil }

// endOfGoroutine runs f on a goroutine and tells how that ended.
func endOfGoroutine(f func()) string {
	c := make(chan string, 1)
	go func() {
		end := "Goexit"
		defer func() {
			if r := recover(); r != nil {
				end = fmt.Sprint("panic: ", r)
			}
			c <- end
		}()
		f()
		end = "return"
	}()
	return <-c
}

func TestPanicOfAnArgumentReachesItsCallerOnly(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	const read = "SELECT $1::text"
	call := func(db *sql.DB, arg any) <-chan string {
		c := make(chan string, 1)
		go func() {
			c <- endOfGoroutine(func() { var s string; db.QueryRow(read, arg).Scan(&s) })
		}()
		return c
	}
	for name, bad := range map[string]badValue{
		"panic: boom": {func() { panic("boom") }},
		"Goexit":      {runtime.Goexit},
	} {
		same(t, "caller of plain pgx", receive(t, call(f.plain, bad)), name)
		same(t, "caller", receive(t, call(f.db, bad)), name)
		same(t, "the same again", receive(t, call(f.db, bad)), name)
		// While another is inside its Value method.
		inside, leave := make(chan struct{}), make(chan struct{})
		first := call(f.db, badValue{func() { close(inside); <-leave; bad.do() }})
		receive(t, inside)
		same(t, "second caller", receive(t, call(f.db, bad)), name)
		sameAnswer(t, "healthy caller", askFor[string](bg, f.db, read, badValue{func() {}}), "x")
		close(leave)
		same(t, "first caller", receive(t, first), name)
	}
	// database/sql loses the connection of a call that panics, whatever the
	// driver: one for each of the two on plain pgx.
	same(t, "connections lost on plain pgx", f.plain.Stats().InUse, 2)
	same(t, "connections lost", f.db.Stats().InUse, 8)
	same(t, "Stats.Flights", f.stats().Flights, 0)
	if n := f.serverConns(); n > 1 {
		t.Errorf("%d server connections", n)
	}
	same(t, "healthy read", get[int](t, f.db, readFl), 17)
}

// A panic takes the connection that database/sql gave to the caller, but not
// the place of a server connection.
func TestPanicOfAnArgumentTakesNoPlace(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{config: coalesce.Config{MaxConns: 1}})
	get[int](t, f.db, readFl) // the pool has the one server connection now
	same(t, "caller", endOfGoroutine(func() {
		var s string
		f.db.QueryRow("SELECT $1::text", badValue{func() { panic("boom") }}).Scan(&s)
	}), "panic: boom")
	short, cancel := context.WithTimeout(bg, patience/4)
	defer cancel()
	same(t, "healthy read", getIn[int](t, short, f.db, "SELECT n + 1 FROM fl"), 18)
}

func TestPanicWithinTheFlightReachesTheLeaderAndReleasesWaiters(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(){
		"panic: boom": func() { panic("boom") },
		"Goexit":      runtime.Goexit,
	} {
		t.Run(name[:5], func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			fail := make(chan struct{})
			f := flightFixture(t, setup{during: func(query string) {
				if query == readFl {
					once.Do(func() { <-fail; bad() })
				}
			}})
			leader := make(chan string, 1)
			go func() { leader <- endOfGoroutine(func() { f.db.QueryRow(readFl).Scan(new(int)) }) }()
			f.sharing(1)
			var waiters []<-chan given[int]
			for range 5 {
				waiters = append(waiters, askFor[int](bg, f.db, readFl))
			}
			f.sharing(6)
			close(fail)
			same(t, "leader", receive(t, leader), name)
			for _, w := range waiters {
				if a := receive(t, w); a.err == nil && a.v != 17 {
					t.Errorf("waiter: got %v", a)
				}
			}
			same(t, "read afterwards", get[int](t, f.db, readFl), 17)
			// The leader's virtual connection is lost to database/sql.
			until(t, func() bool { return f.db.Stats().InUse == 1 && f.stats().Flights == 0 }, says("the waiters are gone"))
			until(t, func() bool { return f.serverConns() <= 1 }, says("the connection that was left in the middle is closed"))
		})
	}
}

func TestFlightHasTheLeadersValuesButNotItsEnd(t *testing.T) {
	t.Parallel()
	type key struct{}
	var f *fixture
	seen := make(chan any, 1)
	f = newFixture(t, setup{pgx: func(c *pgx.ConnConfig) {
		c.Tracer = contextTracer(func(ctx context.Context) { seen <- ctx.Value(key{}) })
	}})
	get[int](t, f.plain, "SELECT 1")
	ctx := context.WithValue(bg, key{}, "leader's")
	getIn[int](t, ctx, f.db, "SELECT 1")
	same(t, "value", receive(t, seen), any("leader's"))
}

type contextTracer func(context.Context)

func (c contextTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c(ctx)
	return ctx
}
func (contextTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestResultTooLargeIsStreamedAndNotShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxResultBytes: 64 << 10}})
	f.by("CREATE TABLE big AS SELECT g AS n, repeat('x', 100) AS v FROM generate_series(1, 5000) g")
	const read = "SELECT n FROM big WHERE v IS NOT NULL"
	full := func(rows []int, err error) error {
		if err != nil || len(rows) != 5000 {
			return fmt.Errorf("got %d rows, %w", len(rows), err)
		}
		for i, n := range rows {
			if n != i+1 {
				return fmt.Errorf("row %d is %d", i, n)
			}
		}
		return nil
	}
	release := f.lock("big")
	const callers = 20
	errs := together(callers, func(int) error { return full(column[int](bg, f.db, read)) })
	f.sharing(callers)
	release()
	noErrors(t, receive(t, errs))
	same(t, "queries, the leader's and each waiter's own", f.seen.queries(read), callers)
	s := f.stats()
	same(t, "Stats.StoredBytes", s.StoredBytes, 0)
	same(t, "Stats.TooBig", s.TooBig, 1)
	same(t, "Stats.Led", s.Led, 1)
	same(t, "Stats.Joined", s.Joined, 0)
	same(t, "Stats.PrivateBy too big", s.PrivateBy[coalesce.CauseTooBig], callers-1)
	same(t, "Stats.Reads", s.Reads, callers)

	// The next burst does not queue up behind one leader.
	release = f.lock("big")
	errs = together(callers, func(int) error { return full(column[int](bg, f.db, read)) })
	until(t, func() bool { return f.running(read) == callers }, says("each is at the server itself"))
	release()
	noErrors(t, receive(t, errs))
	f.quiet()
}

// A stream whose leader reads slowly or not at all must not keep others.
func TestWaitersOfResultTooLargeDoNotWaitForTheLeadersReading(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxResultBytes: 64 << 10}})
	f.by("CREATE TABLE big AS SELECT g AS n FROM generate_series(1, 200000) g")
	const read = "SELECT n FROM big"
	release := f.lock("big")
	leader := make(chan *sql.Rows, 1)
	go func() {
		rows, err := f.db.Query(read)
		if err != nil {
			t.Error(err)
		}
		leader <- rows
	}()
	f.sharing(1)
	waiter := make(chan []int, 1)
	go func() {
		rows, err := column[int](bg, f.db, read)
		if err != nil {
			t.Error(err)
		}
		waiter <- rows
	}()
	f.sharing(2)
	release()
	rows := receive(t, leader)
	defer rows.Close()
	same(t, "rows of the waiter, the leader not having read any", len(receive(t, waiter)), 200000)
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	same(t, "rows of the leader", n, 200000)
}

func TestErrorLateInStreamReachesTheLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxResultBytes: 16 << 10}})
	f.by("CREATE TABLE late AS SELECT 5000 - g AS d FROM generate_series(1, 6000) g")
	rows, err := column[int](bg, f.db, "SELECT 1 / d FROM late")
	if len(rows) != 4999 || sqlState(err) != "22012" {
		t.Errorf("got %d rows and %v", len(rows), err)
	}
	same(t, "next read of the connection", get[int](t, f.db, "SELECT 1"), 1)
	f.quiet()
}

func TestResultWithoutEndIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	read10 := func(ctx context.Context, q queryer) error {
		rows, err := q.QueryContext(ctx, endless)
		if err != nil {
			return err
		}
		defer rows.Close()
		for i := range 10 {
			var n int
			if !rows.Next() {
				return fmt.Errorf("ends after %d rows: %w", i, rows.Err())
			}
			if err := rows.Scan(&n); err != nil || n != i+1 {
				return fmt.Errorf("row %d is %d, %w", i, n, err)
			}
		}
		return rows.Close()
	}
	stopped := func(when string) {
		t.Helper()
		until(t, func() bool { return f.running(endless) == 0 }, says("the server has stopped: "+when))
		f.quiet()
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	noErrors(t, receive(t, together(1, func(int) error { return read10(bg, f.db) })))
	stopped("one reader")
	noErrors(t, receive(t, together(5, func(int) error { return read10(bg, f.db) })))
	stopped("five readers")

	c := pinned(t, f.db)
	pid := get[int](t, c, "SELECT pg_backend_pid()")
	noErrors(t, receive(t, together(1, func(int) error { return read10(bg, c) })))
	same(t, "read on the pinned connection", get[int](t, c, "SELECT 4"), 4)
	same(t, "its backend", get[int](t, c, "SELECT pg_backend_pid()"), pid)
	c.Close()
	stopped("pinned")

	ctx, cancel := context.WithCancel(bg)
	rows, err := f.db.QueryContext(ctx, "SELECT generate_series(1, 2000000001)")
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() {
		t.Error(rows.Err())
	}
	cancel()
	for rows.Next() {
	}
	if !errors.Is(rows.Err(), context.Canceled) {
		t.Errorf("after cancel: got %v", rows.Err())
	}
	rows.Close()
	until(t, func() bool { return f.running("2000000001") == 0 }, says("the server has stopped: cancelled"))
	f.quiet()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if n := f.stats().StoredBytes; n > 1024 { // of SELECT 4
		t.Errorf("%d bytes are held", n)
	}
}

// The leader leaves while its result is on its way to being too large.
func TestLeaderMayLeaveBeforeItsResultIsFoundTooLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{MaxResultBytes: 64 << 10}})
	f.by("CREATE TABLE big AS SELECT g AS n FROM generate_series(1, 100000) g")
	release := f.lock("big")
	ctx, cancel := context.WithCancel(bg)
	leader := askFor[int](ctx, f.db, "SELECT n FROM big")
	f.sharing(1)
	waiter := make(chan int, 1)
	go func() {
		rows, err := column[int](bg, f.db, "SELECT n FROM big")
		if err != nil {
			t.Error(err)
		}
		waiter <- len(rows)
	}()
	f.sharing(2)
	cancel()
	if err := receive(t, leader).err; !errors.Is(err, context.Canceled) {
		t.Errorf("leader: %v", err)
	}
	release()
	same(t, "rows of the waiter", receive(t, waiter), 100000)
	f.quiet()
}

// heap is what the process holds in memory. Tests that ask are not parallel.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAFloodOfLargeResultsStaysWithinItsMemory(t *testing.T) {
	const limit = 16 << 20
	most := int64(limit + limit/10)
	if underRace {
		most += limit / 4
	}
	f := newFixture(t, setup{config: coalesce.Config{MaxBytes: limit}})
	get[int](t, f.db, "SELECT 1")
	before := heap()
	for name, row := range map[string]string{
		"texts":  "repeat(md5(n::text), 30)",
		"short":  "n, n::text, n::text, n % 2 = 0",
		"bytes":  "n, decode(md5(n::text), 'hex')",
		"times":  "date '2001-01-01' + n, n::float8, NULL::int4",
		"arrays": "ARRAY[n, n], ARRAY[n::text]",
	} {
		for round := range 25 {
			// Few at a time, since those under way count too.
			noErrors(t, receive(t, together(4, func(i int) error {
				rows, err := f.db.Query("SELECT "+row+" FROM generate_series($1::int4, $1 + 3000) AS n", (4*round+i)*5000)
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
				}
				return rows.Err()
			})))
		}
		f.db.SetMaxIdleConns(0) // pgx's buffers go with its connections
		f.db.SetMaxIdleConns(2)
		stored := f.stats().StoredBytes
		t.Logf("%s: %d kB stored, %d kB of heap", name, stored>>10, (heap()-before)>>10)
		if stored > limit || stored < limit/2 {
			t.Errorf("%s: %d bytes are said to be stored", name, stored)
		}
		if grown := heap() - before; grown > most {
			t.Errorf("%s: the heap has grown by %d bytes, want %d at most", name, grown, most)
		}
	}
	for i := range 40_000 {
		get[int](t, f.db, "SELECT $1::int4", i)
	}
	stored := f.stats().StoredBytes
	t.Logf("single rows: %d kB stored, %d kB of heap", stored>>10, (heap()-before)>>10)
	if grown := heap() - before; grown > most {
		t.Errorf("single rows: the heap has grown by %d bytes, want %d at most", grown, most)
	}
	if s := f.stats(); s.Evicted == 0 {
		t.Errorf("nothing had to go: %+v", s)
	}
	runtime.KeepAlive(f)
}

// Callers who do not read on keep what they were given: the start of a result
// that is too large, or one that was held until others had to be.
func TestAFloodThatIsReadSlowlyStaysWithinItsMemory(t *testing.T) {
	const limit, callers = 16 << 20, 48
	for name, read := range map[string]struct {
		ctx  context.Context
		text string
	}{
		"too-large": {bg, "SELECT repeat(md5(n::text), 30) FROM generate_series(1, 6000) AS n WHERE n <> -%d"},
		"held":      {bg, "SELECT repeat(md5(n::text), 30) FROM generate_series(1, 3000) AS n WHERE n <> -%d"},
		"joined":    {coalesce.TTL(bg, 0), "SELECT n, n::text, n::float8 FROM generate_series(1, 20000) AS n WHERE n <> -%d"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, setup{config: coalesce.Config{MaxBytes: limit}})
			// begin returns by how much the heap has grown when all have their first row.
			begin := func(db *sql.DB) (grown int64, end func()) {
				get[int](t, db, "SELECT 1")
				before := heap()
				open := make([]*sql.Rows, callers)
				for i := range open {
					rows, err := db.QueryContext(read.ctx, fmt.Sprintf(read.text, i))
					if err != nil {
						t.Fatal(err)
					}
					if !rows.Next() {
						t.Fatal(rows.Err())
					}
					open[i] = rows
				}
				return heap() - before, func() {
					for _, rows := range open {
						rows.Close()
					}
				}
			}
			// A connection has buffers, whatever the driver does with its rows, and
			// what is not large is not counted.
			plain, end := begin(f.plain)
			end()
			most := int64(limit+limit/10) + plain + callers*64<<10
			if underRace {
				most += limit / 4
			}
			grown, end := begin(f.db)
			t.Logf("%d kB of heap, %d kB with pgx; %d kB are being read, %d kB held", grown>>10, plain>>10, coalesce.BeingRead(f.db)>>10, f.stats().StoredBytes>>10)
			if grown > most {
				t.Errorf("the heap has grown by %d kB, want %d kB at most", grown>>10, most>>10)
			}
			if used, _ := coalesce.Used(f.db); used > limit || used < limit/2 {
				t.Errorf("%d kB are said to be used", used>>10)
			}
			end()
			f.quiet()
		})
	}
}

// What is known of a text outlives its results; what its columns are does not.
func TestColumnsOfManyTextsStayWithinTheMemory(t *testing.T) {
	const limit, texts = 4 << 20, 8 << 20
	f := newFixture(t, setup{})
	f.by("CREATE TABLE wide AS SELECT 1 AS id")
	for i := range 100 {
		f.by(fmt.Sprintf("ALTER TABLE wide ADD COLUMN column_number_%d int", i))
	}
	db := openCoalesce(t, f.dsn, fmt.Sprintf("coalesce_max_bytes=%d", limit), "default_query_exec_mode=exec")
	get[int](t, db, "SELECT 1")
	before := heap()
	for i := range 4000 {
		rows, err := db.Query(fmt.Sprintf("SELECT * FROM wide WHERE id = %d", i))
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
		}
		rows.Close()
	}
	db.SetMaxIdleConns(0)
	if grown := heap() - before; grown > limit+limit/10+texts {
		t.Errorf("the heap has grown by %d kB", grown>>10)
	}
	runtime.KeepAlive(db)
}

func TestLargeResultsLeaveNoMemoryBehind(t *testing.T) {
	f := newFixture(t, setup{})
	get[int](t, f.db, "SELECT 1")
	before := heap()
	for i := range 10 {
		rows, err := f.db.Query(fmt.Sprintf("SELECT repeat('x', 1000), generate_series(1, 50000 + %d)", i))
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Error(rows.Err())
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	var n int
	if err := f.db.QueryRow("SELECT length(v) FROM (SELECT repeat('x', 30000000) AS v) z").Scan(&n); err != nil {
		t.Error(err)
	}
	var s sql.RawBytes
	rows, err := f.db.Query("SELECT repeat('x', 30000000)")
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Next() || rows.Scan(&s) != nil || len(s) != 30000000 {
		t.Errorf("one large row: %d bytes, %v", len(s), rows.Err())
	}
	s = nil
	rows.Close()
	rows = nil
	f.db.SetMaxIdleConns(0) // pgx's buffers go with its connections
	f.quiet()
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	runtime.KeepAlive(f)
}

func TestHeldResultsStayWithinTheirBytes(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	f := newFixture(t, setup{config: coalesce.Config{MaxBytes: limit}})
	for i := range 200 {
		get[string](t, f.db, "SELECT repeat('x', 10000 + $1::int4)", i)
		if s := f.stats(); s.StoredBytes > limit {
			t.Fatalf("%d bytes are held", s.StoredBytes)
		}
	}
	s := f.stats()
	if s.Evicted == 0 || s.StoredBytes < limit/2 {
		t.Errorf("stats %+v", s)
	}
	// The most recent is held, the oldest is not.
	led := s.Led
	get[string](t, f.db, "SELECT repeat('x', 10000 + $1::int4)", 199)
	same(t, "led after the most recent", f.stats().Led, led)
	get[string](t, f.db, "SELECT repeat('x', 10000 + $1::int4)", 0)
	same(t, "led after the oldest", f.stats().Led, led+1)
}

func TestTextsThatDifferInCommentsShare(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	for i := range 20 {
		query := fmt.Sprintf("SELECT n /*traceparent='00-%032d-01'*/ FROM fl -- request %d", i, i)
		same(t, query, get[int](t, f.db, query), 17)
	}
	same(t, "queries", f.seen.queries("traceparent"), 1)
	same(t, "queries with the leader's own text", f.seen.queries("-- request 0"), 1)
	same(t, "hinted", get[int](t, f.db, "SELECT /*+ SeqScan(fl) */ n FROM fl"), 17)
	same(t, "queries with a hint", f.seen.queries("/*+"), 1)
	for i, query := range []string{"SELECT '/* a */' FROM fl", "SELECT '/* b */' FROM fl", "SELECT $$-- a$$ FROM fl", "SELECT $$-- b$$ FROM fl"} {
		wanted := []string{"/* a */", "/* b */", "-- a", "-- b"}[i]
		same(t, query, get[string](t, f.db, query), wanted)
	}
}

// The server refuses characters that are wrong in the encoding of a connection
// or the database, also in a comment.
func TestCommentThatTheServerRefusesHurtsItsCallerOnly(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	same(t, "held", get[int](t, f.db, readFl), 17)
	for _, comment := range []string{" /* \xff */", " -- \xff", "\n-- \xff\n"} {
		for _, db := range []*sql.DB{f.plain, f.db} {
			var n int
			same(t, comment, sqlState(db.QueryRow(readFl+comment).Scan(&n)), "22021")
		}
	}
	query := "SELECT n + 1 FROM fl"
	errs := together(40, func(i int) error {
		var n int
		if i%2 == 0 {
			return f.db.QueryRow(query).Scan(&n)
		}
		if err := f.db.QueryRow(query + " /* \xff */").Scan(&n); sqlState(err) != "22021" {
			return fmt.Errorf("refused text: %d, %v", n, err)
		}
		return nil
	})
	noErrors(t, receive(t, errs))
}

func TestUniqueTextsTakeBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 texts")
	}
	f := flightFixture(t, setup{})
	get[int](t, f.db, readFl)
	c := pinned(t, f.db)
	before := heap()
	for i := range 100_000 {
		query := fmt.Sprintf("SELECT n /*traceparent='00-%032d-01', padding %0100d */ FROM fl", i, i)
		var n int
		if err := c.QueryRowContext(bg, query).Scan(&n); err != nil || n != 17 {
			t.Fatal(n, err)
		}
	}
	if grown := heap() - before; grown > 24<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if n := f.seen.queries("traceparent"); n > 5 { // at most one for each TTL that passed
		t.Errorf("%d queries", n)
	}
}

func TestFreshTTLScopeAndInvalidate(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	set := func(n int) { f.by(fmt.Sprintf("UPDATE fl SET n = %d", n)) }
	read := func(ctx context.Context) int { t.Helper(); return getIn[int](t, ctx, f.db, readFl) }
	same(t, "first", read(bg), 17)
	set(18)
	same(t, "held", read(bg), 17)
	same(t, "fresh", read(coalesce.Fresh(bg)), 18)
	same(t, "Scope other", read(coalesce.Scope(bg, "tenant7")), 18)
	set(19)
	same(t, "held in its scope", read(coalesce.Scope(bg, "tenant7")), 18)
	same(t, "TTL 0", read(coalesce.TTL(bg, 0)), 19)
	same(t, "TTL of an instant", read(coalesce.TTL(bg, 1)), 19)
	if err := coalesce.Invalidate(f.db); err != nil {
		t.Error(err)
	}
	set(20)
	same(t, "invalidated", read(bg), 20)
	set(21)
	same(t, "held again", read(bg), 20)
	if err := coalesce.Invalidate(f.db, "fl"); err != nil {
		t.Error(err)
	}
	same(t, "table invalidated", read(bg), 21)
	if err := coalesce.Invalidate(f.plain); err == nil {
		t.Error("Invalidate of another driver's database succeeds")
	}
	same(t, "Stats.PrivateBy fresh", f.stats().PrivateBy[coalesce.CauseFresh], 1)
}

func TestFreshJoinsNoFlightAndLeavesNothing(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	release := f.lock("fl")
	leader := askFor[int](bg, f.db, readFl)
	f.sharing(1)
	fresh := askFor[int](coalesce.Fresh(bg), f.db, readFl)
	until(t, func() bool { return f.running(readFl) == 2 }, says("both are at the server"))
	release()
	sameAnswer(t, "leader", leader, 17)
	sameAnswer(t, "fresh", fresh, 17)
	f.quiet()
	stored := f.stats().StoredBytes
	getIn[int](t, coalesce.Fresh(bg), f.db, "SELECT n + 1 FROM fl")
	same(t, "Stats.StoredBytes after a fresh read", f.stats().StoredBytes, stored)
}

func TestScopesShareNoFlight(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	release := f.lock("fl")
	errs := together(30, func(i int) error {
		return f.db.QueryRowContext(coalesce.Scope(bg, fmt.Sprint("tenant", i%3)), readFl).Scan(new(int))
	})
	f.sharing(30)
	until(t, func() bool { return f.running(readFl) == 3 }, says("each scope has its query"))
	release()
	noErrors(t, receive(t, errs))
	same(t, "led", f.stats().Led, 3)
}

func TestJoinableReadIsSharedInFlightAndNotHeld(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	const read = "SELECT n + 0 * extract(epoch FROM now())::int4 FROM fl"
	release := f.lock("fl")
	errs := together(10, func(int) error { return f.db.QueryRow(read).Scan(new(int)) })
	f.sharing(10)
	release()
	noErrors(t, receive(t, errs))
	same(t, "queries", f.seen.queries("now()"), 1)
	get[int](t, f.db, read)
	same(t, "queries: it is not held", f.seen.queries("now()"), 2)
	same(t, "Stats.StoredBytes", f.stats().StoredBytes, 0)
}

// A read that is at the server already when a write commits has the old
// answer: it may serve those who asked before the write, nobody after.
//
//  1. the leader's query runs; its answer, from before the write, is on its way
//  2. a write through the same database returns
//  3. the next reader must not join the flight
//  4. the flight ends; its result must not be held
func TestWriteOvertakesTheFlightUnderWay(t *testing.T) {
	t.Parallel()
	valve := new(valve)
	f := flightFixture(t, setup{
		pgx: func(c *pgx.ConnConfig) { c.DialFunc = valve.dial },
		// A ping would wait at the valve.
		opts: []stdlib.OptionOpenDB{stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false })},
	})
	if _, err := coalesce.Explain(bg, f.db, readFl); err != nil { // loads the catalog
		t.Fatal(err)
	}
	// Prepared once, the query needs one round trip.
	getIn[int](t, coalesce.Fresh(bg), f.db, readFl)
	const there = " FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query = '" + readFl + "'"
	last := get[string](t, f.plain, "SELECT query_start::text"+there)
	valve.shut()
	defer valve.open()
	before := askFor[int](bg, f.db, readFl)
	f.sharing(1)
	until(t, func() bool {
		return get[int](t, f.plain, "SELECT count(*)"+there+" AND query_start > '"+last+"'") == 1
	}, says("the server has answered"))
	f.do("UPDATE fl SET n = 18")
	sameAnswer(t, "reader after the write, the flight under way", askFor[int](bg, f.db, readFl), 18)
	valve.open()
	sameAnswer(t, "reader before the write", before, 17)
	same(t, "reader after the flight", get[int](t, f.db, readFl), 18)
	f.quiet()
}

func TestEarlyCloseChangesNothingForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE early AS SELECT g FROM generate_series(1, 1000) g")
	const read = "SELECT g FROM early"
	release := f.lock("early")
	errs := together(20, func(i int) error {
		rows, err := f.db.Query(read)
		if err != nil {
			return err
		}
		defer rows.Close()
		for n := 0; n < 50*i; n++ {
			if !rows.Next() {
				return fmt.Errorf("ends after %d rows: %w", n, rows.Err())
			}
			var g int
			if err := rows.Scan(&g); err != nil || g != n+1 {
				return fmt.Errorf("row %d is %d, %w", n, g, err)
			}
		}
		return rows.Close()
	})
	f.sharing(20)
	release()
	noErrors(t, receive(t, errs))
	rows, err := column[int](bg, f.db, read)
	if len(rows) != 1000 || err != nil {
		t.Errorf("held: %d rows, %v", len(rows), err)
	}
	same(t, "queries", f.seen.queries(read), 1)
	f.quiet()
}

func TestStatsAddUpOnRealServer(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{config: coalesce.Config{MaxResultBytes: 4096, MaxBytes: 32 << 10}})
	f.by("CREATE TABLE wide AS SELECT repeat('x', 1000) AS v FROM generate_series(1, 20)")
	const callers, rounds = 16, 25
	stop := make(chan struct{})
	checked := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				checked <- n
				return
			default:
			}
			n++
			s := f.stats()
			var private uint64
			for _, p := range s.PrivateBy {
				private += p
			}
			if s.Reads != s.Held+s.Joined+s.Led+s.Private || s.Private != private {
				t.Errorf("torn: %+v", s)
			}
		}
	}()
	errs := together(callers, func(i int) error {
		for j := range rounds {
			ctx, cancel := context.WithCancel(bg)
			query := readFl
			switch (i + j) % 8 {
			case 0:
				cancel()
			case 1:
				ctx = coalesce.Fresh(ctx)
			case 2:
				query = "SELECT v FROM wide"
			case 3:
				query = "SELECT n FROM fl FOR SHARE"
			case 4:
				query = "SELECT 1 / (n - n) FROM fl"
			case 5:
				query = fmt.Sprintf("SELECT n + %d FROM fl", i)
			}
			_, err := column[string](ctx, f.db, query)
			cancel()
			if err != nil && (i+j)%8 != 0 && (i+j)%8 != 4 {
				return err
			}
		}
		return nil
	})
	noErrors(t, receive(t, errs))
	close(stop)
	if n := receive(t, checked); n < 10 {
		t.Errorf("only %d snapshots", n)
	}
	f.quiet()
	s := f.stats()
	// A context that had ended may not have reached the driver at all.
	if s.Reads > callers*rounds || s.Reads < callers*rounds*7/8 {
		t.Errorf("%d reads of %d", s.Reads, callers*rounds)
	}
	for _, cause := range []string{coalesce.CauseFresh, coalesce.CauseTooBig, "row lock"} {
		if s.PrivateBy[cause] == 0 {
			t.Errorf("none private by %q: %+v", cause, s.PrivateBy)
		}
	}
	if s.Errors == 0 || s.TooBig == 0 || s.Led == 0 {
		t.Errorf("stats %+v", s)
	}
	if s.StoredBytes < 0 || s.StoredBytes > 32<<10 {
		t.Errorf("StoredBytes is %d", s.StoredBytes)
	}
}
