package statement

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSharing(t *testing.T) {
	for _, c := range []struct {
		name  string
		class Class
		cause string
		sql   []string
	}{
		{"plain reads are held", Holdable, "", []string{
			"SELECT 1",
			"SELECT 1;",
			"SELECT 1 ; -- done",
			"select a, b from t where a = $1 order by b desc limit 10 offset 2",
			"VALUES (1), (2)",
			"TABLE t",
			"((SELECT 1) UNION ALL (SELECT 2)) ORDER BY 1",
			"WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT * FROM x) SELECT * FROM x",
			"WITH x (a, b) AS (SELECT 1, 2), y (c) AS NOT MATERIALIZED (SELECT 3), z AS MATERIALIZED (VALUES (1)) TABLE x",
			"SELECT count(*) FILTER (WHERE a > 1) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
			"SELECT rank() OVER w, percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t WINDOW w AS (PARTITION BY b)",
			"SELECT a FROM t GROUP BY GROUPING SETS ((a), (b)), c HAVING (grouping(a) = 0)",
			"SELECT a FROM t GROUP BY ROLLUP (a, b)", "SELECT a FROM t GROUP BY a, ROLLUP (b), CUBE (c)", "SELECT a FROM t GROUP BY GROUPING SETS (CUBE (a), (b), ROLLUP (c))",
			"SELECT DISTINCT ON (a) a, lower(b) FROM t",
			"SELECT * FROM t FETCH FIRST 5 ROWS ONLY",
			"SELECT * FROM t FETCH NEXT (2) ROWS WITH TIES",
			"SELECT * FROM a JOIN (SELECT 1) b ON (true) LEFT JOIN (SELECT 2) c USING (x) NATURAL JOIN (d CROSS JOIN e)",
			"SELECT * FROM (VALUES (1, 2)) v (a, b), t x (c), generate_series(1, 2) AS g (n)",
			"SELECT * FROM json_to_record($1) AS r (a int, b text[], c numeric(9,2), d pg_catalog.int8, e timestamp with time zone)",
			"SELECT * FROM ROWS FROM (json_to_record('{}') AS (a int), generate_series(1, 2)) WITH ORDINALITY",
			"SELECT substring(a FROM 1 FOR 2), overlay(a PLACING b FROM 1 FOR 2), trim(BOTH 'x' FROM a), position('a' IN b) FROM t",
			"SELECT coalesce(a, b), nullif(a, 1), greatest(a, 1), least(a, 1), extract(year FROM d), row(1, 2), exists(select 1) FROM t",
			"SELECT a LIKE ('x'), a NOT LIKE 'y' ESCAPE '!', a ILIKE ('z'), a SIMILAR TO 'b', a BETWEEN (1) AND (2), a IN (1, 2) FROM t",
			"SELECT a BETWEEN (now_at AT TIME ZONE 'UTC') AND (b + 1), a BETWEEN (b IS NULL) AND (c) FROM t",
			"SELECT sum(a) OVER (w ROWS UNBOUNDED PRECEDING), sum(a) OVER (RANGE BETWEEN 1 PRECEDING AND CURRENT ROW), sum(a) OVER (), sum(a) OVER (w) FROM t WINDOW w AS ()",
			"SELECT name LIKE 'x', value ILIKE ('y'), key NOT LIKE 'z' FROM t",
			"SELECT a = ANY ($1), a = ALL (ARRAY[1, 2]), a[1:2], ARRAY(SELECT 1) FROM t",
			"SELECT CASE WHEN (a) THEN (b) ELSE (c) END FROM t",
			"SELECT d AT TIME ZONE 'UTC', d::date, (d + interval '1 day')::timestamptz(0), date '2020-01-01' FROM t",
			"SELECT x::double precision, x::character varying(3), x::bit varying, x::\"char\", x::pg_catalog.text, CAST(x AS numeric(9, 2)) FROM t",
			"SELECT timestamp with time zone '2020-01-01 00:00:00+00', interval(3) '1 second', x'1F', b'01', n'x', 0x1F, 1_000, 1e5",
			"SELECT to_char(d, 'YYYY'), date_trunc('day', d), json_agg(a), concat(a, b), to_tsvector('english', a) @@ to_tsquery('x') FROM t GROUP BY 1, 2",
			"SELECT pg_catalog.lower(a), \"lower\"(a), a OPERATOR(pg_catalog.+) b FROM t",
			"SELECT '{\"a\":1}'::jsonb ? 'a', a->>'b', a @> b, a #>> '{c}', a !~* b FROM t",
			"SELECT JSON_OBJECT('a': 1), JSON_VALUE(a, '$.b' RETURNING int DEFAULT 1 ON ERROR) FROM t",
			"SELECT * FROM JSON_TABLE($1, '$[*]' COLUMNS (n FOR ORDINALITY, a int PATH '$.a', NESTED PATH '$.b' COLUMNS (c text PATH '$')))",
			"SELECT xmlelement(name foo, xmlattributes(a AS b)), xmlparse(CONTENT '<a/>') FROM t",
			"SELECT 'for update'",
			"SELECT * FROM t WHERE f(x) IS NULL OR 'nextval(1)' = \"random\""[:23],
			"WITH x AS (SELECT 'delete from t') SELECT * FROM x",
			"SELECT \"random\" FROM (SELECT 1 AS \"random\") z",
			"SELECT $$nextval('x'); drop table t$$, $a$ $b$ $$ $a$, a$b$ FROM t",
			"SELECT /* nextval() /* nested */ */ 1 -- random()",
			"SELECT 'known nowhere todays 1now2'"[:28] + "'",
			"SELECT @id FROM t WHERE a = @name",
			"SELECT any_value(a), date_add(b, interval '1 day', 'UTC'), array_sort(c), array_reverse(c), crc32(d), gamma(e), casefold(f) FROM t",
			"SELECT uuid_extract_timestamp(a), unicode_assigned(b), pg_lsn(c), json_agg_strict(d), jsonb_object_agg_unique(e, f) FROM t",
			"SELECT JSON_ARRAY(SELECT a FROM t ORDER BY b RETURNING jsonb), JSON_ARRAYAGG(a ABSENT ON NULL), JSON_SERIALIZE(b RETURNING text) FROM t",
		}},
		{"what changes without a write is only joined", Joinable, CauseTime, []string{
			"SELECT now()", "SELECT CURRENT_TIMESTAMP", "SELECT current_timestamp(3)", "SELECT localtimestamp", "SELECT LOCALTIME",
			"SELECT statement_timestamp()", "SELECT transaction_timestamp()", "SELECT current_date", "SELECT CURRENT_TIME",
			"SELECT count(*) FROM s WHERE current_timestamp < expiry",
			"SELECT 'now()' -- random()", "SELECT 'now'::timestamptz", "SELECT $$ToDay$$::date", "SELECT E'tomorrow'", "SELECT n'yesterday'",
			"SELECT E'\\x6eow'::timestamptz", "SELECT U&'n\\006fw'", "SELECT 'no'\n'w'", "SELECT 'no' -- x\n'w'",
			"SELECT age(d) FROM t", "SELECT d::timetz FROM t", "SELECT d::time with time zone FROM t", "SELECT time(3) with time zone '04:05'",
		}},
		{"what depends on who asks is only joined", Joinable, CauseSession, []string{
			"SELECT current_user", "SELECT SESSION_USER", "SELECT user", "SELECT current_role", "SELECT current_catalog", "SELECT current_schema",
			"SELECT current_schema()", "SELECT current_database()", "SELECT current_schemas(true)", "SELECT system_user",
		}},
		{"catalog look-ups are only joined", Joinable, CauseCatalog, []string{
			"SELECT 't'::regclass", "SELECT regclass 't'", "SELECT CAST($1 AS regtype)", "SELECT version()", "SELECT pg_typeof(1)",
			"SELECT to_regclass('t')", "SELECT obj_description(1)", "SELECT has_table_privilege('t', 'select')", "SELECT pg_get_viewdef('v')",
			"SELECT pg_catalog.pg_get_serial_sequence('t', 'a')", "SELECT format_type($1, NULL)", "SELECT to_regtypemod('varchar(9)')", "SELECT pg_partition_root('t')",
		}},
		{"columns that locks and maintenance change are only joined", Joinable, CauseSystemColumn, []string{
			"SELECT ctid, * FROM t", "SELECT t.xmax FROM t",
		}},
		{"volatile functions are private", Private, CauseVolatile, []string{
			"SELECT nextval('s')", "SELECT random()", "SELECT gen_random_uuid()", "SELECT clock_timestamp()", "SELECT timeofday()",
			"SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock(4242)", "SELECT pg_advisory_xact_lock($1)", "SELECT set_config('a', 'b', false)",
			"SELECT pg_notify('nf', 'x')", "SELECT pg_sleep(1)", "SELECT lo_get(1)", "SELECT setval('s', 1)", "SELECT pg_terminate_backend(1)",
			"SELECT pg_catalog.nextval('s')", "SELECT \"nextval\"('s')", "SELECT NextVal ('s')", "SELECT nextval/**/('s')", "SELECT nextval -- x\n ('s')",
			"SELECT (SELECT (SELECT random()))", "VALUES (random())", "SELECT * FROM random() r", "SELECT 1 ORDER BY random()",
			"SELECT * FROM t TABLESAMPLE bernoulli (10)", "SELECT * FROM t tablesample system (10) repeatable (1)",
			"SELECT query_to_xml('delete from t', true, true, '')", "SELECT table_to_xml('t', true, true, '')", "SELECT ts_stat('select x()')",
			"SELECT 'a' LIKE 'b' ESCAPE random()::text", "SELECT DISTINCT ON (a) random() FROM t", "SELECT a OPERATOR(pg_catalog.+) random() FROM t",
			"SELECT CASE random() WHEN 1 THEN 2 END", "SELECT uuidv7()", "SELECT random(1, 6)", "SELECT random_normal()", "SELECT array_sample(a, 1) FROM t",
		}},
		{"session-bound functions are private", Private, CauseSession, []string{
			"SELECT pg_backend_pid() + 0", "SELECT currval('s')", "SELECT lastval()", "SELECT txid_current()", "SELECT pg_current_xact_id()",
			"SELECT pg_current_snapshot()", "SELECT pg_my_temp_schema()", "SELECT inet_client_addr()", "SELECT inet_server_port()",
			"SELECT pg_listening_channels()", "SELECT current_query()", "SELECT pg_settings_get_flags('a')", "SELECT current_setting('app.tenant')", "SELECT pg_trigger_depth()",
		}},
		{"functions that are not built in are private", Private, CauseUnknownFunction, []string{
			"SELECT bump()", "SELECT dblink('x', 'delete from t')", "SELECT public.lower('x')", "SELECT x.y.lower('x')", "SELECT \"Lower\"('x')",
			"SELECT \"coalesce\"(1)", "SELECT \"user\"(1)", "SELECT public.select(1)", "SELECT treat(a AS int)",
			"SELECT a FROM t GROUP BY a ORDER BY b, rollup(c)", "SELECT t.group by, rollup(a) FROM t", "SELECT a FROM t GROUP BY lower(b, cube(c))",
			"SELECT a FROM t GROUP BY (a, rollup(b))", "SELECT a FROM t GROUP BY a HAVING b IN (c, rollup(d))", "SELECT a FROM (SELECT b FROM t GROUP BY b) u, rollup(c)",
			"SELECT a FROM t GROUP BY a UNION SELECT b, rollup(c) FROM t", "SELECT join(1)", "SELECT NOT ilike(1)", "SELECT value(1)", "SELECT filter(1)", "SELECT over(1)", "SELECT by(1)", "SELECT a FROM set(1)",
			"SELECT DISTINCT ON (a) f(1) FROM t", "SELECT a OPERATOR(pg_catalog.+) f(1) FROM t", "SELECT f (a) FROM t", "SELECT a, f(b) AS (c) FROM t",
			"SELECT * FROM a, f(1) AS (a int)", "WITH x AS (SELECT 1) SELECT 1, y(1)", "SELECT 'a' LIKE 'b' ESCAPE f(1)", "SELECT xmlparse(content f(1))",
			"SELECT JSON_OBJECT('a' VALUE f(1))", "SELECT JSON_OBJECT(value(1): 2)", "SELECT JSON_VALUE(a, '$' PASSING f(1) AS b) FROM t",
			"SELECT JSON_VALUE(a, '$' DEFAULT f(1) ON ERROR) FROM t", "SELECT sum(a) OVER (ORDER BY a RANGE f(1) PRECEDING) FROM t",
			"SELECT 1 FETCH FIRST f(1) ROWS ONLY", "SELECT a AT TIME ZONE f(1) FROM t", "SELECT 1FROM t, f(1)",
			"SELECT \"zone\".f(1) FROM t", "SELECT public.any_value(a) FROM t",
			"SELECT domain_in('1', 1, -1)", "SELECT pg_input_is_valid('1', 'mood')",
		}},
		{"types that are not built in are private", Private, CauseUnknownType, []string{
			"SELECT a::mood FROM t", "SELECT CAST(a AS mood) FROM t", "SELECT mood 'happy'", "SELECT a::public.int4 FROM t", "SELECT public.date '2020-01-01'",
			"SELECT \"integer\" '1'", "SELECT '1'::\"integer\"", "SELECT a::double FROM t", "SELECT a::mood[] FROM t", "SELECT CAST(a AS mood(3)) FROM t",
			"SELECT * FROM json_to_record('{}') AS x(a mood)", "SELECT * FROM json_to_record('{}') AS (a int, b public.mood)",
			"SELECT * FROM json_to_record('{}') x(a mood)", "SELECT length(3) 'x'", "SELECT like 'x'", "SELECT a.float 'x'",
			"SELECT JSON_VALUE(a, '$' RETURNING mood) FROM t", "SELECT * FROM xmltable('x' PASSING a COLUMNS b mood)", "SELECT mood E'x'", "SELECT mood $$x$$",
			"SELECT a::/**/mood FROM t", "SELECT a::setof int FROM t",
			"SELECT * FROM json_to_record('{}') between(a mood)", "SELECT * FROM json_to_record('{}') over(rows mood)",
			"SELECT * FROM f WITH ORDINALITY AS (a mood)", "SELECT a.n'x'", "SELECT json_value 'x'", "SELECT system_user 'x'",
		}},
		{"operators that are not built in are private", Private, CauseOperator, []string{
			"SELECT a <=> b FROM t", "SELECT a OPERATOR(public.+) b FROM t", "SELECT a =@ b FROM t", "SELECT @#@ 24",
		}},
		{"row locks are private in every spelling and at every depth", Private, CauseLock, []string{
			"SELECT id FROM jb ORDER BY id\nFOR UPDATE\nSKIP LOCKED LIMIT 1",
			"SELECT id FROM jb ORDER BY id LIMIT 1 FOR NO KEY UPDATE OF jb SKIP LOCKED -- x",
			"SELECT id FROM (SELECT id FROM jb ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) z",
			"SELECT 1 FROM t FOR SHARE", "SELECT 1 FROM t for/**/key share NOWAIT", "WITH x AS (SELECT 1 FROM t FOR UPDATE) SELECT 1",
			"SELECT 1 FROM t LIMIT 1for update",
		}},
		{"writes are private wherever they stand", Private, CauseWrite, []string{
			"WITH n AS (SELECT id FROM wj WHERE st='q' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) UPDATE wj SET st='r' FROM n WHERE wj.id=n.id RETURNING wj.id",
			"WITH i AS (INSERT INTO wi DEFAULT VALUES RETURNING id) SELECT id FROM i",
			"INSERT INTO wi DEFAULT VALUES RETURNING id", "UPDATE t SET a = 1", "DELETE FROM t", "TRUNCATE t", "COPY t FROM STDIN",
			"MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "SELECT 1 AS a INTO ysi", "SELECT a INTO TEMP b FROM t",
			"SELECT update FROM t", "SELECT t.delete FROM t", "SELECT a AS insert FROM t", "SELECT 1.into FROM t",
			"CREATE TABLE t (a int)", "DROP TABLE t", "ALTER TABLE t ADD b int", "VACUUM t", "GRANT SELECT ON t TO u",
		}},
		{"statements that are no reads are private", Private, CauseNotRead, []string{
			"SHOW x", "SET x = 1", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE INSERT INTO yea VALUES (1)", "CALL p()", "DO $$ $$", "FETCH 1 FROM cu",
			"EXECUTE p", "PREPARE p AS SELECT 1", "DECLARE c CURSOR FOR SELECT 1", "BEGIN", "COMMIT", "LISTEN c", "LOCK TABLE t", "ANALYZE", "FROBNICATE t",
			"(DELETE FROM t)", "", " ", "-- ping", ";", "/* */ ;", "1", "\"select\" 1", "'x'",
		}},
		{"several statements are private", Private, CauseSeveral, []string{
			"SELECT 1; SELECT 2", "SELECT 1;;", ";SELECT 1", "SELECT 1; DELETE FROM t", "BEGIN; COMMIT", "(SELECT 1; SELECT 2)"[1:19],
		}},
		{"catalogs are private", Private, CauseCatalog, []string{
			"SELECT * FROM pg_class", "SELECT * FROM PG_Catalog.pg_class", "SELECT * FROM \"pg_class\"", "SELECT count(*) FROM pg_prepared_statements",
			"SELECT * FROM information_schema.columns", "SELECT * FROM \"information_schema\".tables", "SELECT * FROM pg_stat_activity",
			"TABLE pg_settings", "SELECT * FROM pg_catalog.foo", "SELECT pg_get_viewdef(oid) FROM pg_class", "SELECT pg_stat_get_numscans(1)",
			"SELECT * FROM pg_temp.t", "SELECT * FROM pg_toast.x", "SELECT information_schema._pg_truetypid(1)",
		}},
		{"what is no SQL is private", Private, CauseUnparsed, []string{
			"SELECT 'a", "SELECT \"a", "SELECT $$a", "SELECT $a$ $b$", "SELECT /* a", "SELECT /* /* */", "SELECT \x00 1", "SELECT 'a\x00b'", "SELECT -- \x00\n 1",
			"SELECT U&\"d\\0061t\" FROM t", "SELECT 'a' 'b'", "SELECT 'a' /* */ \n 'b'", "SELECT (1", "SELECT 1)", "SELECT \\ 1", "SELECT $ 1", "SELECT 1\v", "SELECT \"\"",
			"SELECT E'a\\'", "SELECT b'0'/**/\n'1'",
		}},
		{"long texts are private", Private, CauseTooLong, []string{"SELECT '" + strings.Repeat("x", MaxLen) + "'"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			for _, sql := range c.sql {
				if a := Analyze(sql); a.Class != c.class || a.Cause != c.cause {
					t.Errorf("%.200q is %v (%s: %s), want %v (%s)", sql, a.Class, a.Cause, a.Reason, c.class, c.cause)
				}
			}
		})
	}
}

func TestReasonsAreInPlainWords(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT NEXTVAL('s')":               "calls nextval, which is VOLATILE",
		"SELECT 1 FROM t FOR UPDATE":        "locks rows (FOR UPDATE)",
		"SELECT 1 FROM pg_settings":         "reads pg_settings, a system catalog",
		"SELECT bump()":                     "calls bump, which is not built in",
		"SELECT 1::mood":                    "uses the type mood, which is not built in",
		"SELECT now()":                      "calls now, which depends on the time",
		"delete from t":                     "is not a read (DELETE)",
		"SELECT 1; SELECT 2":                "has several statements",
		"SELECT \"Odd\"(1)":                 "calls Odd, which is not built in",
		"WITH x AS (DELETE FROM t) TABLE x": "writes (DELETE)",
	} {
		if got := Analyze(sql).Reason; got != want {
			t.Errorf("%s: reason %q, want %q", sql, got, want)
		}
	}
}

func TestWhatAWriteMayTouch(t *testing.T) {
	for _, c := range []struct {
		sql            string
		writes, schema bool
	}{
		{"SELECT 1", false, false},
		{"SELECT nextval('s')", false, false},
		{"SELECT pg_sleep(1), random(), pg_advisory_lock(1)", false, false},
		{"SELECT setval('s', 1)", true, true},
		{"SELECT lo_unlink(1)", true, true},
		{"SELECT query_to_xml('delete from t', true, true, '')", true, true},
		{"SELECT bump()", true, true},
		{"SELECT a <=> b FROM t", true, true},
		{"SELECT 1::mood", true, true},
		{"SELECT 1 FROM t FOR UPDATE", false, false},
		{"SELECT 1 FROM pg_class", false, false},
		{"SELECT 1 INTO t", true, true},
		{"WITH i AS (INSERT INTO t (a) VALUES (1) RETURNING id) SELECT * FROM i", true, false},
		{"WITH i AS (INSERT INTO t (a) VALUES (f(1)) RETURNING id) SELECT * FROM i", true, true},
		{"INSERT INTO t (a, b) VALUES ($1, $2::mood) ON CONFLICT (a) DO UPDATE SET (a, b) = (1, 2)", true, false},
		{"INSERT INTO t VALUES (f(1))", true, true},
		{"UPDATE t SET a = lower(a)", true, false},
		{"DELETE FROM t USING u WHERE (t.a) = u.a", true, false},
		{"MERGE INTO t USING s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)", true, false},
		{"TRUNCATE t", true, false},
		{"COPY t (a, b) FROM STDIN", true, false},
		{"CREATE TABLE t (a int)", true, true},
		{"REFRESH MATERIALIZED VIEW v", true, true},
		{"SHOW x", false, false},
		{"SET x = 1", false, false},
		{"RESET ALL", false, false},
		{"BEGIN", false, false},
		{"COMMIT", false, false},
		{"COMMIT PREPARED 'x'", true, true},
		{"ROLLBACK PREPARED 'x'", false, false},
		{"SAVEPOINT s", false, false},
		{"RELEASE s", false, false},
		{"LISTEN c", false, false},
		{"NOTIFY c, 'x'", false, false},
		{"FETCH ALL FROM c", false, false},
		{"CLOSE c", false, false},
		{"DISCARD PLANS", false, false},
		{"DEALLOCATE ALL", false, false},
		{"LOCK TABLE t", false, false},
		{"PREPARE p AS DELETE FROM t", false, false},
		{"EXECUTE p", true, true},
		{"CALL p()", true, true},
		{"DO 'x'", true, true},
		{"EXPLAIN SELECT 1", false, false},
		{"EXPLAIN (ANALYZE, BUFFERS) SELECT 1 FROM t", false, false},
		{"EXPLAIN ANALYZE SELECT bump()", true, true},
		{"EXPLAIN ANALYZE DELETE FROM t", true, true},
		{"EXPLAIN ANALYZE EXECUTE p", true, true},
		{"EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1", true, true},
		{"DECLARE c CURSOR FOR SELECT 1", false, false},
		{"DECLARE c CURSOR FOR SELECT bump()", true, true},
		{"SELECT 1; SELECT 2", true, true},
		{"-- ping", false, false},
		{";", false, false},
		{"frobnicate", true, true},
		{"SELECT 'x", true, true},
		{"SELECT '" + strings.Repeat("x", MaxLen) + "'", false, false},
		{"SELECT '" + strings.Repeat("x", maxScan) + "'", true, true},
		{"VACUUM", true, false},
		{"VACUUM (FULL, ANALYZE) t (a, b)", true, false},
		{"ANALYZE t (a)", true, false},
		{"CLUSTER t USING i", true, false},
		{"CHECKPOINT", true, false},
		{"REINDEX INDEX i", true, true},
		{"CREATE TEMP TABLE t AS SELECT 1", true, true},
	} {
		if a := Analyze(c.sql); a.Writes != c.writes || a.Schema != c.schema {
			t.Errorf("%.100s: writes %v, schema %v, want %v, %v", c.sql, a.Writes, a.Schema, c.writes, c.schema)
		}
	}
}

func TestCodeMayHideDDLThatTheTextDoesNotHave(t *testing.T) {
	for sql, sure := range map[string]bool{
		"CALL p(1)": false, "CALL s.p(f(1))": false, "REINDEX TABLE t": false,
		"DO $$ BEGIN UPDATE t SET a = f(1); END $$": false, "DO LANGUAGE plpgsql $x$ BEGIN PERFORM create_order(1); END $x$;": false,
		"do $$ begin null; end $$ language PLPGSQL":     false,
		"DO $$ BEGIN CREATE VIEW v AS SELECT 1; END $$": true, "DO $$ BEGIN Execute 'x' || 'y'; END $$": true, "DO $$ BEGIN ALTER TABLE t ADD b int; END $$": true,
		"DO $$ BEGIN DO E'\\x43'; END $$": true, "DO $$ x $$ LANGUAGE plperl": true, "DO 'x'": true, "DO $$ x $$ LANGUAGE 'plpgsql'": true,
		"CREATE TEMP TABLE t (a int)": false, "CREATE LOCAL TEMPORARY TABLE t AS SELECT f(1)": false,
		"CREATE TEMP VIEW v AS SELECT 1": true, "CREATE TABLE pg_temp.t (a int)": true, "CREATE TABLE temp (temp int)": true, "CREATE PUBLICATION temp FOR TABLE t": true,
		"CREATE TEMP TABLE t (a int); CREATE TABLE u (a int)": true, "CALL p(); ALTER TABLE t ADD b int": true, "EXECUTE p": true,
	} {
		a := Analyze(sql)
		if !a.Writes || !a.Schema || a.Sure.Schema != sure {
			t.Errorf("%s: writes %v, schema %v, surely %v, want %v", sql, a.Writes, a.Schema, a.Sure.Schema, sure)
		}
		// No catalog may say that it does no harm.
		if !sure && !slices.Contains(a.Relations, "") {
			t.Errorf("%s: relations %q", sql, a.Relations)
		}
	}
	for _, sql := range []string{"VACUUM t", "ANALYZE t (a)", "CLUSTER t", "CHECKPOINT"} {
		if a := Analyze(sql); a.Schema || a.Functions != nil || a.Relations != nil || !a.Sure.Writes {
			t.Errorf("%s: %+v", sql, a)
		}
	}
}

func TestLongTextsAreJudgedLikeShortOnes(t *testing.T) {
	long := "/*" + strings.Repeat("x", MaxLen) + "*/ "
	for _, sql := range append(ownCorpus(t), "SET x = 1", "COMMIT", "BEGIN; SET x = 1", "DISCARD ALL", "SELECT pg_advisory_lock(1)", "INSERT INTO t VALUES (f(1))",
		"INSERT INTO t VALUES ($1, '\\')", "ALTER TABLE t ADD b int", "CALL p()", "SELECT 'x", "SELECT a <=> b::mood FROM s.t") {
		a, b := Analyze(sql), Analyze(long+sql)
		if b.Class != Private || b.Sure.Class != Private || b.Cause == "" || b.Key != [32]byte{} {
			t.Errorf("%s, long: %+v", sql, b)
		}
		for _, e := range []*Effect{&a.Effect, &b.Effect, &a.Sure, &b.Sure} {
			e.Class, e.Cause, e.Reason = Private, "", ""
		}
		a.Key = b.Key
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %+v\nlong: %+v", sql, a, b)
		}
	}
}

func TestLongTextsOfManyNamesAreNotKept(t *testing.T) {
	for name, sql := range map[string]string{
		"parentheses": "SELECT " + strings.Repeat("(", 2*MaxLen) + strings.Repeat(")", 2*MaxLen),
		"names":       "SELECT " + strings.Repeat("a", 50) + distinct(20_000, ", aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
	} {
		if a := Analyze(sql); a.Cause != CauseUnparsed || a.Tables != nil || !a.Taints {
			t.Errorf("%s: %s, %d names", name, a.Cause, len(a.Tables))
		}
	}
}

// distinct returns n different words that begin with prefix.
func distinct(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, prefix, i)
	}
	return b.String()
}

func TestTransactions(t *testing.T) {
	for sql, want := range map[string]Tx{
		"BEGIN": TxBegin, "begin work;": TxBegin, "BEGIN ISOLATION LEVEL SERIALIZABLE": TxBegin, "/* x */ START TRANSACTION READ ONLY": TxBegin,
		"COMMIT": TxCommit, "COMMIT AND CHAIN": TxCommit, "END": TxCommit, "END TRANSACTION": TxCommit, "PREPARE TRANSACTION 'x'": TxCommit,
		"ROLLBACK": TxRollback, "ROLLBACK WORK": TxRollback, "ROLLBACK AND CHAIN": TxRollback, "ABORT": TxRollback, "ROLLBACK TRANSACTION;": TxRollback,
		"ROLLBACK TO s": TxNone, "ROLLBACK WORK TO SAVEPOINT s": TxNone, "rollback /* x */ transaction to s": TxNone, "ROLLBACK PREPARED 'x'": TxNone,
		"COMMIT PREPARED 'x'": TxNone, "SAVEPOINT s": TxNone, "RELEASE s": TxNone, "SELECT 1": TxNone, "PREPARE transaction AS SELECT 1": TxNone,
		"BEGIN; SELECT 1": TxNone, "COMMIT; BEGIN": TxNone,
	} {
		if got := Analyze(sql).Tx; got != want {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
}

func TestSettingsOfTheSessionsToCome(t *testing.T) {
	for sql, want := range map[string]bool{
		"ALTER DATABASE d SET x = 1": true, "alter role r in database d reset all": true, "ALTER USER u SET x TO 1": true, "SELECT 1; /* now */ ALTER ROLE ALL SET x = 1": true,
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET x = 1', current_database()); END $$": true,
		"SELECT 1; DO 'x'; DO 'ALTER ROLE r SET x = 1'":                                         true,
		"ALTER TABLE users ADD c int":                                                           false, "CREATE DATABASE d": false, "SET x = 1": false, "DO $$ BEGIN UPDATE users SET n = 1; END $$": false,
		"DO $$ BEGIN EXECUTE 'UPDATE users SET n = 1'; END $$": false,
	} {
		if got := Analyze(sql).Defaults; got != want {
			t.Errorf("%s: got %v, want %v", sql, got, want)
		}
	}
}

func TestTextsThatOnlyDefine(t *testing.T) {
	for sql, want := range map[string]bool{
		"CREATE TABLE t(id int GENERATED BY DEFAULT AS IDENTITY, n int GENERATED ALWAYS AS (id + 1) STORED)": true, "CREATE VIEW v AS SELECT 1 FROM t": true,
		"ALTER TABLE t ADD c int": true, "CREATE INDEX ON t (lower(c))": true, "DROP TABLE t; CREATE TABLE t(n int);": true, "GRANT SELECT ON t TO r": true,
		"BEGIN; VACUUM t; COMMIT": true, "CREATE TYPE e AS ENUM ('a')": true, "CREATE TYPE c AS (n int)": true, "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'TABLE t'": true,
		"INSERT INTO t VALUES (1)": false, "DROP TABLE t; INSERT INTO t VALUES (1); DROP TABLE t": false, "SELECT 1": false, "SELECT v INTO u FROM t": false, "EXPLAIN ANALYZE DELETE FROM t": false,
		"CREATE TABLE u AS SELECT 1": false, "CREATE TEMP TABLE u(a) AS TABLE t": false, "CREATE TABLE u AS ((TABLE t))": false, "CREATE TABLE u AS WITH c AS (TABLE t) TABLE c": false,
		"CREATE TABLE u AS VALUES (f())": false, "CREATE MATERIALIZED VIEW m AS TABLE t": false, "a \x00 b": false,
	} {
		if got := Analyze(sql).Defines; got != want {
			t.Errorf("%s: got %v, want %v", sql, got, want)
		}
	}
}

func TestTaints(t *testing.T) {
	for _, sql := range []string{
		"SET x = 1", "SET SESSION x = 1", "SET TIME ZONE 'UTC'", "SET ROLE r", "SET SESSION AUTHORIZATION r", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
		"SET local.x = 1", "SET local TO 1", "SET transaction_isolation = 'serializable'", "RESET x", "RESET ROLE", "DISCARD PLANS", "DISCARD TEMP",
		"SELECT set_config('a', 'b', true)", "CREATE TEMP TABLE t (a int)", "CREATE LOCAL TEMPORARY VIEW v AS SELECT 1", "SELECT 1 INTO TEMP t",
		"CREATE TABLE pg_temp.t (a int)", "SELECT * FROM pg_temp_3.t", "LOAD 'x'", "LISTEN c", "UNLISTEN *", "DO 'x'", "CALL p()", "EXECUTE p",
		"PREPARE p AS SELECT 1", "DEALLOCATE p", "DEALLOCATE PREPARE p", "DEALLOCATE ALL", "SELECT 1; DEALLOCATE p", "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
		"SELECT bump()", "SELECT setseed(0.5)", "INSERT INTO t (a) VALUES (f(1))", "UPDATE t SET a = public.lower(a)",
		"WITH i AS (INSERT INTO t (a) VALUES (f(1)) RETURNING id) SELECT * FROM i", "COPY (SELECT f(1)) TO STDOUT", "CREATE TABLE t AS SELECT f(1)",
		"CREATE TABLE t AS EXECUTE p", "CREATE INDEX i ON t (f(a))", "ALTER TABLE t ADD c int DEFAULT f(1)", "CREATE EXTENSION x", "EXPLAIN ANALYZE EXECUTE p",
		"INSERT INTO t (a) VALUES (1) RETURNING WITH (OLD AS o, NEW AS n) f(o.a)",
		"SELECT a <=> b FROM t", "SELECT 1; SET x = 1", "SELECT 1; frobnicate", "frobnicate", "SELECT 'x", "SELECT query_to_xml('select f()', true, true, '')",
	} {
		if !Analyze(sql).Taints {
			t.Errorf("%s does not taint", sql)
		}
	}
	for _, sql := range []string{
		"SELECT 1", "SELECT 1; SELECT 2", "SET LOCAL x = 1", "SET LOCAL ROLE r", "SET TRANSACTION READ ONLY", "SET CONSTRAINTS ALL DEFERRED", "DISCARD ALL", "SHOW x",
		"INSERT INTO public.t (a, b) VALUES (1, lower($1)), (nextval('s'), now()) ON CONFLICT (a) WHERE (b) DO UPDATE SET (a, b) = (excluded.a, 1) RETURNING id",
		"INSERT INTO t AS x (a) SELECT a FROM u JOIN (SELECT 1) v ON (true)", "UPDATE t SET (a, b) = (1, 2), c = coalesce(c, 0)", "DELETE FROM t WHERE a IN (1)",
		"MERGE INTO t USING s ON (a = b) WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1, 2)", "TRUNCATE t", "COPY t (a, b) FROM STDIN WITH (FORMAT csv)",
		"MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE RETURNING merge_action(), t.*", "UPDATE t SET a = 1 RETURNING WITH (OLD AS o) o.a, lower(b)",
		"CREATE TABLE IF NOT EXISTS public.t (id bigint GENERATED ALWAYS AS IDENTITY (START 1) PRIMARY KEY, n varchar(10) REFERENCES x (y), m mood(3), UNIQUE (n), FOREIGN KEY (a) REFERENCES z (b), CHECK (a > 1)) PARTITION BY RANGE (a)",
		"CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON ONLY public.t USING btree (lower(a), b) INCLUDE (c) WHERE (b IS NULL)",
		"CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'select 1'", "CREATE TYPE mood AS ENUM ('a')", "CREATE VIEW v (a) AS SELECT 1", "DROP FUNCTION f(int)",
		"ALTER TABLE t ALTER COLUMN a TYPE numeric(9, 2)", "BEGIN", "COMMIT", "SAVEPOINT s", "ROLLBACK TO s", "NOTIFY c", "DECLARE c CURSOR FOR SELECT 1",
		"FETCH 1 FROM c", "SELECT nextval('s')", "SELECT pg_advisory_xact_lock(1)", "SELECT 1 FROM t FOR UPDATE", "SELECT 1::mood", "VACUUM t (a)", "-- ping",
		"SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock_all()",
		"SELECT temp FROM t", "GRANT EXECUTE ON FUNCTION f(int) TO u", "SELECT 1 INTO t", "LOCK TABLE t", "REINDEX TABLE t", "ANALYZE t (a)",
		"INSERT INTO t (a) VALUES ($1)" + strings.Repeat(", ($1)", MaxLen/6),
	} {
		if Analyze(sql).Taints {
			t.Errorf("%s taints", sql)
		}
	}
}

func TestAdvisoryLocksOfTheSession(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT pg_advisory_lock(1)": true, "SELECT pg_try_advisory_lock_shared(1, 2)": true, "SELECT pg_catalog.pg_advisory_unlock(1)": true,
		"SELECT pg_advisory_unlock_all()": true, "SELECT 1; SELECT PG_ADVISORY_LOCK(1)": true, "INSERT INTO t SELECT pg_try_advisory_lock(a) FROM u": true,
		"SELECT pg_advisory_xact_lock(1)": false, "SELECT 'pg_advisory_lock(1)'": false, "LOCK TABLE t": false, "SELECT 1": false,
	} {
		if a := Analyze(sql); a.Sure.Locks != want || a.Locks != want {
			t.Errorf("%s: locks %v and %v, want %v", sql, a.Sure.Locks, a.Locks, want)
		}
	}
}

func TestQueriesThatComputeNothing(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT 1": false, "select $1, 'x', NULL, (true);": false, "VALUES (1, 2), ($1, 'x')": false, "/* - */ SELECT 1 -- + 2": false,
		"SET x = 1": false, "SHOW x": false, "BEGIN": false,
		"SELECT 1 + 1": true, "SELECT -1": true, "SELECT '1'::int": true, "SELECT CAST('1' AS int)": true, "SELECT date '2024-01-01'": true,
		"SELECT 1 LIKE 2": true, "SELECT 1 IN (2)": true, "SELECT 1 UNION SELECT 2": true, "SELECT ARRAY[1]": true, "SELECT CASE 1 WHEN 2 THEN 3 END": true,
		"VALUES (1) ORDER BY 1": true, "SELECT 1; SELECT 1 + 1": true, "SET x = 1; SELECT 1 + 1": true, "EXPLAIN ANALYZE SELECT 1 + 1": true,
		"COPY (SELECT 1 + 1) TO STDOUT": true,
	} {
		if got := Analyze(sql).Computes; got != want {
			t.Errorf("%s: computes %v, want %v", sql, got, want)
		}
	}
}

func TestOnlyDiscardAllAloneCleans(t *testing.T) {
	for sql, want := range map[string]bool{
		"DISCARD ALL": true, "discard all;": true, "/* x */ DISCARD\nALL ; -- y": true,
		"DISCARD PLANS": false, "DISCARD ALL; SET x = 1": false, "DISCARD ALL; SELECT 1": false, "SELECT 1; DISCARD ALL": false, "DISCARD \"all\"": false,
	} {
		if got := Analyze(sql).Cleans; got != want {
			t.Errorf("%s: cleans %v, want %v", sql, got, want)
		}
	}
}

func TestBackslashesInOrdinaryLiteralsAreSeen(t *testing.T) {
	for sql, want := range map[string]bool{
		`SELECT 'a'`: false, `SELECT 'a\b'`: true, `SELECT '\'`: true, `SELECT n'\'`: true, `SELECT 'a' '\'`: true,
		`SELECT 'a'; SELECT '\'`: true, `INSERT INTO t VALUES ('\')`: true, `SET x = '\'`: true, `SELECT date'\'`: true, "SELECT 'a' -- x\n '\\'": true,
		`SELECT '\`: true, "/*" + strings.Repeat("x", MaxLen) + `*/ SELECT '\'`: true, "/*" + strings.Repeat("x", maxScan) + `*/ SELECT '\'`: true,
		`SELECT E'a\nb'`: false, `SELECT $$\$$`: false, `SELECT "\"`: false, `SELECT 1 -- \`: false, `SELECT E'a\'b'`: false,
	} {
		if got := Analyze(sql).Backslash; got != want {
			t.Errorf("%s: %v, want %v", sql, got, want)
		}
	}
}

func TestLiteralsEndWherePostgreSQLEndsThem(t *testing.T) {
	for sql, want := range map[string]Class{
		`SELECT '\', nextval('s')`:                  Private, // the backslash is an ordinary character
		`SELECT E'\', nextval(''s'')'`:              Joinable,
		"SELECT E'a'\n'\\', nextval(''s'') --'":     Joinable, // the second part has the first one's rules
		"SELECT 'a'\n'\\', nextval('s') --'":        Private,
		"SELECT 'a''b', 'nextval(1)'":               Holdable,
		"SELECT $a$ '$a$, nextval('s')":             Private,
		"SELECT $a$ $ab$, nextval('s') $a$":         Holdable,
		"SELECT a$a$, nextval('s') --$a$":           Private, // a$a$ is an identifier
		"SELECT $1$a$, nextval('s') $a$":            Holdable,
		"SELECT \"a\"\"b\", \"nextval(\" FROM t":    Holdable,
		"SELECT 1 /* /* */ , nextval('s') /* */ */": Holdable,
		"SELECT 1 /* */ , nextval('s') /* */":       Private,
		"SELECT 1 --*/\r, nextval('s')":             Private,
		"SELECT 1 @--x\n - nextval('s')":            Private,
		"SELECT 1 */*x*/ nextval('s')":              Private,
		"SELECT U&'\\0027', nextval('s') --'":       Private,
		"SELECT b'1\\', nextval('s')":               Private,
		"SELECT e$a$, nextval('s') --$a$":           Private,
		"SELECT 'ä', \"ü\", nextvalä(1)":            Private,
		"SELECT\u00a0nextval('s')":                  Private,
	} {
		if got := Analyze(sql).Class; got != want {
			t.Errorf("%q: %v, want %v", sql, got, want)
		}
	}
}

func TestKeysOfTextsThatMeanTheSame(t *testing.T) {
	for _, group := range [][]string{
		{"SELECT 1", " SELECT 1", "SELECT 1;", "SELECT 1 ;\n", "SELECT/**/1", "SELECT  \t 1", "/* x */SELECT /* /* y */ */ 1 -- z", "SELECT 1/*traceparent='00-1'*/", "-- a\nSELECT 1; -- b"},
		{"SELECT\n1", "SELECT -- x\n1", "SELECT \r\n\t 1", "SELECT/**/\n1"},
		{"SELECT - - 1", "SELECT -/**/- 1"},
		{"SELECT '/* x */', \"--y\", $$ ; $$", "SELECT '/* x */', /* */ \"--y\", $$ ; $$ ;"},
		{"/*+ SeqScan(t) */ SELECT 1", "/*+ SeqScan(t) */\tSELECT 1 -- x"},
	} {
		for _, sql := range group[1:] {
			if Analyze(sql).Key != Analyze(group[0]).Key {
				t.Errorf("%q and %q have different keys", group[0], sql)
			}
		}
	}
}

func TestKeysOfTextsThatMightDiffer(t *testing.T) {
	texts := []string{
		"SELECT 1", "SELECT\n1", "select 1", "SELECT 1 1", "SELECT '1'", "SELECT ' 1'", "SELECT '  1'", "SELECT '\n1'", "SELECT ' \n1'",
		"SELECT 'a''b'", "SELECT 'a' 'b'", "SELECT 'a'\n'b'", "SELECT 'a/**/b'", "SELECT 'ab'", "SELECT 'a--b'", "SELECT 'a; '", "SELECT 'a;'",
		"SELECT a b", "SELECT ab", "SELECT a/**/b/**/c", "SELECT - -1", "SELECT +1", "SELECT + 1", "SELECT \"a b\"", "SELECT \"a  b\"",
		"SELECT $$a b$$", "SELECT $$a  b$$", "SELECT $a$b$a$", "SELECT $1", "SELECT $1 1", "SELECT $11",
		"/*+ SeqScan(t) */ SELECT 2", "/*+ IndexScan(t) */ SELECT 2", "SELECT 2", "SELECT /*+ SeqScan(t) */ 2",
		"SELECT 5", "SELECT 5 -- \xff", "SELECT 5 /* \xff */", "SELECT 5 /* \u20ac */", "/* \u20ac */ SELECT 5", "-- \u20ac\nSELECT 5", "-- \u20ac SELECT 5",
		"SELECT 3;", "SELECT 3;;", "SELECT 3; SELECT 4", ";SELECT 3", "",
	}
	keys := map[[32]byte]string{}
	for _, sql := range texts {
		k := Analyze(sql).Key
		if other, ok := keys[k]; ok {
			t.Errorf("%q and %q have the same key", sql, other)
		}
		keys[k] = sql
	}
}

func TestTextsThatOnlyACommentMakesValidAreNotShared(t *testing.T) {
	// With the comment gone they would look like a literal on two lines.
	for _, sql := range []string{"SELECT 'a' /* */ \n 'b'", "SELECT 'a'\n/* */'b'", "SELECT 'a'/*\n*/'b'", "SELECT 'a' /*+ x */\n'b'"} {
		if a := Analyze(sql); a.Class != Private {
			t.Errorf("%q is %v", sql, a.Class)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 62) + "ä" + "y"
	for _, c := range []struct {
		sql               string
		tables, functions []string
	}{
		{"SELECT A.b, lower(C) FROM Public.\"Tab\"\"le\" A, public.user JOIN lateral F(1) ON true", []string{"a", "b", "c", "public", `Tab"le`, "user"}, []string{"lower", "user", "f"}},
		{"SELECT current_date, Count(*) FROM data WHERE x.y = CURRENT_USER", []string{"data", "x", "y"}, []string{"current_date", "count", "current_user"}},
		{"INSERT INTO s.t (a) VALUES (f(1))", []string{"s", "t", "a", "f"}, []string{"f"}},
		{"SELECT 1 FROM " + long + ", " + long + "z", []string{long[:62]}, nil},
		{"SELECT 1 FROM " + long[:62] + "\xbf\xbf", []string{long[:62] + "\xbf"}, nil},
		{"TRUNCATE a, b", []string{"a", "b"}, nil},
		{"CREATE TABLE t (a int)", []string{"t", "a", "int"}, nil},
		{"SELECT 1", nil, nil},
	} {
		a := Analyze(c.sql)
		if !slices.Equal(a.Tables, c.tables) || !slices.Equal(a.Functions, c.functions) {
			t.Errorf("%s: tables %q, functions %q, want %q, %q", c.sql, a.Tables, a.Functions, c.tables, c.functions)
		}
	}
	a := Analyze("SELECT a <=> b, c OPERATOR(s.+) d, e::mood, f::s.kind, g <=> h, i::mood FROM t")
	if want := []string{"<=>", "+"}; !slices.Equal(a.Operators, want) {
		t.Errorf("operators %q, want %q", a.Operators, want)
	}
	if want := []string{"mood", "kind"}; !slices.Equal(a.Types, want) {
		t.Errorf("types %q, want %q", a.Types, want)
	}
}

func TestRelations(t *testing.T) {
	for sql, want := range map[string][]string{
		"SELECT a, b.c FROM t, s.u AS b JOIN v USING (x) WHERE d IN (SELECT e FROM w)":                {"t", "v", "w", "u"},
		"SELECT (WITH x AS (SELECT 1) SELECT a FROM t)":                                               {"t"},
		"SELECT * FROM (WITH x AS (SELECT a FROM t) SELECT b FROM x, u) z":                            {"t", "u"},
		"SELECT a = ANY (WITH x AS (SELECT 1) SELECT b FROM t), exists(SELECT FROM u)":                {"t", "u"},
		"SELECT * FROM ROWS FROM (f(a), g(b) AS (c int)) WITH ORDINALITY, t":                          {"t"},
		"SELECT a AS distinct FROM t":                                                                 {"t"},
		"SELECT b.is distinct FROM t":                                                                 {"t"},
		"TABLE ONLY t":                                                                                {"t"},
		"SELECT 1_0.FROM t":                                                                           {"t"},
		"SELECT a IS NOT DISTINCT FROM b FROM t":                                                      {"t"},
		"SELECT * FROM rows, t":                                                                       {"rows", "t"},
		"SELECT JSON_ARRAY(SELECT a FROM t)":                                                          {"t"},
		"SELECT extract(year FROM a), trim(b FROM c), d IS DISTINCT FROM e FROM system_user, f(g), t": {"system_user", "t"},

		"INSERT INTO a (b, c) VALUES (1, 2) ON CONFLICT (b) DO UPDATE SET c = 1": {"a"},
		"INSERT INTO s.a DEFAULT VALUES":                                         {"a"},
		"UPDATE a SET b = c":                                                     {"a"},
		"UPDATE ONLY s.a AS x SET b = 1 FROM d":                                  {"d", "a"},
		"TRUNCATE a, b":                                                          {"a", "b"},
		"TRUNCATE TABLE ONLY a, b":                                               {"a", "b"},
		"COPY a (b, c) FROM STDIN":                                               {"a"},
		"MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN UPDATE SET y = 1":   {"a"},
		"WITH q AS (INSERT INTO a (b) VALUES (1) RETURNING c), r AS (UPDATE d SET e = 1) TABLE q": {"a", "d"},
		"SELECT a FROM b FOR NO KEY UPDATE OF c SKIP LOCKED":                                      {"b"},
	} {
		if got := Analyze(sql).Relations; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

func TestSaysNow(t *testing.T) {
	for s, want := range map[string]bool{
		"now": true, "NOW": true, " today 12:00": true, "2020-tomorrow": true, "yesterday": true, "x1now": true,
		"": false, "known": false, "nowhere": false, "todayz": false, "2020-01-01": false, "no w": false,
	} {
		if got := SaysNow(s); got != want {
			t.Errorf("SaysNow(%q) = %v, want %v", s, got, want)
		}
	}
}

func TestDeepAndLongTextsReturn(t *testing.T) {
	for name, sql := range map[string]string{
		"parentheses":     strings.Repeat("(", 1<<20),
		"fewer":           "SELECT " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000),
		"comments":        strings.Repeat("/*", 100_000),
		"closed-comments": "SELECT 1" + strings.Repeat("/*", 60_000) + strings.Repeat("*/", 60_000),
		"dollars":         "SELECT " + strings.Repeat("$a", 100_000),
		"names":           "SELECT " + strings.Repeat("a(b,", 50_000) + "1" + strings.Repeat(")", 50_000),
		"columns":         "SELECT * FROM x" + strings.Repeat(", a(b) AS (c", 20_000) + strings.Repeat(")", 20_000),
		"operators":       "SELECT 1 " + strings.Repeat("operator(a.", 20_000),
		"literals":        "SELECT ''" + strings.Repeat("\n''", 60_000),
		"signs":           "SELECT 1 " + strings.Repeat("+-", 100_000) + "1",
	} {
		t.Run(name, func(t *testing.T) { Analyze(sql) })
	}
	many := make([]string, 30_000)
	for i := range many {
		many[i] = "t" + string(rune('a'+i%26)) + strings.Repeat("x", i%7) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26))
	}
	Analyze("SELECT " + strings.Join(many, ","))
}

// Analysis is a matter of a moment. In quadratic time each of the longer texts
// would take minutes.
func TestHostileTextsReturn(t *testing.T) {
	for name, unit := range hostile {
		for _, size := range []int{MaxLen, 1 << 20} {
			sql := hostileText(unit, size)
			done := make(chan *Analysis, 1)
			go func() { done <- Analyze(sql) }()
			select {
			case a := <-done:
				if len(sql) > MaxLen && a.Class != Private {
					t.Errorf("%s: %v", name, a.Class)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s of %d bytes: no end", name, len(sql))
			}
		}
	}
}

// Names that a hash without a secret would put into one place of the table.
func TestNamesCannotBeChosenToCollide(t *testing.T) {
	var s nameSet
	var b nameBuffer
	for i := 0; len(s.names) < 10_000; i++ {
		name := strconv.AppendInt(nil, int64(i), 36)
		h := uint32(hashStart)
		for _, c := range name {
			h = (h ^ uint32(c)) * hashPrime
		}
		if (h^h>>15)%(1<<16) < 128 {
			start := len(b.buf)
			b.buf = append(b.buf, name...)
			s.add(&b, start)
		}
	}
	longest, run := 0, 0
	for _, slot := range s.slots {
		run++
		if slot == 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	if longest > 1000 {
		t.Errorf("%d of %d names are in one run", longest, len(s.names))
	}
}

func TestSmallTextsTakeFewAllocations(t *testing.T) {
	// The least of several runs: the pool of scanners may be empty at times.
	least := 1000.0
	for range 20 {
		least = min(least, testing.AllocsPerRun(1, func() { Analyze(tenLines) }))
	}
	if least > 5 {
		t.Errorf("%v allocations", least)
	}
}

func TestConcurrentAnalysesAgree(t *testing.T) {
	texts := ownCorpus(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, sql := range texts {
				a, b := Analyze(sql), Analyze(strings.Clone(sql))
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%q: %+v and %+v", sql, a, b)
				}
			}
		})
	}
	wg.Wait()
}

func TestSplitCutsWherePostgreSQLDoes(t *testing.T) {
	for _, want := range [][]string{
		nil,
		{"SELECT 1"},
		{"SELECT 1;", "SELECT 2;", "SELECT 3"},
		{"-- one;\nSELECT 1;", "/* two; /* nested; */ ; */ SELECT 2 -- here;\n;"},
		{"SELECT ';', E'\\';', U&';', \";\", U&\";\", $$;$$, $a$;$$;$a$;", "SELECT $1;"},
		{"CREATE RULE r AS ON DELETE TO t DO (INSERT INTO u VALUES (1); DELETE FROM v);", "SELECT 1"},
		{"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END;", "BEGIN;", "END;"},
		{"CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $f$ BEGIN RETURN 1; END $f$;", "SELECT f()"},
		{"SELECT ) ;", "SELECT \\ \"\" ;", "SELECT 1"},
		{"SELECT 1;", "SELECT 'never; closed;"},
		{"SELECT 1;", "SELECT /* never; closed;"},
	} {
		if got := Split(strings.Join(want, "\n ")); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	if got := Split("; /* none; */ ;\n-- the end;\n"); len(got) > 0 {
		t.Errorf("got %q of a text without statements", got)
	}
}
