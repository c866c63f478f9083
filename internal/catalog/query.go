package catalog

// Prelude is to be run before Query, in the same transaction: to compile a
// query of this size takes seconds, and costs of large catalogs suggest it; and
// the statement_timeout of a session is meant for other queries.
const Prelude = `SELECT pg_catalog.set_config(name, CASE name WHEN 'jit' THEN 'off' ELSE '0' END, true)
FROM pg_catalog.pg_settings WHERE name IN ('jit', 'statement_timeout')`

// Query reads from the server's catalog what Parse takes: five columns of
// text, the last two of which may be NULL. It needs no rights, changes
// nothing, and names its schemas, so that it works under any search_path. It
// waits for no lock: what a view, a policy or a default argument uses is read
// off its stored tree, since pg_get_viewdef would wait for whoever alters a
// table that the view names.
//
// A relation comes with the functions that a write to it runs: its triggers',
// and those of the user's that pg_depend knows its defaults and constraints to
// call. Built-in ones are in their trees only, which are searched for those that
// change the session: setseed is 1599, set_config 2078, and advisory locks are
// among what begins with 28. Bodies come with functions that may run so, and
// with those whose names occur in such a body.
//
// Objects of pg_catalog and information_schema are left out, which the
// statement package knows by itself, unless somebody has added them (their
// number is 16384 at least), and temporary tables: a session that has some is
// not clean.
const Query = `WITH RECURSIVE ns AS MATERIALIZED (
	SELECT oid FROM pg_catalog.pg_namespace
	WHERE nspname NOT IN ('pg_catalog', 'information_schema')
	AND nspname NOT LIKE 'pg\_temp\_%' AND nspname NOT LIKE 'pg\_toast%'
), fn AS MATERIALIZED (
	SELECT p.oid, p.proname, v.volatile, p.pronargdefaults > 0 AS defaults,
		v.volatile = 'v' OR p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype AS code,
		l.lanname IN ('plpgsql', 'sql') AND p.prosrc <> '' AS body
	FROM pg_catalog.pg_proc p
	JOIN pg_catalog.pg_language l ON l.oid = p.prolang
	LEFT JOIN pg_catalog.pg_aggregate a ON a.aggfnoid = p.oid
	CROSS JOIN LATERAL (SELECT CASE WHEN a.aggfnoid IS NULL THEN p.provolatile::text ELSE (
		SELECT CASE WHEN pg_catalog.bool_or(q.provolatile = 'v') THEN 'v' WHEN pg_catalog.bool_or(q.provolatile = 's') THEN 's' ELSE 'i' END
		FROM pg_catalog.pg_proc q
		WHERE q.oid IN (p.oid, a.aggtransfn, a.aggfinalfn, a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn)
	) END AS volatile) v
	WHERE p.pronamespace IN (SELECT oid FROM ns) OR p.oid >= 16384 AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
), called AS MATERIALIZED (
	SELECT d.classid, d.objid, fn.proname
	FROM fn
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid = fn.oid
	WHERE fn.volatile = 'v' OR fn.defaults
	UNION ALL
	SELECT d.classid, d.objid, fn.proname
	FROM fn
	JOIN pg_catalog.pg_operator o ON o.oprcode = fn.oid
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.refobjid = o.oid
	WHERE fn.volatile = 'v'
), run AS MATERIALIZED (
	SELECT coalesce(ad.adrelid, co.conrelid, ix.indrelid) AS relid, d.proname
	FROM called d
	LEFT JOIN pg_catalog.pg_attrdef ad ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND ad.oid = d.objid
	LEFT JOIN pg_catalog.pg_constraint co ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND co.oid = d.objid
	LEFT JOIN pg_catalog.pg_index ix ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND ix.indexrelid = d.objid
	UNION ALL
	SELECT a.attrelid, d.proname
	FROM called d
	JOIN pg_catalog.pg_type t ON d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND t.oid = d.objid AND t.typtype = 'd'
	JOIN pg_catalog.pg_attribute a ON a.atttypid = t.oid
	UNION ALL
	SELECT g.tgrelid, p.proname
	FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid
	WHERE NOT g.tgisinternal
), runs AS MATERIALIZED (
	SELECT relid, pg_catalog.string_agg(DISTINCT proname::text, pg_catalog.chr(10)) AS names FROM run GROUP BY relid
), code AS MATERIALIZED (
	SELECT fn.oid, fn.proname, p.prosrc FROM fn JOIN pg_catalog.pg_proc p ON p.oid = fn.oid WHERE fn.code AND fn.body
), reach AS (
	SELECT oid, proname, prosrc FROM code WHERE proname IN (SELECT proname FROM run)
	UNION
	SELECT code.oid, code.proname, code.prosrc
	FROM (
		SELECT DISTINCT word
		FROM reach, pg_catalog.unnest(pg_catalog.string_to_array(pg_catalog.translate(pg_catalog.lower(reach.prosrc),
			'(),;:=."''[]<>|+-*/' || pg_catalog.chr(9) || pg_catalog.chr(10) || pg_catalog.chr(13), pg_catalog.rpad('', 40)), ' ')) AS word
	) w JOIN code ON pg_catalog.lower(code.proname::text) = w.word
), flag AS (
	SELECT tgrelid AS relid, 't' AS flag FROM pg_catalog.pg_trigger WHERE NOT tgisinternal
	UNION SELECT ev_class, 'r' FROM pg_catalog.pg_rewrite WHERE ev_type <> '1'
	UNION SELECT attrelid, CASE WHEN atttypid >= 16384 THEN 'y' ELSE 'z' END -- the first that is not built in
		FROM pg_catalog.pg_attribute WHERE atttypid >= 16384 OR atttypid IN (1266, 1270) -- timetz, and arrays of it
	UNION SELECT a.attrelid, 'z' FROM pg_catalog.pg_type t JOIN pg_catalog.pg_attribute a ON a.atttypid = t.oid WHERE t.typbasetype IN (1266, 1270)
), tree AS MATERIALIZED (
	SELECT 'uses' AS kind, c.relname AS name, w.ev_action::text AS tree
	FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class c ON c.oid = w.ev_class
	WHERE w.ev_type = '1' AND c.relkind = 'v' AND c.relnamespace IN (SELECT oid FROM ns)
	UNION ALL
	SELECT 'argument', p.proname, p.proargdefaults::text
	FROM fn JOIN pg_catalog.pg_proc p ON p.oid = fn.oid
	WHERE fn.defaults AND p.proargdefaults::text ~ ':funcid|:opno|:resulttype|SQLVALUE'
	UNION ALL
	SELECT 'policy', c.relname, pg_catalog.concat(o.polqual::text, o.polwithcheck::text)
	FROM pg_catalog.pg_policy o JOIN pg_catalog.pg_class c ON c.oid = o.polrelid AND c.relnamespace IN (SELECT oid FROM ns)
	UNION ALL
	SELECT 'does', c.relname, e.tree
	FROM (
		SELECT k.relid, k.tree
		FROM (
			SELECT adrelid AS relid, adbin::text AS tree FROM pg_catalog.pg_attrdef
			UNION ALL
			SELECT conrelid, conbin::text FROM pg_catalog.pg_constraint WHERE contype = 'c'
			UNION ALL
			SELECT a.attrelid, t.typdefaultbin::text
			FROM pg_catalog.pg_type t JOIN pg_catalog.pg_attribute a ON a.atttypid = t.oid
			WHERE t.typtype = 'd' AND t.typdefaultbin IS NOT NULL
		) k
		WHERE pg_catalog.strpos(k.tree, ':funcid 1599 ') > 0 OR pg_catalog.strpos(k.tree, ':funcid 2078 ') > 0 OR pg_catalog.strpos(k.tree, ':funcid 28') > 0
		UNION ALL
		SELECT tgrelid, tgqual::text FROM pg_catalog.pg_trigger WHERE tgqual IS NOT NULL
		UNION ALL
		SELECT ev_class, ev_action::text || ev_qual::text FROM pg_catalog.pg_rewrite WHERE ev_type <> '1' AND ev_class >= 16384
	) e JOIN pg_catalog.pg_class c ON c.oid = e.relid AND c.relnamespace IN (SELECT oid FROM ns)
), node AS MATERIALIZED (
	SELECT DISTINCT item.kind, item.name, item.field, id::pg_catalog.oid AS id
	FROM (
		SELECT DISTINCT tree.kind, tree.name, pg_catalog.split_part(item, ' ', 1) AS field, item
		FROM tree, pg_catalog.unnest(pg_catalog.string_to_array(tree.tree, ':')) AS item
	) item,
	pg_catalog.regexp_split_to_table(pg_catalog.btrim(pg_catalog.substring(item.item, '^[a-z_]* (?:[(]o )?([0-9][0-9 ]*)')), ' ') AS id
	WHERE item.field IN ('funcid', 'aggfnoid', 'winfnoid', 'opno', 'opnos', 'eqop', 'sortop', 'relid')
		OR pg_catalog.strpos(item.field, 'typ') > 0 AND item.item ~ ' [0-9]{5}' -- no built-in type
), made AS MATERIALIZED ( -- types with parts or checks, and arrays of them
	SELECT t.oid, coalesce(e.typname, t.typname) AS name
	FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
	WHERE t.oid >= 16384 AND coalesce(e.typtype, t.typtype) IN ('d', 'c', 'r', 'm')
	AND EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE contypid >= 16384)
), flags AS MATERIALIZED (
	SELECT relid, pg_catalog.string_agg(flag, '') AS flags FROM flag GROUP BY relid
)
SELECT 'relation', c.relname::text, c.relkind::text, pg_catalog.concat(flags.flags, CASE WHEN c.relrowsecurity THEN 's' END), runs.names
FROM pg_catalog.pg_class c LEFT JOIN flags ON flags.relid = c.oid LEFT JOIN runs ON runs.relid = c.oid
WHERE c.relnamespace IN (SELECT oid FROM ns) AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
UNION ALL
SELECT node.kind, node.name::text, 'relation', CASE WHEN c.relnamespace NOT IN (SELECT oid FROM ns) THEN 'c' END, c.relname::text
FROM node JOIN pg_catalog.pg_class c ON node.field = 'relid' AND c.oid = node.id AND (node.kind <> 'policy' OR c.oid >= 16384)
UNION ALL
SELECT node.kind, node.name::text, 'function', CASE WHEN p.pronamespace IN (SELECT oid FROM ns) THEN 'u' END, p.proname::text
FROM node
LEFT JOIN pg_catalog.pg_operator o ON node.field IN ('opno', 'opnos', 'eqop', 'sortop') AND o.oid = node.id
JOIN pg_catalog.pg_proc p ON p.oid = CASE
	WHEN node.field IN ('funcid', 'aggfnoid', 'winfnoid') THEN node.id ELSE o.oprcode::pg_catalog.oid END
WHERE node.kind <> 'policy' OR p.provolatile = 'v' OR p.oid >= 16384
UNION ALL
SELECT DISTINCT node.kind, node.name::text, 'type', NULL, t.typname::text
FROM node JOIN pg_catalog.pg_type t ON node.field LIKE '%typ%' AND node.id >= 16384 AND t.oid = node.id
UNION ALL
SELECT tree.kind, tree.name::text, 'word', NULL, word.word
FROM tree JOIN (VALUES
	('time', '{SQLVALUEFUNCTION'),
	('time', ':resulttype 1082 :resultcollid'),
	('time', ':resulttype 1083 :resultcollid'),
	('time', ':resulttype 1114 :resultcollid'),
	('time', ':resulttype 1184 :resultcollid'),
	('time', ':resulttype 1266 :resultcollid'),
	('lock', '{ROWMARKCLAUSE'),
	('sample', '{TABLESAMPLECLAUSE'),
	('xmltable', '{TABLEFUNC')) AS word(word, part) ON pg_catalog.strpos(tree.tree, word.part) > 0
UNION ALL
SELECT 'child', p.relname::text, c.relname::text, NULL, NULL
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE p.relkind IN ('r', 'p', 'f') AND p.relnamespace IN (SELECT oid FROM ns) AND c.relnamespace IN (SELECT oid FROM ns)
UNION ALL
SELECT 'cascade', p.relname::text, c.relname::text, NULL, NULL
FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class p ON p.oid = k.confrelid
JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND p.relnamespace IN (SELECT oid FROM ns) AND c.relnamespace IN (SELECT oid FROM ns)
AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
UNION ALL
SELECT 'function', fn.proname::text, fn.volatile, pg_catalog.concat(
	CASE WHEN p.pronargs - p.pronargdefaults <= 1 AND (t.typtype IN ('c', 'd', 'p') OR t.oid IN (
		SELECT k.casttarget FROM pg_catalog.pg_cast k JOIN pg_catalog.pg_type s ON s.oid = k.castsource AND s.typtype = 'c' WHERE k.castcontext = 'i'
	)) THEN 'a' END,
	CASE WHEN fn.code AND reach.oid IS NULL THEN 'x' END), e.extname::text
FROM fn JOIN pg_catalog.pg_proc p ON p.oid = fn.oid
LEFT JOIN reach ON reach.oid = fn.oid
LEFT JOIN pg_catalog.pg_type t ON t.oid = CASE WHEN p.pronargs = 1 AND p.provariadic > 0 THEN p.provariadic ELSE p.proargtypes[0] END
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = fn.oid AND d.deptype = 'e'
LEFT JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
UNION ALL
SELECT 'body', proname::text, NULL, NULL, prosrc FROM reach
UNION ALL
SELECT 'operator', o.oprname::text, p.provolatile::text, pg_catalog.concat(d.deptype, CASE WHEN o.oprleft < 16384 AND o.oprright < 16384 THEN 'b' END), NULL
FROM pg_catalog.pg_operator o
JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.objid = o.oid AND d.deptype = 'e'
WHERE o.oprnamespace IN (SELECT oid FROM ns) OR o.oid >= 16384 AND o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace
UNION ALL
SELECT 'within', x.name::text, coalesce(e.typname, t.typname)::text, NULL, NULL
FROM (
	SELECT typname AS name, typbasetype AS type FROM pg_catalog.pg_type WHERE typtype = 'd' AND typbasetype >= 16384
	UNION ALL
	SELECT c.relname, a.atttypid
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
	WHERE c.relkind = 'c' AND a.atttypid >= 16384
	UNION ALL
	SELECT t.typname, r.rngsubtype
	FROM pg_catalog.pg_range r
	JOIN pg_catalog.pg_type t ON t.oid IN (r.rngtypid, (pg_catalog.to_jsonb(r) ->> 'rngmultitypid')::pg_catalog.oid) -- not before 14
	WHERE r.rngsubtype >= 16384
) x
JOIN pg_catalog.pg_type t ON t.oid = x.type
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
UNION ALL
SELECT DISTINCT 'within', c.relname::text, made.name::text, NULL, NULL
FROM made JOIN pg_catalog.pg_attribute a ON a.atttypid = made.oid
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relnamespace IN (SELECT oid FROM ns)
UNION ALL
SELECT DISTINCT x.kind, x.name::text, made.name::text, NULL, NULL
FROM (
	-- What it returns too: a literal beside its call, in a COALESCE perhaps, becomes that.
	SELECT 'takes' AS kind, fn.proname AS name, pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes) || p.prorettype) AS type
	FROM fn JOIN pg_catalog.pg_proc p ON p.oid = fn.oid
	UNION ALL
	SELECT 'takes', fn.proname, pg_catalog.unnest(ARRAY[a.aggtranstype, a.aggmtranstype]) -- of which its first value is
	FROM fn JOIN pg_catalog.pg_aggregate a ON a.aggfnoid = fn.oid
	UNION ALL
	SELECT 'operates', oprname, pg_catalog.unnest(ARRAY[oprleft, oprright, oprresult]) FROM pg_catalog.pg_operator
) x JOIN made ON made.oid = x.type
UNION ALL
SELECT 'range', t.typname::text, fn.volatile, NULL, NULL
FROM pg_catalog.pg_range r
JOIN pg_catalog.pg_type t ON t.oid = r.rngtypid
JOIN pg_catalog.pg_opclass o ON o.oid = r.rngsubopc
JOIN pg_catalog.pg_amproc m ON m.amprocfamily = o.opcfamily
JOIN fn ON fn.oid = m.amproc OR fn.oid = r.rngcanonical
UNION ALL
SELECT 'type', t.typname::text, t.typtype::text, p.provolatile::text, pg_catalog.pg_get_constraintdef(k.oid)
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_proc p ON p.oid = t.typinput
LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid AND k.contype = 'c'
WHERE (t.typnamespace IN (SELECT oid FROM ns) OR t.oid >= 16384 AND t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace) AND t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c'
UNION ALL
SELECT 'cast', pg_catalog.concat('the cast from ', pg_catalog.format_type(c.castsource, NULL), ' to ', pg_catalog.format_type(c.casttarget, NULL)),
	fn.volatile, pg_catalog.concat(d.deptype, CASE WHEN c.castsource < 16384 AND c.casttarget < 16384 THEN 'b' END), NULL
FROM pg_catalog.pg_cast c
JOIN fn ON fn.oid = c.castfunc
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_cast'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e'
UNION ALL
SELECT 'domain', t.typname::text, called.proname::text, NULL, NULL
FROM called JOIN pg_catalog.pg_constraint k ON called.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = called.objid
JOIN pg_catalog.pg_type t ON t.oid = k.contypid
UNION ALL
SELECT 'database', pg_catalog.current_database()::text, NULL, NULL, NULL`
