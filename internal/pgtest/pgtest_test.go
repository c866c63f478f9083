//go:build unix

package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childEnv turns this test binary into a program that starts a server and is
// then killed; see startChild.
const childEnv = "PGTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
	}
	os.Exit(Run(m))
}

// eventually fails the test unless ok becomes true within a generous time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestServerAnswersUntilClosedAndLeavesNothing(t *testing.T) {
	s := Private(t, Options{MaxConnections: 7, Settings: map[string]string{"application_name": "it's"}})
	wantInt(t, s.DSN(), "SELECT current_setting('max_connections')::int", 7)
	wantInt(t, s.DSN(), "SELECT length(current_setting('application_name'))", 4)
	wantInt(t, s.SocketDSN(), "SELECT 1", 1)
	if !s.Owned() {
		t.Error("got a server that is not ours")
	}
	if log, err := s.Log(); err != nil || !strings.Contains(log, "connection authorized") {
		t.Errorf("got log %q and error %v, want a line for each connection", log, err)
	}

	dir, pid := s.cluster.dir, s.cluster.server.Process.Pid
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if exists(dir) {
		t.Errorf("%s is still there", dir)
	}
	if running(pid) {
		t.Errorf("server %d still runs", pid)
	}
	if err := s.Restart(); err == nil {
		t.Error("a closed server was started again")
	}
}

func TestStatementStatisticsAreLoadedIfInstalled(t *testing.T) {
	dsn := Private(t, Options{}).DSN()
	n, err := queryInt(dsn, "SELECT (current_setting('shared_preload_libraries') = 'pg_stat_statements')::int")
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Log("this PostgreSQL comes without pg_stat_statements, and starts all the same")
		return
	}
	if err := execOn(dsn, "CREATE EXTENSION pg_stat_statements"); err != nil {
		t.Fatal(err)
	}
	wantInt(t, dsn, "SELECT count(*)::int FROM pg_stat_statements WHERE query LIKE 'CREATE EXTENSION%'", 1)
}

func TestStoppedServerComesBackAtTheSameDSNWithItsData(t *testing.T) {
	s := Private(t, Options{})
	dsn := s.DSN()
	if err := execOn(dsn, "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := queryInt(dsn, "SELECT 1"); err == nil {
		t.Fatal("a stopped server answered")
	}
	for range 2 { // once stopped, once running
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		wantInt(t, dsn, "SELECT n FROM kept", 42)
	}
	if s.DSN() != dsn {
		t.Errorf("got DSN %s, want %s as before", s.DSN(), dsn)
	}
}

func TestDatabaseBelongsToOneTest(t *testing.T) {
	var first string
	t.Run("creates", func(t *testing.T) {
		first = Database(t)
		// Left open: the drop must not mind.
		if _, err := pgx.Connect(context.Background(), first); err != nil {
			t.Fatal(err)
		}
	})
	second := Database(t)
	if first == second {
		t.Fatalf("two tests got the same database %s", first)
	}
	wantInt(t, second, "SELECT count(*)::int FROM pg_database WHERE datname = current_database()", 1)
	if _, err := queryInt(first, "SELECT 1"); err == nil {
		t.Error("the first test's database is still there")
	}
}

func TestSettingsNeedAPrivateServer(t *testing.T) {
	_, err := Start(t.Context(), Options{Settings: map[string]string{"work_mem": "1MB"}})
	if err == nil || !strings.Contains(err.Error(), "Private") {
		t.Errorf("got %v, want an error that names Private", err)
	}
}

func TestNoServerNamesTheRemedies(t *testing.T) {
	sys := host
	sys.getenv = func(string) string { return "" }
	sys.binDirs = func() []string { return []string{t.TempDir()} }
	for _, private := range []bool{false, true} {
		_, err := sys.start(t.Context(), Options{Private: private})
		if !errors.Is(err, errNoServer) {
			t.Fatalf("got %v, want %v", err, errNoServer)
		}
		for _, want := range []string{"1. docker compose up -d --wait", "COALESCE_TEST_DSN=", "2. ", "install", "3. DATABASE_URL=", "no initdb"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to name %q", err, want)
			}
		}
		if got := strings.Contains(err.Error(), "only 2. will do"); got != private {
			t.Errorf("private %t: got %v", private, err)
		}
	}
}

// startChild runs this test binary as a program that starts a server, and gives
// the server's DSN, directory and pid.
func startChild(t *testing.T, mode string) (cmd *exec.Cmd, out *bufio.Scanner, dsn, dir string, pid int) {
	t.Helper()
	needInstalled(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.Stderr = os.Stderr
	ownGroup(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	out = bufio.NewScanner(stdout)
	if !out.Scan() {
		t.Fatal("the child did not start a server")
	}
	if _, err := fmt.Sscan(out.Text(), &dsn, &dir, &pid); err != nil {
		t.Fatalf("%q: %v", out.Text(), err)
	}
	return cmd, out, dsn, dir, pid
}

func childMain() {
	s, err := Start(context.Background(), Options{Private: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	fmt.Println(s.DSN(), s.cluster.dir, s.cluster.server.Process.Pid)
	if os.Getenv(childEnv) == "exit" {
		os.Exit(0) // without Close
	}
	<-interrupted
	_, err = queryInt(s.DSN(), "SELECT 1")
	fmt.Println("after the interrupt:", err)
	s.Close()
	os.Exit(0)
}

func TestServerGoesWhenItsProcessIsKilled(t *testing.T) {
	cmd, _, dsn, dir, pid := startChild(t, "wait")
	wantInt(t, dsn, "SELECT 1", 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has ended", func() bool { return !running(pid) })
	eventually(t, "its directory is removed", func() bool { return !exists(dir) })
}

func TestServerGoesWhenItsProcessExits(t *testing.T) {
	_, _, _, dir, pid := startChild(t, "exit")
	eventually(t, "the server has ended", func() bool { return !running(pid) })
	eventually(t, "its directory is removed", func() bool { return !exists(dir) })
}

// Ctrl-C goes to all of the terminal's process group; the server must outlive
// it long enough for its program to say something.
func TestServerSurvivesTheTerminalsInterrupt(t *testing.T) {
	cmd, out, _, dir, pid := startChild(t, "wait")
	interruptGroup(t, cmd)
	if !out.Scan() || out.Text() != "after the interrupt: <nil>" {
		t.Errorf("got %q, want an answer after the interrupt", out.Text())
	}
	eventually(t, "the server has ended", func() bool { return !running(pid) })
	eventually(t, "its directory is removed", func() bool { return !exists(dir) })
}
