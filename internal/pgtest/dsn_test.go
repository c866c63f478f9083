package pgtest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func queryInt(dsn, sql string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	var n int
	err = conn.QueryRow(ctx, sql).Scan(&n)
	return n, err
}

func wantInt(t *testing.T, dsn, sql string, want int) {
	t.Helper()
	got, err := queryInt(dsn, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if got != want {
		t.Errorf("%s: got %d, want %d", sql, got, want)
	}
}

func TestServerOfTheEnvironmentIsUsedButNotOwned(t *testing.T) {
	dsn := Database(t)
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	keywords := fmt.Sprintf("dbname=%s host=%s port = %d user=%s password=%s coalesce_ttl=5s", quoted(cfg.Database), quoted(cfg.Host), cfg.Port, quoted(cfg.User), quoted(cfg.Password))
	tests := map[string]map[string]string{
		"COALESCE_TEST_DSN first": {"COALESCE_TEST_DSN": dsn, "DATABASE_URL": "mysql://x"},
		"DATABASE_URL":            {"DATABASE_URL": dsn},
		"keywords":                {"DATABASE_URL": keywords},
	}
	for name, env := range tests {
		t.Run(name, func(t *testing.T) {
			sys := host
			sys.getenv = func(k string) string { return env[k] }
			s, err := sys.start(t.Context(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantInt(t, s.DSN(), "SELECT (current_database() LIKE 'coalesce_test_%')::int", 1)
			wantInt(t, WithDatabase(s.DSN(), "template1"), "SELECT (current_database() = 'template1')::int", 1)
			if !strings.HasPrefix(s.DSN(), "postgres://") {
				t.Errorf("got DSN %s, want a URL", s.DSN())
			}
			if cfg, err := pgx.ParseConfig(s.DSN()); err != nil || len(cfg.Fallbacks) > 0 {
				t.Errorf("%s: a dial is more than one", s.DSN())
			}
			if s.Owned() || s.Stop() == nil || s.Restart() == nil {
				t.Error("a server that is not ours could be stopped")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			wantInt(t, dsn, "SELECT 1", 1)
		})
	}
}

func TestUnusableDSNIsAnErrorThatKeepsThePassword(t *testing.T) {
	for _, dsn := range []string{
		"mysql://me:hunter2@127.0.0.1/x",
		"postgres://me:hunter2 %zz@127.0.0.1:1/x",
		"postgres://me:hunter2@127.0.0.1:1/x?sslmode=perhaps",
		"postgres://me:hunter2@127.0.0.1:1/x",
		"password=hunter2 host=127.0.0.1 port=1",
		"password='hunter2 host=127.0.0.1 port=1",
		"hunter2",
	} {
		sys := host
		sys.getenv = func(string) string { return dsn }
		_, err := sys.start(t.Context(), Options{})
		if err == nil {
			t.Errorf("%s: got no error", dsn)
			continue
		}
		if !strings.Contains(err.Error(), "COALESCE_TEST_DSN") {
			t.Errorf("%s: got %q, want it to name COALESCE_TEST_DSN", dsn, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %q, which shows the password", dsn, err)
		}
	}
}

func TestKeywordsBecomeAURL(t *testing.T) {
	tests := []struct{ keywords, want string }{
		{"host=h dbname=d", "postgres:///?dbname=d&host=h"},
		{`  user = 'o\'neill' password=a\ b`, "postgres:///?password=a+b&user=o%27neill"},
		{`password='' host=/tmp/x`, "postgres:///?host=%2Ftmp%2Fx&password="},
		{`password='=&?' host=h`, "postgres:///?host=h&password=%3D%26%3F"},
	}
	for _, tt := range tests {
		got, err := toURL(tt.keywords)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.keywords, got, err, tt.want)
		}
	}
}

func TestInstalledServersAreSoughtInOrder(t *testing.T) {
	installed := map[string][]string{
		"/usr/lib/postgresql/*/bin": {"/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/9.6/bin"},
		"/usr/pgsql-*/bin":          {"/usr/pgsql-16/bin"},
	}
	got := binDirs(
		func() string { return "/path/bin" },
		func() string { return "/usr/lib/postgresql/15/bin" },
		func(pattern string) ([]string, error) { return slices.Clone(installed[pattern]), nil })
	want := []string{"/path/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/9.6/bin", "/usr/pgsql-16/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	none := binDirs(func() string { return "" }, func() string { return "" }, filepath.Glob)
	if slices.Contains(none, "") {
		t.Errorf("got %q, want no empty directory", none)
	}
}
