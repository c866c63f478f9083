package demo

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	_ "github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// plain is a Program without a tool.
func plain(ctx context.Context, run *Run) error {
	db, err := sql.Open(run.Driver, run.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "DROP TABLE IF EXISTS repositories; CREATE TABLE repositories AS SELECT 5 AS stars")
	if err != nil {
		return err
	}
	read := func(ctx context.Context) (stars int, err error) {
		err = db.QueryRowContext(ctx, "SELECT stars FROM repositories").Scan(&stars)
		return stars, err
	}
	write := func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "UPDATE repositories SET stars = stars + 1")
		return err
	}
	return run.Show(ctx, db, read, write)
}

func compareHere(t *testing.T, p Program, dsn string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := compare(t.Context(), p, Options{Name: "demo", DSN: dsn, Queries: reads}, 20, &out)
	t.Logf("printed:\n%s", out.String())
	return out.String(), err
}

func wantKept(t *testing.T, out string, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	line := regexp.MustCompile(`(?m)^ *coalesce-pgx +20 +0 +1 +1 +\S+ +5 +6$`)
	if !strings.Contains(out, "not available") && !line.MatchString(out) {
		t.Error("want 20 reads, none failed, 1 query, 1 connection, 5 stars and then 6")
	}
}

func TestReadersShareOnTheServerThatIsFound(t *testing.T) {
	out, err := compareHere(t, plain, "")
	wantKept(t, out, err)
}

// A server that is given tells as much as one of our own. It has room for one
// example, whose readers through pgx take all: the others wait.
func TestExamplesTakeTurnsOnAGivenServer(t *testing.T) {
	dsn := pgtest.Private(t, pgtest.Options{MaxConnections: 8}).DSN()
	var examples sync.WaitGroup
	for range 3 {
		examples.Go(func() {
			out, err := compareHere(t, plain, dsn)
			wantKept(t, out, err)
		})
	}
	examples.Wait()

	failure := errors.New("the tool is broken")
	_, err := compareHere(t, func(context.Context, *Run) error { return failure }, dsn)
	if !errors.Is(err, failure) || errors.Is(err, ErrLeftBehind) {
		t.Errorf("got %v, want %v alone", err, failure)
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
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'coalesce\_demo\_%'`).Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("got %d databases, %v, want none left", n, err)
	}
}

func TestVerdictFailsWhenThePromiseIsBroken(t *testing.T) {
	one := Count{N: 1, Known: true}
	run := func(change func(*Run)) *Run {
		r := &Run{Driver: "coalesce-pgx", readers: 20, queries: one, accepted: one, before: 5, after: 6}
		change(r)
		return r
	}
	good := run(func(*Run) {})
	unknown := run(func(r *Run) { r.queries, r.accepted = Count{}, Count{} })
	crowd := run(func(r *Run) {
		r.Driver, r.queries.N, r.accepted.N, r.failures = "pgx", 20, 20, map[string]int{"full": 3}
	})
	if err := verdict([]*Run{crowd, good, unknown}); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	for name, broken := range map[string]*Run{
		"two queries":          run(func(r *Run) { r.queries.N = 2 }),
		"two connections":      run(func(r *Run) { r.accepted.N = 2 }),
		"no query":             run(func(r *Run) { r.queries.N = 0 }),
		"a reader that failed": run(func(r *Run) { r.failures = map[string]int{"full": 1} }),
		"a write that is lost": run(func(r *Run) { r.after = r.before }),
		"a lost write, on pgx": run(func(r *Run) { r.Driver, r.after = "pgx", r.before }),
	} {
		if verdict([]*Run{good, broken}) == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestRefusedConnectionsAreNotCountedAsAccepted(t *testing.T) {
	log := `12:00 [1] web@x LOG:  connection authorized: user=web database=x
12:00 [2] postgres@x LOG:  connection authorized: user=postgres database=x
12:00 [3] web@x LOG:  connection authorized: user=web database=x
12:00 [3] web@x FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute
12:00 [4] [unknown]@[unknown] FATAL:  sorry, too many clients already
`
	accepted, refused := connections(log)
	if accepted.N != 1 || refused.N != 2 {
		t.Errorf("got %d accepted and %d refused, want 1 and 2", accepted.N, refused.N)
	}
}
