package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// What the server's catalog makes of a text, and which tables a write touches.

// reply is what a query gives, its error included, as text.
func reply(q queryer, query string) string {
	var v sql.NullString
	switch err := q.QueryRowContext(bg, query).Scan(&v); {
	case err == sql.ErrNoRows:
		return "no rows"
	case sqlState(err) != "":
		return "SQLSTATE " + sqlState(err)
	case err != nil:
		return err.Error()
	case !v.Valid:
		return "NULL"
	}
	return v.String
}

// verdict is how the driver treats a query that runs twice: by what it did, in
// accord with what Explain says.
func (f *fixture) verdict(query string) string {
	f.Helper()
	e, err := coalesce.Explain(bg, f.db, query)
	if err != nil {
		f.Errorf("explain %s: %v", query, err)
	}
	before := f.stats()
	a := reply(f.db, query)
	b := reply(f.db, query)
	after := f.stats()
	got := fmt.Sprintf("reads %d held %d led %d private %d", after.Reads-before.Reads, after.Held-before.Held, after.Led-before.Led, after.Private-before.Private)
	switch {
	case after.Held-before.Held == 1 && after.Led-before.Led == 1:
		got = "holdable"
	case after.Led-before.Led == 2:
		got = "joinable"
	case after.Private-before.Private == 2:
		got = "private"
	}
	if failed := "SQLSTATE"; e.Verdict != got && !strings.HasPrefix(a, failed) && !strings.HasPrefix(b, failed) {
		f.Errorf("%s: Explain says %s (%s), but it is %s", query, e.Verdict, e.Reason, got)
	}
	if (e.Reason == "") != (e.Verdict == "holdable") {
		f.Errorf("%s: is %s, by reason of %q", query, e.Verdict, e.Reason)
	}
	return e.Verdict
}

type verdictCase struct{ verdict, query string }

func (f *fixture) verdicts(cases []verdictCase) {
	f.Helper()
	f.do("DISCARD ALL")
	for _, c := range cases {
		if got := f.verdict(c.query); got != c.verdict {
			e, _ := coalesce.Explain(bg, f.db, c.query)
			f.Errorf("%s\n\tis %s (%s; tables %v), want %s", c.query, got, e.Reason, e.Tables, c.verdict)
		}
		f.do("DISCARD ALL") // it may have called what changes its session
	}
}

func TestVerdictsGoByTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(strings.Split(`CREATE TABLE t(id int PRIMARY KEY, n int, s text);
INSERT INTO t VALUES (1, 1, 'a');
CREATE TABLE fed(n int);
CREATE SEQUENCE sq;

CREATE FUNCTION f_imm(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_stb(int) RETURNS int STABLE LANGUAGE sql AS 'SELECT $1 + n FROM t';
CREATE FUNCTION f_vol(int) RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES ($1); RETURN $1; END';
CREATE FUNCTION f_default(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_both(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_both(text) RETURNS int VOLATILE LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_both_too(text) RETURNS int VOLATILE LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_both_too(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_mixed(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_mixed(text) RETURNS int STABLE LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION "F_Imm"(int) RETURNS int VOLATILE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION chr(t) RETURNS text VOLATILE LANGUAGE sql AS $$SELECT 'x'$$;
CREATE SCHEMA other;
CREATE FUNCTION other.upper(text) RETURNS text VOLATILE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION other.f_far(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION f_set(int) RETURNS SETOF int IMMUTABLE LANGUAGE sql AS 'SELECT generate_series(1, $1)';
CREATE FUNCTION f_setvol(int) RETURNS SETOF int LANGUAGE sql AS 'SELECT generate_series(1, $1)';
CREATE FUNCTION t_attr(t) RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES (1); RETURN $1.n; END';
CREATE FUNCTION t_attr_imm(t) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1.n';
CREATE FUNCTION any_attr(anyelement) RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES (1); RETURN 1; END';
CREATE FUNCTION step_vol(int, int) RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES (1); RETURN $1 + $2; END';
CREATE AGGREGATE sum_vol(int) (SFUNC = step_vol, STYPE = int, INITCOND = '0');
CREATE AGGREGATE sum_imm(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');

CREATE VIEW v_plain AS SELECT id, n FROM t WHERE n > 0 AND s LIKE 'a%' ORDER BY n;
CREATE VIEW v_builtins AS SELECT initcap(s) AS u, to_char(now() - now(), 'HH') AS c, round(n::numeric / 2, 1) AS r, s || n AS cat, n::text AS x, coalesce(s, 'x') AS co, ARRAY[n] || n AS ar FROM t WHERE false;
CREATE VIEW v_nice AS SELECT initcap(s) AS u, round(n::numeric / 2, 1) AS r, s || n AS cat, n::text AS x, coalesce(s, 'x') AS co, ARRAY[n] || n AS ar, count(*) OVER () AS w, n BETWEEN 1 AND 3 AS b, s ~ 'a' AS re, CASE n WHEN 1 THEN 2 END AS ca, (n, id) < (3, 4) AS ro, n IN (1, 2) AS i, s IS NOT DISTINCT FROM 'a' AS d FROM t;
CREATE VIEW v_vol AS SELECT f_vol(n) AS n FROM t;
CREATE VIEW v_vol2 AS SELECT * FROM v_vol;
CREATE VIEW v_vol3 AS SELECT * FROM (SELECT n FROM v_vol2) x;
CREATE VIEW v_random AS SELECT random() AS n;
CREATE VIEW v_random3 AS SELECT (SELECT n FROM (SELECT n FROM v_random) z) AS n FROM t;
CREATE VIEW v_next AS SELECT nextval('sq') AS n;
CREATE VIEW v_lock AS SELECT * FROM t FOR UPDATE;
CREATE VIEW v_lock2 AS SELECT * FROM v_lock;
CREATE VIEW v_sublock AS SELECT * FROM (SELECT * FROM t FOR KEY SHARE) z;
CREATE VIEW v_date AS SELECT CURRENT_DATE AS d;
CREATE VIEW v_date2 AS SELECT * FROM v_date;
CREATE VIEW v_now AS SELECT now() AS d;
CREATE VIEW v_said AS SELECT s::timestamptz AS d FROM t WHERE false;
CREATE VIEW v_sample AS SELECT * FROM t TABLESAMPLE BERNOULLI (50);
CREATE VIEW v_stb AS SELECT f_stb(n) AS n FROM t;
CREATE VIEW v_imm AS SELECT f_imm(n) AS n FROM t;
CREATE VIEW v_cte AS WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT r.n FROM r, t;
CREATE VIEW v_catalog AS SELECT relname FROM pg_class;
CREATE VIEW v_info AS SELECT column_name FROM information_schema.columns;
CREATE VIEW v_tables AS SELECT table_name FROM information_schema.tables;
CREATE TABLE tables(n int);
CREATE VIEW v_agg AS SELECT sum_vol(n) AS n FROM t;
CREATE VIEW v_attr AS SELECT t.t_attr FROM t;
CREATE VIEW v_srf AS SELECT * FROM f_setvol(3) AS n;
CREATE VIEW v_seq AS SELECT last_value FROM sq;
CREATE VIEW v_sort AS SELECT array_agg(n ORDER BY n DESC) AS n FROM t;
CREATE VIEW v_xml AS SELECT x.a FROM t, XMLTABLE('/r' PASSING (xml '<r/>') COLUMNS a text) x;
CREATE VIEW v_user AS SELECT CURRENT_USER::text AS u;

CREATE MATERIALIZED VIEW m AS SELECT n, random() AS r FROM t;
CREATE TABLE part(id int, n int) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE UNLOGGED TABLE ul(n int);
CREATE TABLE "Quoted ""T"(n int); CREATE TABLE qt(n int); CREATE VIEW "QT" AS SELECT random() AS n;
CREATE TABLE other.far(n int); CREATE SCHEMA "O.x"; CREATE TABLE "O.x"."f.t"(n int);
CREATE TABLE "pg_like"(n int); CREATE TABLE "user"(n int);
CREATE TABLE only_rules(n int); CREATE RULE r AS ON INSERT TO only_rules DO ALSO INSERT INTO fed VALUES (1);

CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE comp AS (a int, b mood);
CREATE TYPE rng AS RANGE (subtype = float8);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE DOMAIN arr AS int[] CHECK (cardinality(VALUE) < 9);
CREATE FUNCTION chk_vol(int) RETURNS bool VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES ($1); RETURN true; END';
CREATE FUNCTION chk_stb(int) RETURNS bool STABLE LANGUAGE sql AS 'SELECT true';
CREATE DOMAIN d_stb AS int CHECK (chk_stb(VALUE));
CREATE VIEW v_posint AS SELECT n::posint AS n FROM t;
CREATE TABLE enums(m mood DEFAULT 'ok', p posint);
CREATE FUNCTION op_vol(int, int) RETURNS bool VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES ($1); RETURN true; END';
CREATE OPERATOR #<># (LEFTARG = int, RIGHTARG = int, FUNCTION = op_vol);
CREATE FUNCTION op_stb(int, int) RETURNS bool STABLE LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR #>># (LEFTARG = int, RIGHTARG = int, FUNCTION = op_stb);
CREATE FUNCTION op_imm(int, int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR #==# (LEFTARG = int, RIGHTARG = int, FUNCTION = op_imm);
CREATE VIEW v_op AS SELECT n #<># 1 AS b FROM t;

CREATE TABLE rls(n int); INSERT INTO rls VALUES (1); ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON rls USING (n > 0);
CREATE TABLE rls_bare(n int); ALTER TABLE rls_bare ENABLE ROW LEVEL SECURITY;
CREATE TABLE rls_vol(n int); ALTER TABLE rls_vol ENABLE ROW LEVEL SECURITY; ALTER TABLE rls_vol FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON rls_vol USING (chk_vol(n));
CREATE TABLE rls_off(n int); CREATE POLICY p ON rls_off USING (n > 0);
CREATE VIEW v_rls AS SELECT n FROM rls;
CREATE VIEW v_rls_vol AS SELECT n FROM rls_vol`, ";\n")...)
	const h, j, p = "holdable", "joinable", "private"
	f.verdicts([]verdictCase{
		// Functions, by the worst of their name.
		{h, "SELECT f_imm(n) FROM t"},
		{h, "SELECT public.f_imm(n) FROM t"},
		{h, `SELECT public."f_imm"(n) FROM t`},
		{h, "SELECT other.f_far(n) FROM t"},
		{j, "SELECT f_stb(n) FROM t"},
		{p, "SELECT f_vol(n) FROM t"},
		{p, "SELECT f_default(n) FROM t"},
		{p, "SELECT n FROM t WHERE f_vol(n) = 0"},
		{p, "SELECT n FROM t ORDER BY public . f_vol (n)"},
		{p, `SELECT "f_vol"(n) FROM t`},
		{p, `SELECT F_VOL(n) FROM t`},
		{p, `SELECT "F_Imm"(n) FROM t`},
		{h, `SELECT F_Imm(n) FROM t`},
		{p, "SELECT f_both(n) FROM t"},
		{p, "SELECT f_both_too(n) FROM t"},
		{j, "SELECT f_mixed(n) FROM t"},
		{p, "SELECT chr(64)"},
		{p, "SELECT upper(s) FROM t"},
		{p, "SELECT pg_catalog.upper(s) FROM t"}, // bare names: more private than it need be
		{h, "SELECT lower(s) FROM t"},
		{j, "SELECT CURRENT_DATE"}, {j, "SELECT n FROM t WHERE CURRENT_TIMESTAMP > '2000-01-01'"}, {j, "SELECT LOCALTIMESTAMP(0)"}, {j, "SELECT now()"},
		{j, "SELECT CURRENT_USER"}, {j, "SELECT current_schema"}, {j, "SELECT current_schema()"}, {j, "SELECT USER, SESSION_USER, CURRENT_ROLE, CURRENT_CATALOG"},
		{p, "SELECT other.lower(s) FROM t"}, // there is none
		{h, "SELECT * FROM f_set(2)"},
		{p, "SELECT * FROM f_setvol(2)"},
		{p, "SELECT no_such(1)"},
		{p, "SELECT sum_vol(n) FROM t"},
		{h, "SELECT sum_imm(n) FROM t"},
		{h, "SELECT sum_imm(n) OVER () FROM t"},
		// A function in the guise of a column.
		{p, "SELECT t.t_attr FROM t"},
		{p, "SELECT x.t_attr FROM t AS x"},
		{p, "SELECT (t).t_attr FROM t"},
		{p, "SELECT t.any_attr FROM t"},
		{h, "SELECT t.t_attr_imm FROM t"},
		{p, "SELECT (t.*).t_attr FROM t"},
		// Views.
		{h, "SELECT n FROM v_plain"},
		{h, "SELECT * FROM v_nice"},
		{j, "SELECT n FROM v_stb"},
		{h, "SELECT n FROM v_imm"},
		{h, "SELECT n FROM v_cte"},
		{h, "SELECT n FROM v_sort"},
		{p, "SELECT n FROM v_vol"},
		{p, "SELECT n FROM v_vol2"},
		{p, "SELECT n FROM v_vol3"},
		{p, "TABLE v_vol3"},
		{p, "SELECT t.n FROM t, v_vol3"},
		{p, "SELECT t.n FROM t JOIN public.v_vol3 USING (n)"},
		{p, `WITH c AS (SELECT * FROM "v_vol3") SELECT n FROM c`},
		{p, "SELECT n FROM v_random"},
		{p, "SELECT n FROM v_random3"},
		{p, "SELECT n FROM v_next"},
		{p, "SELECT n FROM v_lock"},
		{p, "SELECT n FROM v_lock2"},
		{p, "SELECT n FROM v_sublock"},
		{j, "SELECT d FROM v_date"},
		{j, "SELECT d FROM v_date2"},
		{j, "SELECT d FROM v_now"},
		{j, "SELECT d FROM v_said"},
		{j, "SELECT u FROM v_user"},
		{p, "SELECT n FROM v_sample"},
		{p, "SELECT relname FROM v_catalog"},
		{p, "SELECT column_name FROM v_info"},
		{p, "SELECT table_name FROM v_tables"}, // though there is a table called tables
		{h, "SELECT n FROM tables"},
		{p, "SELECT n FROM v_agg"},
		{p, "SELECT t_attr FROM v_attr"},
		{p, "SELECT n FROM v_srf"},
		{p, "SELECT a FROM v_xml"},
		{j, "SELECT last_value FROM v_seq"},
		{j, "SELECT c FROM v_builtins"},
		// Kinds of relations.
		{h, "SELECT n FROM m"},
		{h, "SELECT n FROM part"},
		{h, "SELECT n FROM part_1"},
		{h, "SELECT n FROM ul"},
		{j, "SELECT last_value FROM sq"},
		{j, `SELECT "is_called" FROM public."sq"`},
		{h, "SELECT n FROM only_rules"},
		{p, "SELECT relname FROM pg_class"},
		{p, "SELECT typname FROM pg_catalog.pg_type"},
		{p, "SELECT count(*) FROM information_schema.tables"},
		{p, "SELECT count(*) FROM pg_stat_activity"},
		{p, "SELECT count(*) FROM pg_settings"},
		{p, "SELECT n FROM nowhere"},
		{p, "SELECT t.n FROM t JOIN nowhere USING (n)"},
		{p, "SELECT t.n FROM t, nowhere"},
		{p, "SELECT t.n FROM t, other.nowhere"},
		{p, "SELECT t.n FROM (nowhere CROSS JOIN t)"},
		{p, "TABLE nowhere"},
		{p, "SELECT 1 UNION TABLE nowhere"},
		{p, "WITH nowhere AS (SELECT 1) SELECT n FROM other.nowhere"},
		// Names.
		{h, `SELECT n FROM "Quoted ""T"`},
		{h, `SELECT n FROM qt`}, {h, `SELECT n FROM QT`}, {p, `SELECT n FROM "QT"`}, {h, `SELECT n FROM "qt"`},
		{h, `SELECT n FROM other.far`}, {h, `SELECT far.n FROM "other" . "far"`},
		{h, `SELECT n FROM "O.x"."f.t"`},
		{h, `SELECT n FROM "user"`},
		{p, `SELECT n FROM "pg_like"`}, // more private than it need be
		// Types.
		{h, "SELECT 'ok'::mood"},
		{h, "SELECT CAST('ok' AS public.mood)"},
		{h, "SELECT mood 'ok'"},
		{h, "SELECT m FROM enums WHERE m = 'ok'"},
		{h, "SELECT '{ok}'::mood[]"},
		{h, "SELECT (ROW(1, 'ok')::comp).b"},
		{h, "SELECT rng(1, 2)"}, {h, "SELECT '[1,2]'::rng"},
		{h, "SELECT n::posint FROM t"},
		{h, "SELECT ARRAY[n]::arr FROM t"},
		{h, "SELECT ('(1,1,a)'::t).n"},
		{j, "SELECT n::d_stb FROM t"},
		{h, "SELECT n FROM v_posint"},
		{p, "SELECT 'x'::no_such_type"},
		// Operators.
		{p, "SELECT n #<># 1 FROM t"},
		{p, "SELECT n OPERATOR(public.#<>#) 1 FROM t"},
		{p, "SELECT n FROM t ORDER BY n, n #<># 1"},
		{j, "SELECT n #>># 1 FROM t"},
		{h, "SELECT n #==# 1 FROM t"},
		{h, "SELECT n OPERATOR(public.#==#) 1 FROM t"},
		{p, "SELECT n ~~~~ 1 FROM t"},
		{p, "SELECT b FROM v_op"},
		// Row security.
		{j, "SELECT n FROM rls"},
		{j, "SELECT n FROM rls_bare"},
		{p, "SELECT n FROM rls_vol"},
		{h, "SELECT n FROM rls_off"},
		{j, "SELECT n FROM v_rls"},
		{p, "SELECT n FROM v_rls_vol"},
		{j, "SELECT t.n FROM t WHERE EXISTS (SELECT 1 FROM rls WHERE rls.n = t.n)"},
	})
}

// A domain's VOLATILE check makes every value of a type of the user's suspect.
func TestDomainsAreJudgedByAllTheirChecks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(strings.Split(`CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1); CREATE TABLE fed(n int);
CREATE FUNCTION chk_vol(int) RETURNS bool VOLATILE LANGUAGE plpgsql AS 'BEGIN INSERT INTO fed VALUES ($1); RETURN true; END';
CREATE DOMAIN d_vol AS int CHECK (chk_vol(VALUE));
CREATE DOMAIN d_vol_pos AS int CONSTRAINT a CHECK (chk_vol(VALUE)) CONSTRAINT b CHECK (VALUE > 0) CONSTRAINT c CHECK (VALUE < 99);
CREATE DOMAIN d_pos_vol AS int CONSTRAINT a CHECK (VALUE > 0) CONSTRAINT b CHECK (chk_vol(VALUE));
CREATE DOMAIN d_on_vol AS d_vol;
CREATE TYPE comp_vol AS (a d_vol);
CREATE VIEW v_d_vol AS SELECT n::d_vol AS n FROM t;
CREATE VIEW v_d_arr AS SELECT ARRAY[n]::d_vol[] AS n FROM t`, ";\n")...)
	const h, p = "holdable", "private"
	f.verdicts([]verdictCase{
		{h, "SELECT n FROM t"},
		{p, "SELECT n::d_vol FROM t"},
		{p, "SELECT CAST(n AS public.d_vol) FROM t"},
		{p, "SELECT d_vol '1'"},
		{p, "SELECT n::d_vol_pos FROM t"},
		{p, "SELECT n::d_pos_vol FROM t"},
		{p, "SELECT n::d_on_vol FROM t"},
		{p, "SELECT ARRAY[n]::d_vol[] FROM t"},
		{p, "SELECT ROW(n)::comp_vol FROM t"},
		{p, "SELECT n FROM v_d_vol"},
		{p, "SELECT n FROM v_d_arr"},
	})
}

// What is in reach of built-in syntax makes a whole database suspect.
func TestOverloadsOfBuiltInOperatorsAndCastsCount(t *testing.T) {
	t.Parallel()
	const h, j, p = "holdable", "joinable", "private"
	base := `CREATE TABLE t(id int, n int); INSERT INTO t VALUES (1, 1); CREATE TABLE cfg(n int); INSERT INTO cfg VALUES (1); CREATE TYPE pair AS (a int, b int);`
	for _, c := range []struct {
		name, setup, query, verdict string
	}{
		{"operator-volatile", `CREATE FUNCTION o(pair, int) RETURNS int VOLATILE LANGUAGE sql AS 'UPDATE cfg SET n = n + 1 RETURNING n'; CREATE OPERATOR + (LEFTARG = pair, RIGHTARG = int, FUNCTION = o)`, "SELECT ROW(1, 2)::pair + n FROM t", p},
		{"operator-stable", `CREATE FUNCTION o(pair, int) RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM cfg'; CREATE OPERATOR + (LEFTARG = pair, RIGHTARG = int, FUNCTION = o)`, "SELECT ROW(1, 2)::pair + n FROM t", j},
		{"operator-like", `CREATE FUNCTION o(pair, int) RETURNS bool VOLATILE LANGUAGE sql AS 'UPDATE cfg SET n = n + 1 RETURNING true'; CREATE OPERATOR ~~ (LEFTARG = pair, RIGHTARG = int, FUNCTION = o)`, "SELECT ROW(1, 2)::pair LIKE n FROM t", p},
		{"operator-between", `CREATE FUNCTION o(pair, int) RETURNS bool VOLATILE LANGUAGE sql AS 'UPDATE cfg SET n = n + 1 RETURNING true'; CREATE OPERATOR >= (LEFTARG = pair, RIGHTARG = int, FUNCTION = o); CREATE OPERATOR <= (LEFTARG = pair, RIGHTARG = int, FUNCTION = o)`, "SELECT ROW(1, 2)::pair BETWEEN 1 AND 2 FROM t", p},
		{"cast-volatile", `CREATE FUNCTION c(pair) RETURNS int VOLATILE LANGUAGE sql AS 'UPDATE cfg SET n = n + 1 RETURNING n'; CREATE CAST (pair AS int) WITH FUNCTION c(pair) AS IMPLICIT`, "SELECT abs(x) FROM (SELECT ROW(1, n)::pair AS x FROM t) y", p},
		{"cast-stable", `CREATE FUNCTION c(pair) RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM cfg'; CREATE CAST (pair AS int) WITH FUNCTION c(pair) AS IMPLICIT`, "SELECT abs(x) FROM (SELECT ROW(1, n)::pair AS x FROM t) y", j},
		{"cast-immutable", `CREATE FUNCTION c(pair) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1.a'; CREATE CAST (pair AS int) WITH FUNCTION c(pair) AS IMPLICIT`, "SELECT abs(x) FROM (SELECT ROW(1, n)::pair AS x FROM t) y", h},
		{"cast-in-a-view", `CREATE FUNCTION c(pair) RETURNS int VOLATILE LANGUAGE sql AS 'UPDATE cfg SET n = n + 1 RETURNING n'; CREATE CAST (pair AS int) WITH FUNCTION c(pair); CREATE VIEW v AS SELECT ROW(1, n)::pair::int FROM t`, "SELECT * FROM v", p},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, setup{})
			f.by(base + c.setup)
			f.verdicts([]verdictCase{{c.verdict, c.query}})
			// Whatever it is called, own writes are seen: by it and after it.
			f.seenAfter("the query", "SELECT n::text FROM cfg", func() error { _, err := column[any](bg, f.db, c.query); return err }, false)
			if c.verdict != p {
				f.seenAfter("the table behind", c.query, func() error { _, err := f.db.Exec("UPDATE cfg SET n = n + 10"); return err }, false)
			}
		})
	}
}

// seenAfter reads by two databases, writes, and fails if either reads anything
// but what a plain connection does. changes: the write must have changed that.
func (f *fixture) seenAfter(name, read string, write func() error, changes bool, more ...*sql.DB) {
	f.Helper()
	dbs := append([]*sql.DB{f.db}, more...)
	before := reply(f.db, read)
	for _, db := range dbs {
		reply(db, read)
		reply(db, read)
	}
	if err := write(); err != nil {
		f.Errorf("%s: %v", name, err)
		return
	}
	var got []string
	for _, db := range dbs {
		got = append(got, reply(db, read))
	}
	wanted := reply(f.plain, read)
	if changes && wanted == before {
		f.Errorf("%s: the write changed nothing: %s is %s", name, read, before)
	}
	for i, g := range got {
		if g != wanted {
			f.Errorf("%s: after the write, database %d gives %s, want %s (before: %s)\n\t%s", name, i, g, wanted, before, read)
		}
	}
}

// ownWrite is a write of this process and a read that must see it. The names
// in its texts begin with @, which stands for a prefix of its own.
type ownWrite struct {
	name  string
	setup string   // by another, before the driver looks
	read  string   // gives one value
	write []string // by the driver, on one connection
	by    func(f *fixture, c *sql.Conn, query string) error
	exact bool // reads of other tables stay held
}

func byExec(_ *fixture, c *sql.Conn, query string) error {
	_, err := c.ExecContext(bg, query)
	return err
}

func byQuery(_ *fixture, c *sql.Conn, query string) error {
	_, err := column[any](bg, c, query)
	return err
}

func byPrepared(_ *fixture, c *sql.Conn, query string) error {
	st, err := c.PrepareContext(bg, query)
	if err != nil {
		return err
	}
	_, err = st.Exec()
	return errors.Join(err, st.Close())
}

func byPreparedQuery(_ *fixture, c *sql.Conn, query string) error {
	st, err := c.PrepareContext(bg, query)
	if err != nil {
		return err
	}
	return errors.Join(st.QueryRow().Scan(new(any)), st.Close())
}

func bySimpleProtocol(_ *fixture, c *sql.Conn, query string) error {
	_, err := c.ExecContext(bg, query, pgx.QueryExecModeSimpleProtocol)
	return err
}

func byRaw(_ *fixture, c *sql.Conn, query string) error {
	return coalesce.Raw(c, func(px *pgx.Conn) error { _, err := px.Exec(bg, query); return err })
}

func byTx(_ *fixture, c *sql.Conn, query string) error {
	tx, err := c.BeginTx(bg, nil)
	if err != nil {
		return err
	}
	_, err = tx.Exec(query)
	return errors.Join(err, tx.Commit())
}

// byAbandonedQuery leaves the rows open until the transaction ends.
func byAbandonedQuery(_ *fixture, c *sql.Conn, query string) error {
	tx, err := c.BeginTx(bg, nil)
	if err != nil {
		return err
	}
	rows, err := tx.Query(query)
	if err == nil {
		rows.Next()
	}
	return errors.Join(err, tx.Commit())
}

// ownWrites are tried on any server.
func ownWrites() []ownWrite {
	const (
		table  = "CREATE TABLE @t(id int PRIMARY KEY, n int); INSERT INTO @t VALUES (1, 0), (2, 0);"
		rows   = "SELECT string_agg(id || ':' || coalesce(n::text, '-'), ',' ORDER BY id) FROM @t"
		update = "UPDATE @t SET n = n + 1 WHERE id = 1"
		logged = "CREATE TABLE @log(n int);"
		count  = "SELECT count(*)::text FROM @log"
	)
	log := func(ret, end string) string {
		return logged + "CREATE FUNCTION @f() RETURNS " + ret + " LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN " + end + "; END';"
	}
	const two = "CREATE TABLE @a(n int); INSERT INTO @a VALUES (1); CREATE TABLE @b(n int); INSERT INTO @b VALUES (2);"
	fk := func(clause string) string {
		return "CREATE TABLE @p(id int PRIMARY KEY); INSERT INTO @p VALUES (1), (2), (9);" +
			"CREATE TABLE @t(id int PRIMARY KEY, n int DEFAULT 9 REFERENCES @p " + clause + "); INSERT INTO @t VALUES (1, 1), (2, 2);"
	}
	const part = "CREATE TABLE @t(id int, n int) PARTITION BY RANGE (id); CREATE TABLE @low PARTITION OF @t FOR VALUES FROM (0) TO (10);" +
		"CREATE TABLE @high PARTITION OF @t FOR VALUES FROM (10) TO (99) PARTITION BY LIST (n); CREATE TABLE @high0 PARTITION OF @high FOR VALUES IN (0, 1, 2);" +
		"INSERT INTO @t VALUES (1, 0), (20, 0);"
	const bump = "CREATE TABLE @t(id int, n int); INSERT INTO @t VALUES (1, 0); CREATE FUNCTION @f() RETURNS int LANGUAGE sql AS 'UPDATE @t SET n = n + 1 RETURNING n';"
	return []ownWrite{
		// What runs of itself.
		{name: "a default of a domain", setup: bump + "CREATE DOMAIN @d AS int DEFAULT @f(); CREATE TABLE @a(n int, d @d)", read: rows, write: []string{"INSERT INTO @a(n) VALUES (1)"}},
		{name: "a default of a column by a default argument", setup: bump + "CREATE FUNCTION @g(n int, v int DEFAULT @f()) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n + v'; CREATE TABLE @a(n int, d int DEFAULT @g(1))", read: rows, write: []string{"INSERT INTO @a(n) VALUES (1)"}},
		// How it is sent.
		{name: "INSERT", setup: table, read: rows, write: []string{"INSERT INTO @t VALUES (3, 3)"}, exact: true},
		{name: "UPDATE", setup: table, read: rows, write: []string{update}, exact: true},
		{name: "DELETE", setup: table, read: rows, write: []string{"DELETE FROM @t WHERE id = 1"}, exact: true},
		{name: "TRUNCATE", setup: table, read: rows, write: []string{"TRUNCATE @t"}, exact: true},
		{name: "TRUNCATE of many", setup: two, read: "SELECT count(*)::text FROM @b", write: []string{"TRUNCATE TABLE ONLY @a, @b RESTART IDENTITY"}, exact: true},
		{name: "MERGE", setup: table, read: rows, write: []string{"MERGE INTO @t USING (SELECT 1 AS id) s ON @t.id = s.id WHEN MATCHED THEN UPDATE SET n = 5"}, exact: true},
		{name: "MERGE that inserts", setup: table + "CREATE TABLE @s AS SELECT 7 AS id", read: rows, write: []string{"MERGE INTO @t AS x USING @s AS s ON x.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1)"}, exact: true},
		{name: "COPY FROM PROGRAM", setup: table, read: rows, write: []string{"COPY @t FROM PROGRAM 'printf \"3\\t3\\n\"'"}, exact: true},
		{name: "COPY by Raw", setup: table, read: rows, write: []string{"COPY @t (id, n) FROM STDIN"}, by: func(_ *fixture, c *sql.Conn, query string) error {
			return coalesce.Raw(c, func(px *pgx.Conn) error {
				_, err := px.PgConn().CopyFrom(bg, strings.NewReader("3\t3\n"), query)
				return err
			})
		}},
		{name: "UPDATE by quoted name", setup: table, read: rows, write: []string{`UPDATE "public"."@t" AS x SET n = 7`}, exact: true},
		{name: "UPDATE FROM", setup: table + two, read: rows, write: []string{"UPDATE @t SET n = @a.n FROM @a WHERE id = 1"}, exact: true},
		{name: "INSERT ON CONFLICT", setup: table, read: rows, write: []string{"INSERT INTO @t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = excluded.n"}, exact: true},
		{name: "by Query", setup: table, read: rows, write: []string{update}, by: byQuery, exact: true},
		{name: "RETURNING by Query", setup: table, read: rows, write: []string{update + " RETURNING id"}, by: byQuery, exact: true},
		{name: "prepared", setup: table, read: rows, write: []string{update}, by: byPrepared, exact: true},
		{name: "prepared RETURNING", setup: table, read: rows, write: []string{update + " RETURNING id"}, by: byPreparedQuery, exact: true},
		{name: "in a CTE", setup: table, read: rows, write: []string{"WITH u AS (" + update + " RETURNING id) SELECT id FROM u"}, by: byQuery, exact: true},
		{name: "in a CTE of another write", setup: table + two, read: rows, write: []string{"WITH u AS (" + update + " RETURNING id) INSERT INTO @a SELECT id FROM u"}, exact: true},
		{name: "of several tables at once", setup: table + two, read: "SELECT n::text FROM @a", write: []string{"WITH u AS (UPDATE @a SET n = 7), v AS (DELETE FROM @b) " + update}, exact: true},
		{name: "several statements", setup: table, read: rows, write: []string{"SELECT 1; " + update + "; SELECT 2"}},
		{name: "several statements, simple protocol", setup: table, read: rows, write: []string{update + ";" + update}, by: bySimpleProtocol},
		{name: "Raw", setup: table, read: rows, write: []string{update}, by: byRaw},
		{name: "EXPLAIN ANALYZE", setup: table, read: rows, write: []string{"EXPLAIN (ANALYZE) " + update}, by: byQuery},
		{name: "PREPARE and EXECUTE", setup: table, read: rows, write: []string{"PREPARE @p AS " + update, "EXECUTE @p"}},
		{name: "behind comments", setup: table, read: rows, write: []string{"/* SELECT 1 */ -- x\n ;" + update}},
		// Transactions.
		{name: "BeginTx", setup: table, read: rows, write: []string{update}, by: byTx, exact: true},
		{name: "BeginTx, rows left open", setup: table, read: rows, write: []string{update + " RETURNING id"}, by: byAbandonedQuery, exact: true},
		{name: "COMMIT", setup: table, read: rows, write: []string{"BEGIN", update, "COMMIT"}, exact: true},
		{name: "END", setup: table, read: rows, write: []string{"START TRANSACTION ISOLATION LEVEL SERIALIZABLE", update, "END WORK"}, exact: true},
		{name: "COMMIT AND CHAIN", setup: table, read: rows, write: []string{"BEGIN", update, "COMMIT AND CHAIN"}, exact: true},
		{name: "COMMIT AND CHAIN, twice", setup: table, read: rows, write: []string{"BEGIN", "COMMIT AND CHAIN", update, "COMMIT TRANSACTION AND CHAIN", "ROLLBACK"}, exact: true},
		{name: "ROLLBACK AND CHAIN", setup: table, read: rows, write: []string{"BEGIN", "DELETE FROM @t", "ROLLBACK AND CHAIN", update, "COMMIT"}, exact: true},
		{name: "ROLLBACK TO SAVEPOINT, COMMIT", setup: table, read: rows, write: []string{"BEGIN", update, "SAVEPOINT s", "DELETE FROM @t", "ROLLBACK TO SAVEPOINT s", "COMMIT"}, exact: true},
		{name: "ROLLBACK WORK TO, RELEASE, COMMIT", setup: table, read: rows, write: []string{"BEGIN", "SAVEPOINT s", update, "SAVEPOINT r", "ROLLBACK WORK TO r", "RELEASE s", "COMMIT"}, exact: true},
		{name: "error, ROLLBACK TO, COMMIT", setup: table, read: rows, write: []string{"BEGIN", update, "SAVEPOINT s", "DO 'BEGIN NULL; END'", "ROLLBACK TO s", "COMMIT"}},
		{name: "DDL in a transaction", setup: table, read: rows, write: []string{"BEGIN", "ALTER TABLE @t ALTER n TYPE text USING n || 'x'", "COMMIT"}},
		{name: "transaction in one text", setup: table, read: rows, write: []string{"BEGIN; " + update + "; COMMIT"}},
		{name: "COMMIT in a later text", setup: table, read: rows, write: []string{"BEGIN; " + update, "SELECT 1; COMMIT"}},
		{name: "COMMIT and BEGIN in a text of a transaction", setup: table, read: rows, write: []string{"BEGIN", update + "; COMMIT; BEGIN"}, by: bySimpleProtocol},
		{name: "many writes in a transaction", setup: table, read: rows, write: []string{"BEGIN", update, strings.Repeat(update+";", 40), "COMMIT"}},
		{name: "cursor of a function", setup: table + log("int", "1"), read: count, write: []string{"BEGIN", "DECLARE @c CURSOR FOR SELECT @f()", "FETCH ALL FROM @c", "COMMIT"}},
		{name: "cursor of a view of a function", setup: table + log("int", "1") + "CREATE VIEW @v AS SELECT @f() AS n", read: count, write: []string{"BEGIN", "DECLARE @c CURSOR WITH HOLD FOR SELECT n FROM @v", "COMMIT", "CLOSE @c"}},
		// Views and rules.
		{name: "through a view", setup: table + "CREATE VIEW @v AS SELECT * FROM @t WHERE id < 10", read: rows, write: []string{"UPDATE @v SET n = 4"}},
		{name: "through a view of a view", setup: table + "CREATE VIEW @v AS SELECT * FROM @t; CREATE VIEW @w AS SELECT * FROM @v", read: "SELECT count(*)::text FROM @w", write: []string{"DELETE FROM @w WHERE id = 1"}},
		{name: "a view reads it", setup: table + "CREATE VIEW @v AS SELECT * FROM @t; CREATE VIEW @w AS SELECT * FROM @v", read: "SELECT count(*)::text FROM @w", write: []string{"DELETE FROM @t WHERE id = 1"}, exact: true},
		{name: "INSTEAD OF trigger", setup: table + log("trigger", "NULL") + "CREATE VIEW @v AS SELECT id FROM @t; CREATE TRIGGER x INSTEAD OF UPDATE ON @v FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{"UPDATE @v SET id = 1"}},
		{name: "rule ALSO", setup: table + logged + "CREATE RULE r AS ON UPDATE TO @t DO ALSO INSERT INTO @log VALUES (1)", read: count, write: []string{update}},
		{name: "rule INSTEAD", setup: table + logged + "CREATE RULE r AS ON DELETE TO @t DO INSTEAD INSERT INTO @log VALUES (1)", read: count, write: []string{"DELETE FROM @t"}},
		{name: "rule on a view", setup: table + "CREATE VIEW @v AS SELECT 1 AS n; CREATE RULE r AS ON INSERT TO @v DO INSTEAD UPDATE @t SET n = 8", read: rows, write: []string{"INSERT INTO @v VALUES (1)"}},
		// Partitions and children.
		{name: "into a partition, parent read", setup: part, read: rows, write: []string{"INSERT INTO @low VALUES (2, 2)"}, exact: true},
		{name: "into a partition two below, parent read", setup: part, read: rows, write: []string{"UPDATE @high0 SET n = 1"}, exact: true},
		{name: "into the parent, partition read", setup: part, read: "SELECT count(*)::text FROM @low", write: []string{"INSERT INTO @t VALUES (3, 1)"}, exact: true},
		{name: "into the parent, partition two below read", setup: part, read: "SELECT sum(n)::text FROM @high0", write: []string{"UPDATE @t SET n = 2"}, exact: true},
		{name: "a row moves to another partition", setup: part, read: "SELECT count(*)::text FROM @high0", write: []string{"UPDATE @t SET id = 50 WHERE id = 1"}, exact: true},
		{name: "TRUNCATE of a partition", setup: part, read: rows, write: []string{"TRUNCATE @low"}, exact: true},
		{name: "DETACH", setup: part, read: rows, write: []string{"ALTER TABLE @t DETACH PARTITION @low"}},
		{name: "ATTACH, then a write to it", setup: part + "CREATE TABLE @x(id int, n int)", read: rows, write: []string{"ALTER TABLE @t ATTACH PARTITION @x FOR VALUES FROM (99) TO (200)", "INSERT INTO @x VALUES (100, 1)"}},
		{name: "into an heir, parent read", setup: table + "CREATE TABLE @c(x int) INHERITS (@t)", read: rows, write: []string{"INSERT INTO @c VALUES (5, 5, 5)"}, exact: true},
		{name: "into the parent, heir read", setup: table + "CREATE TABLE @c(x int) INHERITS (@t); INSERT INTO @c VALUES (5, 5, 5)", read: "SELECT n::text FROM @c", write: []string{"UPDATE @t SET n = 6"}, exact: true},
		// Triggers.
		{name: "trigger", setup: table + log("trigger", "NULL") + "CREATE TRIGGER x AFTER UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{update}},
		{name: "trigger of a statement", setup: table + log("trigger", "NULL") + "CREATE TRIGGER x BEFORE TRUNCATE ON @t EXECUTE FUNCTION @f()", read: count, write: []string{"TRUNCATE @t"}},
		{name: "trigger of a partition", setup: part + log("trigger", "NULL") + "CREATE TRIGGER x AFTER UPDATE ON @high0 FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{"UPDATE @t SET n = 1"}},
		{name: "trigger of the partitioned table", setup: part + log("trigger", "NULL") + "CREATE TRIGGER x AFTER UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{"UPDATE @high0 SET n = 1"}},
		{name: "trigger of a cascade", setup: fk("ON DELETE CASCADE") + log("trigger", "NULL") + "CREATE TRIGGER x AFTER DELETE ON @t FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{"DELETE FROM @p WHERE id = 1"}},
		{name: "deferred trigger", setup: table + log("trigger", "NULL") + "CREATE CONSTRAINT TRIGGER x AFTER UPDATE ON @t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{"BEGIN", update, "COMMIT"}},
		{name: "trigger in a transaction", setup: table + log("trigger", "NULL") + "CREATE TRIGGER x AFTER UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION @f()", read: count, write: []string{update}, by: byTx},
		// Foreign keys.
		{name: "CASCADE", setup: fk("ON DELETE CASCADE"), read: rows, write: []string{"DELETE FROM @p WHERE id = 1"}, exact: true},
		{name: "SET NULL", setup: fk("ON DELETE SET NULL"), read: rows, write: []string{"DELETE FROM @p WHERE id = 1"}, exact: true},
		{name: "SET DEFAULT", setup: fk("ON DELETE SET DEFAULT"), read: rows, write: []string{"DELETE FROM @p WHERE id = 1"}, exact: true},
		{name: "ON UPDATE CASCADE", setup: fk("ON UPDATE CASCADE"), read: rows, write: []string{"UPDATE @p SET id = 5 WHERE id = 1"}, exact: true},
		{name: "ON UPDATE SET NULL", setup: fk("ON UPDATE SET NULL"), read: rows, write: []string{"UPDATE @p SET id = 5 WHERE id = 1"}, exact: true},
		{name: "ON UPDATE SET DEFAULT", setup: fk("ON UPDATE SET DEFAULT"), read: rows, write: []string{"UPDATE @p SET id = 5 WHERE id = 1"}, exact: true},
		{name: "CASCADE, two levels, through a view", setup: fk("ON DELETE CASCADE") + "CREATE TABLE @g(id int REFERENCES @t ON DELETE CASCADE); INSERT INTO @g VALUES (1), (2); CREATE VIEW @v AS SELECT * FROM @g", read: "SELECT count(*)::text FROM @v", write: []string{"DELETE FROM @p WHERE id = 1"}, exact: true},
		{name: "CASCADE into partitions", setup: "CREATE TABLE @p(id int PRIMARY KEY); INSERT INTO @p VALUES (1); CREATE TABLE @t(id int REFERENCES @p ON DELETE CASCADE) PARTITION BY RANGE (id); CREATE TABLE @low PARTITION OF @t FOR VALUES FROM (0) TO (10); INSERT INTO @t VALUES (1)", read: "SELECT count(*)::text FROM @low", write: []string{"DELETE FROM @p"}, exact: true},
		{name: "CASCADE by a MERGE", setup: fk("ON DELETE CASCADE"), read: rows, write: []string{"MERGE INTO @p USING (SELECT 1 AS id) s ON @p.id = s.id WHEN MATCHED THEN DELETE"}, exact: true},
		{name: "TRUNCATE CASCADE", setup: fk("ON DELETE CASCADE"), read: rows, write: []string{"TRUNCATE @p CASCADE"}},
		{name: "TRUNCATE CASCADE, foreign key without action", setup: fk(""), read: rows, write: []string{"TRUNCATE @p CASCADE"}},
		{name: "TRUNCATE CASCADE, two levels without action", setup: fk("") + "CREATE TABLE @g(id int REFERENCES @t); INSERT INTO @g VALUES (1)", read: "SELECT count(*)::text FROM @g", write: []string{"TRUNCATE @p CASCADE"}},
		// Code.
		{name: "function", setup: log("int", "1"), read: count, write: []string{"SELECT @f()"}, by: byQuery},
		{name: "function by Exec", setup: log("int", "1"), read: count, write: []string{"SELECT @f()"}},
		{name: "function in FROM", setup: log("int", "1"), read: count, write: []string{"SELECT * FROM @f() x"}, by: byQuery},
		{name: "function in WHERE", setup: table + log("int", "1"), read: count, write: []string{"SELECT id FROM @t WHERE n < @f()"}, by: byQuery},
		{name: "function in an UPDATE", setup: table + log("int", "1"), read: count, write: []string{"UPDATE @t SET n = @f()"}},
		{name: "function in a transaction", setup: log("int", "1"), read: count, write: []string{"SELECT @f()"}, by: byTx},
		{name: "function of a view", setup: log("int", "1") + "CREATE VIEW @v AS SELECT @f() AS n", read: count, write: []string{"SELECT n FROM @v"}, by: byQuery},
		{name: "function of a view, by Exec", setup: log("int", "1") + "CREATE VIEW @v AS SELECT @f() AS n; CREATE VIEW @w AS SELECT * FROM @v", read: count, write: []string{"SELECT n FROM @w"}},
		{name: "function of a view, in a transaction", setup: log("int", "1") + "CREATE VIEW @v AS SELECT @f() AS n", read: count, write: []string{"BEGIN", "TABLE @v", "COMMIT"}},
		{name: "function of a view, in an INSERT", setup: table + log("int", "1") + "CREATE VIEW @v AS SELECT @f() AS n", read: count, write: []string{"INSERT INTO @t SELECT 7, n FROM @v"}},
		{name: "function as an attribute", setup: table + logged + "CREATE FUNCTION @f(@t) RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN 1; END'", read: count, write: []string{"SELECT x.@f FROM @t x"}, by: byQuery},
		{name: "function behind an operator", setup: table + logged + "CREATE FUNCTION @f(int, int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN true; END'; CREATE OPERATOR <~~~> (LEFTARG = int, RIGHTARG = int, FUNCTION = @f)", read: count, write: []string{"SELECT id FROM @t WHERE n <~~~> 1"}, by: byQuery},
		{name: "function of a domain", setup: table + logged + "CREATE FUNCTION @f(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN true; END'; CREATE DOMAIN @d AS int CHECK (@f(VALUE))", read: count, write: []string{"SELECT n::@d FROM @t"}, by: byQuery},
		{name: "function of a domain of a column", setup: logged + "CREATE FUNCTION @f(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN true; END'; CREATE DOMAIN @d AS int CHECK (@f(VALUE)); CREATE TABLE @t(n @d)", read: count, write: []string{"INSERT INTO @t VALUES (1)"}},
		{name: "function of a default", setup: log("int", "1") + "CREATE TABLE @t(id int, n int DEFAULT @f())", read: count, write: []string{"INSERT INTO @t VALUES (1)"}},
		{name: "function of a check", setup: logged + "CREATE FUNCTION @f(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN true; END'; CREATE TABLE @t(n int CHECK (@f(n)))", read: count, write: []string{"INSERT INTO @t VALUES (1)"}},
		{name: "function of an operator of a default", setup: logged + "CREATE FUNCTION @f(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN 1; END'; CREATE OPERATOR <~~> (LEFTARG = int, RIGHTARG = int, FUNCTION = @f); CREATE TABLE @t(id int, n int DEFAULT 1 <~~> 2)", read: count, write: []string{"INSERT INTO @t VALUES (1)"}},
		{name: "aggregate", setup: table + logged + "CREATE FUNCTION @f(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO @log VALUES (1); RETURN 1; END'; CREATE AGGREGATE @agg(int) (SFUNC = @f, STYPE = int, INITCOND = 0)", read: count, write: []string{"SELECT @agg(n) FROM @t"}, by: byQuery},
		{name: "procedure", setup: table + "CREATE PROCEDURE @pr() LANGUAGE sql AS '" + update + "'", read: rows, write: []string{"CALL @pr()"}},
		{name: "procedure that commits", setup: table + "CREATE PROCEDURE @pr() LANGUAGE plpgsql AS 'BEGIN " + update + "; COMMIT; " + update + "; ROLLBACK; END'", read: rows, write: []string{"CALL @pr()"}},
		{name: "procedure by Query in a transaction", setup: table + "CREATE PROCEDURE @pr() LANGUAGE sql AS '" + update + "'", read: rows, write: []string{"BEGIN", "CALL @pr()", "COMMIT"}, by: byQuery},
		{name: "DO", setup: table, read: rows, write: []string{"DO $$ BEGIN " + update + "; END $$"}},
		{name: "DO with EXECUTE", setup: table, read: rows, write: []string{"DO $$ BEGIN EXECUTE 'UPDATE ' || '@' || 't SET n = 3'; END $$"}},
		{name: "query_to_xml", setup: log("int", "1"), read: count, write: []string{"SELECT query_to_xml('SELECT @f()', true, true, '')"}, by: byQuery},
		// DDL.
		{name: "ALTER TABLE ADD COLUMN", setup: table, read: "SELECT x::text FROM @t x WHERE id = 1", write: []string{"ALTER TABLE @t ADD c int DEFAULT 7"}},
		{name: "ALTER COLUMN TYPE", setup: table, read: "SELECT n / 2.0 || '' FROM @t WHERE id = 1", write: []string{"ALTER TABLE @t ALTER n TYPE numeric USING n + 5"}},
		{name: "DROP", setup: table, read: rows, write: []string{"DROP TABLE @t"}},
		{name: "DROP and CREATE", setup: table, read: rows, write: []string{"DROP TABLE @t", "CREATE TABLE @t AS SELECT 8 AS id, 8 AS n"}},
		{name: "DROP and CREATE as a view", setup: table + two, read: "SELECT n::text FROM @t LIMIT 1", write: []string{"DROP TABLE @t", "CREATE VIEW @t AS SELECT n FROM @b"}},
		{name: "DROP and CREATE as a view, base written", setup: table + two, read: "SELECT n::text FROM @t LIMIT 1", write: []string{"DROP TABLE @t", "CREATE VIEW @t AS SELECT n FROM @b", "UPDATE @b SET n = 77"}},
		{name: "RENAME of tables", setup: two, read: "SELECT n::text FROM @a", write: []string{"ALTER TABLE @a RENAME TO @c", "ALTER TABLE @b RENAME TO @a"}},
		{name: "RENAME of a column", setup: table, read: rows, write: []string{"ALTER TABLE @t RENAME n TO m"}},
		{name: "RENAME of a schema", setup: "CREATE SCHEMA @s; CREATE TABLE @s.@t AS SELECT 1 AS n", read: "SELECT n::text FROM @s.@t", write: []string{"ALTER SCHEMA @s RENAME TO @u"}},
		{name: "SET SCHEMA", setup: "CREATE SCHEMA @s; CREATE TABLE @t AS SELECT 1 AS n", read: "SELECT n::text FROM @t", write: []string{"ALTER TABLE @t SET SCHEMA @s"}},
		{name: "CREATE OR REPLACE VIEW", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"CREATE OR REPLACE VIEW @v AS SELECT n FROM @b"}},
		{name: "CREATE OR REPLACE VIEW after writes to its table", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"UPDATE @a SET n = n + 1", "SELECT n FROM @v", "CREATE OR REPLACE VIEW @v AS SELECT n FROM @b"}, by: byQuery},
		{name: "CREATE OR REPLACE VIEW, new table written", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"CREATE OR REPLACE VIEW @v AS SELECT n FROM @b", "SELECT n FROM @v", "UPDATE @b SET n = 5"}, by: byQuery},
		{name: "CREATE OR REPLACE FUNCTION", setup: "CREATE FUNCTION @f() RETURNS text IMMUTABLE LANGUAGE sql AS $$SELECT '1'$$", read: "SELECT @f()", write: []string{"CREATE OR REPLACE FUNCTION @f() RETURNS text IMMUTABLE LANGUAGE sql AS $$SELECT '2'$$"}},
		{name: "REFRESH MATERIALIZED VIEW", setup: table + "CREATE MATERIALIZED VIEW @m AS SELECT * FROM @t", read: "SELECT sum(n)::text FROM @m", write: []string{update, "REFRESH MATERIALIZED VIEW @m"}},
		{name: "ALTER TYPE RENAME VALUE", setup: "CREATE TYPE @e AS ENUM ('a'); CREATE TABLE @t AS SELECT 'a'::@e AS n", read: "SELECT n::text FROM @t", write: []string{"ALTER TYPE @e RENAME VALUE 'a' TO 'z'"}},
		{name: "ALTER DOMAIN", setup: table + "CREATE DOMAIN @d AS int", read: "SELECT (n - 1)::@d::text FROM @t WHERE id = 1", write: []string{"ALTER DOMAIN @d ADD CHECK (VALUE >= 0)"}},
		{name: "ALTER SEQUENCE", setup: "CREATE SEQUENCE @s", read: "SELECT last_value::text FROM @s", write: []string{"ALTER SEQUENCE @s RESTART WITH 50"}},
		{name: "nextval", setup: "CREATE SEQUENCE @s; SELECT nextval('@s')", read: "SELECT last_value::text FROM @s", write: []string{"SELECT nextval('@s')"}, by: byQuery},
		{name: "nextval by a default", setup: "CREATE TABLE @t(id serial, n int); INSERT INTO @t(n) VALUES (1)", read: "SELECT last_value::text FROM @t_id_seq", write: []string{"INSERT INTO @t(n) VALUES (1)"}},
		{name: "setval", setup: "CREATE SEQUENCE @s", read: "SELECT last_value::text FROM @s", write: []string{"SELECT setval('@s', 44)"}, by: byQuery},
		{name: "SELECT INTO", setup: "", read: "SELECT n::text FROM @t", write: []string{"SELECT 3 AS n INTO @t"}},
		{name: "CREATE TABLE AS", setup: "", read: "SELECT n::text FROM @t", write: []string{"CREATE TABLE @t AS SELECT 3 AS n"}},
		{name: "CREATE TRIGGER, then a write", setup: table + log("trigger", "NULL"), read: count, write: []string{"CREATE TRIGGER x AFTER UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION @f()", update}},
		{name: "foreign key added, then a write", setup: "CREATE TABLE @p(id int PRIMARY KEY); INSERT INTO @p VALUES (1); CREATE TABLE @t(id int, n int); INSERT INTO @t VALUES (1, 1)", read: rows, write: []string{"ALTER TABLE @t ADD FOREIGN KEY (n) REFERENCES @p ON DELETE CASCADE", "DELETE FROM @p"}},
		{name: "DDL by DO", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"DO $$ BEGIN CREATE OR REPLACE VIEW @v AS SELECT n FROM @b; END $$"}},
		{name: "DDL by DO, new table written", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"DO $$ BEGIN CREATE OR REPLACE VIEW @v AS SELECT n FROM @b; END $$", "SELECT n FROM @v", "UPDATE @b SET n = 5"}, by: byQuery},
		{name: "DDL by DO, trigger added, then a write", setup: table + log("trigger", "NULL"), read: count, write: []string{"DO $$ BEGIN CREATE TRIGGER x AFTER UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION @f(); END $$", update}},
		{name: "DDL by Raw, new table written", setup: two + "CREATE VIEW @v AS SELECT n FROM @a", read: "SELECT n::text FROM @v", write: []string{"CREATE OR REPLACE VIEW @v AS SELECT n FROM @b", "UPDATE @b SET n = 5"}, by: byRaw},
		{name: "event of a large object", setup: "CREATE TABLE @t AS SELECT lo_from_bytea(0, 'abc') AS o", read: "SELECT encode(lo_get(o), 'escape') FROM @t", write: []string{"SELECT lo_put(o, 0, 'xyz') FROM @t"}, by: byQuery},
	}
}

func TestEachKindOfWriteIsSeenByLaterReads(t *testing.T) {
	t.Parallel()
	// Smaller databases, whose catalogs are read faster.
	const size = 25
	for part := range slices.Chunk(ownWrites(), size) {
		t.Run(part[0].name, func(t *testing.T) {
			t.Parallel()
			newFixture(t, setup{}).ownWrites(part)
		})
	}
}

func (f *fixture) ownWrites(writes []ownWrite) {
	f.Helper()
	const unrelated = "SELECT n FROM unrelated WHERE n = 1"
	f.by("CREATE TABLE unrelated(n int)", "INSERT INTO unrelated VALUES (1)")
	fill := make([]func(string) string, len(writes))
	for i, w := range writes {
		prefix := fmt.Sprintf("c%d_", i)
		fill[i] = func(s string) string { return strings.ReplaceAll(s, "@", prefix) }
		if w.setup != "" {
			f.by(fill[i](w.setup))
		}
	}
	second := openCoalesce(f, f.dsn)
	reply(second, unrelated)
	var exact int
	var dropped []string
	for i, w := range writes {
		by := w.by
		if by == nil {
			by = byExec
		}
		if f.lacks(w.write[len(w.write)-1]) {
			continue
		}
		c := pinned(f, f.db)
		f.seenAfter(w.name, fill[i](w.read), func() error {
			reply(f.db, unrelated)
			for _, query := range w.write {
				// Whoever reads between the steps must not spoil the last.
				if err := by(f, c, fill[i](query)); err != nil {
					return fmt.Errorf("%s: %w", query, err)
				}
				reply(f.db, fill[i](w.read))
				reply(second, fill[i](w.read))
			}
			return nil
		}, true, second)
		c.Raw(func(any) error { return driver.ErrBadConn }) // it may be tainted
		c.Close()
		if w.exact {
			held := f.stats().Held
			reply(f.db, unrelated)
			exact++
			if f.stats().Held != held+1 {
				dropped = append(dropped, w.name)
			}
		}
	}
	// A write that meets a snapshot which is out of date, for a second at most
	// after code was called that may hide DDL, drops everything.
	if len(dropped) > 1+exact/4 {
		f.Errorf("a read of an unrelated table was not held any more after %d of %d: %q", len(dropped), exact, dropped)
	}
}

// What needs a server of its own: settings, roles, files.
func TestWritesOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	s := pgtest.Private(t, pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	f := newFixtureOn(t, s.DSN(), setup{})
	f.by("CREATE ROLE reader LOGIN", "CREATE ROLE team NOLOGIN", "GRANT team TO reader")
	const (
		table  = "CREATE TABLE @t(id int PRIMARY KEY, n int); INSERT INTO @t VALUES (1, 0), (2, 0);"
		rows   = "SELECT string_agg(id || ':' || n, ',' ORDER BY id) FROM @t"
		update = "UPDATE @t SET n = n + 1 WHERE id = 1"
	)
	f.ownWrites([]ownWrite{
		{name: "COMMIT PREPARED", setup: table, read: rows, write: []string{"BEGIN", update, "PREPARE TRANSACTION '@x'", "COMMIT PREPARED '@x'"}},
		{name: "COMMIT PREPARED by Query", setup: table, read: rows, write: []string{"BEGIN", update, "PREPARE TRANSACTION '@x'", "SELECT 1", "COMMIT PREPARED '@x'"}, by: byQuery},
		{name: "COMMIT PREPARED beside a transaction", setup: table, read: rows, write: []string{"BEGIN", update, "PREPARE TRANSACTION '@x'", "BEGIN", "ROLLBACK", "COMMIT PREPARED '@x'"}},
	})

	// Prepared transactions are ended by any connection, also of another database
	// of the process.
	other := openCoalesce(t, s.DSN())
	f.by("CREATE TABLE p AS SELECT 0 AS n")
	const read = "SELECT n::text FROM p"
	for i, end := range []struct {
		on  execer
		how string
	}{{f.db, "COMMIT"}, {other, "COMMIT"}, {f.db, "ROLLBACK"}, {pinned(t, other), "ROLLBACK"}, {pinned(t, f.db), "COMMIT"}} {
		before := reply(f.db, read)
		reply(other, read)
		c := pinned(t, f.db)
		for _, query := range []string{"BEGIN", "UPDATE p SET n = n + 1", fmt.Sprintf("PREPARE TRANSACTION 'p%d'", i)} {
			mustExec(t, c, query)
			same(t, query, reply(f.db, read), before)
		}
		c.Close()
		mustExec(t, end.on, fmt.Sprintf("%s PREPARED 'p%d'", end.how, i))
		if wanted := reply(f.plain, read); (wanted == before) != (end.how == "ROLLBACK") {
			t.Errorf("%s of a prepared transaction: %s, then %s", end.how, before, wanted)
		} else {
			same(t, end.how+" PREPARED", reply(f.db, read), wanted)
			same(t, end.how+" PREPARED, elsewhere", reply(other, read), wanted)
		}
	}

	// A reader whose rights change by what another database of the process does.
	dsn := strings.Replace(s.DSN(), "postgres@", "reader@", 1)
	reader, plainReader := openCoalesce(t, dsn), openPlain(t, dsn)
	f.by("CREATE TABLE own(n int, tenant text); INSERT INTO own VALUES (1, 'a'), (2, 'b')", "CREATE TABLE acl AS SELECT 1 AS n",
		"CREATE VIEW vacl AS SELECT n FROM acl", "GRANT SELECT ON own, acl, vacl TO team")
	const sum, acl, vacl = "SELECT sum(n)::text FROM own", "SELECT n::text FROM acl", "SELECT n::text FROM vacl"
	for _, c := range []struct{ write, read string }{
		{"REVOKE SELECT ON acl FROM team", acl},
		{"GRANT SELECT ON acl TO reader", acl},
		{"REVOKE ALL ON SCHEMA public FROM PUBLIC", acl},
		{"GRANT USAGE ON SCHEMA public TO team", acl},
		{"REVOKE team FROM reader", vacl},
		{"GRANT team TO reader", vacl},
		{"ALTER TABLE own ENABLE ROW LEVEL SECURITY", sum},
		{"CREATE POLICY p ON own USING (tenant = 'a')", sum},
		{"ALTER POLICY p ON own USING (tenant = 'b')", sum},
		{"CREATE POLICY q ON own USING (true)", sum},
		{"DROP POLICY q ON own", sum},
		{"ALTER TABLE own DISABLE ROW LEVEL SECURITY", sum},
		{"ALTER VIEW vacl SET (security_invoker = true)", vacl},
		{"REVOKE SELECT ON acl FROM reader", vacl},
		{"ALTER VIEW vacl SET (security_invoker = false)", vacl},
		{"ALTER TABLE acl OWNER TO reader", acl},
	} {
		if f.lacks(c.write) {
			continue
		}
		before := reply(reader, c.read)
		reply(reader, c.read)
		f.do(c.write)
		got, wanted := reply(reader, c.read), reply(plainReader, c.read)
		if got != wanted {
			t.Errorf("after %s: %s gives %s, want %s", c.write, c.read, got, wanted)
		}
		if wanted == before {
			t.Logf("%s changed nothing: %s", c.write, before)
		}
	}

	// Files and servers that are read as tables.
	for name, setup := range map[string]string{
		"file_fdw": "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw; CREATE FOREIGN TABLE ft(n int) SERVER files OPTIONS (program 'date +%N | tail -c 9');" +
			"CREATE VIEW vft AS SELECT n FROM ft; CREATE TABLE pft(n int) PARTITION BY RANGE (n); CREATE FOREIGN TABLE pft1 PARTITION OF pft FOR VALUES FROM (MINVALUE) TO (MAXVALUE) SERVER files OPTIONS (program 'date +%N | tail -c 9');" +
			"CREATE TABLE ift(n int); CREATE FOREIGN TABLE ift1() INHERITS (ift) SERVER files OPTIONS (program 'date +%N | tail -c 9');" +
			"CREATE VIEW vift AS SELECT n FROM ift",
	} {
		if _, err := f.plain.Exec(setup); err != nil {
			t.Logf("%s cannot be tested here: %v", name, err)
			continue
		}
		f.do("SELECT 1; SELECT 2") // which reloads the catalog
		f.verdicts([]verdictCase{
			{"joinable", "SELECT n FROM ft"}, {"joinable", "SELECT n FROM vft"},
			{"joinable", "SELECT n FROM pft"}, {"joinable", "SELECT n FROM pft1"},
			{"joinable", "SELECT n FROM ift"}, {"joinable", "SELECT n FROM vift"},
		})
	}
	if _, err := f.plain.Exec(`CREATE EXTENSION postgres_fdw; CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '` + hostOf(t, s.DSN()) + `', port '` + portOf(t, s.DSN()) + `', dbname 'postgres');
		CREATE USER MAPPING FOR PUBLIC SERVER self OPTIONS (user 'postgres'); CREATE TABLE base AS SELECT 1 AS n; CREATE FOREIGN TABLE far(n int) SERVER self OPTIONS (table_name 'base')`); err != nil {
		t.Logf("postgres_fdw cannot be tested here: %v", err)
	} else {
		f.do("SELECT 1; SELECT 2")
		same(t, "over the wire", reply(f.db, "SELECT n::text FROM far"), "1")
		f.do("UPDATE base SET n = 2")
		same(t, "over the wire, base written", reply(f.db, "SELECT n::text FROM far"), "2")
		same(t, "base, held", reply(f.db, "SELECT n::text FROM base"), "2")
		f.do("UPDATE far SET n = 3")
		same(t, "written over the wire", reply(f.db, "SELECT n::text FROM base"), "3")
	}
}

func hostOf(t testing.TB, dsn string) string { return configOf(t, dsn).Host }
func portOf(t testing.TB, dsn string) string { return fmt.Sprint(configOf(t, dsn).Port) }

func configOf(t testing.TB, dsn string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestTemporaryTableHidesARealOneInItsSessionOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 'real' AS v", "CREATE FUNCTION mk() RETURNS int LANGUAGE plpgsql AS $$BEGIN CREATE TEMP TABLE t AS SELECT 'by code' AS v; RETURN 1; END$$")
	const read = "SELECT v FROM t"
	c := pinned(t, f.db)
	same(t, "before", get[string](t, c, read), "real")
	mustExec(t, c, "CREATE TEMP TABLE t AS SELECT 'temporary' AS v")
	for range 2 {
		same(t, "in the session", get[string](t, c, read), "temporary")
		same(t, "elsewhere", get[string](t, f.db, read), "real")
	}
	mustExec(t, c, "UPDATE t SET v = 'changed'")
	same(t, "in the session, written", get[string](t, c, read), "changed")
	same(t, "elsewhere", get[string](t, f.db, read), "real")
	mustExec(t, c, "DROP TABLE t")
	same(t, "dropped", get[string](t, c, read), "real")
	d := pinned(t, f.db)
	same(t, "before the code", get[string](t, d, read), "real")
	get[int](t, d, "SELECT mk()")
	same(t, "made by code", get[string](t, d, read), "by code")
	same(t, "elsewhere", get[string](t, f.db, read), "real")
	mustExec(t, f.db, "UPDATE public.t SET v = 'new'")
	same(t, "the real one is written", get[string](t, f.db, read), "new")
	same(t, "made by code, still", get[string](t, d, read), "by code")
	same(t, "qualified", get[string](t, d, "SELECT v FROM public.t"), "new")
	f.do("DISCARD ALL")
}

func TestViewOfTaintingFunctionTaintsItsSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 'real' AS v", "CREATE FUNCTION mk() RETURNS int LANGUAGE plpgsql AS $$BEGIN CREATE TEMP TABLE t AS SELECT 'by code' AS v; RETURN 1; END$$",
		"CREATE VIEW vmk AS SELECT mk() AS n", "CREATE VIEW vset AS SELECT set_config('search_path', 'nowhere', false) AS n")
	const read = "SELECT v FROM t"
	same(t, "elsewhere", get[string](t, f.db, read), "real")
	c := pinned(t, f.db)
	get[int](t, c, "SELECT n FROM vmk")
	same(t, "made through a view", get[string](t, c, read), "by code")
	same(t, "elsewhere", get[string](t, f.db, read), "real")
	d := pinned(t, f.db)
	get[string](t, d, "SELECT n FROM vset")
	same(t, "search_path set through a view", reply(d, read), "SQLSTATE 42P01")
}

func TestDDLSeenHereChangesTheVerdict(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.do("CREATE TABLE t(n float8)", "INSERT INTO t VALUES (1)", "CREATE VIEW v AS SELECT n FROM t", "CREATE FUNCTION fn() RETURNS float8 IMMUTABLE LANGUAGE sql AS 'SELECT 1::float8'")
	check := func(wanted, query string) {
		t.Helper()
		f.verdicts([]verdictCase{{wanted, query}})
	}
	const read = "SELECT n FROM v"
	for range 2 {
		check("holdable", read)
		f.do("CREATE OR REPLACE VIEW v AS SELECT random() AS n")
		check("private", read)
		f.do("CREATE OR REPLACE VIEW v AS SELECT extract(epoch FROM now())::float8 AS n")
		check("joinable", read)
		f.do("CREATE OR REPLACE VIEW v AS SELECT n FROM t")
	}
	check("holdable", "SELECT fn()")
	f.do("ALTER FUNCTION fn() VOLATILE")
	check("private", "SELECT fn()")
	f.do("ALTER FUNCTION fn() STABLE")
	check("joinable", "SELECT fn()")
	f.do("CREATE OR REPLACE FUNCTION fn() RETURNS float8 IMMUTABLE LANGUAGE sql AS 'SELECT 2::float8'")
	check("holdable", "SELECT fn()")
	f.do("CREATE FUNCTION fn(int) RETURNS int LANGUAGE sql AS 'SELECT 1'")
	check("private", "SELECT fn()")
	f.do("DROP FUNCTION fn(int)")
	check("holdable", "SELECT fn()")

	f.do("DROP VIEW v", "CREATE TABLE v AS SELECT 1.5::float8 AS n")
	check("holdable", read)
	f.do("DROP TABLE v", "CREATE MATERIALIZED VIEW v AS SELECT 2.5::float8 AS n")
	check("holdable", read)
	f.do("DROP MATERIALIZED VIEW v", "CREATE SEQUENCE v")
	check("joinable", "SELECT last_value FROM v")
	f.do("DROP SEQUENCE v", "CREATE VIEW v AS SELECT n FROM t FOR UPDATE")
	check("private", read)
	f.do("DROP VIEW v")
	check("private", read)
	f.do("ALTER TABLE t RENAME TO v")
	check("holdable", read)
	f.do("ALTER TABLE v ENABLE ROW LEVEL SECURITY")
	check("joinable", read)
	f.do("ALTER TABLE v DISABLE ROW LEVEL SECURITY")
	check("holdable", read)
	tx := begin(t, f.db, nil)
	mustExec(t, tx, "CREATE VIEW w AS SELECT random() AS n")
	check("private", "SELECT n FROM w")
	tx.Commit()
	check("private", "SELECT n FROM w")
	// By code that hides it.
	f.do("DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW w AS SELECT n FROM v'; END $$")
	until(t, func() bool {
		e, err := coalesce.Explain(bg, f.db, "SELECT n FROM w")
		return err == nil && e.Verdict == "holdable"
	}, says("DDL inside DO is noticed"))
	f.do("DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW w AS SELECT random() AS n'; END $$")
	if a, b := get[string](t, f.db, "SELECT n FROM w"), get[string](t, f.db, "SELECT n FROM w"); a == b {
		t.Errorf("a view that DO made random gives %s twice", a)
	}
}

func TestTableMadeElsewhereIsPrivateUntilItIsKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	begun := time.Now()
	get[int](t, f.db, "SELECT n FROM t")
	f.by("CREATE TABLE made AS SELECT 1 AS n", "CREATE VIEW vmade AS SELECT random() AS n")
	const read = "SELECT n FROM made"
	get[int](t, f.db, read)
	if s := f.stats(); time.Since(begun) < time.Second && s.Private != 1 {
		t.Errorf("at first it is not private: %+v", s)
	}
	until(t, func() bool { get[int](t, f.db, read); return f.stats().Held > 0 }, says("it is held"))
	same(t, "a view made elsewhere", f.verdict("SELECT n FROM vmade"), "private")
	f.by("UPDATE made SET n = 2")
	same(t, "what others write is not seen at once", get[int](t, f.db, read), 1)
	f.do("UPDATE made SET n = 3")
	same(t, "own write", get[int](t, f.db, read), 3)
}

func TestCatalogIsReadOnceForManyTexts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	noErrors(t, receive(t, together(50, func(i int) error {
		return f.db.QueryRow(fmt.Sprintf("SELECT n + %d FROM t", i)).Scan(new(int))
	})))
	same(t, "catalog loads", f.seen.queries(catalog.Query), 1)
	f.do("INSERT INTO t VALUES (2)", "UPDATE t SET n = 3", "DELETE FROM t")
	get[int](t, f.db, "SELECT count(*) FROM t")
	same(t, "catalog loads after plain writes", f.seen.queries(catalog.Query), 1)
	f.do("CREATE TABLE u(n int)")
	get[int](t, f.db, "SELECT count(*) FROM t")
	same(t, "catalog loads after DDL", f.seen.queries(catalog.Query), 2)
	for i := range 50 {
		reply(f.db, fmt.Sprintf("SELECT %d FROM nowhere", i))
	}
	if n := f.seen.queries(catalog.Query); n > 2+patienceSeconds() {
		t.Errorf("50 unknown names: %d catalog loads", n)
	}
}

func TestCatalogIsNotReadForTextsWithoutNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	cfg := f.pgxConfig(nil)
	name := stdlib.RegisterConnConfig(&cfg)
	defer stdlib.UnregisterConnConfig(name)
	db := openCoalesce(t, name)
	if err := db.Ping(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		get[string](t, db, "SELECT $1", "x")
	}
	same(t, "held", coalesce.StatsOf(db).Held, 1)
	same(t, "catalog loads", f.seen.queries(catalog.Query), 0)
	get[int](t, db, "SELECT length('x')") // others may have made a function of this name
	same(t, "catalog loads for a name", f.seen.queries(catalog.Query), 1)
}

func patienceSeconds() int { return int(patience / time.Second) }

func TestCatalogMayTakeLongerThanAStatement(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	db := openCoalesce(t, f.dsn, "statement_timeout=200")
	tx := begin(t, f.plain, nil)
	defer tx.Rollback()
	mustExec(t, tx, "LOCK TABLE pg_catalog.pg_trigger IN ACCESS EXCLUSIVE MODE")
	verdict := make(chan string, 1)
	go func() {
		e, err := coalesce.Explain(bg, db, "SELECT n FROM t")
		verdict <- fmt.Sprint(e.Verdict, e.Reason, err)
	}()
	until(t, func() bool {
		return len(verdict) > 0 || get[int](t, f.plain, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '400 ms'`) > 0
	}, says("the catalog is waited for, or given up"))
	tx.Rollback()
	same(t, "verdict", receive(t, verdict), "holdable<nil>")
}

func TestCatalogIsReadWhileATableIsLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE locked(n int CHECK (n > 0), m int DEFAULT length('abc'))", "CREATE TABLE part(n int) PARTITION BY RANGE (n)", "CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (9)",
		"CREATE VIEW v AS SELECT n FROM locked", "CREATE VIEW w AS SELECT v.n FROM v, part", "CREATE MATERIALIZED VIEW m AS SELECT n FROM locked",
		"CREATE TABLE child(n int)", "CREATE UNIQUE INDEX ON locked(abs(n))", "CREATE DOMAIN dom AS int CHECK (VALUE > 0)", "CREATE TABLE free AS SELECT 1 AS n",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE SEQUENCE s")
	tx := begin(t, f.plain, nil)
	defer tx.Rollback()
	mustExec(t, tx, "LOCK TABLE locked, part, part1 IN ACCESS EXCLUSIVE MODE")
	mustExec(t, tx, "DROP VIEW w")
	mustExec(t, tx, "ALTER TABLE locked ADD c int")
	mustExec(t, tx, "ALTER DOMAIN dom ADD CONSTRAINT more CHECK (VALUE < 9)")
	mustExec(t, tx, "ALTER SEQUENCE s INCREMENT 5")
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	same(t, "a table that nobody locks", getIn[int](t, ctx, f.db, "SELECT n FROM free"), 1)
	same(t, "again", getIn[int](t, ctx, f.db, "SELECT n FROM free"), 1)
	same(t, "held", f.stats().Held, 1)
}

// unreadable is a connector of connections on which the catalog cannot be
// read.
type unreadable struct{ driver.Connector }

func (u unreadable) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := u.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return unreadableConn{c.(*stdlib.Conn)}, nil
}

type unreadableConn struct{ *pgxInner }

type pgxInner = stdlib.Conn // its method Conn must not be hidden by a field

var errUnreadable = errors.New("this server has no catalog")

func (c unreadableConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if query == catalog.Query {
		return nil, errUnreadable
	}
	return c.pgxInner.QueryContext(ctx, query, args)
}

func TestServerWithoutCatalogSharesOnlyWhatNeedsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n", "CREATE FUNCTION bump() RETURNS int LANGUAGE sql AS 'UPDATE t SET n = n + 1 RETURNING n'")
	db := sql.OpenDB(coalesce.NewConnector(unreadable{stdlib.GetConnector(f.pgxConfig(nil))}, coalesce.Config{}))
	defer db.Close()
	db.SetMaxIdleConns(-1) // its DISCARD ALL makes no session fresh
	blind := *f
	blind.db = db
	blind.verdicts([]verdictCase{
		{"holdable", "SELECT 1"},
		{"private", "SELECT 1 + 1"},
		{"private", "SELECT n FROM t"},
		{"private", "SELECT bump()"},
		{"private", "SELECT count(*) FROM nowhere"},
		{"private", "SELECT nextval('x')"},
	})
	e, err := coalesce.Explain(bg, db, "SELECT n FROM t")
	if err != nil || !strings.Contains(e.Reason, errUnreadable.Error()) {
		t.Errorf("the reason is %q (%v), want it to tell why", e.Reason, err)
	}
	blind.seenAfter("a write", "SELECT n::text FROM t", func() error { _, err := db.Exec("UPDATE t SET n = n + 1"); return err }, true, f.db)
	blind.seenAfter("a write in a transaction", "SELECT n::text FROM t", func() error {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE t SET n = n + 1")
		return errors.Join(err, tx.Commit())
	}, true, f.db)
	blind.seenAfter("a function", "SELECT n::text FROM t", func() error { return db.QueryRow("SELECT bump()").Scan(new(int)) }, true, f.db)
	blind.seenAfter("a write that fails", "SELECT n::text FROM t", func() error { db.Exec("UPDATE t SET n = 1/0"); return nil }, false, f.db)
}

func TestRoleThatMayNotReadTheCatalogSharesOnlyWhatNeedsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	role := "appw_" + get[string](t, f.plain, "SELECT substr(md5(current_database()), 1, 8)")
	const password = "s3cret"
	f.by("CREATE TABLE t AS SELECT 1 AS n", "CREATE ROLE "+role+" LOGIN PASSWORD '"+password+"'", "GRANT SELECT, UPDATE ON t TO "+role)
	t.Cleanup(func() { f.plain.Exec("DROP OWNED BY " + role); f.plain.Exec("DROP ROLE " + role) })
	dsn, err := url.Parse(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword(role, password)
	for _, table := range []string{"pg_proc", "pg_class"} {
		f.by("REVOKE SELECT ON pg_catalog." + table + " FROM PUBLIC")
		blind := *f
		blind.db = openCoalesce(t, dsn.String())
		blind.verdicts([]verdictCase{
			{"holdable", "SELECT 1"},
			{"private", "SELECT n FROM t"},
			{"private", "SELECT upper('x')"},
			{"private", "SELECT n FROM nowhere"},
		})
		e, err := coalesce.Explain(bg, blind.db, "SELECT n FROM t")
		if err != nil || !strings.Contains(e.Reason, "permission denied for table "+table) || strings.Contains(e.Reason, password) {
			t.Errorf("without %s: the reason is %q (%v), want it to tell why, and no password", table, e.Reason, err)
		}
		blind.seenAfter("a write", "SELECT n::text FROM t", func() error { _, err := blind.db.Exec("UPDATE t SET n = n + 1"); return err }, true, f.db)
		f.by("GRANT SELECT ON pg_catalog." + table + " TO PUBLIC")
	}
}

// Two databases of one process learn of the schema at different times.
func TestWriteToTableThatOnlyTheReaderKnowsIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE known AS SELECT 1 AS n")
	early := openCoalesce(t, f.dsn)
	get[int](t, early, "SELECT n FROM known") // has the catalog as it is now
	f.by("CREATE TABLE late AS SELECT 1 AS n", "CREATE TABLE later(n int)", "CREATE VIEW vlate AS SELECT n FROM late")
	f.seenAfter("INSERT … SELECT", "SELECT count(*)::text FROM late", func() error { _, err := early.Exec("INSERT INTO late SELECT n FROM known"); return err }, true)
	f.seenAfter("UPDATE … FROM", "SELECT sum(n)::text FROM late", func() error { _, err := early.Exec("UPDATE late SET n = 7 FROM known"); return err }, true)
	f.seenAfter("in a CTE", "SELECT count(*)::text FROM late", func() error {
		_, err := early.Exec("WITH i AS (INSERT INTO late VALUES (1)) UPDATE known SET n = n")
		return err
	}, true)
	// And reads of what only the writer knows, beside what both know.
	get[int](t, early, "SELECT count(*) FROM known, vlate")
	wanted := get[int](t, f.plain, "SELECT count(*) FROM known, vlate")
	f.do("DELETE FROM late")
	same(t, "rows", get[int](t, early, "SELECT count(*) FROM known, vlate"), 0)
	if wanted == 0 {
		t.Error("nothing was there to delete")
	}
}

// The text names a table that is known as well, here by a column of its name.
func TestWriteToWhatIsNotKnownCountsBesideWhatIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE events(id int, status text) PARTITION BY RANGE (id)", "CREATE TABLE base(id int, status text)", "INSERT INTO base VALUES (1, 'a')", "CREATE TABLE status(n int)")
	const partitioned, viewed = "SELECT count(*) FROM events", "SELECT count(*) FROM base WHERE base.status = 'b'"
	read := func(want int) {
		t.Helper()
		same(t, "rows of the partitioned", get[int](t, f.db, partitioned), want)
		same(t, "rows of the viewed", get[int](t, f.db, viewed), want)
	}
	read(0)
	f.by("CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10)", "CREATE VIEW view_of_base AS SELECT * FROM base")
	read(0)
	f.do("INSERT INTO events_1 (id, status) VALUES (1, 'x')")
	f.do("UPDATE view_of_base SET status = 'b'")
	read(1)
}

func TestWriteIsSeenThroughWhatOnlyTheWriterKnows(t *testing.T) {
	t.Parallel()
	for _, read := range []string{
		"SELECT known.n + late.n FROM known, late", "SELECT known.n + late.n FROM known CROSS JOIN late", "SELECT late.n FROM (late CROSS JOIN known)",
		"SELECT n FROM late", "TABLE late", "SELECT (SELECT max(n) FROM late) FROM known", "SELECT n FROM known WHERE n IN (TABLE late)",
	} {
		t.Run(read, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, setup{})
			f.by("CREATE TABLE known AS SELECT 1 AS n", "CREATE TABLE base AS SELECT 1 AS n", "CREATE TABLE unrelated AS SELECT 1 AS n")
			get[int](t, f.db, "SELECT n FROM known")
			f.by("CREATE VIEW late AS SELECT n FROM base")
			get[string](t, f.db, read)
			f.do("UPDATE base SET n = 5")
			same(t, read, reply(f.db, read), reply(f.plain, read))
		})
	}
}

func TestWhatWasAddedToPgCatalogCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE TABLE t AS SELECT 1 AS n; CREATE TYPE pair AS (a int, b int);
		CREATE FUNCTION pg_catalog.lower(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION pg_catalog.bump_up() RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION pg_catalog.pure(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION pair_vol(pair) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE VIEW v AS SELECT lower(n) FROM t;
		CREATE VIEW w AS SELECT upper('x')`)
	f.verdicts([]verdictCase{
		{"private", "SELECT lower(n) FROM t"},
		{"private", "SELECT pg_catalog.lower(n) FROM t"},
		{"private", "SELECT bump_up() FROM t"},
		{"private", "SELECT * FROM v"},
		{"holdable", "SELECT pure(n) FROM t"},
		{"holdable", "SELECT * FROM w"},
		{"holdable", "SELECT upper('x') FROM t"},
	})
	f.by("CREATE OPERATOR pg_catalog.+ (RIGHTARG = pair, FUNCTION = pair_vol)")
	f.do("CREATE TABLE again(n int)")
	f.verdicts([]verdictCase{{"private", "SELECT ROW(n, n)::pair FROM t"}})
}

func TestViewsOfColumnListsAndJSON(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE TABLE t AS SELECT 1 AS n, '{"a": 1}'::jsonb AS j;
		CREATE FUNCTION ok(int) RETURNS bool LANGUAGE sql AS 'SELECT true';
		CREATE DOMAIN odd AS int CHECK (ok(VALUE));
		CREATE DOMAIN fine AS int CHECK (VALUE > 0);
		CREATE VIEW listed AS SELECT x.b FROM t, json_to_record('{"a": 1, "b": 2}') AS x(a odd, b int);
		CREATE VIEW good AS SELECT (j->>'a')::int AS a FROM t ORDER BY n`)
	cases := []verdictCase{{"private", "SELECT * FROM listed"}}
	if get[int](t, f.plain, "SELECT current_setting('server_version_num')::int") >= 170000 {
		f.by(`CREATE VIEW json AS SELECT JSON_VALUE(j, '$.a' RETURNING odd)::text AS a FROM t`)
		cases = append(cases, verdictCase{"private", "SELECT * FROM json"})
	}
	f.verdicts(cases)
	f.by("DROP DOMAIN odd CASCADE")
	f.do("CREATE TABLE again(n int)")
	f.verdicts([]verdictCase{{"holdable", "SELECT * FROM good"}})
}

func TestHiddenVolatileCodeIsNamed(t *testing.T) {
	t.Parallel()
	for setupSQL, want := range map[string]string{
		`CREATE CAST (pair AS int) WITH FUNCTION vol(pair)`:                         "may use the cast from pair to integer, whose function is VOLATILE",
		`CREATE OPERATOR + (RIGHTARG = pair, FUNCTION = vol)`:                       "may use the operator +, whose function is VOLATILE",
		`CREATE DOMAIN odd AS int CHECK (ok(VALUE)); CREATE TABLE u(n odd, p pair)`: "may use the check of the domain odd, whose function is VOLATILE",
		`CREATE DOMAIN odd AS int CHECK (VALUE > random()); CREATE TABLE u(n odd)`:  "may use the check of the domain odd, whose function is VOLATILE",
	} {
		f := newFixture(t, setup{})
		f.by(`CREATE TYPE pair AS (a int, b int); CREATE TABLE t(p pair);
			CREATE FUNCTION vol(pair) RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE FUNCTION ok(int) RETURNS bool LANGUAGE sql AS 'SELECT true';` + setupSQL)
		e, err := coalesce.Explain(bg, f.db, "SELECT p FROM t")
		if err != nil {
			t.Fatal(err)
		}
		same(t, setupSQL, e.Reason, want)
	}
}

// execMode prepares nothing: what is prepared keeps what the server has computed
// of it.
func execMode(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec }

// allowedAndNot reads what makes a value that the table allowed must have, before
// and after a write takes it out.
func (f *fixture) allowedAndNot(read string) {
	f.Helper()
	mustExec(f, f.db, "INSERT INTO allowed VALUES (5), (6)")
	for i, db := range []*sql.DB{f.plain, f.db, f.db} {
		if _, err := column[any](bg, db, read, pgx.QueryExecModeExec); err != nil {
			f.Errorf("%s, allowed, %d: %v", read, i, err)
		}
	}
	mustExec(f, f.db, "DELETE FROM allowed")
	for _, db := range []*sql.DB{f.plain, f.db} {
		_, err := column[any](bg, db, read, pgx.QueryExecModeExec)
		same(f, read+", no more allowed", sqlState(err), "23514")
	}
}

// What a value of a domain is checked against decides the answer, also where the
// text does not name the domain: an argument, an operator, a row of a table.
func TestWriteToWhatACheckReadsIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{pgx: execMode})
	f.by(strings.Split(`CREATE TABLE allowed(n int);
CREATE FUNCTION is_allowed(int) RETURNS bool STABLE STRICT LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM allowed WHERE n = $1)';
CREATE DOMAIN d AS int CHECK (is_allowed(VALUE));
CREATE DOMAIN d_on AS d; CREATE TYPE pair AS (a d_on, b int); CREATE TYPE span AS RANGE (subtype = d);
CREATE DOMAIN pos AS int CHECK (VALUE > 0); CREATE TYPE mood AS ENUM ('sad');
CREATE TABLE tab(a d, b int); INSERT INTO tab VALUES (NULL, 1); CREATE TABLE sub() INHERITS (tab); CREATE VIEW v AS SELECT * FROM tab;
CREATE TABLE plain(m mood, p pos); INSERT INTO plain VALUES ('sad', 1);
CREATE FUNCTION f(d) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION f_many(VARIADIC d[]) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION f_default(int, d DEFAULT NULL) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION f_row(tab) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION f_pos(pos) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION step(int, d) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE AGGREGATE agg(d) (SFUNC = step, STYPE = int, INITCOND = '0');
CREATE FUNCTION op(d, int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
CREATE OPERATOR ### (LEFTARG = d, RIGHTARG = int, FUNCTION = op);
CREATE VIEW called AS SELECT f(5)`, ";\n")...)
	var made []verdictCase
	for _, read := range []string{
		"SELECT f(5)", "SELECT f_many(5)", "SELECT f_default(1, 5)", "SELECT f_row('(5,1)')", "SELECT f_row(ROW(5, 1))", "SELECT agg(5)",
		"SELECT '5' ### 1", "SELECT 5 ### 1", "SELECT 5::d_on", "SELECT '{5}'::d[]", "SELECT (ROW(5, 1)::pair)::text", "SELECT '(5,1)'::pair",
		"SELECT '[5,6)'::span", "SELECT span(5, 6)", `SELECT '{"[5,6)"}'::span[]`, "SELECT (ROW(5, 1)::tab)::text", "SELECT '(5,1)'::tab", "SELECT '(5,1)'::sub",
		`SELECT (json_populate_record(NULL::tab, '{"a":5}')).a`, `SELECT (jsonb_populate_record(v, '{"a":5}')).a FROM v`,
		`SELECT (jsonb_populate_record(tab, '{"a":5}')).a FROM tab`, `SELECT a FROM json_to_record('{"a":5}') AS x(a d)`, "SELECT * FROM called",
		"SELECT CASE WHEN f(5) = 1 THEN 1 END", "SELECT '5'::text::d",
	} {
		made = append(made, verdictCase{"joinable", read})
		f.allowedAndNot(read)
	}
	f.verdicts(append(made, []verdictCase{
		{"holdable", "SELECT f_pos(5)"}, {"holdable", "SELECT ROW('sad', 1)::plain"}, {"holdable", "SELECT m, p FROM plain"}, {"holdable", "SELECT 5::pos"},
		{"holdable", "SELECT 'sad'::mood"}, {"joinable", "SELECT b FROM tab"},
	}...))
}

// A check also runs where a literal becomes what a call beside it returns, where
// a call is a cast, in an aggregate, and behind another check.
func TestWriteToWhatAHiddenCheckReadsIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{pgx: execMode})
	f.by(strings.Split(`CREATE TABLE allowed(n int); INSERT INTO allowed VALUES (5);
CREATE FUNCTION is_allowed(int) RETURNS bool STABLE STRICT LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM allowed WHERE n = $1)';
CREATE DOMAIN d AS int CHECK (is_allowed(VALUE)); CREATE TYPE pair AS (a d, b int);
CREATE FUNCTION list() RETURNS d[] IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION "row"() RETURNS pair IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION table_of() RETURNS TABLE (x d[]) IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN QUERY SELECT NULL::d[]; END';
CREATE FUNCTION alike(anyelement, anyelement) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION d(int, int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; CREATE DOMAIN length AS int CHECK (is_allowed(VALUE));
CREATE FUNCTION step(d, int) RETURNS d IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE AGGREGATE agg(int) (SFUNC = step, STYPE = d, INITCOND = '5');
CREATE DOMAIN casts AS int CHECK ((VALUE::d)::int > 0);
CREATE FUNCTION op(int, int) RETURNS bool STABLE LANGUAGE sql AS 'SELECT is_allowed($1)';
CREATE OPERATOR ### (LEFTARG = int, RIGHTARG = int, FUNCTION = op); CREATE DOMAIN operates AS int CHECK (VALUE ### 1);
CREATE FUNCTION takes(d) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
CREATE DOMAIN calls AS int CHECK (takes(VALUE));
CREATE FUNCTION a_calls(calls) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE FUNCTION z_calls(calls) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
CREATE DOMAIN upper AS int CHECK (VALUE > 0);
CREATE FUNCTION plain(upper) RETURNS upper[] IMMUTABLE LANGUAGE sql AS 'SELECT NULL::upper[]'`, ";\n")...)
	var made []verdictCase
	for _, read := range []string{
		"SELECT coalesce(list(), '{5}')", `SELECT coalesce("row"(), '(5,1)')::text`, "SELECT coalesce(x, '{5}') FROM table_of()", "SELECT alike(list(), '{5}')",
		`SELECT json_populate_record("row"(), '{"a":5}')::text`, "SELECT d('5')", "SELECT length('5')", "SELECT agg(1)",
		"SELECT 5::casts", "SELECT 5::operates", "SELECT 5::calls", "SELECT a_calls(5)", "SELECT z_calls(5)",
	} {
		made = append(made, verdictCase{"joinable", read})
		f.allowedAndNot(read)
	}
	f.verdicts(append(made, verdictCase{"holdable", "SELECT upper('5')"}, verdictCase{"holdable", "SELECT coalesce(plain(5), '{5}')"}))
}

// What is called as if it were a column may take it as the only element of an
// array, or cast it first.
func TestCallThatLooksLikeAColumnIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(strings.Split(`CREATE TABLE tab(a int); INSERT INTO tab VALUES (1); CREATE SEQUENCE s;
CREATE FUNCTION many(VARIADIC tab[]) RETURNS int LANGUAGE sql AS 'SELECT nextval(''s'')::int';
CREATE FUNCTION cast_first(jsonb) RETURNS int LANGUAGE sql AS 'SELECT nextval(''s'')::int';
CREATE FUNCTION of_text(text) RETURNS int LANGUAGE sql AS 'SELECT nextval(''s'')::int';
CREATE FUNCTION many_texts(VARIADIC text[]) RETURNS int LANGUAGE sql AS 'SELECT nextval(''s'')::int';
CREATE FUNCTION to_json_of(tab) RETURNS jsonb IMMUTABLE LANGUAGE sql AS 'SELECT ''{}''::jsonb';
CREATE CAST (tab AS jsonb) WITH FUNCTION to_json_of(tab) AS IMPLICIT`, ";\n")...)
	for i, read := range []string{"SELECT tab.many FROM tab", "SELECT (t).many FROM tab t", "SELECT tab.cast_first FROM tab"} {
		same(t, read, reply(f.db, read), fmt.Sprint(2*i+1))
		same(t, read+", again", reply(f.db, read), fmt.Sprint(2*i+2))
	}
	f.verdicts([]verdictCase{{"private", "SELECT tab.many FROM tab"}, {"holdable", "SELECT a AS of_text FROM tab"}, {"holdable", "SELECT a AS many_texts FROM tab"}})
}

func TestReadingTheCatalogLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		f := newFixture(t, setup{pgx: func(c *pgx.ConnConfig) {
			c.DefaultQueryExecMode = mode
			c.RuntimeParams["jit_above_cost"] = "0"
		}})
		f.by("CREATE TABLE t AS SELECT 1 AS n")
		fresh := get[string](t, f.plain, "SHOW jit")
		conn := pinned(t, f.db)
		get[int](t, conn, "SELECT n FROM t")
		same(t, "catalog loads", f.seen.queries(catalog.Query), 1)
		same(t, "jit afterwards", get[string](t, conn, "SHOW jit"), fresh)
		same(t, "prepared statements", get[int](t, conn, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%pg_namespace%' AND statement NOT LIKE '%pg_prepared%'"), 0)
	}
}

func TestDefaultArgumentsAreTheReadersOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(`CREATE SEQUENCE s; CREATE TABLE t AS SELECT 1 AS n; CREATE TABLE rate AS SELECT 1 AS n; CREATE TYPE pair AS (a int, b int);
		CREATE FUNCTION bump() RETURNS int LANGUAGE sql AS 'UPDATE rate SET n = n + 1 RETURNING n';
		CREATE FUNCTION cur() RETURNS int STABLE LANGUAGE sql AS 'SELECT n FROM rate';
		CREATE FUNCTION fixed(a int DEFAULT 1, b int DEFAULT -2 + 3, c text[] DEFAULT '{}') RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT a + b';
		CREATE FUNCTION next(v bigint DEFAULT nextval('s')) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT v';
		CREATE FUNCTION now_too(v timestamptz DEFAULT now()) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN v; END';
		CREATE FUNCTION today(v timestamptz DEFAULT CURRENT_TIMESTAMP) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN v; END';
		CREATE FUNCTION price(a int, r int DEFAULT cur()) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT a * r';
		CREATE FUNCTION bumps(i int, v int DEFAULT bump()) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT i + v';
		CREATE FUNCTION deep(i int DEFAULT bumps(1)) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT i';
		CREATE FUNCTION attr(p pair, v bigint DEFAULT nextval('s')) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT v';
		CREATE VIEW v AS SELECT now_too() AS x; CREATE VIEW w AS SELECT next() AS x FROM t`)
	const h, j, p = "holdable", "joinable", "private"
	f.verdicts([]verdictCase{
		{h, "SELECT fixed()"}, {j, "SELECT now_too()"}, {j, "SELECT today()"}, {j, "SELECT x FROM v"},
		{j, "SELECT price(10)"}, {p, "SELECT next()"}, {p, "SELECT x FROM w"}, {p, "SELECT bumps(1)"}, {p, "SELECT deep()"},
		{p, "SELECT (ROW(1, 2)::pair).attr"},
	})
	f.seenAfter("what a default argument reads", "SELECT price(10)::text", func() error { _, err := f.db.Exec("UPDATE rate SET n = 20"); return err }, true)
	for _, write := range []string{"SELECT bumps(1)", "SELECT deep()", "INSERT INTO t SELECT bumps(1)", "UPDATE t SET n = deep()"} {
		f.seenAfter(write, "SELECT n::text FROM rate", func() error { _, err := f.db.Exec(write); return err }, true)
		f.do("DISCARD ALL")
	}
}

// What runs beside a write may change its session: then another caller must
// get none of its reads, and it none of theirs.
func TestWritesThatMayChangeTheirSessionKeepItToThemselves(t *testing.T) {
	t.Parallel()
	trigger := func(function string) string {
		return "; CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $b$" + function + "$b$; CREATE TRIGGER tr BEFORE INSERT ON ev FOR EACH ROW EXECUTE FUNCTION tr()"
	}
	const (
		set  = "BEGIN PERFORM set_config('app.x', 'y', false); RETURN NEW; END"
		ev   = "CREATE TABLE ev(n int)"
		into = "INSERT INTO ev VALUES (1)"
	)
	for _, c := range []struct {
		name, setup, write string
		changes            bool
	}{
		{"a trigger that sets", ev + trigger(set), into, true},
		{"a trigger that makes a table", ev + trigger("BEGIN CREATE TEMP TABLE IF NOT EXISTS t(n int); RETURN NEW; END"), into, true},
		{"a trigger that locks", ev + trigger("BEGIN PERFORM pg_advisory_lock(1); RETURN NEW; END"), into, true},
		{"a trigger that runs what it is given", ev + trigger("BEGIN EXECUTE 'SELECT 1'; RETURN NEW; END"), into, true},
		{"a trigger that calls", "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $$SELECT set_config('app.x', 'y', false)$$; " + ev + trigger("BEGIN PERFORM f(); RETURN NEW; END"), into, true},
		{"a trigger that calls through a call", `CREATE FUNCTION "F"() RETURNS text LANGUAGE sql AS $$SELECT set_config('app.x', 'y', false)$$; CREATE FUNCTION g() RETURNS text LANGUAGE sql AS 'SELECT "F"()'; ` + ev + trigger("BEGIN PERFORM public.g(); RETURN NEW; END"), into, true},
		{"a trigger that calls a standard body", "CREATE FUNCTION f() RETURNS text LANGUAGE sql RETURN set_config('app.x', 'y', false); " + ev + trigger("BEGIN PERFORM f(); RETURN NEW; END"), into, true},
		{"a trigger whose write has a trigger", ev + trigger(set) + "; CREATE TABLE first(n int); CREATE FUNCTION tr2() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO ev VALUES (1); RETURN NEW; END'; CREATE TRIGGER tr AFTER INSERT ON first EXECUTE FUNCTION tr2()", "INSERT INTO first VALUES (1)", true},
		{"a trigger that reads a view", "CREATE VIEW vset AS SELECT set_config('app.x', 'y', false) AS x; " + ev + trigger("BEGIN PERFORM * FROM vset; RETURN NEW; END"), into, true},
		{"a trigger of a partition", "CREATE TABLE p(n int) PARTITION BY RANGE (n); CREATE TABLE ev PARTITION OF p FOR VALUES FROM (0) TO (9)" + trigger(set), "INSERT INTO p VALUES (1)", true},
		{"a trigger behind a view", ev + trigger(set) + "; CREATE VIEW w AS SELECT n FROM ev", "INSERT INTO w VALUES (1)", true},
		{"a view of the settings", "CREATE VIEW settings AS SELECT * FROM pg_settings; CREATE VIEW mine AS SELECT name, setting FROM settings", "UPDATE mine SET setting = '8MB' WHERE name = 'work_mem'", true},
		{"a trigger's condition", ev + trigger("BEGIN RETURN NEW; END") + "; CREATE TRIGGER c BEFORE INSERT ON ev FOR EACH ROW WHEN (set_config('app.x', 'y', false) = 'y') EXECUTE FUNCTION tr()", into, true},
		{"a default", "CREATE TABLE ev(n int, x text DEFAULT set_config('app.x', 'y', false))", into, true},
		{"a default that calls", "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $$SELECT set_config('app.x', 'y', false)$$; CREATE TABLE ev(n int, x text DEFAULT f())", into, true},
		{"a default argument of a default", "CREATE FUNCTION f(x text DEFAULT set_config('app.x', 'y', false)) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT x'; CREATE TABLE ev(n int, x text DEFAULT f())", into, true},
		{"a default of a domain", "CREATE DOMAIN d AS text DEFAULT set_config('app.x', 'y', false); CREATE TABLE ev(n int, x d)", into, true},
		{"a constraint", "CREATE TABLE ev(n int, CHECK (set_config('app.x', 'y', false) = 'y'))", into, true},
		{"a rule", ev + "; CREATE RULE r AS ON INSERT TO ev DO ALSO SELECT set_config('app.x', 'y', false)", into, true},

		{"no trigger", ev, into, false},
		{"a trigger on its row", ev + trigger("BEGIN NEW.n := coalesce(NEW.n, 0) + random()::int; RETURN NEW; END"), into, false},
		{"a trigger that writes", "CREATE TABLE log(n int); " + ev + trigger("BEGIN INSERT INTO log VALUES (NEW.n) ON CONFLICT DO NOTHING; UPDATE log SET n = n + 1; RETURN NEW; END"), into, false},
		{"a trigger that calls what writes", "CREATE TABLE log(n int); CREATE FUNCTION f(int) RETURNS void LANGUAGE sql AS 'INSERT INTO log VALUES ($1)'; " + ev + trigger("BEGIN PERFORM f(NEW.n); RETURN NEW; END"), into, false},
		{"a trigger that says it in a comment", ev + trigger("BEGIN -- SET app.x = 'y';\nRAISE DEBUG 'EXECUTE set_config()'; RETURN NEW; END"), into, false},
		{"a built-in trigger", ev + "; CREATE TRIGGER tr BEFORE UPDATE ON ev FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", into, false},
		{"a rule that writes", "CREATE TABLE log(n int); " + ev + "; CREATE RULE r AS ON INSERT TO ev DO ALSO INSERT INTO log VALUES (1)", into, false},
		{"a default that calls what writes", "CREATE TABLE log(n int); CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'INSERT INTO log VALUES (1) RETURNING n'; CREATE TABLE ev(n int, x int DEFAULT f(), y serial, z float DEFAULT random())", into, false},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, setup{})
			if strings.Contains(c.setup, " RETURN set_config") && get[int](t, f.plain, "SELECT current_setting('server_version_num')::int") < 140000 {
				t.Skip("this server has no SQL-standard bodies")
			}
			f.by("CREATE TABLE r AS SELECT 1 AS n", c.setup)
			conn := pinned(t, f.db)
			mustExec(t, conn, c.write)
			before := f.stats()
			get[int](t, conn, "SELECT n FROM r")
			after := f.stats()
			same(t, "reads on their own for a changed session", after.PrivateBy[causeSession]-before.PrivateBy[causeSession] == 1, c.changes)
			same(t, "reads on their own", after.Private-before.Private == 1, c.changes)
		})
	}
}

// With these, an INSERT into ev makes its session read x.r where others read
// public.r.
const (
	changesPath  = "PERFORM set_config('search_path', 'x', false)"
	changingEv   = "CREATE TRIGGER tr AFTER INSERT ON public.ev FOR EACH ROW EXECUTE FUNCTION public.tr()"
	intoChanging = "INSERT INTO public.ev VALUES (1)"
	readsByPath  = "SELECT v FROM r"
)

// tablesByPath makes r in two schemas, ev, and the function of a trigger with
// that in its body.
func (f *fixture) tablesByPath(body string) {
	f.Helper()
	f.by("CREATE SCHEMA x", "CREATE TABLE x.r AS SELECT 'x' AS v", "CREATE TABLE public.r AS SELECT 'public' AS v", "CREATE TABLE public.ev(n int)",
		"CREATE FUNCTION public.tr() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "+body+"; RETURN NEW; END$$")
}

// What a statement set off that ran while the schema was changing, the catalog
// tells afterwards.
func TestSessionsInDoubtAreJudgedBeforeTheyShare(t *testing.T) {
	t.Parallel()
	const trigger, write, change, read = changingEv, intoChanging, changesPath, readsByPath
	for name, c := range map[string]struct {
		first   string
		run     []string
		changes bool
	}{
		"a trigger":                    {"", []string{trigger, write}, true},
		"a trigger in a transaction":   {"", []string{"BEGIN", trigger, write, "COMMIT"}, true},
		"a function of a trigger":      {trigger, []string{"CREATE OR REPLACE FUNCTION public.tr() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN " + change + "; RETURN NEW; END$$", write}, true},
		"a view that is read":          {"", []string{"BEGIN", "CREATE VIEW public.w AS SELECT set_config('search_path', 'x', false)", "SELECT FROM public.w", "COMMIT"}, true},
		"a function that is called":    {"", []string{"BEGIN", "CREATE FUNCTION public.f() RETURNS text LANGUAGE sql AS $$SELECT set_config('search_path', 'x', false)$$", "SELECT public.f()", "COMMIT"}, true},
		"a trigger that was there":     {trigger, []string{"CREATE TABLE public.another(n int)", write}, true},
		"no trigger":                   {"", []string{"CREATE TABLE public.another(n int)", write}, false},
		"a table of a transaction":     {"", []string{"BEGIN", "CREATE TABLE public.another(n int)", "INSERT INTO public.another VALUES (1)", write, "COMMIT"}, false},
		"a function that is IMMUTABLE": {"", []string{"BEGIN", "CREATE FUNCTION public.f() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'", "SELECT public.f()", "COMMIT"}, false},
	} {
		for _, pooled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,pooled=%v", strings.ReplaceAll(name, " ", "-"), pooled), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, setup{})
				body := change
				if strings.HasPrefix(name, "a function of") {
					body = "NULL"
				}
				f.tablesByPath(body)
				if c.first != "" {
					f.by(c.first)
				}
				get[int](t, f.db, "SELECT 1 + 1") // loads the catalog
				conn := pinned(t, f.db)
				for _, statement := range c.run {
					mustExec(t, conn, statement)
				}
				changed := f.stats().PrivateBy[causeSession]
				if pooled {
					conn.Close()
					conn = pinned(t, f.db)
					get[string](t, conn, read)
					if n := f.stats().PrivateBy[causeSession] - changed; n > 0 && !c.changes {
						t.Error("a session that is as it was shares nothing")
					}
				} else {
					want := map[bool]string{true: "x", false: "public"}[c.changes]
					same(t, "on it", get[string](t, conn, read), want)
				}
				others := pinned(t, f.db)
				same(t, "elsewhere", get[string](t, others, read), "public")
				if !pooled && !c.changes { // the catalog has been read meanwhile
					shared := f.stats().Private
					get[string](t, conn, read)
					same(t, "read on their own", f.stats().Private, shared)
				}
			})
		}
	}
}

// A statement may have waited for a change that was not under way when it began,
// and may see one before who makes it hears that it is done.
func TestSessionsThatAChangeOvertookAreJudgedBeforeTheyShare(t *testing.T) {
	t.Parallel()
	const trigger, write, read = changingEv, intoChanging, readsByPath
	prepare := func(t *testing.T) *fixture {
		f := newFixture(t, setup{})
		f.tablesByPath(changesPath)
		f.by("CREATE TABLE public.gate(n int)",
			"CREATE PROCEDURE public.make() LANGUAGE plpgsql AS $$BEGIN "+trigger+"; COMMIT; LOCK TABLE public.gate; END$$")
		get[int](t, f.db, "SELECT 1 + 1") // loads the catalog
		return f
	}
	t.Run("by a transaction that commits under it", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		tx := begin(t, f.db, nil)
		mustExec(t, tx, trigger)
		conn := pinned(t, f.db)
		done := askFor[string](bg, conn, write+" RETURNING ''")
		until(t, func() bool {
			return get[int](t, f.plain, "SELECT count(*) FROM pg_locks WHERE relation = 'ev'::regclass AND NOT granted") == 1
		}, says("it waits"))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, done); got.err != nil {
			t.Fatal(got.err)
		}
		same(t, "on it", get[string](t, conn, read), "x")
		same(t, "elsewhere", get[string](t, f.db, read), "public")
	})
	t.Run("by a procedure that has committed and goes on", func(t *testing.T) {
		t.Parallel()
		f := prepare(t)
		release, done := f.lock("gate"), make(chan error, 1)
		go func() { _, err := f.db.Exec("CALL public.make()"); done <- err }()
		until(t, func() bool { return get[int](t, f.plain, "SELECT count(*) FROM pg_trigger WHERE tgname = 'tr'") == 1 }, says("the trigger is there"))
		conn := pinned(t, f.db)
		mustExec(t, conn, write)
		same(t, "on it", get[string](t, conn, read), "x")
		same(t, "elsewhere", get[string](t, f.db, read), "public")
		release()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	})
}

// A session in which something ran while the catalog could not be read is judged
// when it can be.
func TestSessionsOfATimeWithoutACatalogAreJudgedBeforeTheyShare(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{pgx: func(c *pgx.ConnConfig) { c.RuntimeParams["lock_timeout"] = "100ms" }})
	f.tablesByPath(changesPath)
	f.by(changingEv)
	const read = readsByPath
	release := f.lock("pg_catalog.pg_range")
	conn := pinned(t, f.db)
	mustExec(t, conn, "INSERT INTO ev VALUES (1)")
	same(t, "on it, without a catalog", get[string](t, conn, read), "x")
	release()
	until(t, func() bool {
		same(t, "elsewhere", get[string](t, f.db, read), "public")
		return f.stats().Held > 0
	}, says("reads are held"))
	same(t, "on it", get[string](t, conn, read), "x")
}

// What sets off a trigger, or reads a view, is not always a statement by itself.
func TestSessionsOfTextsWithMoreThanOneStatementInThemAreJudgedBeforeTheyShare(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.tablesByPath(changesPath)
	f.by(changingEv, "CREATE VIEW public.w AS SELECT set_config('search_path', 'x', false) AS v")
	for i, text := range []string{
		intoChanging + "; SELECT 1", "SELECT 1; " + intoChanging, "BEGIN; " + intoChanging + "; COMMIT", "CREATE TABLE public.zz(n int); " + intoChanging,
		"EXPLAIN ANALYZE " + intoChanging, "SELECT 1; TABLE public.w", "EXPLAIN ANALYZE TABLE public.w",
		"SELECT v INTO public.zz FROM public.w", "CREATE TABLE public.zz AS SELECT v FROM public.w", "CREATE TABLE public.zz AS TABLE public.w",
		"CREATE TABLE public.zz AS (TABLE public.w)", "CREATE TABLE public.zz AS VALUES (set_config('search_path', 'x', false))",
	} {
		for _, state := range []string{"nothing is known", "the catalog is known", "the schema has changed"} {
			db := openCoalesce(t, f.dsn)
			if state != "nothing is known" {
				get[int](t, db, "SELECT 1 + 1") // loads the catalog
			}
			conn := pinned(t, db)
			if state == "the schema has changed" {
				mustExec(t, conn, fmt.Sprintf("CREATE TABLE public.another%d(n int)", i))
			}
			mustExec(t, conn, text)
			same(t, text+", while "+state+", on it", get[string](t, conn, readsByPath), "x")
			same(t, text+", while "+state+", elsewhere", get[string](t, db, readsByPath), "public")
			conn.Close()
			db.Close()
			f.by("DROP TABLE IF EXISTS public.zz")
		}
	}
}

func TestPooledConnectionInDoubtMayBeReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.db.SetMaxOpenConns(1)
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	name := get[string](t, f.plain, "SELECT quote_ident(current_database())")
	get[int](t, f.db, "SELECT n FROM t")
	f.do("CREATE TABLE another(n int)", "UPDATE t SET n = n", "ALTER DATABASE "+name+" SET work_mem = '8MB'")
	before := f.stats().Private
	same(t, "on a fresh connection", get[int](t, f.db, "SELECT n FROM t"), 1)
	same(t, "reads on their own", f.stats().Private-before, 0)
}

func TestSessionInDoubtThatDiedIsNotReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	get[int](t, f.db, "SELECT n FROM t")
	conn := pinned(t, f.db)
	pid := get[int](t, conn, "SELECT pg_backend_pid()")
	f.do("CREATE TABLE another(n int)")
	mustExec(t, conn, "UPDATE t SET n = n")
	mustExec(t, f.plain, "SELECT pg_terminate_backend($1)", pid)
	if _, err := conn.ExecContext(bg, "UPDATE t SET n = n"); err == nil {
		t.Fatal("a write of a session that was ended succeeds")
	}
	if got, err := column[int](bg, conn, "SELECT n FROM t"); err == nil {
		t.Errorf("a read of a session that was ended gives %v", got)
	}
}

func TestConnectionsInDoubtLoadTheCatalogOnce(t *testing.T) {
	t.Parallel()
	const n = 6
	f := newFixture(t, setup{})
	f.db.SetMaxIdleConns(n)
	f.by("CREATE TABLE t AS SELECT 1 AS n")
	get[int](t, f.db, "SELECT n FROM t")
	f.do("CREATE TABLE another(n int)")
	conns := func() (all []*sql.Conn) {
		for range n {
			all = append(all, pinned(t, f.db))
		}
		return all
	}
	writing := conns()
	for _, c := range writing {
		mustExec(t, c, "INSERT INTO t SELECT FROM t WHERE false")
	}
	for _, c := range writing {
		c.Close()
	}
	reading := conns()
	noErrors(t, receive(t, together(n, func(i int) error {
		_, err := column[int](bg, reading[i], "SELECT n FROM t")
		return err
	})))
	same(t, "catalog loads", f.seen.queries(catalog.Query), 2)
}

// A database that is only written to learns of a change of its schema, or its
// writes would count as ones to everything for ever.
func TestWritesOnConnectionsInDoubtLoadTheCatalog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.db.SetMaxOpenConns(1)
	f.by("CREATE TABLE t(n int)", "CREATE TABLE r AS SELECT 1 AS n")
	others := openCoalesce(t, f.dsn)
	const write, read = "INSERT INTO t VALUES (1)", "SELECT n FROM r"
	mustExec(t, f.db, write)
	mustExec(t, f.db, "CREATE TABLE another(n int)")
	until(t, func() bool {
		get[int](t, others, read)
		mustExec(t, f.db, write)
		before := coalesce.StatsOf(others).Held
		get[int](t, others, read)
		return coalesce.StatsOf(others).Held > before
	}, says("a read of another table is held"))
}

// causeSession is the label of reads on a connection that is not as it was.
const causeSession = "changed session"

// Where built-in types have an operator or a cast of the user's, no name tells.
func TestVolatileOperatorsAndCastsOfBuiltInTypesMakeReadsPrivate(t *testing.T) {
	t.Parallel()
	const h, j, p = "holdable", "joinable", "private"
	for _, c := range []struct{ setup, query, named, reason string }{
		{"CREATE FUNCTION o(text, text) RETURNS text %s LANGUAGE sql AS 'SELECT n::text FROM cfg'; CREATE OPERATOR + (LEFTARG = text, RIGHTARG = text, FUNCTION = o)",
			"SELECT 'a'::text + 'b'::text", "SELECT a + b FROM t", "may use the operator +, whose function is VOLATILE"},
		{"CREATE FUNCTION c(box) RETURNS int %s LANGUAGE sql AS 'SELECT n FROM cfg'; CREATE CAST (box AS int) WITH FUNCTION c(box) AS IMPLICIT",
			"SELECT '1,1,2,2'::box::int", "SELECT abs(x) FROM (SELECT '1,1,2,2'::box AS x FROM t) y", "may use the cast from box to integer, whose function is VOLATILE"},
	} {
		for volatility, verdict := range map[string]string{"VOLATILE": p, "STABLE": j, "IMMUTABLE": h} {
			f := newFixture(t, setup{})
			f.by("CREATE TABLE t AS SELECT 'a'::text AS a, 'b'::text AS b; CREATE TABLE cfg AS SELECT 1 AS n; " + fmt.Sprintf(c.setup, volatility))
			for _, query := range []string{c.query, c.named} {
				f.verdicts([]verdictCase{{verdict, query}})
				if e, err := coalesce.Explain(bg, f.db, query); verdict == p && e.Reason != c.reason {
					t.Errorf("%s: the reason is %q (%v), want %q", query, e.Reason, err, c.reason)
				}
				if verdict != h {
					f.seenAfter(volatility, query, func() error { _, err := f.db.Exec("UPDATE cfg SET n = n + 1"); return err }, true)
				}
			}
		}
	}
}

func TestVolatileCodeIsFoundWhereverItIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by(strings.Split(`CREATE TABLE t(n int); INSERT INTO t VALUES (1), (2);
CREATE SEQUENCE s;
CREATE FUNCTION step(bigint, int) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 + $2';
CREATE FUNCTION step_vol(bigint, int) RETURNS bigint VOLATILE LANGUAGE sql AS $$SELECT nextval('s')$$;
CREATE AGGREGATE moving(int) (SFUNC = step, STYPE = bigint, INITCOND = '0', MSFUNC = step_vol, MINVFUNC = step_vol, MSTYPE = bigint, MINITCOND = '0');
CREATE FUNCTION merged(bigint, bigint) RETURNS bigint VOLATILE LANGUAGE sql AS 'SELECT $1 + $2';
CREATE AGGREGATE combined(int) (SFUNC = step, STYPE = bigint, INITCOND = '0', COMBINEFUNC = merged, PARALLEL = safe);
CREATE AGGREGATE summed(int) (SFUNC = step, STYPE = bigint, INITCOND = '0', MSFUNC = step, MINVFUNC = step, MSTYPE = bigint, MINITCOND = '0');
CREATE TABLE p_next(n int); ALTER TABLE p_next ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON p_next USING (nextval('s') > 0);
CREATE TABLE p_sub(n int); ALTER TABLE p_sub ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON p_sub USING (n IN (SELECT t.n FROM t WHERE random() > 0.5));
CREATE TABLE p_user(n text); ALTER TABLE p_user ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON p_user USING (n = current_setting('app.x', true) OR n = CURRENT_USER);
CREATE TABLE p_write(n int); ALTER TABLE p_write ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON p_write FOR INSERT WITH CHECK (n > random());
CREATE TABLE p_off(n int); CREATE POLICY p ON p_off USING (random() > 0);
CREATE VIEW v_next AS SELECT n FROM p_next;
CREATE DOMAIN past AS timestamptz CHECK (VALUE < now());
CREATE DOMAIN past_too AS past;
CREATE TYPE times AS (a past_too);
CREATE DOMAIN pos AS int CHECK (VALUE > 0);
CREATE DOMAIN pos_too AS pos;
CREATE FUNCTION cmp(text, text) RETURNS int VOLATILE LANGUAGE sql AS 'SELECT bttextcmp($1, $2)';
CREATE OPERATOR CLASS ops FOR TYPE text USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 cmp(text, text);
CREATE TYPE range_vol AS RANGE (subtype = text, subtype_opclass = ops);
CREATE TYPE range_imm AS RANGE (subtype = text);
CREATE TABLE zoned(a timetz, t timestamp); CREATE DOMAIN zone AS timetz; CREATE TABLE zoned_too(a zone)`, ";\n")...)
	const h, j, p = "holdable", "joinable", "private"
	f.verdicts([]verdictCase{
		{p, "SELECT moving(n) OVER (ORDER BY n ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) FROM t"},
		{p, "SELECT combined(n) FROM t"},
		{h, "SELECT summed(n) FROM t"},
		{p, "SELECT n FROM p_next"},
		{p, "SELECT n FROM v_next"},
		{p, "SELECT n FROM p_sub"},
		{j, "SELECT n FROM p_user"},
		{p, "SELECT n FROM p_write"}, // more private than it need be
		{h, "SELECT n FROM p_off"},
		{j, "SELECT '2024-01-01'::past"},
		{j, "SELECT '2024-01-01'::past_too"},
		{j, "SELECT ROW('2024-01-01')::times"},
		{h, "SELECT 1::pos_too"},
		{p, "SELECT '[a,b]'::range_vol"},
		{p, "SELECT range_vol('a', 'b')"},
		{h, "SELECT '[a,b]'::range_imm"},
		{h, "SELECT range_imm('a', 'b')"},
		{j, "SELECT a AT TIME ZONE 'Europe/Berlin' FROM zoned"}, // by the offset of today
		{j, "SELECT a AT TIME ZONE 'Europe/Berlin' FROM zoned_too"},
		{h, "SELECT n, '2024-01-01 10:00'::timestamp AT TIME ZONE 'Europe/Berlin' FROM t"},
	})
}
