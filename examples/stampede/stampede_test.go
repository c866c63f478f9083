package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// runHere runs the program and gives what it printed.
func runHere(ctx context.Context, t *testing.T, opt options) (string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	runErr := run(ctx, opt, out)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("printed:\n%s", text)
	return string(text), runErr
}

// line gives the numbers of the report's line for a driver's wave.
func line(t *testing.T, text, driver, wave string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *` + driver + ` +` + wave + ` +(\d+) +(\d+) +(\S.*?) +(\d+) +(\d+) +\S+$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no line for %s, %s", driver, wave)
	}
	return m[1:]
}

// It uses the server that the tests use, which may be a given one, and so
// takes the way of -dsn even if it is ours.
func TestCoalescedPagesAllRenderWithOneQueryForEachRead(t *testing.T) {
	dsn := pgtest.DSN(t)
	text, err := runHere(t.Context(), t, options{pages: 60, repositories: 4, dsn: dsn})
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(text, "not available") {
		if got := line(t, text, "coalesce-pgx", "first wave"); !slices.Equal(got, []string{"60", "0", "4", "4", "0"}) {
			t.Errorf("first wave: got pages, failed, queries, accepted, refused %v", got)
		}
		if got := line(t, text, "coalesce-pgx", "second wave"); !slices.Equal(got, []string{"60", "0", "0", "0", "0"}) {
			t.Errorf("second wave: got pages, failed, queries, accepted, refused %v", got)
		}
	}
	wantNoDatabases(t, dsn)
}

func TestOwnServerTellsWhatItRefused(t *testing.T) {
	t.Setenv("COALESCE_TEST_DSN", "")
	t.Setenv("DATABASE_URL", "")
	pgtest.Private(t, pgtest.Options{}).Close() // fails or skips if there is none to start
	text, err := runHere(t.Context(), t, options{pages: 60, repositories: 4, maxConns: 10})
	if err != nil {
		t.Error(err)
	}
	if got := line(t, text, "pgx", "first wave"); got[1] != got[4] || got[1] == "0" {
		t.Errorf("pgx: got %s pages failed and %s connections refused, want as many, and some", got[1], got[4])
	}
	if got := line(t, text, "coalesce-pgx", "first wave"); got[4] != "0" {
		t.Errorf("coalesce-pgx: got %s connections refused, want none", got[4])
	}
}

func TestInterruptLeavesNothingBehind(t *testing.T) {
	dsn := pgtest.DSN(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	// So many that it cannot be over in that time.
	_, err := runHere(ctx, t, options{pages: 20000, repositories: 40, dsn: dsn})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, demo.ErrLeftBehind) {
		t.Errorf("got %v, want %v alone", err, context.DeadlineExceeded)
	}
	wantNoDatabases(t, dsn)
}

func wantNoDatabases(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var n int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'coalesce\_stampede\_%'`).Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("got %d databases, %v, want none left", n, err)
	}
}

func TestPagesAreDealtUnevenly(t *testing.T) {
	each := map[int]int{}
	for _, repository := range spread(215, 14) {
		each[repository]++
	}
	if len(each) != 14 {
		t.Errorf("got %d repositories, want 14", len(each))
	}
	for repository, n := range each {
		if n < 12 || n > 19 {
			t.Errorf("repository %d: got %d pages, want 12 to 19", repository, n)
		}
	}
	if n := len(spread(7, 7)); n != 7 {
		t.Errorf("got %d pages, want 7", n)
	}
}

func TestVerdictFailsWhenThePromiseIsBroken(t *testing.T) {
	good := tally{driver: "coalesce-pgx", queries: demo.Count{N: 4, Known: true}}
	outage := tally{driver: "pgx", failed: 100, queries: demo.Count{N: 100, Known: true}}
	if err := verdict([]tally{outage, good}, 4); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	for name, broken := range map[string]tally{
		"a failed page":    {driver: "coalesce-pgx", failed: 1},
		"too many queries": {driver: "coalesce-pgx", queries: demo.Count{N: 5, Known: true}},
	} {
		if err := verdict([]tally{outage, broken}, 4); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
