SELECT 1

SELECT 1;

SELECT id, name, email FROM users WHERE id = $1

SELECT * FROM users WHERE email = lower($1) AND deleted_at IS NULL LIMIT 1

SELECT u.id, u.name, count(o.id) AS orders FROM users u LEFT JOIN orders o ON o.user_id = u.id GROUP BY u.id, u.name HAVING count(o.id) > 3 ORDER BY orders DESC

select a, b from t where a in ($1, $2, $3) and b between $4 and $5 order by a nulls last offset 10 rows fetch first 5 rows only

SELECT DISTINCT ON (customer_id) customer_id, created_at FROM orders ORDER BY customer_id, created_at DESC

SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS v (n, word) WHERE v.word LIKE 'o%'

SELECT * FROM (SELECT 1 AS a) x JOIN (SELECT 2 AS a) y USING (a) FULL JOIN z ON (z.a = x.a)

SELECT a FROM t1 UNION ALL (SELECT b FROM t2 EXCEPT SELECT c FROM t3) INTERSECT SELECT d FROM t4

WITH recent AS (SELECT * FROM orders WHERE created_at > $1), big (id, total) AS (SELECT id, total FROM recent WHERE total > 100) SELECT * FROM big

WITH RECURSIVE tree (id, parent, depth) AS (
  SELECT id, parent, 0 FROM nodes WHERE parent IS NULL
  UNION ALL
  SELECT n.id, n.parent, t.depth + 1 FROM nodes n JOIN tree t ON n.parent = t.id
) SEARCH DEPTH FIRST BY id SET ord CYCLE id SET is_cycle USING path
SELECT * FROM tree ORDER BY ord

SELECT sum(x) OVER (PARTITION BY y ORDER BY z ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t

SELECT rank() OVER w, lag(x, 1, 0) OVER (w RANGE BETWEEN '1 day' PRECEDING AND '1 day' FOLLOWING) FROM t WINDOW w AS (ORDER BY d)

SELECT count(*) FILTER (WHERE status = 'open'), percentile_disc(0.9) WITHIN GROUP (ORDER BY ms) FROM requests

SELECT a, b, grouping(a, b) FROM t GROUP BY GROUPING SETS ((a, b), (a), ())

SELECT a, b FROM t GROUP BY ROLLUP (a, b)

SELECT CASE WHEN a > 0 THEN 'plus' WHEN a < 0 THEN 'minus' ELSE 'zero' END FROM t

SELECT a::text, CAST(b AS numeric(9, 2)), c::timestamp with time zone, date '2024-01-02', interval '1 day' FROM t

SELECT ARRAY[1, 2, 3], ARRAY(SELECT id FROM t), a[1], a[1:2], (b).c, (d.e).*, row(1, 2) = row(3, 4) FROM t

SELECT data->'a'->>'b', data #>> '{a,b}', data @> '{"a": 1}', data ? 'k', data ?| ARRAY['a'] FROM docs

SELECT to_tsvector('english', body) @@ plainto_tsquery($1), ts_rank(v, q) FROM docs, to_tsquery($2) q

SELECT * FROM json_to_recordset($1) AS r (id int, name text, tags text[])

SELECT * FROM jsonb_each($1) AS e (key, value), LATERAL jsonb_array_elements(e.value) WITH ORDINALITY AS x (item, n)

SELECT substring(name FROM 1 FOR 3), position('a' IN name), trim(LEADING 'x' FROM name), overlay(name PLACING 'y' FROM 2) FROM t

SELECT extract(epoch FROM created_at), created_at AT TIME ZONE 'UTC', date_trunc('month', created_at) FROM orders

SELECT coalesce(a, b, 0), nullif(a, 0), greatest(a, b), least(a, b) FROM t WHERE a IS NOT DISTINCT FROM b OR NOT (c ISNULL)

SELECT name FROM t WHERE name ILIKE ($1 || '%') AND name NOT SIMILAR TO 'a|b' AND name ~* '^x' AND value LIKE 'y' ESCAPE '\'

SELECT EXISTS (SELECT 1 FROM t WHERE a = ANY ($1)), 1 = ALL (SELECT b FROM t)

SELECT 'it''s', E'tab\there', U&'\0041' UESCAPE '!', b'101', x'1F', $$dollar$$, $q$a $$ b$q$, 'one'
'literal'

SELECT 1e10, .5, 1., 0x1F, 1_000, -1, + 1, - - 1, 2 ^ 3, |/ 4

SELECT "Mixed"."Case", "with ""quotes""", "select" FROM "Mixed"

SELECT /* a comment /* in a comment */ */ 1 -- and a line

/*+ SeqScan(t) */ SELECT * FROM t

SELECT count(*) FROM generate_series(1, 5) g WHERE g = ANY($1::int8[])

SELECT $1::text || '/' || $2::text

TABLE users

VALUES (1, 'a'), (2, 'b') ORDER BY 1

((SELECT 1))

SELECT xmlelement(name item, xmlattributes(a AS id), b), xmlparse(DOCUMENT '<a/>'), xmlserialize(CONTENT x AS text) FROM t

SELECT * FROM xmltable('/a' PASSING $1 COLUMNS b int PATH 'b' DEFAULT 1, c text)

SELECT JSON_OBJECT('a' VALUE 1, 'b': 2 ABSENT ON NULL), JSON_ARRAY(1, 2), JSON_EXISTS(a, '$.b' PASSING 1 AS c) FROM t

SELECT * FROM JSON_TABLE($1, '$[*]' COLUMNS (n FOR ORDINALITY, a int PATH '$.a' DEFAULT 0 ON EMPTY))

SELECT a OPERATOR(pg_catalog.+) b, a OPERATOR(public.<=>) b FROM t ORDER BY a USING <

SELECT a COLLATE "C", b COLLATE "de-x-icu" FROM t

SELECT * FROM ONLY parent, child * WHERE parent.id = child.id

SELECT now()

SELECT CURRENT_TIMESTAMP, current_date, LOCALTIME(3)

SELECT count(*) FROM sessions WHERE expires_at > now()

SELECT 'now()' -- random()

SELECT 'now'::timestamptz, 'today'::date

SELECT current_user, session_user, current_database(), current_schema

SELECT 't'::regclass, 42::regtype

SELECT ctid, xmin FROM t

SELECT "random" FROM (SELECT 1 AS "random") z

SELECT random()

SELECT nextval('seq'), currval('seq'), lastval()

SELECT gen_random_uuid(), clock_timestamp(), pg_sleep(1)

SELECT pg_advisory_lock($1)

SELECT pg_try_advisory_xact_lock(4242)

SELECT set_config('app.tenant', $1, false)

SELECT current_setting('app.tenant')

SELECT pg_notify('c', 'payload')

SELECT pg_backend_pid() + 0

SELECT lo_from_bytea(0, $1), lo_get(1)

SELECT query_to_xml('DELETE FROM t', true, true, '')

SELECT bump()

SELECT n FROM vbump

SELECT public.lower('X'), pg_catalog.lower('X')

SELECT st_distance(a.geom, b.geom) FROM a, b

SELECT a <=> b FROM vectors ORDER BY 1

SELECT a::mood, mood 'happy', CAST(b AS public.mood) FROM t

SELECT * FROM t TABLESAMPLE bernoulli (1) REPEATABLE (42)

SELECT * FROM pg_class

SELECT * FROM pg_catalog.pg_tables WHERE schemaname = 'public'

SELECT * FROM information_schema.columns

SELECT count(*) FROM pg_prepared_statements

SELECT id FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1

SELECT id FROM jobs
ORDER BY id
FOR NO KEY UPDATE OF jobs NOWAIT

SELECT id FROM (SELECT id FROM jobs FOR SHARE) z

SELECT 1 FROM t FOR KEY SHARE

SELECT 'for update'

WITH n AS (SELECT id FROM jobs WHERE st = 'q' LIMIT 1 FOR UPDATE SKIP LOCKED) UPDATE jobs SET st = 'r' FROM n WHERE jobs.id = n.id RETURNING jobs.id

WITH i AS (INSERT INTO t DEFAULT VALUES RETURNING id) SELECT id FROM i

WITH d AS (DELETE FROM t RETURNING *) INSERT INTO archive SELECT * FROM d

WITH x AS (SELECT 'delete from t') SELECT * FROM x

SELECT 1 AS a INTO t

SELECT * INTO TEMP t2 FROM t

INSERT INTO users (name, email) VALUES ($1, $2) RETURNING id

INSERT INTO s.t (a, b) SELECT a, b FROM u ON CONFLICT (a) WHERE b > 0 DO UPDATE SET b = excluded.b, (c, d) = (1, 2)

INSERT INTO t DEFAULT VALUES

INSERT INTO t (a) VALUES (my_function(1)), (gen_random_uuid())

UPDATE t SET a = a + 1, (b, c) = (SELECT 1, 2) WHERE id = $1

DELETE FROM t USING u WHERE t.id = u.id RETURNING t.*

MERGE INTO t USING s ON (t.id = s.id) WHEN MATCHED AND s.x THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)

TRUNCATE a, b CASCADE

COPY t (a, b) FROM STDIN WITH (FORMAT csv)

COPY (SELECT * FROM t) TO STDOUT

CREATE TABLE IF NOT EXISTS t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name varchar(10) NOT NULL DEFAULT '', other int REFERENCES o (id) ON DELETE CASCADE, UNIQUE (name))

CREATE TEMP TABLE t AS SELECT 1

CREATE UNIQUE INDEX CONCURRENTLY i ON t USING btree (lower(name)) INCLUDE (id) WHERE id > 0

CREATE VIEW v (a, b) AS SELECT 1, 2

CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t

CREATE FUNCTION bump() RETURNS int LANGUAGE sql AS 'UPDATE sf SET n=n+1 RETURNING n'

CREATE FUNCTION f(a int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN a; END $$

CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()

CREATE TYPE mood AS ENUM ('sad', 'happy')

CREATE EXTENSION IF NOT EXISTS vector

ALTER TABLE t ADD COLUMN c int DEFAULT 0, ALTER COLUMN name TYPE text USING name::text

DROP TABLE IF EXISTS t CASCADE

GRANT SELECT (a), INSERT ON t TO u

COMMENT ON FUNCTION f(int) IS 'x'

VACUUM (ANALYZE) t (a)

REINDEX TABLE t

REFRESH MATERIALIZED VIEW CONCURRENTLY m

ANALYZE t

BEGIN

START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY

COMMIT

END

ROLLBACK

ABORT

ROLLBACK TO SAVEPOINT s

SAVEPOINT s

RELEASE SAVEPOINT s

COMMIT AND CHAIN

PREPARE TRANSACTION 'x'

COMMIT PREPARED 'x'

ROLLBACK PREPARED 'x'

SET search_path = s1, public

SET LOCAL lock_timeout = '1s'

SET TRANSACTION READ ONLY

SET ROLE appu

SET SESSION AUTHORIZATION DEFAULT

RESET ALL

SHOW search_path

DISCARD ALL

DISCARD PLANS

LISTEN c

UNLISTEN *

NOTIFY c, 'x'

LOCK TABLE t IN ACCESS EXCLUSIVE MODE

DECLARE cu CURSOR FOR SELECT g FROM generate_series(1, 3) g

DECLARE cu CURSOR WITH HOLD FOR SELECT 1

FETCH 1 FROM cu

MOVE ALL FROM cu

CLOSE cu

PREPARE p (int) AS SELECT $1

EXECUTE p (1)

DEALLOCATE ALL

EXPLAIN SELECT * FROM t

EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM t

EXPLAIN ANALYZE INSERT INTO t VALUES (1)

CALL p(1)

DO $$ BEGIN PERFORM 1; END $$

LOAD 'auto_explain'

CHECKPOINT

SELECT 1; SELECT 2

BEGIN; UPDATE t SET a = 1; COMMIT

-- ping

;

SELECT 'unterminated

SELECT /* unterminated

SELECT "unterminated

SELECT $a$ unterminated

SELECT (1

SELECT U&"d\0061t" FROM t

SELECT 'a' 'b'

frobnicate the table

UPSERT INTO t VALUES (1)

SELECT update, delete, insert FROM t

SELECT a AS "insert", b AS "update" FROM t

SELECT name, value, key, type, role, zone, first, next, path FROM settings WHERE value LIKE 'x' AND key IN ('y')

SELECT a FROM data d, values v, zone z (x, y)

SELECT @id, @name FROM t WHERE a = @a

SELECT f.* FROM ROWS FROM (generate_series(1, 2), json_to_record('{}') AS (a int)) f

SELECT a FROM t WHERE (a, b) OVERLAPS (c, d) OR a IS NORMALIZED OR b IS DOCUMENT

SELECT trim(both from a), normalize(b, NFC), collation for (c), a IS JSON OBJECT FROM t
