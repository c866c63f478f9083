package oracle

import (
	"flag"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coalesce-pgx/coalesce/internal/statement"
	pg_query "github.com/pganalyze/pg_query_go/v6"
)

var mutations = flag.Int("mutations", 4, "mutations of each statement and token in TestMutants")

// words returns every keyword but the reserved ones, and names that are none.
func words(t testing.TB) []string {
	t.Helper()
	src, err := os.ReadFile("../builtin_keywords.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(src), "const functionKeywords")
	out := []string{"zz", "path", `"zz"`, "public.zz", "pg_catalog.zz", "pg_catalog.join"}
	for _, m := range regexp.MustCompile(`"([a-z_ ]+)"`).FindAllStringSubmatch(text, -1) {
		out = append(out, strings.Fields(m[1])...)
	}
	return out
}

// The shapes in which a word can hide a call, a type, an operator or a write.
// W is the word.
var shapes = []string{
	"W(1)", "W (a)", "W(a int)", "W(a, b)", "W()", "W(select 1)", "W(a zz)", "W (zz 'x')", "W(1) 'x'",
	"W 'x'", "::W", "AS W", "AS x(a W)", "AS (a W)", "W(1) W(2)", "zz(1) W (a int)", "W zz(1)", "W zz 'x'", "zz W", "W zz",
	"CAST(a AS W)", "operator(W.+)", "operator(W.+) zz(1)", "<=> W", "W.zz(1)", "zz.W(1)", "a.W 'x'",
	", W(1)", ", W(a) AS (select 1)", ", W(a) AS (a int)", "WITH W(a) AS (select zz(1))", "DISTINCT ON (a) W(1)",
	"NOT W(1)", "NOT W 'x'", "JOIN W(1) ON true", "W JOIN zz(1) ON true", "W (zz(1))", "FILTER (WHERE W(1))", "OVER (W zz)",
	"FOR UPDATE OF W", "INTO W", "TABLESAMPLE W(1)", "FETCH FIRST W(1) ROWS ONLY", "W $$x$$", "W E'x'", "W--\n(1)", "W/*x*/(1)",
	"$1W(1)", "1W(1)", "W VALUE zz(1)", "W : zz(1)", "PASSING W(1) AS x", "RETURNING W", "ESCAPE W(1)", "COLUMNS (a W)", "PATH W(1)", "DEFAULT W(1)",
	"GROUP BY a, W(b)", "GROUP BY W", ".group by, W(b)", "GROUPING SETS (W(b), zz(1))", "ORDER BY a, W(b)", "FROM W", "FROM W FROM (zz(1))",
	"(WITH a AS (SELECT 1) SELECT b FROM W)", "JSON_ARRAY(SELECT a FROM W)", "JSON_ARRAY(WITH a AS (SELECT 1) SELECT b FROM W, zz(1))",
}

// mutants calls f with variants of sql, one or two shapes in each, that may or
// may not be SQL.
func mutants(rnd *rand.Rand, sql string, words []string, perToken int, f func(string)) {
	scan, err := pg_query.Scan(sql)
	if err != nil {
		return
	}
	shape := func() string {
		return strings.ReplaceAll(shapes[rnd.IntN(len(shapes))], "W", words[rnd.IntN(len(words))])
	}
	for i, tok := range scan.Tokens {
		for range perToken {
			from, to := int(tok.Start), int(tok.Start)
			switch rnd.IntN(4) {
			case 0: // in the place of the token
				to = int(tok.End)
			case 1: // in the place of the token and a few more
				to = int(scan.Tokens[min(i+rnd.IntN(4), len(scan.Tokens)-1)].End)
			}
			rest := sql[to:]
			if rnd.IntN(3) == 0 { // and another one further on
				if next := scan.Tokens[i+rnd.IntN(min(8, len(scan.Tokens)-i))]; int(next.Start) >= to {
					rest = sql[to:next.Start] + shape() + " " + sql[next.Start:]
				}
			}
			f(sql[:from] + shape() + " " + rest)
		}
	}
}

func TestMutants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, uint64(*mutations)))
	w := words(t)
	tried, parsed := 0, 0
	for _, sql := range corpus(t) {
		if len(sql) > 600 || !shareable(sql) {
			continue
		}
		if tree, err := pg_query.Parse(sql); err != nil || len(tree.Stmts) != 1 {
			continue
		}
		mutants(rnd, sql, w, *mutations, func(m string) {
			tried++
			tree, err := pg_query.Parse(m)
			if err != nil {
				return
			}
			parsed++
			check(t, m, tree)
		})
	}
	t.Logf("%d of %d mutants parsed", parsed, tried)
}

// fragments are the pieces of PostgreSQL's lexical grammar that can hide what
// stands behind them.
var fragments = strings.Split(`'|''|"|""|\|\'|E'|e'|U&'|u&"|N'|n'|B'|x'|$$|$a$|$a|a$|a$a$|$1|$|1|1.|.5|1e|1e5|0x1|1_0|..|a|b|ä|zz(1)|zz(1)|zz(1)|, zz(1)|,|, a|,1|`+
	` | |  |--|--|/*|/*|*/|*/|//|/|*|+|-|=|@|!|<|>|%|?|&&|(|)|[|]|:|::|::text|::zz| FROM t| FOR UPDATE|nextval('s')|'now'| UESCAPE '!'|;|; |AS | AS a|operator(+)|#`, "|")

func TestLexicalMutants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, uint64(*mutations)))
	all := append(fragments, "\n", "\n", "\r", "\t", "\f", "\v", "\u00a0", "||", "|", " \n ", "'\n'", "' --x\n'")
	parsed, tries := 0, 50_000**mutations
	for range tries {
		sql := "SELECT "
		for range 2 + rnd.IntN(12) {
			sql += all[rnd.IntN(len(all))]
		}
		tree, err := pg_query.Parse(sql)
		if err != nil {
			continue
		}
		parsed++
		check(t, sql, tree)
	}
	t.Logf("%d of %d texts parsed", parsed, tries)
}

var locations = regexp.MustCompile(`,?"(location|stmt_location|stmt_len|list_start|list_end|rexpr_list_start|rexpr_list_end)":-?[0-9]+`)

// outcome is the parse tree without places in the text, or an error.
func outcome(sql string) string {
	tree, err := pg_query.ParseToJSON(sql)
	if err != nil {
		return "error"
	}
	return locations.ReplaceAllString(tree, "")
}

func TestEqualKeysMeanEqualTrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, uint64(*mutations)))
	pieces := append(strings.Split(`'a'|'b'|E'a'|U&'a'|'a''b'|"a"|"b"|$$a$$|$a$ b $a$|1|.5|1e|a|b|e|u&|n|x|+|-|*|/|@|=|<|,|, |::text|::|:|.|(a)|zz|AS|;|$1|'|$|"`, "|"),
		"/**/", "/* a */", "/*\n*/", "/*+ a */", "-- a\n", "--\r", "\n", "\n", " ", " ", " ", "\t", "\f", "--")
	type seen struct{ sql, outcome string }
	keys := map[[32]byte]seen{}
	same := 0
	for range 20_000 * *mutations {
		sql := "SELECT "
		for range 2 + rnd.IntN(5) {
			sql += pieces[rnd.IntN(len(pieces))]
		}
		if rnd.IntN(2) == 0 {
			sql += pieces[rnd.IntN(len(pieces))] + ";" + pieces[rnd.IntN(len(pieces))]
		}
		a := statement.Analyze(sql)
		if a.Class == statement.Private {
			continue
		}
		s, ok := keys[a.Key]
		if !ok {
			keys[a.Key] = seen{sql, outcome(sql)}
			continue
		}
		if s.sql == sql {
			continue
		}
		same++
		if got := outcome(sql); got != s.outcome {
			t.Errorf("%q and %q have the same key:\n%.300s\n%.300s", s.sql, sql, s.outcome, got)
		}
	}
	t.Logf("%d texts had the key of another one", same)
}

// FuzzAgainstParser looks for texts that the parser takes for more than the
// scanner does.
func FuzzAgainstParser(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 3))
	w := words(f)
	for i, sql := range corpus(f) {
		if i%40 == 0 && len(sql) < 300 {
			f.Add(sql)
			mutants(rnd, sql, w, 1, func(m string) {
				if rnd.IntN(20) == 0 {
					f.Add(m)
				}
			})
		}
	}
	f.Fuzz(func(t *testing.T, sql string) {
		// libpg_query recurses, and cannot be handed a NUL byte.
		if len(sql) > 1000 || strings.Count(sql, "(") > 100 || strings.IndexByte(sql, 0) >= 0 {
			return
		}
		if tree, err := pg_query.Parse(sql); err == nil {
			check(t, sql, tree)
		}
	})
}
