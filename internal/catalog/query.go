package catalog

// Prelude is to be run before Query, in the same transaction: to compile a
// query of this size takes seconds, and costs of large catalogs suggest it.
const Prelude = `SELECT pg_catalog.set_config(name, 'off', true) FROM pg_catalog.pg_settings WHERE name = 'jit'`

// Query reads from the server's catalog what Parse takes: five columns of
// text, the last two of which may be NULL. It needs no rights, changes
// nothing, and names its schemas, so that it works under any search_path. It
// waits for no lock: what a view uses is read off its stored tree, since
// pg_get_viewdef would wait for whoever alters a table that the view names.
//
// Objects of pg_catalog and information_schema are left out, which the
// statement package knows by itself, unless somebody has added them (their
// number is 16384 at least), and temporary tables: a session that has some is
// not clean.
const Query = `WITH ns AS MATERIALIZED (
	SELECT oid FROM pg_catalog.pg_namespace
	WHERE nspname NOT IN ('pg_catalog', 'information_schema')
	AND nspname NOT LIKE 'pg\_temp\_%' AND nspname NOT LIKE 'pg\_toast%'
), fn AS MATERIALIZED (
	SELECT p.oid, p.proname, CASE
		WHEN 'v' IN (p.provolatile, t.provolatile, f.provolatile) THEN 'v'
		WHEN 's' IN (p.provolatile, t.provolatile, f.provolatile) THEN 's'
		ELSE 'i' END AS volatile
	FROM pg_catalog.pg_proc p
	LEFT JOIN pg_catalog.pg_aggregate a ON a.aggfnoid = p.oid
	LEFT JOIN pg_catalog.pg_proc t ON t.oid = a.aggtransfn
	LEFT JOIN pg_catalog.pg_proc f ON f.oid = a.aggfinalfn
	WHERE p.pronamespace IN (SELECT oid FROM ns) OR p.oid >= 16384 AND p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
), called AS MATERIALIZED (
	SELECT d.classid, d.objid, fn.volatile
	FROM fn
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid = fn.oid
	WHERE fn.volatile = 'v'
	UNION ALL
	SELECT d.classid, d.objid, fn.volatile
	FROM fn
	JOIN pg_catalog.pg_operator o ON o.oprcode = fn.oid
	JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.refobjid = o.oid
	WHERE fn.volatile = 'v'
), calls AS MATERIALIZED (
	SELECT coalesce(ad.adrelid, co.conrelid, po.polrelid, ix.indrelid) AS relid, po.oid IS NOT NULL AS policy
	FROM called d
	LEFT JOIN pg_catalog.pg_attrdef ad ON d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND ad.oid = d.objid
	LEFT JOIN pg_catalog.pg_constraint co ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND co.oid = d.objid
	LEFT JOIN pg_catalog.pg_policy po ON d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass AND po.oid = d.objid
	LEFT JOIN pg_catalog.pg_index ix ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND ix.indexrelid = d.objid
), flag AS (
	SELECT relid, CASE WHEN policy THEN 'p' ELSE 'c' END AS flag FROM calls
	UNION SELECT tgrelid, 't' FROM pg_catalog.pg_trigger WHERE NOT tgisinternal
	UNION SELECT ev_class, 'r' FROM pg_catalog.pg_rewrite WHERE ev_type <> '1'
	UNION SELECT attrelid, 'y' FROM pg_catalog.pg_attribute WHERE atttypid >= 16384 -- the first that is not built in
), tree AS MATERIALIZED (
	SELECT c.relname, w.ev_action::text AS tree
	FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class c ON c.oid = w.ev_class
	WHERE w.ev_type = '1' AND c.relkind = 'v' AND c.relnamespace IN (SELECT oid FROM ns)
), node AS MATERIALIZED (
	SELECT DISTINCT tree.relname, m[1] AS field, id::pg_catalog.oid AS id
	FROM tree, pg_catalog.regexp_matches(tree.tree, ':(funcid|aggfnoid|winfnoid|opnos?|eqop|sortop|relid|[a-z_]*typ[a-z]*) (?:[(]o )?([0-9][0-9 ]*)', 'g') AS m,
	pg_catalog.regexp_split_to_table(pg_catalog.btrim(m[2]), ' ') AS id
), flags AS MATERIALIZED (
	SELECT relid, pg_catalog.string_agg(flag, '') AS flags FROM flag GROUP BY relid
)
SELECT 'relation', c.relname::text, c.relkind::text, pg_catalog.concat(flags.flags, CASE WHEN c.relrowsecurity THEN 's' END), NULL
FROM pg_catalog.pg_class c LEFT JOIN flags ON flags.relid = c.oid
WHERE c.relnamespace IN (SELECT oid FROM ns) AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
UNION ALL
SELECT 'uses', node.relname::text, 'relation', CASE WHEN c.relnamespace NOT IN (SELECT oid FROM ns) THEN 'c' END, c.relname::text
FROM node JOIN pg_catalog.pg_class c ON node.field = 'relid' AND c.oid = node.id
UNION ALL
SELECT 'uses', node.relname::text, 'function', CASE WHEN p.pronamespace IN (SELECT oid FROM ns) THEN 'u' END, p.proname::text
FROM node
LEFT JOIN pg_catalog.pg_operator o ON node.field IN ('opno', 'opnos', 'eqop', 'sortop') AND o.oid = node.id
JOIN pg_catalog.pg_proc p ON p.oid = CASE
	WHEN node.field IN ('funcid', 'aggfnoid', 'winfnoid') THEN node.id ELSE o.oprcode::pg_catalog.oid END
UNION ALL
SELECT DISTINCT 'uses', node.relname::text, 'type', NULL, t.typname::text
FROM node JOIN pg_catalog.pg_type t ON node.field LIKE '%typ%' AND node.id >= 16384 AND t.oid = node.id
UNION ALL
SELECT 'uses', tree.relname::text, 'word', NULL, word.word
FROM tree JOIN (VALUES
	('time', '{SQLVALUEFUNCTION|:resulttype (1082|1083|1114|1184|1266) :resultcollid'),
	('lock', '{ROWMARKCLAUSE'),
	('sample', '{TABLESAMPLECLAUSE'),
	('xmltable', '{TABLEFUNC')) AS word(word, pattern) ON tree.tree ~ word.pattern
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
SELECT 'function', fn.proname::text, fn.volatile, CASE WHEN p.pronargs - p.pronargdefaults <= 1 AND t.typtype IN ('c', 'd', 'p') THEN 'a' END, e.extname::text
FROM fn JOIN pg_catalog.pg_proc p ON p.oid = fn.oid
LEFT JOIN pg_catalog.pg_type t ON t.oid = p.proargtypes[0]
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = fn.oid AND d.deptype = 'e'
LEFT JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
UNION ALL
SELECT 'operator', o.oprname::text, p.provolatile::text, d.deptype::text, NULL
FROM pg_catalog.pg_operator o
JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_operator'::pg_catalog.regclass AND d.objid = o.oid AND d.deptype = 'e'
WHERE o.oprnamespace IN (SELECT oid FROM ns) OR o.oid >= 16384 AND o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace
UNION ALL
SELECT 'type', t.typname::text, t.typtype::text, p.provolatile::text, pg_catalog.pg_get_constraintdef(k.oid)
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_proc p ON p.oid = t.typinput
LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid AND k.contype = 'c'
WHERE (t.typnamespace IN (SELECT oid FROM ns) OR t.oid >= 16384 AND t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace) AND t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c'
UNION ALL
SELECT 'cast', pg_catalog.concat('the cast from ', pg_catalog.format_type(c.castsource, NULL), ' to ', pg_catalog.format_type(c.casttarget, NULL)),
	fn.volatile, d.deptype::text, NULL
FROM pg_catalog.pg_cast c
JOIN fn ON fn.oid = c.castfunc
LEFT JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_cast'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e'
UNION ALL
SELECT 'domain', t.typname::text, called.volatile, NULL, NULL
FROM called JOIN pg_catalog.pg_constraint k ON called.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND k.oid = called.objid
JOIN pg_catalog.pg_type t ON t.oid = k.contypid
UNION ALL
SELECT 'database', pg_catalog.current_database()::text, NULL, NULL, NULL`
