package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// Transactions and sessions: what one connection knows, no other may be told.

func begin(t testing.TB, db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, opts *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(bg, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// txFixture has a table with one row, 1.
func txFixture(t *testing.T, options ...string) *fixture {
	t.Helper()
	f := newFixtureOn(t, dsnWith(pgtest.Database(t), options...), setup{})
	f.by("CREATE TABLE tx1 AS SELECT 1 AS n")
	return f
}

// noStatements keeps pgx from preparing what DISCARD ALL would drop.
const noStatements = "default_query_exec_mode=exec"

const readTx1 = "SELECT n FROM tx1"

func TestNothingUncommittedGetsOut(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	tx := begin(t, f.db, nil)
	mustExec(t, tx, "UPDATE tx1 SET n = 2")
	same(t, "in the transaction", get[int](t, tx, readTx1), 2)
	same(t, "outside, meanwhile", get[int](t, f.db, readTx1), 1)
	same(t, "in the transaction again", get[int](t, tx, readTx1), 2)
	tx.Rollback()
	same(t, "after the rollback", get[int](t, f.db, readTx1), 1)
	s := f.stats()
	same(t, "private by transaction", s.PrivateBy[coalesce.CauseTransaction], 2)
	same(t, "led", s.Led, 1)
}

func TestHandWrittenTransactionSharesNothing(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	for i, words := range [][2]string{{"BEGIN", "ROLLBACK"}, {"begin transaction isolation level repeatable read", "abort"}, {"/* x */ START TRANSACTION", "ROLLBACK WORK;"}} {
		c := pinned(t, f.db)
		mustExec(t, c, words[0])
		mustExec(t, c, "UPDATE tx1 SET n = $1", 5+i)
		same(t, words[0], get[int](t, c, readTx1), 5+i)
		same(t, "outside, meanwhile", get[int](t, f.db, readTx1), 1)
		mustExec(t, c, words[1])
		same(t, words[1], get[int](t, c, readTx1), 1)
		c.Close()
	}
	c := pinned(t, f.db)
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "UPDATE tx1 SET n = 6")
	same(t, "read in it first", get[int](t, c, "SELECT n + 0 FROM tx1"), 6)
	mustExec(t, c, "ROLLBACK")
	same(t, "outside, after it", get[int](t, f.db, "SELECT n + 0 FROM tx1"), 1)
	same(t, "private by transaction", f.stats().PrivateBy[coalesce.CauseTransaction], 4)

	// A transaction that is left open does not follow its connection into the pool.
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "UPDATE tx1 SET n = 7")
	c.Close()
	until(t, func() bool {
		return get[int](t, f.plain, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'") == 0
	}, says("the transaction is over"))
	for range 4 {
		same(t, "after it was left open", getIn[int](t, coalesce.Fresh(bg), f.db, readTx1), 1)
	}
}

func TestNothingHeldGetsIntoTransaction(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	same(t, "held from now on", get[int](t, f.db, readTx1), 1)
	f.by("UPDATE tx1 SET n = 2")
	same(t, "held", get[int](t, f.db, readTx1), 1)
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, readOnly := range []bool{false, true} {
			tx := begin(t, f.db, &sql.TxOptions{Isolation: level, ReadOnly: readOnly})
			same(t, level.String(), get[int](t, tx, readTx1), 2)
			if level > sql.LevelDefault {
				same(t, "isolation", get[string](t, tx, "SHOW transaction_isolation"), map[sql.IsolationLevel]string{
					sql.LevelReadUncommitted: "read uncommitted", sql.LevelReadCommitted: "read committed",
					sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
				}[level])
			}
			same(t, "read only", get[string](t, tx, "SHOW transaction_read_only"), map[bool]string{false: "off", true: "on"}[readOnly])
			tx.Commit()
		}
	}
	if tx, err := f.db.BeginTx(bg, &sql.TxOptions{Isolation: sql.LevelLinearizable}); err == nil {
		t.Error("an isolation level that pgx refuses is taken")
		tx.Rollback()
	}
	// Nobody wrote by this driver: what is held is held still.
	same(t, "held", get[int](t, f.db, readTx1), 1)
}

func TestTransactionJoinsNoFlight(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	release := f.lock("tx1")
	leader := askFor[int](bg, f.db, readTx1)
	f.sharing(1)
	tx := begin(t, f.db, nil)
	inside := askFor[int](bg, tx, readTx1)
	until(t, func() bool { return f.running(readTx1) == 2 }, says("both are at the server"))
	release()
	sameAnswer(t, "leader", leader, 1)
	sameAnswer(t, "in the transaction", inside, 1)
}

func TestRepeatableReadSeesItsOwnSnapshot(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	tx := begin(t, f.db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	same(t, "inside", get[int](t, tx, readTx1), 1)
	f.do("UPDATE tx1 SET n = 2")
	same(t, "outside", get[int](t, f.db, readTx1), 2)
	same(t, "inside", get[int](t, tx, readTx1), 1)
	tx.Commit()
	same(t, "after", get[int](t, f.db, readTx1), 2)
}

func TestSavepointsAreNotEnds(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	c := pinned(t, f.db)
	for _, end := range []string{"COMMIT", "END", "COMMIT AND NO CHAIN"} {
		n := get[int](t, c, readTx1)
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "UPDATE tx1 SET n = n + 1")
		mustExec(t, c, "SAVEPOINT s")
		mustExec(t, c, "UPDATE tx1 SET n = n + 100")
		same(t, "inside", get[int](t, c, readTx1), n+101)
		mustExec(t, c, "ROLLBACK TO SAVEPOINT s")
		same(t, "rolled back to the savepoint", get[int](t, c, readTx1), n+1)
		mustExec(t, c, "RELEASE SAVEPOINT s")
		same(t, "outside", get[int](t, f.db, readTx1), n)
		mustExec(t, c, end)
		same(t, end, get[int](t, f.db, readTx1), n+1)
	}
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "UPDATE tx1 SET n = 50")
	mustExec(t, c, "COMMIT AND CHAIN")
	same(t, "committed", get[int](t, f.db, readTx1), 50)
	mustExec(t, c, "UPDATE tx1 SET n = 51")
	same(t, "inside the chained one", get[int](t, c, readTx1), 51)
	mustExec(t, c, "ROLLBACK AND CHAIN")
	same(t, "inside the next", get[int](t, c, readTx1), 50)
	mustExec(t, c, "UPDATE tx1 SET n = 52")
	same(t, "outside", get[int](t, f.db, readTx1), 50)
	mustExec(t, c, "COMMIT")
	same(t, "committed", get[int](t, f.db, readTx1), 52)
}

func TestAbortedTransactionIsNotAnsweredFromWhatIsHeld(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	same(t, "held", get[int](t, f.db, readTx1), 1)
	tx := begin(t, f.db, nil)
	tx.Exec("SELECT 1/0")
	if err := tx.QueryRow(readTx1).Scan(new(int)); sqlState(err) != "25P02" {
		t.Errorf("got %v, want SQLSTATE 25P02", err)
	}
	tx.Rollback()
	c := pinned(t, f.db)
	mustExec(t, c, "BEGIN")
	c.ExecContext(bg, "SELECT 1/0")
	if err := c.QueryRowContext(bg, readTx1).Scan(new(int)); sqlState(err) != "25P02" {
		t.Errorf("by hand: got %v, want SQLSTATE 25P02", err)
	}
	mustExec(t, c, "ROLLBACK")
	same(t, "afterwards", get[int](t, c, readTx1), 1)
}

func TestCursorMovesOnEachFetch(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	tx := begin(t, f.db, nil)
	mustExec(t, tx, "DECLARE cu CURSOR FOR SELECT g FROM generate_series(1,3) g")
	for i := range 3 {
		same(t, "FETCH", get[int](t, tx, "FETCH 1 FROM cu"), i+1)
	}
	tx.Rollback()
	c := pinned(t, f.db)
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "DECLARE cu CURSOR WITH HOLD FOR SELECT g FROM generate_series(1,3) g")
	mustExec(t, c, "COMMIT")
	for i := range 3 {
		same(t, "FETCH outside a transaction", get[int](t, c, "FETCH 1 FROM cu"), i+1)
	}
}

func TestStatementInTransactionSeesItsWrites(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	st, err := f.db.Prepare("SELECT n * 1 FROM tx1")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	tx := begin(t, f.db, nil)
	mustExec(t, tx, "UPDATE tx1 SET n = 8")
	var n int
	if err := tx.Stmt(st).QueryRow().Scan(&n); err != nil || n != 8 {
		t.Errorf("inside: %d, %v", n, err)
	}
	tx.Rollback()
	if err := st.QueryRow().Scan(&n); err != nil || n != 1 {
		t.Errorf("outside: %d, %v", n, err)
	}
}

func TestSearchPathOfOneConnectionIsNoOthers(t *testing.T) {
	t.Parallel()
	f := newFixtureOn(t, dsnWith(pgtest.Database(t), noStatements), setup{})
	f.db.SetMaxIdleConns(4)
	f.by("CREATE SCHEMA s1", "CREATE SCHEMA s2", "CREATE TABLE s1.t AS SELECT 'one' AS v", "CREATE TABLE s2.t AS SELECT 'two' AS v", "CREATE TABLE public.t AS SELECT 'public' AS v")
	const read = "SELECT v FROM t"
	same(t, "held", get[string](t, f.db, read), "public")
	a, b := pinned(t, f.db), pinned(t, f.db)
	mustExec(t, a, "SET search_path = s1")
	mustExec(t, b, "SELECT set_config('search_path', 's2', false)")
	for range 2 {
		same(t, "a", get[string](t, a, read), "one")
		same(t, "b", get[string](t, b, read), "two")
		same(t, "others", get[string](t, f.db, read), "public")
		same(t, "current_schema of a", get[string](t, a, "SELECT current_schema()"), "s1")
		same(t, "current_schema of b", get[string](t, b, "SELECT current_schema()"), "s2")
	}
	// Back in the pool they must not feed others.
	a.Close()
	b.Close()
	other := openCoalesce(t, f.dsn)
	mustExec(t, other, "UPDATE public.t SET v = 'written'") // what was held is gone
	got := make(map[string]int)
	var conns []*sql.Conn
	for range 4 {
		c := pinned(t, f.db)
		conns = append(conns, c)
		got[get[string](t, c, read)]++
	}
	if got["one"] != 1 || got["two"] != 1 || got["written"] != 2 {
		t.Errorf("the four connections read %v; each has its own session", got)
	}
	same(t, "by an option of the DSN", get[string](t, openCoalesce(t, f.dsn, "search_path=s2"), read), "two")
	for _, c := range conns {
		mustExec(t, c, "DISCARD ALL")
		same(t, "after DISCARD ALL", get[string](t, c, read), "written")
	}
}

// Settings of a database or a role count for the sessions to come.
func TestSessionBegunWithOtherSettingsSharesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 'public' AS v", "CREATE SCHEMA other", "CREATE TABLE other.t AS SELECT 'other' AS v")
	name := get[string](t, f.plain, "SELECT quote_ident(current_database())")
	const read = "SELECT v FROM t"
	path := "public"
	for _, c := range []struct{ alter, path string }{
		{"ALTER DATABASE " + name + " SET search_path = other", "other"},
		{"DO $$ BEGIN EXECUTE 'ALTER DATABASE " + name + " RESET search_path'; END $$", "public"},
	} {
		old := pinned(t, f.db)
		mustExec(t, old, "SELECT 1")
		mustExec(t, old, c.alter)
		fresh := pinned(t, f.db)
		for range 2 {
			same(t, "a session begun before "+c.alter, get[string](t, old, read), path)
			same(t, "one begun after it", get[string](t, fresh, read), c.path)
		}
		path = c.path
		old.Close()
		fresh.Close()
	}
	before := f.stats()
	get[string](t, f.db, read)
	get[string](t, f.db, read)
	same(t, "reads on their own, of the pool's connections", f.stats().Private-before.Private, 0)
}

// What a hook did when the session began, DISCARD ALL undoes as well.
func TestDiscardAllOfAHookedSessionMakesItNoFreshOne(t *testing.T) {
	t.Parallel()
	dsn := dsnWith(pgtest.Database(t), noStatements)
	const path = "SET search_path = tenant"
	for name, open := range map[string]func(f *fixture) *sql.DB{
		"option": func(f *fixture) *sql.DB {
			connector := stdlib.GetConnector(f.pgxConfig(nil), stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
				_, err := c.Exec(ctx, path)
				return err
			}))
			return sql.OpenDB(coalesce.NewConnector(connector, coalesce.Config{}))
		},
		"registered": func(f *fixture) *sql.DB {
			cfg := f.pgxConfig(nil)
			cfg.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error { return c.Exec(ctx, path).Close() }
			return openRegistered(f, cfg)
		},
	} {
		f := newFixtureOn(t, dsn, setup{})
		f.by("DROP SCHEMA IF EXISTS tenant CASCADE", "CREATE SCHEMA tenant", "CREATE TABLE tenant.t AS SELECT 'tenant' AS v", "CREATE TABLE IF NOT EXISTS public.t AS SELECT 'public' AS v")
		db := open(f)
		defer db.Close()
		const read = "SELECT v FROM t"
		a, b := pinned(t, db), pinned(t, db)
		mustExec(t, a, "DISCARD ALL")
		same(t, name+": discarded", get[string](t, a, read), "public")
		same(t, name+": another", get[string](t, b, read), "tenant")
		same(t, name+": discarded, again", get[string](t, a, read), "public")
	}
}

// DISCARD ALL drops the statements that pgx keeps prepared; it does not know,
// and the next use of one fails. That must stay with whoever discarded.
func TestFlightAfterDiscardAllHurtsNobody(t *testing.T)    { flightAfter(t, "DISCARD ALL") }
func TestFlightAfterDeallocateAllHurtsNobody(t *testing.T) { flightAfter(t, "DEALLOCATE ALL") }

// flightAfter drops what pgx has prepared for a read on the connection that
// then asks for it first.
func flightAfter(t *testing.T, drop string) {
	t.Parallel()
	c := newComparer(t)
	c.by("CREATE TABLE tx1 AS SELECT 1 AS n")
	leaders := pinned(t, c.db)
	join := coalesce.TTL(bg, 0)
	sameAnswer(t, "before", askFor[int](join, leaders, readTx1), 1)
	mustExec(t, leaders, drop)

	hold := make(chan struct{})
	c.hold.Store(&hold)
	before := c.stats()
	leader := askFor[int](join, leaders, readTx1)
	until(t, func() bool { return c.stats().Reads > before.Reads }, says("the leader is under way"))
	var waiters []<-chan given[int]
	for range 5 {
		waiters = append(waiters, askFor[int](join, c.db, readTx1))
	}
	until(t, func() bool { return c.stats().Reads == before.Reads+6 }, says("all are under way"))
	c.hold.Store(nil)
	close(hold)
	if a := receive(t, leader); a.err != nil && sqlState(a.err) != "26000" {
		t.Errorf("leader: %v", a.err)
	}
	for _, w := range waiters {
		sameAnswer(t, "waiter", w, 1)
	}
}

// What a session has drawn from a sequence is only its own.
func TestPinnedConnectionKeepsItsSessionOrIsGone(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (f *fixture, c *sql.Conn, drawn int) {
		f = newFixture(t, setup{})
		f.by("CREATE SEQUENCE s", "CREATE TABLE t(n int)", "INSERT INTO t VALUES (1)")
		same(t, "before", get[int](t, f.db, "SELECT n FROM t"), 1)
		other, c := pinned(t, f.db), pinned(t, f.db)
		get[int](t, other, "SELECT nextval('s')")
		drawn = get[int](t, c, "SELECT nextval('s')")
		other.Close() // its server connection is free to be taken
		return f, c, drawn
	}
	t.Run("a read cut short", func(t *testing.T) {
		t.Parallel()
		f, c, _ := setup(t)
		release := f.lock("t")
		defer release()
		ctx, leave := context.WithCancel(bg)
		got := askFor[int](ctx, c, "SELECT n FROM t WHERE n > 0")
		f.sharing(2)
		leave()
		if a := receive(t, got); !errors.Is(a.err, context.Canceled) {
			t.Errorf("got %v", a.err)
		}
		var n int
		if err := c.QueryRowContext(bg, "SELECT currval('s')").Scan(&n); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("got %d, %v; want driver.ErrBadConn, as with pgx", n, err)
		}
	})
	t.Run("a catalog that is slow", func(t *testing.T) {
		t.Parallel()
		f, c, drawn := setup(t)
		pid := get[int](t, c, "SELECT pg_backend_pid()")
		f.do("CREATE TABLE other(n int)") // the catalog must be read again
		tx := begin(t, f.plain, nil)
		mustExec(t, tx, "LOCK TABLE pg_catalog.pg_trigger IN ACCESS EXCLUSIVE MODE")
		ctx, leave := context.WithCancel(bg)
		got := askFor[int](ctx, c, "SELECT n FROM t")
		until(t, func() bool {
			return get[int](t, f.plain, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_trigger'::regclass") > 0
		}, says("the catalog is waited for"))
		leave()
		receive(t, got)
		tx.Rollback()
		// The read that waited may have had the connection.
		var n, now int
		err := c.QueryRowContext(bg, "SELECT currval('s'), pg_backend_pid()").Scan(&n, &now)
		if !errors.Is(err, driver.ErrBadConn) && (err != nil || n != drawn || now != pid) {
			t.Errorf("got %d of %d, %v; want %d of %d, or driver.ErrBadConn", n, now, err, drawn, pid)
		}
	})
	t.Run("a catalog that a write waits for", func(t *testing.T) {
		t.Parallel()
		f, c, drawn := setup(t)
		f.do("CREATE TABLE other(n int)")
		mustExec(t, c, "INSERT INTO t VALUES (2)")
		same(t, "currval", get[int](t, c, "SELECT currval('s')"), drawn)
	})
}

// Who gets the server connection of a leader who left gets no session of his.
func TestHeirOfALeaderHasTheSessionResetForItself(t *testing.T) {
	t.Parallel()
	type user struct{}
	f := newFixture(t, setup{opts: []stdlib.OptionOpenDB{stdlib.OptionResetSession(func(ctx context.Context, c *pgx.Conn) error {
		name, _ := ctx.Value(user{}).(string)
		_, err := c.Exec(ctx, "SELECT set_config('app.user', $1, false)", name)
		return err
	})}})
	f.by("CREATE TABLE t(n int)", "INSERT INTO t VALUES (1)", "CREATE TABLE audit(who text DEFAULT current_setting('app.user', true), n int)")
	as := func(name string) context.Context {
		return context.WithValue(coalesce.Scope(bg, "tenant7"), user{}, name)
	}
	getIn[int](t, as("setup"), f.db, "SELECT n FROM t")
	const read = "SELECT n FROM t WHERE n < 9"
	alice, bob := pinned(t, f.db), pinned(t, f.db)
	release := f.lock("t")
	ctx, leave := context.WithCancel(as("alice"))
	led := askFor[int](ctx, alice, read)
	f.sharing(2)
	waited := askFor[int](as("bob"), bob, read)
	f.sharing(3)
	leave()
	receive(t, led)
	release()
	sameAnswer(t, "bob", waited, 1)
	if _, err := bob.ExecContext(as("bob"), "INSERT INTO audit(n) VALUES (42)"); err != nil {
		t.Fatal(err)
	}
	same(t, "who wrote", get[string](t, f.plain, "SELECT who FROM audit"), "bob")
}

// The catalog is not current when the read is sent: something may have changed
// it since the verdict.
func TestSharedReadOfAFunctionTaintsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t(a int)", "INSERT INTO t VALUES (5)", "CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1'")
	stop := make(chan struct{})
	changing := make(chan error, 1)
	go func() {
		var err error
		for n := 0; err == nil; n++ {
			select {
			case <-stop:
				changing <- err
				return
			default:
			}
			_, err = f.db.Exec("COMMENT ON TABLE t IS 'it may be another now'")
		}
		changing <- err
	}()
	noErrors(t, receive(t, together(8, func(i int) error {
		for range 50 {
			var n int
			if err := f.db.QueryRow(fmt.Sprintf("SELECT f(a) + %d FROM t", i)).Scan(&n); err != nil {
				return err
			}
		}
		return nil
	})))
	close(stop)
	if err := receive(t, changing); err != nil {
		t.Error(err)
	}
	same(t, "private by session", f.stats().PrivateBy[coalesce.CauseSession], 0)
}

func TestStatementsOfAnotherOnTheSameLinkAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t(n int)", "INSERT INTO t VALUES (1)")
	const read = "SELECT * FROM t WHERE random() < 2"
	one := pinned(t, f.db)
	pid := get[int](t, one, "SELECT pg_backend_pid()")
	two := pinned(t, f.db) // without a server connection
	one.Close()
	same(t, "the second has that of the first", get[int](t, two, "SELECT pg_backend_pid()"), pid)
	old, err := two.PrepareContext(bg, read)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := old.QueryRow().Scan(&n); err != nil {
		t.Error(err)
	}
	one = pinned(t, f.db)
	two.Close()
	get[int](t, one, "SELECT pg_backend_pid()")
	old.Close()
	f.by("ALTER TABLE t ADD b int DEFAULT 7")
	renewed, err := one.PrepareContext(bg, read)
	if err != nil {
		t.Fatal(err)
	}
	defer renewed.Close()
	for range 2 {
		var b int
		if err := renewed.QueryRow().Scan(&n, &b); err != nil || b != 7 {
			t.Errorf("prepared anew: got %d, %v; want 7", b, err)
		}
	}
}

func TestDiscardAllMakesConnectionShareAgain(t *testing.T) {
	t.Parallel()
	f := txFixture(t, noStatements)
	same(t, "held", get[int](t, f.db, readTx1), 1)
	f.by("UPDATE tx1 SET n = 2") // whoever asks the server can be told by it
	c := pinned(t, f.db)
	for _, change := range []string{
		"SET work_mem = '8MB'", "SET SESSION work_mem = '8MB'", "SET TIME ZONE 'Asia/Tokyo'", "SET ROLE " + pgx.Identifier{get[string](t, f.plain, "SELECT current_user")}.Sanitize(), "RESET ALL", "RESET work_mem", "RESET ROLE",
		"DISCARD TEMP", "DISCARD PLANS", "CREATE TEMP TABLE tmp(n int)", "LISTEN x", "DO $$ BEGIN PERFORM 1; END $$",
		"SELECT set_config('app.x', '1', false)", "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET SESSION AUTHORIZATION DEFAULT",
		"PREPARE p AS SELECT 1", "DEALLOCATE ALL", "SELECT pg_advisory_lock(77)", "SELECT setseed(0.5)",
	} {
		same(t, "shared before "+change, get[int](t, c, readTx1), 1)
		if _, err := c.ExecContext(bg, change); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
		// Some of these count as writes too, which is safe: then the first reader asks again.
		private := f.stats().PrivateBy[coalesce.CauseSession]
		same(t, "private after "+change, get[int](t, c, readTx1), 2)
		if f.stats().PrivateBy[coalesce.CauseSession] == private {
			t.Errorf("not private by its session after %s", change)
		}
		mustExec(t, c, "DISCARD ALL")
		private = f.stats().PrivateBy[coalesce.CauseSession]
		get[int](t, c, readTx1)
		same(t, "private by session after DISCARD ALL", f.stats().PrivateBy[coalesce.CauseSession], private)
		// Start over with 1 held and 2 in the table.
		f.by("UPDATE tx1 SET n = 1")
		coalesce.Invalidate(f.db)
		get[int](t, f.db, readTx1)
		f.by("UPDATE tx1 SET n = 2")
	}
}

func TestSetLocalChangesNoSession(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	c := pinned(t, f.db)
	tx := begin(t, c, nil)
	mustExec(t, tx, "SET LOCAL work_mem = '8MB'")
	mustExec(t, tx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
	same(t, "inside", get[int](t, tx, readTx1), 1)
	tx.Commit()
	same(t, "after", get[int](t, c, readTx1), 1)
	s := f.stats()
	same(t, "private by session", s.PrivateBy[coalesce.CauseSession], 0)
	same(t, "led", s.Led, 1)
}

func TestTemporaryTableHidesOnlyOnItsConnection(t *testing.T) {
	t.Parallel()
	f := txFixture(t, noStatements)
	same(t, "held", get[int](t, f.db, readTx1), 1)
	for _, make := range []string{"CREATE TEMP TABLE tx1 AS SELECT 9 AS n", "CREATE TEMPORARY TABLE tx1 AS SELECT 9 AS n", "SELECT 9 AS n INTO TEMP tx1", "CREATE LOCAL TEMPORARY VIEW tx1 AS SELECT 9 AS n"} {
		c := pinned(t, f.db)
		mustExec(t, c, make)
		same(t, make, get[int](t, c, readTx1), 9)
		same(t, "others", get[int](t, f.db, readTx1), 1)
		same(t, make, get[int](t, c, readTx1), 9)
		mustExec(t, c, "DISCARD ALL")
		same(t, "after DISCARD ALL", get[int](t, c, readTx1), 1)
		c.Close()
	}
}

func TestRowSecurityOfOneTenantIsNoOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	role := "appu_" + get[string](t, f.plain, "SELECT substr(md5(current_database()), 1, 8)")
	f.by("CREATE TABLE doc(tenant text, body text)", "INSERT INTO doc VALUES ('a','A1'),('b','B1')",
		"ALTER TABLE doc ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON doc USING (tenant = current_setting('app.tenant', true))",
		"CREATE ROLE "+role, "GRANT SELECT ON doc TO "+role)
	t.Cleanup(func() { f.plain.Exec("DROP OWNED BY " + role); f.plain.Exec("DROP ROLE " + role) })
	const read = "SELECT body FROM doc"
	a, b := pinned(t, f.db), pinned(t, f.db)
	mustExec(t, a, "SET ROLE "+role)
	mustExec(t, a, "SET app.tenant = 'a'")
	mustExec(t, b, "SET ROLE "+role)
	mustExec(t, b, "SET app.tenant = 'b'")
	for range 2 {
		same(t, "a", get[string](t, a, read), "A1")
		same(t, "b", get[string](t, b, read), "B1")
	}
	mustExec(t, a, "SET TimeZone = 'UTC'")
	mustExec(t, b, "SET TimeZone = 'Asia/Tokyo'")
	const zoned = "SELECT '2024-01-01 00:00:00+00'::timestamptz::text"
	same(t, "zone of a", get[string](t, a, zoned), "2024-01-01 00:00:00+00")
	same(t, "zone of b", get[string](t, b, zoned), "2024-01-01 09:00:00+09")
	c, d := pinned(t, f.db), pinned(t, f.db)
	const config = "SELECT set_config('app.x','1',false)"
	same(t, "set_config", get[string](t, c, config), "1")
	same(t, "set_config of another", get[string](t, d, config), "1")
	same(t, "current_setting", get[string](t, d, "SELECT current_setting('app.x')"), "1")
	same(t, "current_user", get[string](t, a, "SELECT current_user"), role)
	if u := get[string](t, f.db, "SELECT current_user"); u == role {
		t.Errorf("current_user of another is %s", u)
	}
}

// The tenant comes from the context in a hook: the driver sees no statement.
func TestScopeKeepsTenantsOfHooksApart(t *testing.T) {
	t.Parallel()
	type tenant struct{}
	set := func(ctx context.Context, c *pgx.Conn) error {
		name, _ := ctx.Value(tenant{}).(string)
		_, err := c.Exec(ctx, "SELECT set_config('app.tenant', $1, false)", name)
		return err
	}
	f := newFixture(t, setup{opts: []stdlib.OptionOpenDB{stdlib.OptionAfterConnect(set), stdlib.OptionResetSession(set)}})
	role := "appv_" + get[string](t, f.plain, "SELECT substr(md5(current_database()), 1, 8)")
	f.by("CREATE TABLE doc(tenant text, body text)", "INSERT INTO doc VALUES ('a','A1'),('b','B1')",
		"CREATE ROLE "+role+" LOGIN PASSWORD '"+role+"'", "GRANT SELECT ON doc TO "+role,
		"ALTER TABLE doc ENABLE ROW LEVEL SECURITY", "ALTER TABLE doc FORCE ROW LEVEL SECURITY", "CREATE POLICY p ON doc USING (tenant = current_setting('app.tenant', true))")
	t.Cleanup(func() { f.plain.Exec("DROP OWNED BY " + role); f.plain.Exec("DROP ROLE " + role) })
	f.db.Close()
	f.db = sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(f.pgxConfig(func(c *pgx.ConnConfig) { c.User, c.Password = role, role }),
		stdlib.OptionAfterConnect(set), stdlib.OptionResetSession(set)), coalesce.Config{}))
	defer f.db.Close()
	f.db.SetMaxOpenConns(4)
	as := func(name string) context.Context {
		return coalesce.Scope(context.WithValue(bg, tenant{}, name), name)
	}
	errs := together(60, func(i int) error {
		name, body := "a", "A1"
		if i%2 == 1 {
			name, body = "b", "B1"
		}
		ctx := as(name)
		if i%3 == 0 {
			ctx = coalesce.Fresh(ctx)
		}
		var got string
		if err := f.db.QueryRowContext(ctx, "SELECT body FROM doc").Scan(&got); err != nil {
			return err
		}
		if got != body {
			return fmt.Errorf("tenant %s read %s", name, got)
		}
		return nil
	})
	noErrors(t, receive(t, errs))
}

func TestAStatementThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n", `CREATE FUNCTION odd() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN PERFORM set_config('search_path', 'pg_catalog, public', false); EXECUTE 'SELEC 1'; RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 2; END $$`,
		"CREATE PROCEDURE odd_p() LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', 'pg_catalog, public', false); COMMIT; EXECUTE 'SELEC 1'; END $$")
	f.db.SetMaxOpenConns(1)
	get[int](t, f.db, "SELECT n FROM t")
	for _, refused := range []string{
		"SELEC 1", "frobnicate t", "SELECT nowhere()", "SELECT n FROM nowhere", "SELECT set_config('a.b', 'c', false) FROM nowhere", "UPDATE t SET m = bump()",
		"SELECT pg_advisory_lock(1), nothing FROM t", "DO 'x' LANGUAGE", "SELECT bump() FROM t WHERE",
	} {
		for _, run := range []func() error{
			func() error { _, err := f.db.Exec(refused); return err },
			func() error { return f.db.QueryRow(refused).Scan(new(any)) },
			func() error { return f.db.QueryRow(refused, pgx.QueryExecModeSimpleProtocol).Scan(new(any)) },
		} {
			held := f.stats().Held
			if run() == nil {
				t.Errorf("%s: no error", refused)
			}
			get[int](t, f.db, "SELECT n FROM t")
			same(t, "held after "+refused, f.stats().Held, held+1)
		}
	}
	for _, failed := range []string{"CALL odd_p()", "SELECT pg_advisory_lock(7); SELEC 1 FROM", "SELECT pg_advisory_lock(7); SELECT n, m FROM t", "SELECT odd()", "SELECT 1/0 FROM t WHERE set_config('a.b', 'c', false) = 'c'"} {
		f := newFixtureOn(t, f.dsn, setup{})
		f.db.SetMaxOpenConns(1)
		get[int](t, f.db, "SELECT n FROM t")
		if _, err := f.db.Exec(failed); err == nil {
			t.Errorf("%s: no error", failed)
		}
		get[int](t, f.db, "SELECT n FROM t")
		if s := f.stats(); s.Held > 0 && !strings.Contains(failed, "SELEC 1 FROM") {
			t.Errorf("after %s: %+v", failed, s)
		}
	}
}

func TestAConnectionSharesAgainOnceItsAdvisoryLocksAreGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	f.db.SetMaxOpenConns(1)
	read := func(what, want string) {
		t.Helper()
		before := f.stats()
		get[int](t, f.db, "SELECT n FROM t")
		get[int](t, f.db, "SELECT n FROM t")
		after := f.stats()
		got := "shared"
		if after.PrivateBy[coalesce.CauseSession] == before.PrivateBy[coalesce.CauseSession]+2 {
			got = "private"
		}
		same(t, what, got, want)
	}
	f.do("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")
	read("both held", "private")
	same(t, "given back", get[bool](t, f.db, "SELECT pg_advisory_unlock(1)"), true)
	read("one held", "private")
	same(t, "given back", get[bool](t, f.db, "SELECT pg_advisory_unlock(2)"), true)
	read("none held", "shared")
	f.do("SELECT pg_try_advisory_lock_shared(3)")
	read("a shared one held", "private")
	f.do("SELECT pg_advisory_unlock_all()")
	read("all given back", "shared")
	f.do("SELECT pg_advisory_lock(4)", "SET search_path = pg_catalog, public", "SELECT pg_advisory_unlock(4)")
	read("the session is another all the same", "private")
	same(t, "connections", f.seen.dials.Load(), 1)
}

func TestAdvisoryLocksAreTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	a, b := pinned(t, f.db), pinned(t, f.db)
	const try, unlock = "SELECT pg_try_advisory_lock(4242)", "SELECT pg_advisory_unlock(4242)"
	same(t, "a locks", get[bool](t, a, try), true)
	same(t, "b locks", get[bool](t, b, try), false)
	same(t, "a unlocks", get[bool](t, a, unlock), true)
	same(t, "b locks", get[bool](t, b, try), true)
	same(t, "b unlocks", get[bool](t, b, unlock), true)

	// By Exec, as golang-migrate does; and the lock outlives a shared read.
	f.by("CREATE TABLE guarded AS SELECT 1 AS n")
	mustExec(t, a, "SELECT pg_advisory_lock($1)", 99)
	release := f.lock("guarded")
	ctx, cancel := context.WithCancel(bg)
	leader := askFor[int](ctx, a, "SELECT n FROM guarded")
	until(t, func() bool { return f.running("guarded") == 1 }, says("the read waits"))
	cancel()
	receive(t, leader)
	release()
	// pgx closes a connection whose query is cancelled; the lock is gone with it then, as on plain pgx.
	a.Close()
	c := pinned(t, f.db)
	mustExec(t, c, "SELECT pg_advisory_lock($1)", 100)
	for range 3 {
		same(t, "read under the lock", get[int](t, c, "SELECT n FROM guarded"), 1)
		same(t, "another's try", get[bool](t, f.plain, "SELECT pg_try_advisory_lock(100)"), false)
	}
	same(t, "unlock where it was locked", get[bool](t, c, "SELECT pg_advisory_unlock(100)"), true)
}

func TestPreparedStatementsOfSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	// pgx prepares what it runs, this query too: both drivers count alike.
	const count = "SELECT count(*) FROM pg_prepared_statements"
	run := func(db *sql.DB) (got []int) {
		c, d := pinned(t, db), pinned(t, db)
		defer c.Close()
		defer d.Close()
		st, err := c.PrepareContext(bg, "SELECT 42")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, get[int](t, c, count), get[int](t, d, count))
		var n int
		if err := st.QueryRow().Scan(&n); err != nil || n != 42 {
			t.Errorf("%d, %v", n, err)
		}
		got = append(got, get[int](t, c, count), get[int](t, d, count))
		st.Close()
		got = append(got, get[int](t, c, count), get[int](t, d, count))
		st, err = d.PrepareContext(bg, "SELECT 42")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, get[int](t, c, count), get[int](t, d, count))
		st.Close()
		return append(got, get[int](t, c, count), get[int](t, d, count))
	}
	sameSeq(t, "statements prepared", run(f.db), run(f.plain)...)
}

func TestViewsOfSessionAnswerForTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	a, b := pinned(t, f.db), pinned(t, f.db)
	mustExec(t, a, "BEGIN")
	mustExec(t, a, "DECLARE cu CURSOR FOR SELECT 1")
	const cursors = "SELECT count(*) FROM pg_cursors WHERE name = 'cu'"
	same(t, "cursors of a", get[int](t, a, cursors), 1)
	same(t, "cursors of b", get[int](t, b, cursors), 0)
	mustExec(t, a, "ROLLBACK")
	same(t, "cursors of a", get[int](t, a, cursors), 0)
	pidA, pidB := get[int](t, a, "SELECT pg_backend_pid()"), get[int](t, b, "SELECT pg_backend_pid()")
	if pidA == pidB {
		t.Error("two connections have one backend")
	}
	const mine = "SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()"
	same(t, "pg_stat_activity of a", get[int](t, a, mine), pidA)
	same(t, "pg_stat_activity of b", get[int](t, b, mine), pidB)
	mustExec(t, a, "SET work_mem = '8MB'")
	const setting = "SELECT setting FROM pg_settings WHERE name = 'work_mem'"
	same(t, "pg_settings of a", get[string](t, a, setting), "8192")
	same(t, "pg_settings of b", get[string](t, b, setting), "4096")
	f.by("CREATE SEQUENCE sq")
	same(t, "nextval of a", get[int](t, a, "SELECT nextval('sq')"), 1)
	same(t, "nextval of b", get[int](t, b, "SELECT nextval('sq')"), 2)
	same(t, "currval of a", get[int](t, a, "SELECT currval('sq')"), 1)
	same(t, "currval of b", get[int](t, b, "SELECT currval('sq')"), 2)
	same(t, "lastval of a", get[int](t, a, "SELECT lastval()"), 1)
}

type pgxConn interface{ Conn() *pgx.Conn }

func TestRawReachesPgx(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE cp(id int)")
	same(t, "held", get[int](t, f.db, "SELECT count(*) FROM cp"), 0)
	copyIn := func(px *pgx.Conn) error {
		n, err := px.CopyFrom(bg, pgx.Identifier{"cp"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}, {2}, {3}}))
		if err == nil && n != 3 {
			err = fmt.Errorf("CopyFrom reports %d", n)
		}
		return err
	}
	c := pinned(t, f.db)
	if err := coalesce.Raw(c, func(px *pgx.Conn) error {
		if err := copyIn(px); err != nil {
			return err
		}
		same(t, "seen by others before Raw returns", get[int](t, f.db, "SELECT count(*) FROM cp"), 3)
		return nil
	}); err != nil {
		t.Error(err)
	}
	same(t, "after Raw", get[int](t, f.db, "SELECT count(*) FROM cp"), 3)
	if err := c.Raw(func(dc any) error { return copyIn(dc.(pgxConn).Conn()) }); err != nil {
		t.Error(err)
	}
	same(t, "after conn.Raw", get[int](t, f.db, "SELECT count(*) FROM cp"), 6)
	same(t, "on the connection", get[int](t, c, "SELECT count(*) FROM cp"), 6)

	// What was taken out of Raw against all advice still counts.
	var kept *pgx.Conn
	c.Raw(func(dc any) error { kept = dc.(pgxConn).Conn(); return nil })
	if err := copyIn(kept); err != nil {
		t.Error(err)
	}
	same(t, "after its use outside Raw", get[int](t, f.db, "SELECT count(*) FROM cp"), 9)

	failing := errors.New("mine")
	if err := coalesce.Raw(c, func(*pgx.Conn) error { return failing }); err != failing {
		t.Errorf("got %v, want the function's error", err)
	}
	plain := pinned(t, f.plain)
	if err := coalesce.Raw(plain, func(*pgx.Conn) error { return nil }); err == nil {
		t.Error("Raw of another driver's connection succeeds")
	}
}

func TestRawTransactionIsSeenAtItsCommit(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	c := pinned(t, f.db)
	if err := coalesce.Raw(c, func(px *pgx.Conn) error {
		tx, err := px.Begin(bg)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(bg, "UPDATE tx1 SET n = 2"); err != nil {
			return err
		}
		same(t, "before the commit", get[int](t, f.db, readTx1), 1)
		return tx.Commit(bg)
	}); err != nil {
		t.Error(err)
	}
	same(t, "after the commit", get[int](t, f.db, readTx1), 2)
	// One that Raw leaves open, and a statement ends.
	if err := coalesce.Raw(c, func(px *pgx.Conn) error {
		_, err := px.Exec(bg, "BEGIN; UPDATE tx1 SET n = 3")
		return err
	}); err != nil {
		t.Error(err)
	}
	same(t, "before the commit", get[int](t, f.db, readTx1), 2)
	mustExec(t, c, "COMMIT")
	same(t, "after the commit", get[int](t, f.db, readTx1), 3)
}

func TestConnectionUsedThroughRawSharesNothing(t *testing.T) {
	t.Parallel()
	f := txFixture(t)
	same(t, "held", get[int](t, f.db, readTx1), 1)
	c := pinned(t, f.db)
	if err := coalesce.Raw(c, func(px *pgx.Conn) error {
		_, err := px.Exec(bg, "CREATE TEMP TABLE tx1 AS SELECT 9 AS n")
		return err
	}); err != nil {
		t.Error(err)
	}
	same(t, "on it", get[int](t, c, readTx1), 9)
	same(t, "elsewhere", get[int](t, f.db, readTx1), 1)
	c.Close()
	// Back in the pool it keeps its session, and keeps it to itself.
	var nines int
	for range 3 {
		p := pinned(t, f.db)
		if get[int](t, p, readTx1) == 9 {
			nines++
		}
	}
	same(t, "connections with the temporary table", nines, 1)
	same(t, "a flight", getIn[int](t, coalesce.TTL(bg, 0), f.db, readTx1), 1)
}

func TestListenAndNotify(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	c := pinned(t, f.db)
	mustExec(t, c, "LISTEN chan1")
	err := c.Raw(func(dc any) error {
		f.by("NOTIFY chan1, 'p1'")
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		n, err := dc.(pgxConn).Conn().WaitForNotification(ctx)
		if err == nil {
			same(t, "payload", n.Payload, "p1")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	// pg_notify is a side effect of each call.
	for range 2 {
		get[string](t, f.db, "SELECT pg_notify('chan1', 'p2')::text")
	}
	if err := coalesce.Raw(c, func(px *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		for range 2 {
			n, err := px.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			same(t, "payload", n.Payload, "p2")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A flight must not be led by a connection in a transaction or take one into
// it: readers of the pool and one connection that opens and ends transactions.
func TestTransactionsAndFlightsInterleave(t *testing.T) {
	t.Parallel()
	for _, places := range []int{0, 2} {
		t.Run(fmt.Sprintf("max-conns-%d", places), func(t *testing.T) {
			t.Parallel()
			f := newFixtureOn(t, pgtest.Database(t), setup{config: coalesce.Config{MaxConns: places}})
			f.by("CREATE TABLE acc(id int PRIMARY KEY, n int)", "INSERT INTO acc VALUES (1, 50), (2, 50)")
			errs := together(8, func(i int) error {
				for j := range 30 {
					if i == 0 {
						tx, err := f.db.Begin()
						if err != nil {
							return err
						}
						_, err1 := tx.Exec("UPDATE acc SET n = n - 1 WHERE id = 1")
						var sum int
						err2 := tx.QueryRow("SELECT sum(n) FROM acc").Scan(&sum)
						if sum != 99 {
							err2 = errors.Join(err2, fmt.Errorf("inside: %d", sum))
						}
						_, err3 := tx.Exec("UPDATE acc SET n = n + 1 WHERE id = 2")
						end := tx.Commit
						if j%3 == 0 {
							end = tx.Rollback
						}
						if err := errors.Join(err1, err2, err3, end()); err != nil {
							return err
						}
						continue
					}
					var sum int
					if err := f.db.QueryRow("SELECT sum(n) FROM acc").Scan(&sum); err != nil {
						return err
					}
					if sum != 100 {
						return fmt.Errorf("outside: %d", sum)
					}
				}
				return nil
			})
			noErrors(t, receive(t, errs))
			f.quiet()
		})
	}
}

// With pg_temp in front a plain CREATE TABLE makes a temporary one.
func TestTableThatThePathMakesTemporaryIsItsSessionsOwn(t *testing.T) {
	t.Parallel()
	for _, create := range []string{"CREATE TABLE t AS SELECT 2 AS n", "SELECT 2 AS n INTO t", "CREATE VIEW t AS SELECT 2 AS n"} {
		f := newFixture(t, setup{})
		f.by("CREATE TABLE t(n int)", "INSERT INTO t VALUES (1)")
		db := openCoalesce(t, f.dsn, "search_path=pg_temp,public")
		const read = "SELECT n FROM t"
		a, b := pinned(t, db), pinned(t, db)
		get[int](t, b, read)
		mustExec(t, a, create)
		same(t, create+", on it", get[int](t, a, read), 2)
		same(t, create+", elsewhere", get[int](t, b, read), 1)
	}
}
