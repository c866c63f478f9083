package statement

import (
	"slices"
	"strings"
	"testing"
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
