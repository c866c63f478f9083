// Command gen writes the tables of PostgreSQL's built-in names: those of every
// server that its arguments name, which are fresh databases of one major
// version each, as psql takes them:
//
//	go run ./gen 'host=/tmp port=5515' 'host=/tmp port=5516' …
//
// It asks through psql, so that the package needs no dependency to be generated.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// One name stands for all its overloads, so the worst volatility counts: which
// overload a call means depends on types that the text does not show. An
// aggregate is as volatile as the functions that it is made of.
const functionsQuery = `
SELECT p.proname, CASE WHEN bool_or('v' IN (p.provolatile, t.provolatile, f.provolatile)) THEN 2
	WHEN bool_or('s' IN (p.provolatile, t.provolatile, f.provolatile)) THEN 1 ELSE 0 END
FROM (SELECT oid, proname, provolatile FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace) p
LEFT JOIN pg_aggregate a ON a.aggfnoid = p.oid
LEFT JOIN pg_proc t ON t.oid = a.aggtransfn
LEFT JOIN pg_proc f ON f.oid = a.aggfinalfn
GROUP BY p.proname`

const operatorsQuery = `
SELECT DISTINCT oprname, 0 FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
WHERE oprnamespace = 'pg_catalog'::regnamespace`

// An operator name with a VOLATILE function behind it would have to be private.
const volatileOperatorsQuery = `
SELECT DISTINCT oprname, 0 FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode WHERE provolatile = 'v'`

const typesQuery = `
SELECT typname, 0 FROM pg_type
WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype <> 'c' AND typname NOT LIKE '\_pg\_%'
  AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = pg_type.oid AND e.typtype = 'c')`

const keywordsQuery = `SELECT word, strpos('UCTR', catcode::text) - 1 FROM pg_get_keywords()`

// The classes of names in the order of the queries' numbers.
var (
	functions = []table{
		{"immutableFunctions", "are the names of which every overload is IMMUTABLE in every version."},
		{"stableFunctions", "are the names with a STABLE overload and no VOLATILE one."},
		{"volatileFunctions", "are the names with a VOLATILE overload in some version."},
	}
	keywords = []table{
		{"unreservedKeywords", "can name anything, in some version at least."},
		{"columnKeywords", "can name a column, not a function or a type."},
		{"functionKeywords", "can name a function or a type, not a column."},
		{"reservedKeywords", "can name neither a column nor a function."},
	}
	operators = []table{{"builtinOperators", "are the operator names of pg_catalog."}}
	types     = []table{{"builtinTypes", "are the type names of pg_catalog, row types left out."}}
)

type table struct{ name, doc string }

func main() {
	log.SetFlags(0)
	servers := os.Args[1:]
	if len(servers) == 0 {
		log.Fatal("usage: gen connection-string…")
	}
	var versions []string
	for _, s := range servers {
		for v := range query(s, "SELECT current_setting('server_version_num')::int / 10000, 0") {
			versions = append(versions, v)
		}
		if v := query(s, volatileOperatorsQuery); len(v) > 0 {
			log.Fatalf("operators with a volatile function: %v; the package assumes that there are none", v)
		}
	}
	slices.Sort(versions)
	from := strings.Join(versions, ", ")
	write("builtin_functions.go", from, functions, union(servers, functionsQuery))
	write("builtin_operators.go", from, operators, union(servers, operatorsQuery))
	write("builtin_types.go", from, types, union(servers, typesQuery))
	write("builtin_keywords.go", from, keywords, common(servers, keywordsQuery))
}

// union gives the worst class of each name.
func union(servers []string, sql string) map[string]int {
	all := make(map[string]int)
	for _, s := range servers {
		for name, class := range query(s, sql) {
			all[name] = max(all[name], class)
		}
	}
	return all
}

// common gives the class of each keyword that has the same one everywhere, and
// class 0 to the others: where such a word is a name like any other it may call
// a function, and elsewhere nothing is lost by thinking so. If an operand can
// follow it, the scanner's ends must know: look at each that is logged.
func common(servers []string, sql string) map[string]int {
	all, seen := union(servers, sql), make(map[string]int)
	for _, s := range servers {
		for name, class := range query(s, sql) {
			if class == all[name] {
				seen[name]++
			}
		}
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if seen[name] < len(servers) {
			all[name] = 0
			changed = append(changed, name)
		}
	}
	log.Printf("keywords that are not the same in every version: %s", strings.Join(changed, " "))
	return all
}

func query(server, sql string) map[string]int {
	cmd := exec.Command("psql", "-X", "-At", "-F", " ", "-v", "ON_ERROR_STOP=1", "-d", server, "-c", sql)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("psql -d %q: %v", server, err)
	}
	names := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		name, class := "", 0
		if _, err := fmt.Sscan(line, &name, &class); err != nil {
			log.Fatalf("psql -d %q: %q: %v", server, line, err)
		}
		names[name] = class
	}
	return names
}

func write(file, versions string, tables []table, names map[string]int) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by gen from PostgreSQL %s; DO NOT EDIT.\n\npackage statement\n", versions)
	sorted := slices.Sorted(maps.Keys(names))
	for class, t := range tables {
		fmt.Fprintf(&b, "\n// %s %s\nconst %s = \"\"", t.name, t.doc, t.name)
		line := ""
		flush := func() {
			if line != "" {
				fmt.Fprintf(&b, " +\n\t%q", line)
				line = ""
			}
		}
		for _, n := range sorted {
			if names[n] != class {
				continue
			}
			if line += n + " "; len(line) > 90 {
				flush()
			}
		}
		flush()
		b.WriteByte('\n')
	}
	src, err := format.Source(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(file, src, 0o644); err != nil {
		log.Fatal(err)
	}
}
