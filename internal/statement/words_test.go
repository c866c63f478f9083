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

func TestListsNameBuiltInFunctionsOnce(t *testing.T) {
	builtin := builtinFunctionNames()
	seen := map[string]bool{}
	for _, l := range lists {
		if l.names == newerFunctions {
			continue
		}
		for n := range strings.FieldsSeq(l.names) {
			if builtin[n] == 0 {
				t.Errorf("%s is not built in", n)
			}
			if seen[n] {
				t.Errorf("%s is in two lists", n)
			}
			seen[n] = true
		}
	}
}

func TestNoVolatileFunctionIsShared(t *testing.T) {
	for n, v := range builtinFunctionNames() {
		a := Analyze(`SELECT "` + n + `"()`)
		if v == 'v' && a.Class != Private || v == 's' && a.Class == Holdable && !slices.Contains(strings.Fields(holdableFunctions), n) {
			t.Errorf("%s (%c) is %v", n, v, a.Class)
		}
		if v != 'v' && a.Class != Private && (a.Writes || a.Taints) {
			t.Errorf("%s is shared and writes or taints", n)
		}
	}
}

func TestFunctionsThatReadTheCatalogAreNotShared(t *testing.T) {
	shared := strings.Fields(pureCatalogNames + systemFunctions + storedSizeFunctions + timeFunctions)
	for n := range builtinFunctionNames() {
		if strings.HasPrefix(n, "pg_") && !slices.Contains(shared, n) && Analyze("SELECT "+n+"()").Class != Private {
			t.Errorf("%s is shared", n)
		}
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
