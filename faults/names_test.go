package faults

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// The pooler has another name for the database than the server.
func TestWritesAreSeenUnderAnotherNameOfTheDatabase(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.leavesNothing(t)
	w.do(t, "CREATE TABLE named (n int)", "INSERT INTO named VALUES (0)", "ALTER TABLE named OWNER TO app")
	b := startBouncer(t, w)
	straight := strings.Replace(w.dsn(), w.proxy.addr, w.addr, 1)
	renamed := strings.Replace(strings.Replace(w.dsn("default_query_exec_mode=exec"), w.proxy.addr, b.addr, 1), "/postgres?", "/alias?", 1)
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("coalesce-pgx", dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	const read = "SELECT n FROM named"
	for _, names := range [][2]string{{renamed, straight}, {straight, renamed}, {renamed, renamed}} {
		reader, writer := open(names[0]), open(names[1])
		for i, write := range []string{"ALTER TABLE named ALTER n TYPE bigint", "UPDATE named SET n = n + 1", "DO 'BEGIN UPDATE named SET n = n + 1; END'", "UPDATE named SET n = n + 1"} {
			var before, after int
			must(t, reader.QueryRow(read).Scan(&before))
			_, err := writer.Exec(write)
			must(t, err)
			if must(t, reader.QueryRow(read).Scan(&after)); after != before+min(i, 1) {
				t.Errorf("after %s the read gives %d, want %d", write, after, before+min(i, 1))
			}
		}
	}
}

// What is read on a standby soon after a write elsewhere may be of before it.
func TestAnswersOfAStandbyThatLagsAreNotHeld(t *testing.T) {
	a := newWorld(t, pgtest.Options{})
	a.admit(t, anyone, "host replication postgres 127.0.0.1/32 trust")
	a.do(t, "CREATE TABLE lagging (n int)", "INSERT INTO lagging VALUES (0)", "GRANT ALL ON lagging TO app")
	b := standbyOf(t, a)
	until(t, "the standby has the table", func() bool { return ask[bool](t, b, "SELECT to_regclass('lagging') IS NOT NULL") })
	open := func(w *world) *sql.DB {
		db, err := sql.Open("coalesce-pgx", w.dsn())
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	primary, standby := open(a), open(b)
	read := func() (n int) {
		must(t, standby.QueryRow("SELECT n FROM lagging").Scan(&n))
		return n
	}
	read()
	b.do(t, "SELECT pg_wal_replay_pause()")
	_, err := primary.Exec("UPDATE lagging SET n = 1")
	must(t, err)
	if n := read(); n != 0 {
		t.Errorf("a standby that stands still gives %d", n)
	}
	b.do(t, "SELECT pg_wal_replay_resume()")
	until(t, "the standby has the write", func() bool { return ask[int](t, b, "SELECT n FROM lagging") == 1 })
	if n := read(); n != 1 {
		t.Errorf("once it has the write it gives %d", n)
	}
}
