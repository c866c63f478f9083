package main

import (
	"strings"
	"testing"
)

func TestEachStatementIsExplained(t *testing.T) {
	in := "SELECT ';\n' -- one;\n; SELECT\n  nextval('s');\n\nSELECT now()"
	var out strings.Builder
	if err := run(t.Context(), "", in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("got\n%s\nwant a head and three lines", out.String())
	}
	for i, want := range []string{"holdable", "private", "joinable"} {
		if !strings.HasPrefix(lines[i+1], want) {
			t.Errorf("line %d is %q; want %s", i+1, lines[i+1], want)
		}
	}
	if !strings.Contains(lines[2], "nextval, which is VOLATILE") {
		t.Errorf("no reason in %q", lines[2])
	}
}
