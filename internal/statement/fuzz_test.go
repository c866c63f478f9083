package statement

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// ownCorpus returns the project's own statements.
func ownCorpus(tb testing.TB) []string {
	tb.Helper()
	text, err := os.ReadFile("testdata/corpus.sql")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n\n")
}

// corpus returns the statements of PostgreSQL's regression suite that lie
// beside the repository, or the project's own.
func corpus(tb testing.TB) []string {
	tb.Helper()
	dir, up := "../../", "../shared/corpus/pg-regress.jsonl.gz" // the repository's root, and the suite seen from it
	f, err := os.Open(dir + up)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Log("PostgreSQL's regression suite is not there; taking the project's own corpus")
		return ownCorpus(tb)
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for sc := bufio.NewScanner(z); sc.Scan(); {
		var line struct{ SQL string }
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			tb.Fatal(err)
		}
		out = append(out, line.SQL)
	}
	return out
}

func checkInvariants(t *testing.T, sql string) *Analysis {
	t.Helper()
	a := Analyze(sql)
	if a.Class != Private && (a.Writes || a.Schema || a.Taints || a.Cleans || a.Tx != TxNone || a.Operators != nil || a.Types != nil) {
		t.Errorf("%q is %v, and yet %+v", sql, a.Class, a)
	}
	if (a.Class == Holdable) != (a.Cause == "") {
		t.Errorf("%q is %v because of %q", sql, a.Class, a.Cause)
	}
	if a.Schema && !a.Writes {
		t.Errorf("%q changes the schema and does not write", sql)
	}
	if a.Cause != CauseUnparsed && a.Cause != CauseTooLong && a.Cause != CauseSeveral {
		var n normalizer
		l := lexer{sql: sql, dict: dict(), norm: &n}
		for t := l.next(); t.kind != tokEOF; t = l.next() {
		}
		if normal := Analyze(string(n.form())); normal.Key != a.Key || normal.Class != a.Class || normal.Cause != a.Cause {
			t.Errorf("%q: %+v\nnormal form %q: %+v", sql, a, n.form(), normal)
		}
	}
	if parts := Split(sql); len(parts) > 1 && a.Cause != CauseUnparsed && a.Cause != CauseTooLong && a.Cause != CauseSeveral {
		t.Errorf("%q is one statement, and yet split into %q", sql, parts)
	}
	if again := Analyze(sql); !reflect.DeepEqual(a, again) {
		t.Errorf("%q: %+v, then %+v", sql, a, again)
	}
	return a
}

// gaps returns where the tokens of sql start, and whether white space is there.
func gaps(sql string) (starts []int, spaced []bool) {
	l := lexer{sql: sql, dict: dict()}
	end := 0
	for t := l.next(); t.kind != tokEOF && t.kind != tokBad; t = l.next() {
		starts, spaced = append(starts, t.start), append(spaced, t.start > end)
		end = t.end
	}
	return starts, spaced
}

// checkComments puts a comment in front of tokens: it must change nothing, but
// for the key if there was no white space.
func checkComments(t *testing.T, sql string, a *Analysis) {
	t.Helper()
	if a.Cause == CauseUnparsed || a.Cause == CauseTooLong || len(sql) > MaxLen-100 {
		return
	}
	starts, spaced := gaps(sql)
	step := 1 + len(starts)/20
	for i := 0; i < len(starts); i += step {
		for _, comment := range []string{"/* nextval( ' */", "/**/", " -- \" delete\n"} {
			with := sql[:starts[i]] + comment + sql[starts[i]:]
			b := Analyze(with)
			want := *a
			if !spaced[i] && i > 0 || strings.HasSuffix(comment, "\n") {
				want.Key = b.Key
			}
			if !reflect.DeepEqual(&want, b) {
				t.Errorf("%q: %+v\n%q: %+v", sql, a, with, b)
			}
		}
	}
}

func FuzzAnalyze(f *testing.F) {
	for _, sql := range ownCorpus(f) {
		f.Add(sql)
	}
	for _, sql := range []string{"$a$", "E'\\", "/*/", "'a'\n'b'", "a--b", "=-/**/-", "U&\"", "$1$$", "1.e", "\x00", "\xff(", "::", "((", "))", "a.b.c(", "OPERATOR(a.+)"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		checkComments(t, sql, checkInvariants(t, sql))
	})
}

func TestCorpus(t *testing.T) {
	counts := map[Class]int{}
	for i, sql := range append(ownCorpus(t), corpus(t)...) {
		a := checkInvariants(t, sql)
		if i%7 == 0 || i < 300 {
			checkComments(t, sql, a)
		}
		counts[a.Class]++

		rest := sql
		for strings.HasPrefix(rest, "--") || strings.HasPrefix(rest, "/*") {
			_, after, found := strings.Cut(rest, "\n")
			if !found {
				break
			}
			rest = strings.TrimSpace(after)
		}
		first := strings.TrimLeft(rest, "( \n\t")
		if i := strings.IndexFunc(first, func(r rune) bool { return !unicode.IsLetter(r) }); i >= 0 {
			first = first[:i]
		}
		switch strings.ToLower(first) {
		case "insert", "update", "delete", "merge", "truncate", "copy", "create", "alter", "drop", "call", "do", "execute", "vacuum", "grant", "revoke":
			if a.Class != Private || !a.Writes {
				t.Errorf("%.200s: %v, writes %v", sql, a.Class, a.Writes)
			}
		case "select", "with", "values", "table":
		default:
			if a.Class != Private && !strings.HasPrefix(sql, "/*") {
				t.Errorf("%.200s: %v", sql, a.Class)
			}
		}
	}
	t.Logf("%d holdable, %d joinable, %d private", counts[Holdable], counts[Joinable], counts[Private])
}
