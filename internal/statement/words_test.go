package statement

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

func builtinFunctionNames() map[string]byte {
	names := map[string]byte{}
	for v, list := range map[byte]string{'i': immutableFunctions, 's': stableFunctions, 'v': volatileFunctions} {
		for n := range strings.FieldsSeq(list) {
			names[n] = v
		}
	}
	return names
}

func TestEveryStableOrVolatileFunctionIsInOneList(t *testing.T) {
	builtin := builtinFunctionNames()
	in := map[string]int{}
	for _, l := range lists {
		for n := range strings.FieldsSeq(l.names) {
			in[n]++
			if builtin[n] == 0 && l.names != mergeFunctions {
				t.Errorf("%s is not built in", n)
			}
		}
	}
	for n, times := range in {
		if times > 1 {
			t.Errorf("%s is in %d lists", n, times)
		}
	}
	for n, v := range builtin {
		if v != 'i' && in[n] == 0 {
			t.Errorf("%s (%c) is in no list", n, v)
		}
	}
}

func TestNoVolatileFunctionIsShared(t *testing.T) {
	holdable := strings.Fields(holdableFunctions)
	for n, v := range builtinFunctionNames() {
		a := Analyze(`SELECT "` + n + `"()`)
		if v == 'v' && a.Class != Private || v == 's' && a.Class == Holdable && !slices.Contains(holdable, n) {
			t.Errorf("%s (%c) is %v", n, v, a.Class)
		}
		if v != 'v' && a.Class != Private && (a.Writes || a.Taints) {
			t.Errorf("%s is shared and writes or taints", n)
		}
	}
}

// What the server has and the tables lack is private.
func TestBuiltInNamesAreSharedNoMoreThanTheServerAllows(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT 'SELECT ' || call, bool_or(provolatile = 'v'), coalesce(array_agg(DISTINCT name::text) FILTER (WHERE provolatile = 's'), '{}')
		FROM (
			SELECT format('%I()', proname) AS call, proname AS name, f::oid AS f
			FROM pg_proc p LEFT JOIN pg_aggregate a ON aggfnoid = p.oid,
				unnest(ARRAY[p.oid, aggtransfn, aggfinalfn, aggmtransfn, aggminvtransfn, aggmfinalfn, aggcombinefn, aggserialfn, aggdeserialfn]) AS f
			WHERE pronamespace = 'pg_catalog'::regnamespace
			UNION ALL
			SELECT format('a %s b', oprname), proname, p.oid FROM pg_operator JOIN pg_proc p ON p.oid = oprcode WHERE oprnamespace = 'pg_catalog'::regnamespace
			UNION ALL
			SELECT format('a::%I', typname), proname, p.oid FROM pg_cast JOIN pg_type t ON t.oid = casttarget JOIN pg_proc p ON p.oid = castfunc WHERE typnamespace = 'pg_catalog'::regnamespace
		) x JOIN pg_proc ON oid = f AND oid < 16384 -- the first that is not built in
		GROUP BY call`)
	if err != nil {
		t.Fatal(err)
	}
	var sql string
	var volatile bool
	var stable []string
	holdable := strings.Fields(holdableFunctions)
	n, err := pgx.ForEachRow(rows, []any{&sql, &volatile, &stable}, func() error {
		a := Analyze(sql)
		if volatile && a.Class != Private {
			t.Errorf("%s is VOLATILE, and %v", sql, a.Class)
		}
		for _, name := range stable {
			if a.Class == Holdable && !slices.Contains(holdable, name) {
				t.Errorf("%s is STABLE by %s, and holdable", sql, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n.RowsAffected() == 0 {
		t.Error("the server says nothing")
	}
}

func TestLookUpsInTheCatalogAreJoinedAndDependOnEveryWrite(t *testing.T) {
	for n := range strings.FieldsSeq(catalogFunctions) {
		if a := Analyze("SELECT " + n + "()"); a.Class != Joinable || !a.Opaque {
			t.Errorf("%s is %v, opaque %v", n, a.Class, a.Opaque)
		}
	}
	for n := range strings.FieldsSeq(catalogTypes) {
		if a := Analyze("SELECT now(), $1::" + n); a.Class != Joinable || !a.Opaque {
			t.Errorf("a cast to %s is %v, opaque %v", n, a.Class, a.Opaque)
		}
	}
	for _, sql := range []string{"SELECT now(), a, lower(b), c::text FROM t WHERE d = current_user", "SELECT pg_column_size(a) FROM t"} {
		if a := Analyze(sql); a.Class != Joinable || a.Opaque {
			t.Errorf("%s is %v, opaque %v", sql, a.Class, a.Opaque)
		}
	}
}

func TestWhatAnswersForOneSessionIsPrivate(t *testing.T) {
	for n := range strings.FieldsSeq(sessionFunctions + stateFunctions) {
		if a := Analyze("SELECT " + n + "()"); a.Class != Private {
			t.Errorf("%s is %v", n, a.Class)
		}
	}
}

func TestWhatRunsCodeThatIsNamedIsPrivateUnlessTheCatalogIsKnown(t *testing.T) {
	for n := range strings.FieldsSeq(codeFunctions) {
		if a := Analyze("SELECT " + n + "()"); a.Class != Private || !a.Writes || !a.Taints || a.Sure.Class != Joinable || a.Sure.Writes || a.Sure.Taints || !RunsCode(n) {
			t.Errorf("%s: %+v", n, a)
		}
	}
	if RunsCode("lower") || RunsCode("zz") {
		t.Error("RunsCode is true of others")
	}
}

func TestBuiltInTypesAndOperatorsAreKnown(t *testing.T) {
	for n := range strings.FieldsSeq(builtinTypes) {
		if a := Analyze(`SELECT a::"` + n + `" FROM t`); a.Class == Private {
			t.Errorf("%s: %s", n, a.Reason)
		}
	}
	for n := range strings.FieldsSeq(builtinOperators) {
		if a := Analyze("SELECT a " + n + " b FROM t"); a.Class != Holdable {
			t.Errorf("%s: %s", n, a.Reason)
		}
	}
}

func TestEveryKeywordOfTheRulesIsFound(t *testing.T) {
	for name, k := range keywords {
		w := dict().lookup(hash(name), name, false)
		if w == 0 || dict().words[w].keyword != k {
			t.Errorf("%s is not found", name)
		}
		if w := dict().lookup(hash(name), strings.ToUpper(name), true); w == 0 {
			t.Errorf("%s is not found in capitals", name)
		}
	}
}
