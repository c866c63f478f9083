//go:build unix

package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// running reports whether the process exists and is more than a zombie, which
// it stays in containers whose first process does not reap.
func running(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !exists("/proc/self")
	}
	state := bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])
	return state[0] != 'Z'
}

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func interruptGroup(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// allowAll opens dir to the server's user; the directory of t.TempDir lies in
// one that is ours alone.
func allowAll(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != filepath.Dir(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode()&0o001 != 0 {
			continue
		}
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}

// needInstalled does what Private does when there is no PostgreSQL to start,
// for tests that start one in another way.
func needInstalled(t *testing.T) {
	t.Helper()
	as, err := serverUser()
	if err == nil {
		_, err = host.findBinDir(t.Context(), as, true)
	}
	if err != nil {
		Private(t, Options{})
	}
}

// privateIn starts a server whose directory is in one of bases.
func privateIn(t *testing.T, bases ...string) *Server {
	t.Helper()
	needInstalled(t)
	sys := host
	sys.tempDirs = func() []string { return bases }
	s, err := sys.start(t.Context(), Options{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSocketPathThatIsTooLong(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 60), strings.Repeat("e", 60))
	if err := os.MkdirAll(long, 0o711); err != nil {
		t.Fatal(err)
	}
	allowAll(t, long)

	t.Run("another directory is taken if there is one", func(t *testing.T) {
		s := privateIn(t, long, "/tmp")
		if got := filepath.Dir(s.cluster.dir); got != "/tmp" {
			t.Errorf("got a directory in %s, want /tmp", got)
		}
		wantInt(t, s.SocketDSN(), "SELECT 1", 1)
	})
	t.Run("or else there is TCP alone", func(t *testing.T) {
		s := privateIn(t, long)
		if got := s.SocketDSN(); got != "" {
			t.Errorf("got socket DSN %s, want none", got)
		}
		wantInt(t, s.DSN(), "SELECT 1", 1)
	})
}

func TestRootAvoidsDirectoriesClosedToTheServersUser(t *testing.T) {
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	as := &syscall.Credential{Uid: 65000, Gid: 65000}
	if traversable(closed, as) {
		t.Errorf("%s counts as open to user %d", closed, as.Uid)
	}
	if !traversable("/tmp", as) {
		t.Error("/tmp counts as closed")
	}
	if _, _, err := makeDir([]string{closed, "/nonexistent"}, as); err == nil || !strings.Contains(err.Error(), closed) {
		t.Errorf("got %v, want an error that names what was tried", err)
	}
}

func TestAnotherPortIsTakenWhenTheFirstIsNotFree(t *testing.T) {
	needInstalled(t)
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tries := 0
	sys := host
	sys.freePort = func() (int, error) {
		if tries++; tries == 1 {
			return taken.Addr().(*net.TCPAddr).Port, nil
		}
		return freePort()
	}
	s, err := sys.start(t.Context(), Options{Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if tries != 2 {
		t.Errorf("got %d tries, want 2", tries)
	}
	wantInt(t, s.DSN(), "SELECT 1", 1)
}

func TestDownloadIsAskedWhenNothingIsInstalled(t *testing.T) {
	needInstalled(t)
	as, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	installed, err := host.findBinDir(t.Context(), as, true)
	if err != nil {
		t.Fatal(err)
	}
	sys := host
	sys.binDirs = func() []string { return nil }
	defer func(before func(context.Context) (string, error)) { Download = before }(Download)

	Download = func(context.Context) (string, error) { return installed, nil }
	if got, err := sys.findBinDir(t.Context(), as, true); got != installed || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, installed)
	}
	Download = func(context.Context) (string, error) { return "", errors.New("no network") }
	if _, err := sys.findBinDir(t.Context(), as, true); !errors.Is(err, errNoServer) || !strings.Contains(err.Error(), "no network") {
		t.Errorf("got %v, want the remedies and why the download failed", err)
	}
}

// Leak checks of other packages must not have to know of the shared server.
func TestRunningServerNeedsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	Private(t, Options{})
	if got := runtime.NumGoroutine(); got > before {
		buf := make([]byte, 1<<16)
		t.Errorf("got %d goroutines more:\n%s", got-before, buf[:runtime.Stack(buf, true)])
	}
}

func TestMissingLibraryIsDoneWithout(t *testing.T) {
	s := Private(t, Options{})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	c := s.cluster
	if err := c.configure(Options{}, "no_such_library"); err != nil {
		t.Fatal(err)
	}
	if err := c.launch(t.Context()); !errors.Is(err, errNoLibrary) {
		t.Errorf("got %v, want %v", err, errNoLibrary)
	}
	if err := c.configure(Options{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.launch(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartThatFailsOrIsCancelledLeavesNothing(t *testing.T) {
	needInstalled(t)
	base := t.TempDir()
	allowAll(t, base)
	sys := host
	sys.tempDirs = func() []string { return []string{base} }

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sys.start(ctx, Options{Private: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := sys.start(ctx, Options{Private: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	_, err := sys.start(t.Context(), Options{Private: true, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("got %v, want the server's own words", err)
	}
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("%s was left behind", left[0].Name())
	}
}
