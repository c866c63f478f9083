package catalog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// The server is the referee: whatever text and catalog call shareable is run
// on it, and must not have written, locked or moved a sequence, nor read a
// relation that the verdict does not name.

const (
	// shortFile is how many statements of a file -short takes.
	shortFile = 60
	workers   = 2
)

func TestShareableStatementsDoNothingOnTheServer(t *testing.T) {
	files, names := corpusFiles(t)
	s := pgtest.Private(t, pgtest.Options{Settings: map[string]string{
		"jit": "off", "statement_timeout": "1500", "lock_timeout": "300", "client_min_messages": "error", "log_min_messages": "panic", "log_min_error_statement": "panic",
	}})
	ctx := t.Context()
	admin := connect(t, ctx, s.DSN())
	defer admin.Close(ctx)
	mustRun(t, ctx, admin, "SET statement_timeout = 0")
	mustRun(t, ctx, admin, "CREATE DATABASE setup TEMPLATE template0")
	setup := &replay{tb: t, c: connect(t, ctx, pgtest.WithDatabase(s.DSN(), "setup"))}
	for _, sql := range files["test_setup.sql"] {
		if !unfit.MatchString(sql) {
			setup.run(ctx, sql)
		}
	}
	setup.c.Close(ctx)

	var (
		mu    sync.Mutex
		total tally
		next  = make(chan string)
		wg    sync.WaitGroup
	)
	for w := range workers {
		wg.Go(func() {
			admin := connect(t, ctx, s.DSN())
			defer admin.Close(ctx)
			mustRun(t, ctx, admin, "SET statement_timeout = 0")
			mustRun(t, ctx, admin, "SET lock_timeout = 0")
			for name := range next {
				db := fmt.Sprintf("replay_%d", w)
				_, err := admin.Exec(ctx, "DROP DATABASE IF EXISTS "+db+" WITH (FORCE)")
				if err == nil {
					_, err = admin.Exec(ctx, "CREATE DATABASE "+db+" TEMPLATE setup")
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue // so that the others get their turn, or their count
				}
				r := &replay{tb: t, file: name, dsn: pgtest.WithDatabase(s.DSN(), db)}
				r.replay(ctx, files[name])
				mu.Lock()
				total.add(&r.tally)
				mu.Unlock()
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
	total.report(t)
}

// corpusFiles gives PostgreSQL's regression suite by file, or the project's own
// corpus if that is not there.
func corpusFiles(t *testing.T) (files map[string][]string, names []string) {
	files = make(map[string][]string)
	f, err := os.Open("../../../shared/corpus/pg-regress.jsonl.gz")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("PostgreSQL's regression suite is not there; taking the project's own corpus")
		text, err := os.ReadFile("../statement/testdata/corpus.sql")
		if err != nil {
			t.Fatal(err)
		}
		files["corpus.sql"] = strings.Split(string(text), "\n\n")
		return files, []string{"corpus.sql"}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); d.More(); {
		var line struct{ File, SQL string }
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if files[line.File] == nil {
			names = append(names, line.File)
		}
		files[line.File] = append(files[line.File], line.SQL)
	}
	if testing.Short() {
		for name, all := range files {
			files[name] = all[:min(len(all), shortFile)]
		}
		t.Logf("-short: the first %d statements of each file", shortFile)
	}
	return files, names
}

// unfit are statements that would stop, reconfigure or leave the server, hang,
// or change what a literal is.
var unfit = regexp.MustCompile(`(?is)^\s*(` +
	`(create|alter|drop)\s+(role|user|group|database|tablespace|subscription|publication)\b|` +
	`alter\s+system|checkpoint|load\b|` +
	`copy\b.*\b(to|from)\s+(program\b|')|copy\b.*\b(stdin|from\s+stdout)\b|` +
	`reindex\s+(\(.*?\)\s*)?(system|database)|vacuum\s*;?\s*$|vacuum\s+(full|freeze|analyze)?\s*;?\s*$|cluster\s*;?\s*$|` +
	`set\s+(session\s+|local\s+)?(statement_timeout|lock_timeout|standard_conforming_strings|client_min_messages|client_encoding)\b)` +
	`|pg_terminate_backend|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|pg_switch_wal|pg_sleep|lo_import|lo_export|pg_promote|standard_conforming_strings|pg_read_file|pg_replication|pg_logical|pg_create_.*slot`)

var selectLike = regexp.MustCompile(`(?is)^(\s|--[^\n]*\n|/\*.*?\*/|\()*(select|with|values|table)\b`)

type tally struct {
	statements, failed, skipped int
	reads, readsFailed          int // plain reads outside transactions
	holdable, joinable          int
	explained, loads            int
	needed                      int // private with need
	needless                    map[string]int
	examples                    map[string]string
	bad                         []string
	loading                     time.Duration
}

func (t *tally) add(o *tally) {
	t.statements += o.statements
	t.failed += o.failed
	t.skipped += o.skipped
	t.reads += o.reads
	t.readsFailed += o.readsFailed
	t.holdable += o.holdable
	t.joinable += o.joinable
	t.explained += o.explained
	t.loads += o.loads
	t.loading += o.loading
	t.needed += o.needed
	if t.needless == nil {
		t.needless, t.examples = make(map[string]int), make(map[string]string)
	}
	for k, n := range o.needless {
		t.needless[k] += n
		if len(t.examples[k]) < 900 {
			t.examples[k] += o.examples[k]
		}
	}
	t.bad = append(t.bad, o.bad...)
}

// maxNeedless is the share of the plain reads that may be private without
// need.
const maxNeedless = 0.05

func (t *tally) report(tb testing.TB) {
	needless := 0
	for _, n := range t.needless {
		needless += n
	}
	plain := t.holdable + t.joinable + needless
	tb.Logf("%d statements run, %d failed, %d unfit; %d catalog loads in %v", t.statements, t.failed, t.skipped, t.loads, t.loading.Round(time.Millisecond))
	tb.Logf("%d reads outside transactions: %d failed, %d holdable, %d joinable (all checked; %d explained), %d private with need, %d without", t.reads, t.readsFailed, t.holdable, t.joinable, t.explained, t.needed, needless)
	if plain == 0 {
		tb.Error("no read was shareable")
		return
	}
	share := float64(needless) / float64(plain)
	tb.Logf("private without need: %.2f %% of the %d plain reads", 100*share, plain)
	if share > maxNeedless {
		tb.Errorf("private without need: %.2f %%, want at most %v %%", 100*share, 100*maxNeedless)
	}
	for _, cause := range slices.SortedFunc(maps.Keys(t.needless), func(a, b string) int { return t.needless[b] - t.needless[a] }) {
		tb.Logf("  %4d %s:%s", t.needless[cause], cause, t.examples[cause])
	}
	for i, b := range t.bad {
		if i == 40 {
			tb.Errorf("… and %d more", len(t.bad)-i)
			break
		}
		tb.Error(b)
	}
}

// replay runs one file in a database of its own.
type replay struct {
	tb      testing.TB
	file    string
	dsn     string
	c       *pgx.Conn
	snap    *catalog.Snapshot
	stale   bool
	parents map[string][]string
	tally
}

func connect(tb testing.TB, ctx context.Context, dsn string) *pgx.Conn {
	tb.Helper()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func mustRun(tb testing.TB, ctx context.Context, c *pgx.Conn, sql string) {
	tb.Helper()
	if _, err := c.Exec(ctx, sql); err != nil {
		tb.Fatal(err)
	}
}

// run runs a text. One that makes the server wait for its client ends with the
// connection.
func (r *replay) run(ctx context.Context, sql string) ([]*pgconn.Result, error) {
	if r.c.IsClosed() {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	results, err := r.c.PgConn().Exec(ctx, sql).ReadAll()
	if ctx.Err() != nil {
		r.tb.Logf("%s: hangs: %s", r.file, clip(sql, 200))
	}
	return results, err
}

func (r *replay) replay(ctx context.Context, statements []string) {
	r.needless, r.examples = make(map[string]int), make(map[string]string)
	r.stale = true
	defer func() {
		if r.c != nil {
			r.c.Close(ctx)
		}
	}()
	for _, sql := range statements {
		if r.c == nil || r.c.IsClosed() {
			c, err := pgx.Connect(ctx, r.dsn)
			if err != nil {
				r.bad = append(r.bad, fmt.Sprintf("%s: %v", r.file, err))
				return
			}
			r.c = c
		}
		if unfit.MatchString(sql) {
			r.skipped++
			continue
		}
		r.statements++
		r.statement(ctx, sql)
	}
}

func (r *replay) statement(ctx context.Context, sql string) {
	a := statement.Analyze(sql)
	if r.c.PgConn().TxStatus() == 'I' && selectLike.MatchString(sql) && a.Cause != statement.CauseSeveral {
		if err := r.read(ctx, sql, a); err != nil {
			r.failed++
		}
		return
	}
	_, err := r.run(ctx, sql)
	if err != nil {
		r.failed++
	}
	// A statement that failed has changed nothing, but in a transaction.
	if a.Schema && (err == nil || r.c.PgConn().TxStatus() != 'I') || a.Tx != statement.TxNone {
		r.stale = true
	}
}

const probe = `SELECT (pg_current_xact_id_if_assigned() IS NULL)::text,
	(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')::text,
	(SELECT concat(count(last_value), ' ', sum(last_value)) FROM pg_sequences),
	current_setting('search_path') || current_setting('role') || current_setting('DateStyle') || current_setting('TimeZone')`

// read runs a read between two probes.
func (r *replay) read(ctx context.Context, sql string, a *statement.Analysis) error {
	r.reads++
	if r.stale {
		r.load(ctx)
	}
	v := r.snap.Judge(a)
	shared := v.Class != statement.Private
	end := "COMMIT"
	if shared {
		end = "ROLLBACK"
	}
	body := strings.TrimRight(sql, "; \n\t")
	results, err := r.run(ctx, "BEGIN;"+probe+";"+body+"\n;"+probe+";"+end)
	if err != nil {
		r.run(ctx, "ROLLBACK")
		r.readsFailed++
		if !shared && v.Schema {
			r.stale = r.stale || r.c.IsClosed()
		}
		return err
	}
	before, after := results[1].Rows[0], results[len(results)-2].Rows[0]
	wrote := string(after[0]) != "true"
	did := ""
	switch {
	case wrote:
		did = "has a transaction id: it wrote or locked"
	case !bytes.Equal(before[1], after[1]):
		did = "took an advisory lock"
	case !bytes.Equal(before[2], after[2]):
		did = "moved a sequence: " + string(before[2]) + " → " + string(after[2])
	case !bytes.Equal(before[3], after[3]):
		did = "changed the session"
	}
	switch {
	case !shared:
		if wrote && v.Schema {
			r.stale = true
		}
		// Row locks, sequences and those who ask for their transaction's id have one
		// too.
		if !v.Writes && wrote && v.Cause != statement.CauseLock && v.Cause != statement.CauseSession && !slices.Contains(a.Functions, "nextval") {
			r.bad = append(r.bad, fmt.Sprintf("%s: wrote, though the verdict has Writes = false (%s): %s", r.file, v.Reason, sql))
		}
		if did == "" && v.Cause != statement.CauseSession && !r.needsPrivacy(ctx, body) {
			r.needless[v.Cause]++
			if r.needless[v.Cause] <= 2 {
				r.examples[v.Cause] += "\n\t\t" + r.file + ": " + v.Reason + ": " + clip(sql, 200)
			}
		} else {
			r.needed++
		}
		return nil
	case v.Class == statement.Holdable:
		r.holdable++
	default:
		r.joinable++
	}
	if did != "" {
		r.bad = append(r.bad, fmt.Sprintf("%s: %s (%s), but %s", r.file, sql, v.Class, did))
	}
	r.relations(ctx, body, v)
	return nil
}

func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), n)]
}

func (r *replay) load(ctx context.Context) {
	begun := time.Now()
	results, err := r.run(ctx, "SET statement_timeout = 0; "+catalog.Query+"; "+pgtest.ParentsQuery+"; RESET statement_timeout")
	if err != nil {
		r.tb.Errorf("%s: the catalog cannot be read: %v", r.file, err)
		r.snap, _ = catalog.Parse(nil)
		return
	}
	rows := make([]catalog.Row, 0, len(results[1].Rows))
	for _, v := range results[1].Rows {
		rows = append(rows, catalog.Row{Kind: string(v[0]), Name: string(v[1]), A: string(v[2]), B: string(v[3]), Text: string(v[4])})
	}
	if r.snap, err = catalog.Parse(rows); err != nil {
		r.tb.Fatal(err)
	}
	r.parents = make(map[string][]string)
	for _, v := range results[2].Rows {
		r.parents[string(v[0])] = append(r.parents[string(v[0])], string(v[1]))
	}
	r.stale = false
	r.loads++
	r.loading += time.Since(begun)
}

// relations fails for each relation that the plan names and the verdict does
// not, but for partitions of one that it names.
func (r *replay) relations(ctx context.Context, sql string, v catalog.Verdict) {
	if v.Opaque {
		return // it says that it does not know
	}
	results, err := r.run(ctx, "EXPLAIN (VERBOSE, FORMAT JSON) "+sql)
	if err != nil || len(results) == 0 {
		return // a read that EXPLAIN cannot parse is not plain
	}
	r.explained++
	var plan []byte
	for _, row := range results[0].Rows {
		plan = append(append(plan, row[0]...), '\n')
	}
	unnamed, err := pgtest.Unnamed(plan, v.Reads, r.parents)
	if err != nil {
		r.tb.Errorf("EXPLAIN of %s: %v", sql, err)
	}
	if len(unnamed) > 0 {
		r.bad = append(r.bad, fmt.Sprintf("%s: reads %v, but the verdict (%s) names %v: %s", r.file, unnamed, v.Class, v.Reads, sql))
	}
}

// need is true of a view that calls a VOLATILE function, reads a system
// catalog or a temporary table, locks or samples rows: directly, or through
// other views.
const need = `WITH RECURSIVE v AS (
	SELECT 'pg_temp.referee'::regclass::oid AS oid
	UNION
	SELECT m[1]::oid FROM v JOIN pg_rewrite w ON w.ev_class = v.oid AND w.ev_type = '1', regexp_matches(w.ev_action::text, ':relid ([0-9]+)', 'g') m WHERE m[1] <> '0'
), tree AS (
	SELECT w.ev_action::text AS tree FROM v JOIN pg_rewrite w ON w.ev_class = v.oid AND w.ev_type = '1' AND w.ev_class > 16383
), fn AS (
	SELECT m[1]::oid AS id FROM tree, regexp_matches(tree, ':(?:funcid|aggfnoid|winfnoid|opfuncid) ([0-9]+)', 'g') m
)
SELECT (EXISTS (SELECT 1 FROM fn JOIN pg_proc p ON p.oid = fn.id WHERE p.provolatile = 'v')
	OR EXISTS (SELECT 1 FROM tree WHERE tree ~ '[{]ROWMARKCLAUSE|[{]TABLESAMPLECLAUSE')
	OR EXISTS (SELECT 1 FROM v JOIN pg_class c USING (oid) WHERE c.relname <> 'referee' AND (c.relpersistence = 't' OR c.oid < 16384)))::text`

// needsPrivacy asks the server whether a read that did nothing had to be
// private all the same.
func (r *replay) needsPrivacy(ctx context.Context, sql string) bool {
	results, err := r.run(ctx, "BEGIN; CREATE TEMP VIEW referee AS SELECT 1 AS x WHERE EXISTS ("+sql+"\n);"+need)
	r.run(ctx, "ROLLBACK")
	if err != nil || len(results) < 3 || len(results[2].Rows) == 0 {
		return true // not a plain read
	}
	return string(results[2].Rows[0][0]) == "true"
}

// snapshotOf is what a database with these objects says.
func snapshotOf(t *testing.T, rows ...catalog.Row) *catalog.Snapshot {
	t.Helper()
	s, err := catalog.Parse(rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLookUpsInTheCatalogDependOnEveryWrite(t *testing.T) {
	s := snapshotOf(t,
		catalog.Row{Kind: "relation", Name: "t", A: "r"},
		catalog.Row{Kind: "relation", Name: "v", A: "v"},
		catalog.Row{Kind: "uses", Name: "v", A: "relation", Text: "t"},
		catalog.Row{Kind: "uses", Name: "v", A: "function", Text: "format_type"},
		catalog.Row{Kind: "type", Name: "known", A: "d", B: "i", Text: "CHECK (to_regclass(VALUE) IS NOT NULL)"},
	)
	for sql, want := range map[string]bool{
		"SELECT to_regclass('t')":                    true,
		"SELECT a FROM t WHERE a = 't'::regclass":    true,
		"SELECT has_table_privilege('t', $1) FROM t": true,
		"SELECT a FROM v":                            true,
		"SELECT $1::known":                           true,
		"SELECT a, now() FROM t":                     false,
	} {
		if v := s.Judge(statement.Analyze(sql)); v.Class != statement.Joinable || v.Opaque != want {
			t.Errorf("%s: %v (%s), opaque %v, want %v", sql, v.Class, v.Reason, v.Opaque, want)
		}
	}
}

func TestWritesToTheSystemCatalogTouchEverything(t *testing.T) {
	s := snapshotOf(t, catalog.Row{Kind: "relation", Name: "t", A: "r"})
	for sql, want := range map[string]bool{
		"UPDATE pg_class SET relname = t.a FROM t":                          true,
		"WITH d AS (DELETE FROM pg_catalog.pg_description) SELECT * FROM t": true,
		"INSERT INTO t VALUES (pg_backend_pid(), pg_column_size($1))":       false,
	} {
		if v := s.Judge(statement.Analyze(sql)); !v.Writes || v.All != want || v.Schema != want {
			t.Errorf("%s: writes %v, everything %v, schema %v, want %v", sql, v.Writes, v.All, v.Schema, want)
		}
	}
}

func TestFunctionsThatRunInputFunctionsCountAsTheWorstOfAllTypes(t *testing.T) {
	for _, c := range []struct {
		rows []catalog.Row
		want statement.Class
	}{
		{nil, statement.Joinable},
		{[]catalog.Row{{Kind: "type", Name: "mood", A: "e", B: "s"}, {Kind: "type", Name: "positive", A: "d", B: "s", Text: "CHECK (VALUE > 0)"}}, statement.Joinable},
		{[]catalog.Row{{Kind: "type", Name: "odd", A: "b", B: "v"}}, statement.Private},
		{[]catalog.Row{{Kind: "type", Name: "counted", A: "d", B: "s", Text: "CHECK (count_it(VALUE))"}, {Kind: "function", Name: "count_it", A: "v"}}, statement.Private},
		// whose check is such a function itself
		{[]catalog.Row{{Kind: "type", Name: "amount", A: "d", B: "s", Text: "CHECK (pg_input_is_valid(VALUE, 'int4'))"}}, statement.Joinable},
	} {
		v := snapshotOf(t, c.rows...).Judge(statement.Analyze("SELECT pg_input_is_valid($1, $2)"))
		if v.Class != c.want || v.Writes != (c.want == statement.Private) {
			t.Errorf("%v: %v (%s), writes %v, want %v", c.rows, v.Class, v.Reason, v.Writes, c.want)
		}
	}
}

// Names that only newer servers have may be a user's own on an older one.
func TestFunctionsNamedLikeBuiltInOnesCountAsTheWorstOfBoth(t *testing.T) {
	for _, c := range []struct {
		sql, volatility string
		want            statement.Class
	}{
		{"SELECT any_value(1)", "i", statement.Holdable},
		{"SELECT any_value(1)", "s", statement.Joinable},
		{"SELECT any_value(1)", "v", statement.Private},
		{"SELECT public.any_value(1)", "i", statement.Holdable},
		{"SELECT public.any_value(1)", "v", statement.Private},
		{"SELECT json_value(1)", "v", statement.Private},
		{"SELECT system_user(1)", "v", statement.Private},
		{"SELECT to_regtypemod(1)", "i", statement.Joinable},
		{"SELECT uuidv7()", "i", statement.Private},
	} {
		name := strings.TrimPrefix(c.sql[len("SELECT "):strings.IndexByte(c.sql, '(')], "public.")
		s := snapshotOf(t, catalog.Row{Kind: "function", Name: name, A: c.volatility})
		if v := s.Judge(statement.Analyze(c.sql)); v.Class != c.want {
			t.Errorf("%s with a function of volatility %s: %v (%s), want %v", c.sql, c.volatility, v.Class, v.Reason, c.want)
		}
	}
}
