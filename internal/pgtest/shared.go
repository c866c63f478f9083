package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server of this test binary, started by the first test that
// asks.
var shared struct {
	sync.Mutex
	server *Server // guarded by Mutex
	err    error   // why there is none: every test fails alike; guarded by Mutex
}

// Run runs the tests of m and then closes the shared server. It is for
// TestMain: os.Exit(pgtest.Run(m)).
func Run(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// DSN is the URL of the shared server, which the first call starts. Run closes
// it; without Run it ends with the process.
func DSN(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Start(context.Background(), Options{})
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server.DSN()
}

// Database creates an empty database for this test alone on the shared server
// and gives its URL. It is dropped at the end of the test, whoever is still
// connected.
func Database(tb testing.TB) string {
	tb.Helper()
	dsn := DSN(tb)
	name := "coalesce_test_" + rand.Text()[:12]
	quoted := pgx.Identifier{name}.Sanitize()
	// template0, since nobody can be connected to it.
	if err := execOn(dsn, "CREATE DATABASE "+quoted+" TEMPLATE template0"); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if err := execOn(dsn, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return WithDatabase(dsn, name)
}

// Private starts a server for this test alone, closed at its end. The test is
// skipped in one case: COALESCE_TEST_DSN says which server to test with, and
// there is no other on this machine.
func Private(tb testing.TB, opt Options) *Server {
	tb.Helper()
	opt.Private = true
	s, err := Start(context.Background(), opt)
	if errors.Is(err, errNoServer) && os.Getenv("COALESCE_TEST_DSN") != "" {
		tb.Skipf("cannot be tested on the server of COALESCE_TEST_DSN: %v", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// execOn runs one statement on a connection of its own.
func execOn(dsn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
