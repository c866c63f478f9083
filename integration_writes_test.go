package coalesce_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// Writes of this process, seen at once by its later reads; and what a text
// must not share.

func TestOwnWritesAreSeenOnAServerAtOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testOwnWrites(t, mode)
		})
	}
}

func testOwnWrites(t *testing.T, mode string) {
	f := newFixtureOn(t, dsnWith(pgtest.Database(t), "default_query_exec_mode="+mode), setup{})
	f.by("CREATE TABLE w(id int PRIMARY KEY, n int)", "INSERT INTO w VALUES (1, 0)",
		"CREATE TABLE child(id int REFERENCES w ON DELETE CASCADE)",
		"CREATE FUNCTION bump() RETURNS int LANGUAGE sql AS 'UPDATE w SET n = n + 1 WHERE id = 1 RETURNING n'",
		"CREATE PROCEDURE bump_proc() LANGUAGE sql AS 'UPDATE w SET n = n + 1 WHERE id = 1'",
		"CREATE VIEW vw AS SELECT * FROM w")
	second := openCoalesce(t, f.dsn)
	cfg := f.pgxConfig(nil)
	name := stdlib.RegisterConnConfig(&cfg)
	defer stdlib.UnregisterConnConfig(name)
	third := openCoalesce(t, name)
	st, err := f.db.Prepare("UPDATE w SET n = n + $1 WHERE id = 1")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	returning, err := f.db.Prepare("UPDATE w SET n = n + $1 WHERE id = 1 RETURNING n")
	if err != nil {
		t.Fatal(err)
	}
	defer returning.Close()
	exec := func(e execer, query string, args ...any) func() error {
		return func() error { _, err := e.ExecContext(bg, query, args...); return err }
	}
	query := func(q queryer, query string, args ...any) func() error {
		return func() error { _, err := column[any](bg, q, query, args...); return err }
	}
	const inc = "UPDATE w SET n = n + 1 WHERE id = 1"
	byHand := func(words ...string) func() error {
		return func() error {
			c, err := f.db.Conn(bg)
			if err != nil {
				return err
			}
			defer c.Close()
			for _, s := range words {
				if _, err := c.ExecContext(bg, s); err != nil {
					return err
				}
			}
			return nil
		}
	}
	writes := []struct {
		name string
		do   func() error
	}{
		{"UPDATE", exec(f.db, inc)},
		{"UPDATE with an argument", exec(f.db, "UPDATE w SET n = n + $1 WHERE id = 1", 1)},
		{"UPDATE behind a comment", exec(f.db, "/* SELECT */ -- SELECT\n"+inc)},
		{"UPDATE RETURNING", query(f.db, inc+" RETURNING n")},
		{"UPDATE RETURNING by QueryRow", func() error { return f.db.QueryRow(inc + " RETURNING n").Scan(new(int)) }},
		{"prepared", func() error { _, err := st.Exec(1); return err }},
		{"prepared RETURNING", func() error { return returning.QueryRow(1).Scan(new(int)) }},
		{"by Query", query(f.db, inc)},
		{"in a CTE", query(f.db, "WITH u AS (UPDATE w SET n = n + 1 WHERE id = 1 RETURNING n) SELECT n FROM u")},
		{"INSERT ON CONFLICT", exec(f.db, "INSERT INTO w VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = w.n + 1")},
		{"MERGE", exec(f.db, "MERGE INTO w USING (SELECT 1 AS id) s ON w.id = s.id WHEN MATCHED THEN UPDATE SET n = w.n + 1")},
		{"DELETE and INSERT in one text", exec(f.db, "CREATE TEMP TABLE IF NOT EXISTS x AS SELECT n FROM w; DROP TABLE x; "+inc)},
		{"by a function", query(f.db, "SELECT bump()")},
		{"by a function, Exec", exec(f.db, "SELECT bump()")},
		{"by CALL", exec(f.db, "CALL bump_proc()")},
		{"by DO", exec(f.db, "DO $$ BEGIN UPDATE w SET n = n + 1 WHERE id = 1; END $$")},
		{"through a view", exec(f.db, "UPDATE vw SET n = n + 1 WHERE id = 1")},
		{"EXPLAIN ANALYZE", query(f.db, "EXPLAIN ANALYZE "+inc)},
		{"in a transaction", func() error {
			tx, err := f.db.Begin()
			if err != nil {
				return err
			}
			_, err = tx.Exec(inc)
			return errors.Join(err, tx.Commit())
		}},
		{"prepared, in a transaction", func() error {
			tx, err := f.db.Begin()
			if err != nil {
				return err
			}
			_, err = tx.Stmt(st).Exec(1)
			return errors.Join(err, tx.Commit())
		}},
		{"RETURNING in a transaction, rows left open", func() error {
			tx, err := f.db.Begin()
			if err != nil {
				return err
			}
			rows, err := tx.Query(inc + " RETURNING n")
			if err == nil {
				rows.Close()
			}
			return errors.Join(err, tx.Commit())
		}},
		{"BEGIN and COMMIT by hand", byHand("BEGIN", inc, "COMMIT")},
		{"by hand, behind comments", byHand("begin", inc, "/* done */ commit ;")},
		{"by hand, END", byHand("START TRANSACTION", inc, "END TRANSACTION")},
		{"in one text", byHand("BEGIN; " + inc + "; COMMIT")},
		{"by hand, COMMIT in a text with more", byHand("BEGIN", inc, "COMMIT; SELECT 1")},
		{"by hand, after a savepoint", byHand("BEGIN", inc, "SAVEPOINT a", "UPDATE w SET n = n + 10", "ROLLBACK TO a", "COMMIT")},
		{"by PREPARE and EXECUTE", byHand("PREPARE up AS "+inc, "EXECUTE up", "DEALLOCATE up")},
		{"by another sql.Open", exec(second, inc)},
		{"by a registered name", exec(third, inc)},
		{"through Raw", func() error {
			c, err := f.db.Conn(bg)
			if err != nil {
				return err
			}
			defer c.Close()
			return coalesce.Raw(c, func(px *pgx.Conn) error { _, err := px.Exec(bg, inc); return err })
		}},
		{"under Fresh", func() error { return f.db.QueryRowContext(coalesce.Fresh(bg), inc+" RETURNING n").Scan(new(int)) }},
		{"SET and UPDATE by hand", byHand("SET work_mem = '8MB'", inc)},
	}
	const read = "SELECT n FROM w WHERE id = 1"
	n := get[int](t, f.db, read)
	dbs := map[string]*sql.DB{"same": f.db, "second": second, "third": third}
	for _, w := range writes {
		if f.lacks(w.name) {
			continue
		}
		for where, db := range dbs {
			same(t, "held before "+w.name+", "+where, get[int](t, db, read), n)
		}
		if err := w.do(); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		for where, db := range dbs {
			same(t, w.name+", "+where, get[int](t, db, read), n+1)
		}
		n = get[int](t, f.plain, read)
	}
	if f.stats().Held == 0 {
		t.Error("nothing was ever held")
	}
	f.quiet()
}

func TestTablesThatOthersTouchInOneStatementAreReadAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE pa(id int PRIMARY KEY)", "CREATE TABLE ch(id int REFERENCES pa ON DELETE CASCADE, n int)", "CREATE VIEW vch AS SELECT count(*) AS n FROM ch",
		"INSERT INTO pa VALUES (1),(2)", "INSERT INTO ch VALUES (1,1),(2,2)",
		"CREATE TABLE part(id int, n int) PARTITION BY RANGE (id)", "CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10)", "INSERT INTO part VALUES (1, 1)",
		"CREATE TABLE logged(n int)", "CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO logged VALUES (1); RETURN NULL; END'",
		"CREATE TRIGGER tr AFTER DELETE ON pa FOR EACH ROW EXECUTE FUNCTION log_it()")
	state := func() string {
		return fmt.Sprint(get[int](t, f.db, "SELECT count(*) FROM ch"), get[int](t, f.db, "SELECT n FROM vch"), get[int](t, f.db, "SELECT count(*) FROM logged"),
			get[int](t, f.db, "SELECT sum(n) FROM part"), get[int](t, f.db, "SELECT sum(n) FROM part1"))
	}
	same(t, "before", state(), "2 2 0 1 1")
	f.do("DELETE FROM pa WHERE id = 1")
	same(t, "after the delete", state(), "1 1 1 1 1")
	f.do("UPDATE part SET n = 2")
	same(t, "after writing to the partitioned table", state(), "1 1 1 2 2")
	f.do("UPDATE part1 SET n = 3")
	same(t, "after writing to the partition", state(), "1 1 1 3 3")
	f.do("TRUNCATE pa CASCADE")
	same(t, "after TRUNCATE", state(), "0 0 1 3 3")
}

// Another process was faster, as the error says: the row must be there then.
func TestRollbackAfterAFailureShowsWhatItFailedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE claims (name text PRIMARY KEY)")
	const read, insert = "SELECT count(*) FROM claims WHERE name = $1", "INSERT INTO claims VALUES ($1)"
	for name, try := range map[string]func(name string) error{
		"on its own": func(name string) error { _, err := f.db.Exec(insert, name); return err },
		"BeginTx": func(name string) error {
			tx, err := f.db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = tx.Exec(insert, name)
			return err
		},
		"prepared, RETURNING": func(name string) error {
			tx, err := f.db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			st, err := tx.Prepare(insert + " RETURNING name")
			if err != nil {
				return err
			}
			return st.QueryRow(name).Scan(new(string))
		},
		"by hand": func(name string) error {
			c := pinned(t, f.db)
			mustExec(t, c, "BEGIN")
			_, err := c.ExecContext(bg, insert, name)
			mustExec(t, c, "ROLLBACK")
			return err
		},
	} {
		same(t, name+", before", get[int](t, f.db, read, name), 0)
		f.by("INSERT INTO claims VALUES ('" + name + "')")
		if err := try(name); sqlState(err) != "23505" {
			t.Errorf("%s: got %v, want SQLSTATE 23505", name, err)
		}
		same(t, name+", after", get[int](t, f.db, read, name), 1)
	}
}

func TestRolledBackTransactionLeaksNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE rb AS SELECT 1 AS n")
	const read = "SELECT n FROM rb"
	same(t, "first", get[int](t, f.db, read), 1)
	tx := begin(t, f.db, nil)
	mustExec(t, tx, "UPDATE rb SET n = 2")
	same(t, "inside", get[int](t, tx, read), 2)
	same(t, "outside", get[int](t, f.db, read), 1)
	tx.Rollback()
	same(t, "after", get[int](t, f.db, read), 1)
	same(t, "queries, one of them inside", f.seen.queries(read), 2)
	// A commit that fails has not written, or has: either way nothing old is used.
	f.by("ALTER TABLE rb ADD CONSTRAINT u UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
	tx = begin(t, f.db, nil)
	mustExec(t, tx, "INSERT INTO rb VALUES (1)")
	if err := tx.Commit(); sqlState(err) != "23505" {
		t.Errorf("commit: got %v, want SQLSTATE 23505", err)
	}
	same(t, "after the failed commit", get[int](t, f.db, "SELECT count(*) FROM rb"), 1)
}

func TestRollbackMakesNothingStale(t *testing.T) {
	t.Parallel()
	f := flightFixture(t, setup{})
	f.by("CREATE TABLE door(n int)")
	const (
		update  = "UPDATE fl SET n = 18"
		passing = "SELECT n FROM fl WHERE n > $1 AND NOT EXISTS (SELECT FROM door)"
	)
	c := pinned(t, f.db)
	byHand := func(words ...string) func() {
		return func() {
			for _, s := range words {
				mustExec(t, c, s)
			}
		}
	}
	for i, r := range []struct {
		name     string
		rollBack func()
	}{
		{"BeginTx", func() {
			tx := begin(t, c, nil)
			mustExec(t, tx, update)
			tx.Rollback()
		}},
		{"ROLLBACK", byHand("BEGIN", update, "ROLLBACK")},
		{"ROLLBACK after a transaction that failed", func() {
			mustExec(t, c, "BEGIN")
			if _, err := c.ExecContext(bg, "SELECT 1 / 0"); sqlState(err) != "22012" {
				t.Errorf("got %v, want SQLSTATE 22012", err)
			}
			byHand("COMMIT", "BEGIN", update, "ROLLBACK")()
		}},
		{"ROLLBACK AND CHAIN", byHand("BEGIN", update, "ROLLBACK AND CHAIN", update, "ABORT")},
	} {
		get[int](t, f.db, readFl)
		before := f.stats()
		release := f.lock("door")
		leader := askFor[int](bg, f.db, passing, i)
		until(t, func() bool { return f.running(passing) == 1 }, says("the leader is at the server"))
		r.rollBack()
		same(t, r.name+", what was held", get[int](t, f.db, readFl), 17)
		waiter := askFor[int](bg, f.db, passing, i)
		f.sharing(int(before.Joined+before.Led) + 2)
		release()
		sameAnswer(t, r.name+", leader", leader, 17)
		sameAnswer(t, r.name+", waiter", waiter, 17)
		same(t, r.name+", after the flight", get[int](t, f.db, passing, i), 17)
		after := f.stats()
		same(t, r.name+", led", after.Led-before.Led, 1)
		same(t, r.name+", held", after.Held-before.Held, 2)
	}
}

// A transaction remembers so many of its writes; more count as all.
func TestTransactionOfManyWritesIsSeenInAllItsTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	const tables = 40
	for i := range tables {
		f.by(fmt.Sprintf("CREATE TABLE w%d AS SELECT 0 AS n", i))
	}
	update := func(e execer) {
		for i := range tables {
			mustExec(t, e, fmt.Sprintf("UPDATE w%d SET n = n + 1", i))
		}
	}
	written := 0
	check := func(when string) {
		t.Helper()
		for _, i := range []int{0, 20, tables - 1} {
			same(t, fmt.Sprintf("w%d %s", i, when), get[int](t, f.db, fmt.Sprintf("SELECT n FROM w%d", i)), written)
		}
	}
	for name, commit := range map[string]func(){
		"BeginTx": func() {
			tx := begin(t, f.db, nil)
			update(tx)
			tx.Commit()
		},
		"COMMIT": func() {
			c := pinned(t, f.db)
			mustExec(t, c, "BEGIN")
			update(c)
			mustExec(t, c, "COMMIT")
		},
	} {
		check("before " + name)
		commit()
		written++
		check("after " + name)
	}
}

// What a statement sets off may have been made by code that another one calls,
// or by one that is not over yet.
func TestWriteSetsOffWhatWasJustMade(t *testing.T) {
	t.Parallel()
	const count = "SELECT count(*) FROM log"
	audited := func(t *testing.T) *fixture {
		f := newFixture(t, setup{})
		f.by("CREATE TABLE a(x int)", "CREATE TABLE log(x int)", "CREATE TABLE lock(x int)",
			"CREATE FUNCTION on_a() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NEW; END'",
			`CREATE FUNCTION audit_a() RETURNS void LANGUAGE plpgsql AS 'BEGIN CREATE TRIGGER aud AFTER INSERT ON a FOR EACH ROW EXECUTE FUNCTION on_a(); END'`,
			`CREATE PROCEDURE audit_and_wait() LANGUAGE plpgsql AS 'BEGIN PERFORM audit_a(); COMMIT; LOCK TABLE lock; END'`)
		same(t, "before", get[int](t, f.db, count), 0)
		return f
	}
	t.Run("by a function", func(t *testing.T) {
		t.Parallel()
		f := audited(t)
		c := pinned(t, f.db)
		mustExec(t, c, "SELECT audit_a()")
		same(t, "audited", get[int](t, f.db, count), 0)
		f.do("INSERT INTO a VALUES (1)")
		same(t, "after the write", get[int](t, f.db, count), 1)
	})
	t.Run("by a procedure that has committed and goes on", func(t *testing.T) {
		t.Parallel()
		f := audited(t)
		release := f.lock("lock")
		done := make(chan error, 1)
		go func() { _, err := f.db.Exec("CALL audit_and_wait()"); done <- err }()
		until(t, func() bool { return get[int](t, f.plain, "SELECT count(*) FROM pg_trigger WHERE tgname = 'aud'") == 1 }, says("the trigger is there"))
		same(t, "audited", get[int](t, f.db, count), 0)
		f.do("INSERT INTO a VALUES (1)")
		same(t, "after the write", get[int](t, f.db, count), 1)
		release()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	})
}

// What a statement does was settled when it began; what is known of that may
// change before it is over.
func TestWriteCountsThoughWhatItCallsIsRedefinedMeanwhile(t *testing.T) {
	t.Parallel()
	const read = "SELECT count(*) FROM log"
	for _, c := range []struct{ name, write, redefine string }{
		{"replaced", "SELECT f()", "CREATE OR REPLACE FUNCTION f() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'"},
		{"altered", "SELECT f()", "ALTER FUNCTION f() STABLE"},
		{"called by a default", "INSERT INTO t DEFAULT VALUES", "CREATE OR REPLACE FUNCTION f() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, setup{})
			f.by("CREATE TABLE log(n int)", "CREATE TABLE gate(n int)",
				"CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); LOCK TABLE gate; RETURN 1; END'", "CREATE TABLE t(n int DEFAULT f())")
			same(t, "before", get[int](t, f.db, read), 0)
			open := f.lock("gate")
			done := make(chan error, 1)
			conn := pinned(t, f.db) // which changes its session, perhaps
			go func() { _, err := conn.ExecContext(bg, c.write); done <- err }()
			until(t, func() bool {
				return get[int](t, f.plain, "SELECT count(*) FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted") == 1
			}, says("the write is under way"))
			f.do(c.redefine)
			for range 2 {
				same(t, "meanwhile", get[int](t, f.db, read), 0)
			}
			open()
			if err := receive(t, done); err != nil {
				t.Error(err)
			}
			same(t, "after", get[int](t, f.db, read), 1)
		})
	}
}

func TestNothingIsHeldThatAWriteMayChangeWhoseRowsAreOpen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	const rows = 20
	f.by(fmt.Sprintf("CREATE TABLE slowly AS SELECT 0 AS n FROM generate_series(1, %d)", rows), "CREATE TABLE other AS SELECT 1 AS n", "CREATE TABLE gate(n int)",
		"CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE gate; RETURN NULL; END'")
	const read, other = "SELECT sum(n) FROM slowly", "SELECT n FROM other"
	held := func(query string) bool {
		before := f.stats().Held
		get[int](t, f.db, query)
		get[int](t, f.db, query)
		return f.stats().Held > before
	}
	update := func() *sql.Rows {
		r, err := f.db.Query("UPDATE slowly SET n = n + 1 RETURNING repeat('x', 2000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	same(t, "held before", held(read), true)
	open := update()
	same(t, "held while the rows are open", held(read), false)
	same(t, "another table, held while they are", held(other), true)
	open.Close()
	same(t, "held afterwards", held(read), true)

	open, err := pinned(t, f.db).QueryContext(bg, `UPDATE slowly SET n = n + 0 RETURNING U&"n"`)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "held while the rows of a text are open that nobody understands", held(read), false)
	open.Close()

	f.do("CREATE CONSTRAINT TRIGGER pass AFTER UPDATE ON slowly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass()")
	release := f.lock("gate")
	open = update()
	same(t, "before the commit", get[int](t, f.db, read), rows)
	release()
	until(t, func() bool { return get[int](t, f.plain, read) == 2*rows }, says("the server has committed"))
	same(t, "after it", get[int](t, f.db, read), 2*rows)
	open.Close()
}

func TestManyTextsOfATransactionCountAsWritesToTheirTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t(n int)", "CREATE TABLE other AS SELECT 1 AS n")
	const read = "SELECT n FROM other"
	get[int](t, f.db, read)
	tx := begin(t, f.db, nil)
	for i := range 100 {
		mustExec(t, tx, fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	before := f.stats().Held
	get[int](t, f.db, read)
	same(t, "reads of another table that are held", f.stats().Held-before, 1)
	same(t, "the writes", get[int](t, f.db, "SELECT count(*) FROM t"), 100)
}

// By dblink a function writes in a transaction of its own.
func TestWriteInATransactionOfItsOwnIsSeenBeforeItsCallersEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	if _, err := f.plain.Exec("CREATE EXTENSION dblink"); err != nil {
		t.Skipf("dblink cannot be tested here: %v", err)
	}
	insert := "dblink_exec('" + f.dsn + "', 'INSERT INTO log VALUES (1)')"
	f.by("CREATE TABLE log(n int)", "CREATE TABLE t(n int)", "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM "+insert+"; RETURN NEW; END$$",
		"CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()")
	const read = "SELECT count(*) FROM log"
	for i, write := range []string{"SELECT " + insert, "INSERT INTO t VALUES (1)"} {
		same(t, "before "+write, get[int](t, f.db, read), i)
		tx := begin(t, f.db, nil)
		mustExec(t, tx, write)
		same(t, "after "+write, get[int](t, f.db, read), i+1)
		tx.Rollback()
	}
}

func TestSequenceMovesBeforeItsTransactionEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE SEQUENCE sq", "CREATE TABLE ser(id serial, n int)", "CREATE TABLE door(n int)")
	for _, c := range []struct{ write, sequence string }{{"SELECT setval('sq', 50)", "sq"}, {"INSERT INTO ser(n) VALUES (1)", "ser_id_seq"}} {
		read := "SELECT last_value FROM " + c.sequence + " WHERE NOT EXISTS (SELECT FROM door)"
		before := f.stats()
		release := f.lock("door")
		leader := askFor[int](bg, f.db, read)
		until(t, func() bool { return f.running(read) == 1 }, says("the leader is at the server"))
		tx := begin(t, f.db, nil)
		mustExec(t, tx, c.write)
		later := askFor[int](bg, f.db, read)
		f.sharing(int(before.Joined+before.Led) + 2)
		same(t, "led, with "+c.write, f.stats().Led-before.Led, 2)
		release()
		receive(t, leader)
		receive(t, later)
		tx.Rollback()
	}
}

// Where a backslash escapes a quote, a literal may end elsewhere than it seems.
func TestWriteHiddenByABackslashCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{pgx: func(c *pgx.ConnConfig) { c.RuntimeParams["standard_conforming_strings"] = "off" }})
	f.by("CREATE TABLE t(n int)", "INSERT INTO t VALUES (1)",
		"CREATE FUNCTION bump() RETURNS text VOLATILE LANGUAGE sql AS 'UPDATE t SET n = n + 1 RETURNING n::text'")
	const read = "SELECT n FROM t"
	same(t, "before", get[int](t, f.db, read), 1)
	get[string](t, f.db, `SELECT 'a\'' || bump() || ' , ' -- '`)
	same(t, "after", get[int](t, f.db, read), 2)
}

func TestExplainHeedsHowTheServerReadsLiterals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ parameter, value, query, want string }{
		{"standard_conforming_strings", "on", `SELECT 'a\b'`, "holdable"},
		{"standard_conforming_strings", "off", `SELECT 'a\b'`, "private"},
		{"client_encoding", "LATIN1", "SELECT n FROM t WHERE s = 'a'", "holdable"},
		{"client_encoding", "SJIS", "SELECT n FROM t WHERE s = 'a'", "private"},
	} {
		f := newFixture(t, setup{pgx: func(config *pgx.ConnConfig) { config.RuntimeParams[c.parameter] = c.value }})
		f.by("CREATE TABLE t (n int, s text)")
		same(t, c.parameter+" = "+c.value, f.verdict(c.query), c.want)
	}
}

// The answer to a write is lost: it may have been made.
func TestWriteWhoseAnswerIsLostCounts(t *testing.T) {
	t.Parallel()
	valve := new(valve)
	f := newFixture(t, setup{
		pgx:  func(c *pgx.ConnConfig) { c.DialFunc = valve.dial },
		opts: []stdlib.OptionOpenDB{stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false })},
	})
	f.by("CREATE TABLE lost AS SELECT 1 AS n")
	c := pinned(t, f.db)
	mustExec(t, c, "UPDATE lost SET n = $1", 2)
	same(t, "before", get[int](t, f.db, "SELECT n FROM lost"), 2)
	valve.shut()
	defer valve.open()
	done := make(chan error, 1)
	go func() { _, err := c.ExecContext(bg, "UPDATE lost SET n = $1", 3); done <- err }()
	until(t, func() bool { return get[int](t, f.plain, "SELECT n FROM lost") == 3 }, says("the write is made"))
	valve.lose()
	if err := receive(t, done); err == nil {
		t.Error("the write succeeds though its answer is lost")
	}
	sameAnswer(t, "after", askFor[int](bg, f.db, "SELECT n FROM lost"), 3)
}

// A write whose rows are still being read has begun and is not done: the
// server waits for its reader with most of them.
func TestWriteCountsWhenItsRowsAreClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	const n = 5000
	f.by(fmt.Sprintf("CREATE TABLE slowly AS SELECT 0 AS n FROM generate_series(1, %d)", n))
	const read = "SELECT count(*) FROM slowly WHERE n = 1"
	rows, err := f.db.Query("UPDATE slowly SET n = 1 RETURNING repeat('x', 10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	same(t, "while the rows are open", get[int](t, f.db, read), 0)
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	same(t, "after they are closed", get[int](t, f.db, read), n)
}

func TestNotFoundIsForgottenWithTheInsert(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE ng(k text)")
	const read = "SELECT k FROM ng WHERE k = $1"
	if err := f.db.QueryRow(read, "a").Scan(new(string)); err != sql.ErrNoRows {
		t.Errorf("got %v, want sql.ErrNoRows", err)
	}
	f.do("INSERT INTO ng VALUES ('a')")
	same(t, "after the insert", get[string](t, f.db, read, "a"), "a")
	f.do("DELETE FROM ng")
	if err := f.db.QueryRow(read, "a").Scan(new(string)); err != sql.ErrNoRows {
		t.Errorf("after the delete: got %v, want sql.ErrNoRows", err)
	}
}

func TestInvalidateTakesInWhatATableIsOfAndWhatFollowsIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE TABLE part(id int) PARTITION BY RANGE (id); CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
		CREATE TABLE base(id int PRIMARY KEY); CREATE TABLE heir() INHERITS (base);
		CREATE TABLE cascaded(id int PRIMARY KEY REFERENCES base ON DELETE CASCADE); CREATE TABLE twice(id int REFERENCES cascaded ON UPDATE SET NULL);
		CREATE VIEW seen AS SELECT id FROM twice; CREATE SCHEMA other; CREATE TABLE other.part(id int); CREATE TABLE alone(id int)`)
	relations := []string{"part", "part_1", "base", "heir", "cascaded", "twice", "seen", "other.part", "alone"}
	// read reads each and returns those that were not held.
	read := func() (anew []string) {
		for _, r := range relations {
			held := f.stats().Held
			get[int](t, f.db, "SELECT count(*) FROM "+r)
			if f.stats().Held == held {
				anew = append(anew, r)
			}
		}
		return anew
	}
	for _, c := range []struct{ tables, dropped []string }{
		{[]string{"part"}, []string{"part", "part_1", "other.part"}},
		{[]string{"part_1"}, []string{"part", "part_1", "other.part"}},
		{[]string{"base"}, []string{"base", "heir", "cascaded", "twice", "seen"}},
		{[]string{"heir"}, []string{"base", "heir", "cascaded", "twice", "seen"}},
		{[]string{"cascaded"}, []string{"cascaded", "twice", "seen"}},
		{[]string{"twice", "part"}, []string{"part", "part_1", "twice", "seen", "other.part"}},
		{nil, relations},
	} {
		read()
		if err := coalesce.Invalidate(f.db, c.tables...); err != nil {
			t.Error(err)
		}
		sameSeq(t, fmt.Sprintf("read anew after Invalidate of %q", c.tables), read(), c.dropped...)
	}
}

// What a flight reads may not be a table in its text.
func TestWriteOvertakesAFlightThatDoesNotNameItsTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE door(n int)", "CREATE SEQUENCE s", "CREATE TABLE numbered(id int DEFAULT nextval('s'))", "CREATE TABLE cfg AS SELECT 1 AS n",
		"CREATE FUNCTION setting() RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM cfg'", "CREATE VIEW v AS SELECT setting() AS n")
	for _, c := range []struct{ from, write string }{
		{"last_value FROM s", "SELECT nextval('s')"},
		{"last_value FROM s", "SELECT setval('s', 50)"},
		{"last_value FROM s", "INSERT INTO numbered DEFAULT VALUES"},
		{"setting()", "UPDATE cfg SET n = n + 1"},
		{"n FROM v", "UPDATE cfg SET n = n + 1"},
	} {
		read := "SELECT " + c.from + " WHERE NOT EXISTS (SELECT FROM door)"
		what := read + ", " + c.write
		before := f.stats()
		release := f.lock("door")
		first := askFor[int](bg, f.db, read)
		until(t, func() bool { return f.running(read) == 1 }, says("the flight is at the server"))
		f.do(c.write)
		later := []<-chan given[int]{askFor[int](bg, f.db, read), askFor[int](bg, f.db, read)}
		f.sharing(int(before.Joined+before.Led) + 3)
		release()
		if a := receive(t, first); a.err != nil {
			t.Errorf("%s: %v", what, a.err)
		}
		wanted := get[int](t, f.plain, read)
		for _, l := range later {
			sameAnswer(t, what, l, wanted)
		}
		after := f.stats()
		same(t, what+": led", after.Led-before.Led, 2)
		same(t, what+": joined", after.Joined-before.Joined, 1)
	}
}

// Only REFRESH changes its rows: a write to the tables behind it does not.
func TestMaterializedViewIsReadAnewAfterItsRefresh(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n", "CREATE MATERIALIZED VIEW m AS SELECT n FROM t", "CREATE UNIQUE INDEX ON m(n)")
	const read = "SELECT n FROM m"
	for i, refresh := range []string{"REFRESH MATERIALIZED VIEW m", "REFRESH MATERIALIZED VIEW CONCURRENTLY m"} {
		same(t, "at first", get[int](t, f.db, read), i+1)
		f.do("UPDATE t SET n = n + 1")
		held := f.stats().Held
		same(t, "after the write", get[int](t, f.db, read), i+1)
		same(t, "held after the write", f.stats().Held-held, 1)
		f.do(refresh)
		same(t, refresh, get[int](t, f.db, read), i+2)
	}
	e, err := coalesce.Explain(bg, f.db, read)
	if err != nil {
		t.Error(err)
	}
	sameSeq(t, "tables", e.Tables, "m")
}

func TestDatabasesShareNoWritesWithOthers(t *testing.T) {
	t.Parallel()
	f, g := newFixture(t, setup{}), newFixture(t, setup{})
	f.by("CREATE TABLE iso AS SELECT 1 AS n")
	g.by("CREATE TABLE iso AS SELECT 2 AS n")
	for range 2 {
		same(t, "f", get[int](t, f.db, "SELECT n FROM iso"), 1)
		same(t, "g", get[int](t, g.db, "SELECT n FROM iso"), 2)
		g.do("UPDATE iso SET n = 2")
	}
	same(t, "queries on f: the writes were on g", f.seen.queries("iso"), 1)
}

func TestVolatileFunctionsAnswerAnewOnEachCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	for _, fn := range []string{"random()", "gen_random_uuid()", "clock_timestamp()", "now()", "CURRENT_TIMESTAMP", "localtimestamp", "statement_timestamp()", "transaction_timestamp()", "timeofday()", "txid_current()", "LOCALTIME", "current_time"} {
		query := "SELECT (" + fn + ")::text"
		if a, b := get[string](t, f.db, query), get[string](t, f.db, query); a == b {
			t.Errorf("%s gives %s twice", fn, a)
		}
	}
	f.by("CREATE TABLE moments AS SELECT 'now'::text AS v")
	for query, wanted := range map[string]string{
		"SELECT 'random()' -- random()":                           "random()",
		`SELECT "random"::text FROM (SELECT 1 AS "random") z`:     "1",
		"SELECT 'for update'":                                     "for update",
		"WITH x AS (SELECT 'delete from t' AS v) SELECT v FROM x": "delete from t",
		"SELECT $$nextval('x')$$ /* pg_sleep(1) */ /* /* b */ */": "nextval('x')",
	} {
		for range 2 {
			same(t, query, get[string](t, f.db, query), wanted)
		}
		if n := f.seen.queries(query); n != 1 {
			t.Errorf("%s: %d queries, want 1", query, n)
		}
	}
	// A moment as a string, in the text or as an argument.
	for range 2 {
		get[bool](t, f.db, "SELECT 'now'::timestamptz > '2024-01-01'")
		get[bool](t, f.db, "SELECT $1::timestamptz > '2024-01-01'", "now")
		get[bool](t, f.db, "SELECT $1::date > '2024-01-01'", "today")
	}
	same(t, "queries with 'now' in the text", f.seen.queries("'now'::timestamptz"), 2)
	same(t, "queries with 'now' as an argument", f.seen.queries("$1::timestamptz"), 2)
	same(t, "queries with 'today' as an argument", f.seen.queries("$1::date"), 2)
}

func TestAnswerThatTimeChangesIsNotHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.do("CREATE TABLE s(expiry timestamptz)")
	// Not to wait for time to pass: the row is moved into the past by another.
	f.do("INSERT INTO s VALUES (now() + interval '1 hour')")
	const read = "SELECT count(*) FROM s WHERE current_timestamp < expiry"
	same(t, "before it expires", get[int](t, f.db, read), 1)
	f.by("UPDATE s SET expiry = now() - interval '1 second'")
	same(t, "expired", get[int](t, f.db, read), 0)
	same(t, "Stats.StoredBytes", f.stats().StoredBytes, 0)
}

func TestRowLocksAreTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE jb(id int PRIMARY KEY)", "INSERT INTO jb VALUES (1), (2)")
	for _, query := range []string{
		"SELECT id FROM jb ORDER BY id\nFOR UPDATE\nSKIP LOCKED LIMIT 1",
		"SELECT id FROM jb ORDER BY id LIMIT 1 FOR NO KEY UPDATE OF jb SKIP LOCKED -- x",
		"SELECT id FROM (SELECT id FROM jb ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) z",
		"SELECT id FROM jb ORDER BY id LIMIT 1 FOR SHARE SKIP LOCKED",
		"SELECT id FROM jb ORDER BY id LIMIT 1 FOR/**/KEY/**/SHARE SKIP LOCKED",
		"WITH l AS (SELECT id FROM jb ORDER BY id LIMIT 1 for update skip locked) SELECT id FROM l",
	} {
		tx := begin(t, f.plain, nil)
		mustExec(t, tx, "SELECT id FROM jb WHERE id = 1 FOR UPDATE")
		same(t, query, get[int](t, f.db, query), 2)
		tx.Rollback()
		same(t, query, get[int](t, f.db, query), 1)
	}
	tx := begin(t, f.plain, nil)
	mustExec(t, tx, "SELECT id FROM jb WHERE id = 1 FOR UPDATE")
	for range 2 {
		if err := f.db.QueryRow("SELECT id FROM jb FOR UPDATE NOWAIT").Scan(new(int)); sqlState(err) != "55P03" {
			t.Errorf("NOWAIT: got %v, want SQLSTATE 55P03", err)
		}
	}
	// A lock that is waited for must be waited for by each on its own.
	waiting := []<-chan given[int]{askFor[int](bg, f.db, "SELECT id FROM jb WHERE id = 1 FOR UPDATE"), askFor[int](bg, f.db, "SELECT id FROM jb WHERE id = 1 FOR UPDATE")}
	until(t, func() bool { return f.running("WHERE id = 1 FOR UPDATE") == 2 }, says("both wait for the lock"))
	tx.Rollback()
	for _, w := range waiting {
		sameAnswer(t, "locked", w, 1)
	}
}

func TestWritesThatLookLikeReadsRunEachTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE wj(id int, st text)", "INSERT INTO wj VALUES (1,'q'),(2,'q')", "CREATE TABLE wi(id serial)", "CREATE TABLE yea(n int)", "CREATE SEQUENCE sq",
		"CREATE TABLE sf(n int)", "INSERT INTO sf VALUES (0)",
		"CREATE FUNCTION bump() RETURNS int LANGUAGE sql AS 'UPDATE sf SET n=n+1 RETURNING n'")
	for _, q := range []struct {
		query string
		first int
	}{
		{"WITH n AS (SELECT id FROM wj WHERE st='q' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) UPDATE wj SET st='r' FROM n WHERE wj.id=n.id RETURNING wj.id", 1},
		{"WITH i AS (INSERT INTO wi DEFAULT VALUES RETURNING id) SELECT id FROM i", 1},
		{"INSERT INTO wi DEFAULT VALUES RETURNING id", 3},
		{"SELECT nextval('sq')", 1},
		{"SELECT (SELECT nextval('sq'))", 3},
		{"SELECT bump()", 1},
		{"SELECT n FROM (SELECT public . bump () AS n) z", 3},
	} {
		same(t, q.query, get[int](t, f.db, q.query), q.first)
		same(t, q.query+", again", get[int](t, f.db, q.query), q.first+1)
	}
	for range 2 {
		column[string](bg, f.db, "EXPLAIN ANALYZE INSERT INTO yea VALUES (1)")
	}
	same(t, "rows by EXPLAIN ANALYZE", get[int](t, f.plain, "SELECT count(*) FROM yea"), 2)
	f.db.Query("SELECT 1 AS a INTO ysi")
	rows, err := f.db.Query("SELECT 1 AS a INTO ysi")
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if sqlState(err) != "42P07" {
		t.Errorf("SELECT INTO twice: got %v, want SQLSTATE 42P07", err)
	}
	for _, query := range []string{"SHOW work_mem", "TABLE yea; TABLE yea", "SELECT 1; SELECT 2"} {
		rows, err := f.db.Query(query, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		rows.Close()
	}
}

func TestExplainTellsTheReason(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE plain_table AS SELECT 1 AS n", "CREATE VIEW some_view AS SELECT n FROM plain_table")
	for query, wanted := range map[string]string{
		"SELECT n FROM plain_table":           "holdable",
		"SELECT now()":                        "joinable",
		"SELECT nextval('x')":                 "private",
		"SELECT n FROM t FOR UPDATE":          "private",
		"UPDATE t SET n = 1":                  "private",
		"SELECT count(*) FROM pg_class":       "private",
		"SELECT no_such_function_anywhere(1)": "private",
		"SELECT 1; SELECT 2":                  "private",
		"":                                    "private",
		"SELECT to_char(n, '999') FROM plain_table, some_view": "holdable",
		"SELECT n FROM nowhere":                                "private",
	} {
		e, err := coalesce.Explain(bg, f.db, query)
		if err != nil {
			t.Error(err)
		}
		same(t, "verdict on "+query, e.Verdict, wanted)
		if (e.Reason == "") != (wanted == "holdable") {
			t.Errorf("reason for %q: %q", query, e.Reason)
		}
	}
	if e, _ := coalesce.Explain(bg, f.db, "SELECT nextval('x')"); e.Reason != "calls nextval, which is VOLATILE" {
		t.Errorf("the reason is not that of README: %q", e.Reason)
	}
	if e, _ := coalesce.Explain(bg, f.db, "SELECT n FROM some_view"); !strings.Contains(strings.Join(e.Tables, " "), "plain_table") {
		t.Errorf("tables are %v", e.Tables)
	}
	if _, err := coalesce.Explain(bg, f.plain, "SELECT 1"); err == nil {
		t.Error("Explain of another driver's database succeeds")
	}
}

func TestExplainNamesTheTables(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE TABLE t AS SELECT 1 AS n; CREATE VIEW v AS SELECT n FROM t; CREATE SEQUENCE s;
		CREATE TABLE cfg AS SELECT 1 AS n; CREATE FUNCTION setting() RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM cfg';
		CREATE TABLE parent(id int PRIMARY KEY); CREATE TABLE child(id int REFERENCES parent ON UPDATE CASCADE);
		CREATE TABLE part(id int) PARTITION BY RANGE (id); CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10)`)
	for query, wanted := range map[string][]string{
		"SELECT n FROM v":                      {"t"},
		"SELECT n FROM t FOR UPDATE":           {"t"},
		"SELECT nextval('s'), n FROM t":        {"t"},
		"SELECT last_value FROM s":             {"s"},
		"SELECT setting() FROM t":              {"t"}, // what a function reads, its text does not tell
		"UPDATE t SET n = 2":                   {"t"},
		"UPDATE t SET n = 2 FROM cfg":          {"cfg", "t"},
		"UPDATE parent SET id = 2":             {"child", "parent"},
		"DELETE FROM part WHERE id = 1":        {"part", "part_1"},
		"INSERT INTO part_1 SELECT n FROM cfg": {"cfg", "part", "part_1"},
		"SELECT 1":                             nil,
	} {
		e, err := coalesce.Explain(bg, f.db, query)
		if err != nil {
			t.Error(err)
		}
		sameSeq(t, "tables of "+query, e.Tables, wanted...)
	}
}

func TestSharingCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{config: coalesce.Config{Off: true}})
	f.by("CREATE TABLE off AS SELECT 1 AS n")
	for i := range 3 {
		f.by(fmt.Sprintf("UPDATE off SET n = %d", i))
		same(t, "off", get[int](t, f.db, "SELECT n FROM off"), i)
	}
	s := f.stats()
	same(t, "private", s.Private, 3)
	same(t, "private by off", s.PrivateBy[coalesce.CauseOff], 3)
	byDSN := openCoalesce(t, f.dsn, "coalesce=off")
	get[int](t, byDSN, "SELECT n FROM off")
	same(t, "by DSN", coalesce.StatsOf(byDSN).PrivateBy[coalesce.CauseOff], 1)
	joins := openCoalesce(t, f.dsn, "coalesce_ttl=0")
	for i := range 3 {
		f.by(fmt.Sprintf("UPDATE off SET n = %d", i))
		same(t, "coalesce_ttl=0", get[int](t, joins, "SELECT n FROM off"), i)
	}
	same(t, "led with coalesce_ttl=0", coalesce.StatsOf(joins).Led, 3)
}

func TestADatabaseThatOnlyWritesMakesStaleOnlyWhatItWrites(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*sql.DB) error{
		"Exec":  func(db *sql.DB) error { _, err := db.Exec("INSERT INTO u VALUES (f(1))"); return err },
		"Query": func(db *sql.DB) error { return db.QueryRow("INSERT INTO u VALUES (f(1)) RETURNING n").Scan(new(int)) },
		"prepared": func(db *sql.DB) error {
			st, err := db.Prepare("INSERT INTO u VALUES (f($1))")
			if err != nil {
				return err
			}
			defer st.Close()
			_, err = st.Exec(1)
			return err
		},
		"transaction": func(db *sql.DB) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			_, err = tx.Exec("INSERT INTO u SELECT f(1) FROM u LIMIT 1")
			return errors.Join(err, tx.Commit())
		},
		"fresh": func(db *sql.DB) error {
			return db.QueryRowContext(coalesce.Fresh(bg), "SELECT count(*) FROM u").Scan(new(int))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, setup{})
			f.by("CREATE TABLE t AS SELECT 1 AS n", "CREATE TABLE u(n int)", "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'")
			writer := openCoalesce(t, f.dsn)
			for range 10 {
				if err := write(writer); err != nil {
					t.Fatal(err)
				}
				get[int](t, f.db, "SELECT n FROM t")
			}
			if s := f.stats(); s.Held < 9 {
				t.Errorf("the reader: %+v", s)
			}
			// Nor is its own connection lost to the sharing.
			writer.SetMaxOpenConns(1)
			get[int](t, writer, "SELECT n FROM t")
			get[int](t, writer, "SELECT n FROM t")
			if s := coalesce.StatsOf(writer); s.Held != 1 || s.PrivateBy[coalesce.CauseSession] > 0 {
				t.Errorf("the writer: %+v", s)
			}
		})
	}
}

func TestABulkInsertLeavesItsConnectionShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t(a int, b int)", "CREATE FUNCTION odd(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('a.b', 'c', false); RETURN $1; END $$")
	f.db.SetMaxOpenConns(1)
	const count = "SELECT count(*) FROM t"
	same(t, "before", get[int](t, f.db, count), 0)
	const pairs = 20_000
	args := make([]any, 0, 2*pairs)
	query := "INSERT INTO t (a, b) VALUES "
	rows := make([]string, pairs)
	for i := range rows {
		rows[i] = fmt.Sprintf("(/* a */ $%d, $%d)", 2*i+1, 2*i+2)
		args = append(args, i, i)
	}
	query += strings.Join(rows, ",")
	if len(query) <= statement.MaxLen {
		t.Fatalf("%d bytes are not many", len(query))
	}
	mustExec(t, f.db, query, args...)
	for range 2 {
		same(t, "after", get[int](t, f.db, count), pairs)
	}
	s := f.stats()
	same(t, "held", s.Held, 1)
	same(t, "private by session", s.PrivateBy[coalesce.CauseSession], 0)

	tx := begin(t, f.db, nil)
	mustExec(t, tx, query, args...)
	tx.Commit()
	same(t, "after the transaction", get[int](t, f.db, count), 2*pairs)
	mustExec(t, f.db, query+", (0, odd(0))", args...)
	same(t, "with a call", get[int](t, f.db, count), 3*pairs+1)
	same(t, "private by session with a call", f.stats().PrivateBy[coalesce.CauseSession], 1)
}

func TestCallsAndUpkeepHaveTheCatalogReadOnceASecond(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n", "CREATE PROCEDURE p() LANGUAGE sql AS 'UPDATE t SET n = n + 1'")
	begun := time.Now()
	same(t, "before", get[int](t, f.db, "SELECT n FROM t"), 1)
	c := pinned(t, f.db)
	for i := range 4 {
		mustExec(t, c, "CALL p()")
		same(t, "after CALL", get[int](t, f.db, "SELECT n FROM t"), 3*i+2)
		mustExec(t, c, "DO $$ BEGIN UPDATE t SET n = n + 1; END $$")
		same(t, "after DO", get[int](t, f.db, "SELECT n FROM t"), 3*i+3)
		for _, query := range []string{fmt.Sprintf("CREATE TEMP TABLE tmp%d (n int)", i), "VACUUM t", "ANALYZE t", "REINDEX TABLE t"} {
			mustExec(t, c, query)
			get[int](t, f.db, "SELECT n FROM t")
		}
		mustExec(t, c, "UPDATE t SET n = n + 1")
	}
	if n, most := f.seen.queries(catalog.Query), 2+int(time.Since(begun)/time.Second); n > most {
		t.Errorf("%d catalog loads, want %d at most", n, most)
	}
}

// instead is a pgx.QueryRewriter: the text that its caller gives says nothing.
type instead string

func (s instead) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(s), nil, nil
}

func TestATextThatFailsAtItsEndHasDoneWhatCameBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	const done = "UPDATE t SET n = n + 1; COMMIT; SET search_path = pg_catalog, public; "
	for name, run := range map[string]func(*sql.DB) error{
		"several": func(db *sql.DB) error { _, err := db.Exec(done + "SELECT nosuch"); return err },
		"long": func(db *sql.DB) error {
			_, err := db.Exec("/*" + strings.Repeat("x", 300<<10) + "*/" + done + "SELECT nosuch")
			return err
		},
		"unparsed": func(db *sql.DB) error { _, err := db.Exec(done + `SELECT U&"nosuch"`); return err },
	} {
		f := newFixtureOn(t, f.dsn, setup{})
		f.db.SetMaxOpenConns(1)
		n := get[int](t, f.db, "SELECT n FROM t")
		if err := run(f.db); err == nil {
			t.Errorf("%s: no error", name)
		}
		same(t, name, get[int](t, f.db, "SELECT n FROM t"), n+1)
		same(t, name+": private, since the session is another", f.stats().PrivateBy[coalesce.CauseSession], 1)
	}
	rewritten := newFixtureOn(t, f.dsn, setup{})
	n := get[int](t, rewritten.db, "SELECT n FROM t")
	rewritten.db.QueryRow("SELECT n FROM t", instead("UPDATE t SET n = n + 1 RETURNING n")).Scan(new(int))
	same(t, "rewritten", get[int](t, rewritten.db, "SELECT n FROM t"), get[int](t, f.plain, "SELECT n FROM t"))
	if again := get[int](t, rewritten.db, "SELECT n FROM t"); again == n {
		t.Errorf("the rewritten statement wrote nothing")
	}
}

// The check of a domain applies where a value is given to an operator, though
// the text names no type.
func TestOperatorThatTakesADomainRunsItsCheckEachTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE SEQUENCE hits; CREATE FUNCTION ok(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''hits''); RETURN true; END';
		CREATE DOMAIN d AS int CHECK (ok(VALUE));
		CREATE FUNCTION g(d, int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
		CREATE OPERATOR ### (LEFTARG = d, RIGHTARG = int, FUNCTION = g)`)
	for range 3 {
		get[int](t, f.db, "SELECT $1 ### 1", 5)
	}
	same(t, "checks", get[int](t, f.plain, "SELECT last_value FROM hits"), 3)
}

func TestDatabaseMadeAnewIsReadAnew(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	admin := openCoalesce(t, dsn)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ToLower(strings.TrimPrefix(u.Path, "/")) + "_anew"
	u.Path = "/" + name
	mustExec(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { mustExec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	db := openCoalesce(t, u.String())
	mustExec(t, db, "CREATE TABLE t(n int)")
	const read = "SELECT count(*) FROM t"
	get[int](t, db, read)
	mustExec(t, admin, "DROP DATABASE "+name+" WITH (FORCE)")
	mustExec(t, admin, "CREATE DATABASE "+name)
	var n int
	for range 3 { // the server has closed the connection, of which the first may hear
		err = db.QueryRow(read).Scan(&n)
		if sqlState(err) == "42P01" {
			return
		}
	}
	t.Errorf("a table of the database that was dropped: %v", err)
}
