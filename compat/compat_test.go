package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davecgh/go-spew/spew"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

var bg = context.Background()

// run is one run of a program on one driver, in a database of its own.
// What the program sees is compared with what it saw on the other driver.
type run struct {
	*testing.T
	driver string  // "pgx" or "coalesce-pgx"
	dsn    string  // without options of ours, as any other program would have it
	db     *sql.DB // dsn, opened with driver
	start  time.Time

	sent *sent // by the databases that open gave, on pgx only

	mu    sync.Mutex // guards what follows
	seen  []string
	pools []*pool
}

// pool is a pool of a run. The mutex of the run guards its fields.
type pool struct {
	db      *sql.DB
	changed string // why all its reads may be of changed sessions; empty: they may not
	meant   uint64 // reads of changed sessions that inChangedSession allows
}

// same runs the program on pgx and on coalesce-pgx, and requires that it sees
// the same and leaves the same behind. Results are held, so that a stale one
// would show.
func same(t *testing.T, program func(r *run)) {
	t.Helper()
	var saw, left [2]string
	for i, driver := range []string{"pgx", "coalesce-pgx"} {
		ok := t.Run(driver, func(t *testing.T) {
			r := &run{T: t, driver: driver, dsn: pgtest.Database(t), start: time.Now()}
			if !r.shares() {
				r.sent = &sent{names: make(map[string]string), args: make(map[string][]any)}
			}
			r.db = r.open()
			program(r)
			saw[i] = r.normal(strings.Join(r.seen, "\n"))
			left[i] = r.normal(r.dump())
			if r.shares() {
				r.requireSharing()
			} else {
				r.referee()
			}
		})
		if !ok {
			return
		}
	}
	if diff := cmp.Diff(strings.Split(saw[0], "\n"), strings.Split(saw[1], "\n")); diff != "" {
		t.Errorf("the program saw something else (-pgx +coalesce-pgx):\n%s", diff)
	}
	if diff := cmp.Diff(strings.Split(left[0], "\n"), strings.Split(left[1], "\n")); diff != "" {
		t.Errorf("the program left something else behind (-pgx +coalesce-pgx):\n%s", diff)
	}
}

// shares tells the few places where a program has to know which driver it is
// on: what cannot be the same has its remedy there.
func (r *run) shares() bool { return r.driver == "coalesce-pgx" }

// open opens the database of this run once more, with further DSN options of
// pgx's, until the end of the run.
func (r *run) open(options ...string) *sql.DB {
	r.Helper()
	dsn := r.dsn
	for _, o := range options {
		sep := "?"
		if strings.Contains(dsn, "?") {
			sep = "&"
		}
		dsn += sep + o
	}
	var db *sql.DB
	if r.sent != nil {
		db = r.traced(dsn)
	} else {
		var err error
		db, err = sql.Open(r.driver, dsn)
		r.must(err)
	}
	r.Cleanup(func() { db.Close() })
	return r.watch(db)
}

// watch has the reads through a pool count in requireSharing.
func (r *run) watch(db *sql.DB) *sql.DB {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = append(r.pools, &pool{db: db})
	return db
}

func (r *run) poolLocked(db *sql.DB) *pool {
	r.Helper()
	i := slices.IndexFunc(r.pools, func(p *pool) bool { return p.db == db })
	if i < 0 {
		r.Fatal("the run does not watch this pool")
	}
	return r.pools[i]
}

// requireSharing fails a run that would not have shown a stale result: a read
// of a changed session is answered by the server, whatever was invalidated.
func (r *run) requireSharing() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var reads, shared uint64
	for i, p := range r.pools {
		s := coalesce.StatsOf(p.db)
		r.Logf("pool %d: %+v", i, s)
		reads += s.Reads
		shared += s.Held + s.Joined + s.Led
		switch n := s.PrivateBy[coalesce.CauseSession] - p.meant; {
		case p.changed != "":
			r.Logf("pool %d: %d reads were private because their session was changed: %s", i, n, p.changed)
		case n > 0:
			r.Errorf("pool %d: %d of %d reads were private because their session was changed: use another pool, renew, inChangedSession or changesSessions", i, n, s.Reads)
		}
	}
	if reads > 0 && shared == 0 {
		r.Errorf("none of %d reads was shared", reads)
	}
}

// changesSessions declares that what is done with a pool changes its sessions
// throughout, and why.
func (r *run) changesSessions(db *sql.DB, why string) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poolLocked(db).changed = why
}

// inChangedSession does what is about changed sessions of a pool. Their reads
// are private; what the pool reads afterwards must not be.
func (r *run) inChangedSession(db *sql.DB, f func()) {
	r.Helper()
	private := func() uint64 { return coalesce.StatsOf(db).PrivateBy[coalesce.CauseSession] }
	before := private()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poolLocked(db).meant += private() - before
}

// renew has a pool dial anew, so that no session is a changed one, but for those
// in use.
func renew(db *sql.DB) {
	db.SetMaxIdleConns(-1)
	db.SetMaxIdleConns(2) // as many as by default
}

// must ends the run at an error that no driver should give.
func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// exec runs statements that no driver should refuse.
func (r *run) exec(statements ...string) {
	r.Helper()
	for _, s := range statements {
		if _, err := r.db.ExecContext(bg, s); err != nil {
			r.Fatalf("%s: %v", s, err)
		}
	}
}

var printer = spew.ConfigState{
	Indent:                  " ",
	DisablePointerAddresses: true,
	DisableCapacities:       true,
	SortKeys:                true,
}

// see records values with their Go types. It may be called from several
// goroutines, whose order is then the program's to settle.
func (r *run) see(what string, values ...any) {
	r.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", what)
	for _, v := range values {
		if err, ok := v.(error); ok {
			b.WriteString(" " + describe(err))
			continue
		}
		b.WriteString(" " + strings.TrimSpace(printer.Sdump(v)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, b.String())
}

// describe is all of an error that a program can match.
func describe(err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "error %q", err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&b, " %T", e)
	}
	for _, target := range []error{sql.ErrNoRows, sql.ErrTxDone, sql.ErrConnDone, context.Canceled, context.DeadlineExceeded, pgx.ErrNoRows} {
		if errors.Is(err, target) {
			fmt.Fprintf(&b, " is %q", target)
		}
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		fmt.Fprintf(&b, " %+v", *pe)
	}
	fmt.Fprintf(&b, " safe to retry: %v, timeout: %v", pgconn.SafeToRetry(err), pgconn.Timeout(err))
	return b.String()
}

// rows records a whole result: columns, types, values and the closing error.
func (r *run) rows(what string, rows *sql.Rows, err error) {
	r.Helper()
	if err != nil {
		r.see(what, err)
		return
	}
	defer rows.Close()
	for {
		types, err := rows.ColumnTypes()
		r.must(err)
		for _, c := range types {
			length, hasLength := c.Length()
			precision, scale, hasPrecision := c.DecimalSize()
			nullable, knowsNullable := c.Nullable()
			typeName := c.DatabaseTypeName()
			if ownType.MatchString(typeName) {
				typeName = "<oid>"
			}
			r.see(what+" column", c.Name(), typeName, fmt.Sprint(c.ScanType()),
				length, hasLength, precision, scale, hasPrecision, nullable, knowsNullable)
		}
		for rows.Next() {
			values := make([]any, len(types))
			into := make([]any, len(types))
			for i := range values {
				into[i] = &values[i]
			}
			r.must(rows.Scan(into...))
			r.see(what+" row", values...)
		}
		if !rows.NextResultSet() {
			break
		}
	}
	r.see(what+" end", rows.Err())
}

// query records the whole result of a query on the database of this run.
func (r *run) query(query string, args ...any) {
	r.Helper()
	rows, err := r.db.QueryContext(bg, query, args...)
	r.rows(query, rows, err)
}

// pgx shows a type that it was not told of by its number, which no two runs
// have in common; those of PostgreSQL's own types are shorter.
var (
	ownType = regexp.MustCompile(`^\d{5,9}$`)
	ownOID  = regexp.MustCompile(`\(OID \d{5,9}\)`)
)

// timestamp is a time of this run, in any of the forms in which values and
// messages show one.
var timestamp = regexp.MustCompile(`\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d+)?( ?([+-]\d{2}(:?\d{2})?|Z|UTC))*( m=[+-][\d.]+)?`)

// normal hides what no two runs have in common: the name of the database, the
// numbers of types and the time.
func (r *run) normal(s string) string {
	config, err := pgx.ParseConfig(r.dsn)
	r.must(err)
	s = strings.ReplaceAll(s, config.Database, "<database>")
	s = ownOID.ReplaceAllString(s, "(OID <oid>)")
	return timestamp.ReplaceAllStringFunc(s, func(m string) string {
		at, err := time.Parse(time.DateTime, strings.Replace(m[:19], "T", " ", 1))
		// A day either way: the text may be in any time zone.
		if err == nil && at.After(r.start.UTC().Add(-24*time.Hour)) && at.Before(r.start.UTC().Add(25*time.Hour)) {
			return "<now>"
		}
		return m
	})
}

// dump is what the run leaves in the database, seen by neither driver.
func (r *run) dump() string {
	conn, err := pgx.Connect(bg, r.dsn)
	r.must(err)
	defer conn.Close(bg)
	list := func(query string, args ...any) []string {
		rows, err := conn.Query(bg, query, args...)
		r.must(err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		r.must(err)
		return lines
	}
	// Temporary tables belong to sessions, and go with them.
	const ours = ` !~ '^(pg_|information_schema$)'`
	dump := slices.Concat(
		list(`SELECT format('%s %s.%s.%s %s %s %s %s%s', c.relkind, n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
				a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated)
			FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
			WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname`+ours+` ORDER BY n.nspname, c.relname, a.attnum`),
		list(`SELECT format('%s %s %s', coalesce(nullif(contypid, 0)::regtype::text, conrelid::regclass::text), conname, pg_get_constraintdef(c.oid))
			FROM pg_constraint c JOIN pg_namespace n ON n.oid = connamespace WHERE n.nspname`+ours+` ORDER BY 1`),
		list(`SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname`+ours+` ORDER BY 1`),
		list(`SELECT CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid) ELSE format('%s %s', p.prokind, p.oid::regprocedure) END
			FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname`+ours+` ORDER BY p.oid::regprocedure::text`),
		list(`WITH ours AS (SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname`+ours+`)
			SELECT format('%s %s %s %s %s %s %s %s', relkind, oid::regclass, relpersistence, relrowsecurity, relforcerowsecurity,
				relacl, obj_description(oid, 'pg_class'), CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END) FROM ours
			UNION ALL SELECT format('trigger %s %s', tgenabled, pg_get_triggerdef(t.oid)) FROM pg_trigger t JOIN ours c ON c.oid = tgrelid
				WHERE NOT tgisinternal
			UNION ALL SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN ours c ON c.oid = ev_class WHERE rulename <> '_RETURN'
			UNION ALL SELECT format('policy %s', p) FROM pg_policies p
			UNION ALL SELECT format('type %s %s %s %s %s %s', typtype, t.oid::regtype, nullif(typbasetype, 0)::regtype, typnotnull, typdefault,
					(SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid))
				FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace WHERE typtype NOT IN ('b', 'c') AND n.nspname`+ours+`
			UNION ALL SELECT format('schema %s', nspname) FROM pg_namespace WHERE nspname`+ours+`
			UNION ALL SELECT format('extension %s %s', extname, extversion) FROM pg_extension
			ORDER BY 1`),
		list(`SELECT format('sequence %s.%s %s', schemaname, sequencename, last_value) FROM pg_sequences ORDER BY 1`),
		// What a program forgets to give back would lock out the next one.
		list(`SELECT format('lock %s %s %s', locktype, mode, objid) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1`),
	)
	for _, table := range list(`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'm') AND n.nspname` + ours + ` ORDER BY 1`) {
		for _, row := range list(`SELECT t::text FROM ` + table + ` t ORDER BY 1`) {
			dump = append(dump, table+" "+row)
		}
	}
	return strings.Join(dump, "\n")
}

func TestDumpShowsWhatAProgramLeaves(t *testing.T) {
	r := &run{T: t, driver: "pgx", dsn: pgtest.Database(t), start: time.Now()}
	r.db = r.open()
	before := r.dump()
	for _, statement := range []string{
		`CREATE TABLE t (id bigserial, n int, CHECK (n > 0))`,
		`INSERT INTO t (n) VALUES (1)`,
		`SELECT nextval('t_id_seq')`,
		`CREATE INDEX i ON t (n)`,
		`ALTER TABLE t ADD g int GENERATED ALWAYS AS IDENTITY`,
		`COMMENT ON TABLE t IS 'c'`,
		`GRANT SELECT ON t TO public`,
		`CREATE VIEW v AS SELECT id FROM t`,
		`CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE n > 1`,
		`CREATE MATERIALIZED VIEW m AS SELECT n FROM t`,
		`INSERT INTO t (n) VALUES (2)`,
		`REFRESH MATERIALIZED VIEW m`,
		`CREATE TYPE e AS ENUM ('a', 'c')`,
		`ALTER TYPE e ADD VALUE 'b' BEFORE 'c'`,
		`CREATE TYPE pair AS (a int, b e)`,
		`ALTER TYPE pair ADD ATTRIBUTE c text`,
		`CREATE DOMAIN d AS int`,
		`ALTER DOMAIN d SET DEFAULT 1`,
		`ALTER DOMAIN d ADD CHECK (VALUE > 0)`,
		`CREATE TYPE span AS RANGE (subtype = date)`,
		`ALTER TABLE t ENABLE ROW LEVEL SECURITY`,
		`CREATE POLICY p ON t USING (n > 1)`,
		`ALTER POLICY p ON t USING (n > 2)`,
		`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		`CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE AGGREGATE total(int) (sfunc = int4pl, stype = int)`,
		`CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()`,
		`ALTER TABLE t DISABLE TRIGGER tr`,
		`CREATE RULE ru AS ON DELETE TO t DO INSTEAD NOTHING`,
		`CREATE SCHEMA s`,
	} {
		r.exec(statement)
		after := r.dump()
		if after == before {
			t.Errorf("not seen: %s", statement)
		}
		before = after
	}
}
