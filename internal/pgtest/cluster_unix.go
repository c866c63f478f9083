//go:build unix

package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	superuser = "postgres"

	// minVersion is the first PostgreSQL with DROP DATABASE … WITH (FORCE).
	minVersion = 13

	// portTries bounds how often a server is started again because someone
	// took the port between our choosing it and the server's binding it.
	portTries = 5

	stopTimeout = 10 * time.Second
)

// cluster is a data directory with its server and the guardian of both. It
// starts no goroutines, so leak checks of the tests need no exceptions for it.
type cluster struct {
	// Immutable after startCluster.
	dir      string // holds all of it; the guardian removes it
	binDir   string
	as       *syscall.Credential // who the server runs as; nil: as we do
	sockets  bool                // dir is short enough for a socket
	port     int
	guardian *guardian

	server *exec.Cmd // nil while stopped
	alive  *os.File  // at EOF once server and its children have ended; nil while stopped
}

func (c *cluster) dataDir() string { return filepath.Join(c.dir, "data") }
func (c *cluster) logFile() string { return filepath.Join(c.dir, "log") }

func (c *cluster) tcpDSN() string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", superuser, c.port)
}

func (c *cluster) socketDSN() string {
	if !c.sockets {
		return ""
	}
	return fmt.Sprintf("postgres://%s@/postgres?host=%s&port=%d", superuser, url.QueryEscape(c.dir), c.port)
}

// startCluster makes a data directory and starts its server. On error nothing
// is left of either.
func (sys system) startCluster(ctx context.Context, opt Options) (_ *cluster, err error) {
	c := new(cluster)
	if c.as, err = serverUser(); err != nil {
		return nil, err
	}
	if c.binDir, err = sys.findBinDir(ctx, c.as, opt.Private); err != nil {
		return nil, err
	}
	if c.dir, c.sockets, err = makeDir(sys.tempDirs(), c.as); err != nil {
		return nil, err
	}
	if c.guardian, err = startGuardian(c.dir); err != nil {
		os.RemoveAll(c.dir)
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err = c.initdb(ctx); err != nil {
		return nil, err
	}
	if err = c.launchFirst(ctx, sys, opt); err != nil {
		return nil, err
	}
	return c, nil
}

// launchFirst finds settings that the server starts with.
func (c *cluster) launchFirst(ctx context.Context, sys system, opt Options) (err error) {
	preload := "pg_stat_statements"
	for try := 1; ; try++ {
		if c.port, err = sys.freePort(); err != nil {
			return err
		}
		if err = c.configure(opt, preload); err != nil {
			return err
		}
		err = c.launch(ctx)
		switch {
		case errors.Is(err, errNoLibrary) && preload != "":
			// Not every package brings the contrib modules, and only the
			// server knows for certain where it looks for them.
			preload = ""
		case errors.Is(err, errPortTaken) && try < portTries:
		default:
			return err
		}
	}
}

// makeDir makes the directory of a cluster in the first of bases that the
// server's user can reach and that leaves room for the name of a socket, or
// else the first that it can reach.
func makeDir(bases []string, as *syscall.Credential) (dir string, sockets bool, err error) {
	var reachable []string
	for _, base := range bases {
		abs, err := filepath.Abs(base)
		if err == nil && traversable(abs, as) {
			reachable = append(reachable, abs)
		}
	}
	if len(reachable) == 0 {
		return "", false, fmt.Errorf("pgtest: none of %s can be used by the user the server runs as", strings.Join(bases, ", "))
	}
	base := reachable[0]
	if i := slices.IndexFunc(reachable, hasSocketRoom); i >= 0 {
		base, sockets = reachable[i], true
	}
	if dir, err = os.MkdirTemp(base, "pgtest-"); err != nil {
		return "", false, fmt.Errorf("pgtest: %w", err)
	}
	if as != nil {
		if err = os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			os.Remove(dir)
			return "", false, fmt.Errorf("pgtest: %w", err)
		}
	}
	return dir, sockets, nil
}

// hasSocketRoom reports whether a socket of a cluster under base has a path
// that fits into sun_path: 108 bytes on Linux, 104 on BSD and macOS, with the
// final NUL.
func hasSocketRoom(base string) bool {
	limit := 103
	if runtime.GOOS == "linux" {
		limit = 107
	}
	return len(filepath.Join(base, "pgtest-4294967295", ".s.PGSQL.65535")) <= limit
}

// findBinDir gives the first directory whose postgres and initdb the server's
// user can run.
func (sys system) findBinDir(ctx context.Context, as *syscall.Credential, private bool) (string, error) {
	var reasons []string
	for _, dir := range sys.binDirs() {
		err := usable(dir, as)
		if err == nil {
			return dir, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", dir, err))
	}
	if Download != nil {
		dir, err := Download(ctx)
		if err == nil {
			err = usable(dir, as)
		}
		if err == nil {
			return dir, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		reasons = append(reasons, fmt.Sprintf("download: %v", err))
	}
	return "", noServer(private, reasons)
}

// usable reports why the programs in binDir cannot be used, if so. It runs one
// as the server's user, elsewhere than here: a program in our home directory
// may be out of that user's reach, and a version manager's shim may work only
// where we are.
func usable(binDir string, as *syscall.Credential) error {
	if _, err := os.Stat(filepath.Join(binDir, "initdb")); err != nil {
		return errors.New("no initdb")
	}
	cmd := exec.Command(filepath.Join(binDir, "postgres"), "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	if v := versionIn(string(out)); v < minVersion {
		return fmt.Errorf("PostgreSQL %d is too old, %d is needed", v, minVersion)
	}
	return nil
}

// command makes a command that runs as the server's user, in the guardian's
// process group: out of the reach of the terminal's Ctrl-C, so that the
// program can finish its work with the server first, and within the
// guardian's.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir // our own may be closed to the server's user
	cmd.Env = serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: c.guardian.pid(), Credential: c.as}
	return cmd
}

// serverEnv is our environment without what would change the server: libpq's
// and the server's own variables, and the language of its log.
func serverEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(env, "LC_ALL=C", "TZ=UTC")
}

func (c *cluster) initdb(ctx context.Context) error {
	var out bytes.Buffer
	cmd := c.command(filepath.Join(c.binDir, "initdb"),
		"--pgdata", c.dataDir(), "--username", superuser, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // its children hold the pipe a little longer
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, bytes.TrimSpace(out.Bytes()))
	}
	return appendFile(filepath.Join(c.dataDir(), "postgresql.conf"), "include 'pgtest.conf'\n")
}

// configure writes the settings that differ from initdb's. Of several lines
// for one setting the last counts: a caller's setting has the last word.
func (c *cluster) configure(opt Options, preload string) error {
	var conf strings.Builder
	set := func(name, value string) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	set("listen_addresses", "127.0.0.1")
	set("port", strconv.Itoa(c.port))
	set("unix_socket_directories", "")
	if c.sockets {
		set("unix_socket_directories", c.dir)
	}
	// The data is thrown away: nothing needs to survive a power cut.
	set("fsync", "off")
	set("full_page_writes", "off")
	set("synchronous_commit", "off")
	set("log_connections", "on")
	set("log_line_prefix", "%m [%p] %q%u@%d ")
	set("logging_collector", "off")
	set("timezone", "UTC")
	set("log_timezone", "UTC")
	set("shared_preload_libraries", preload)
	if n := opt.MaxConnections; n > 0 {
		set("max_connections", strconv.Itoa(n))
		// The server refuses to start unless some are left for everyone else.
		set("superuser_reserved_connections", strconv.Itoa(min(3, n-1)))
	}
	for name, value := range opt.Settings {
		set(name, value)
	}
	name := filepath.Join(c.dataDir(), "pgtest.conf")
	if err := os.WriteFile(name, []byte(conf.String()), 0o644); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	return nil
}

// What launch gives when the server could start with other settings.
var (
	errPortTaken = errors.New("the port is taken")
	errNoLibrary = errors.New("a library to preload is missing")
)

// launch starts the server and waits until it takes connections.
func (c *cluster) launch(ctx context.Context) error {
	logged, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer logged.Close()
	from, err := logged.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	alive, held, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}

	cmd := c.command(filepath.Join(c.binDir, "postgres"), "-D", c.dataDir())
	cmd.Stdout, cmd.Stderr = logged, logged
	cmd.ExtraFiles = []*os.File{held}
	err = cmd.Start()
	held.Close() // from now on only the server holds it
	if err != nil {
		alive.Close()
		return fmt.Errorf("pgtest: postgres: %w", err)
	}
	c.server, c.alive = cmd, alive

	for !c.ready() {
		if c.endedWithin(10 * time.Millisecond) {
			c.reap()
			return c.launchError(from)
		}
		if ctx.Err() != nil {
			c.stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// ready reports whether the server says in its pid file that it takes
// connections. Asking by connecting would leave lines in the log, and could
// reach another server on the same port.
func (c *cluster) ready() bool {
	b, err := os.ReadFile(filepath.Join(c.dataDir(), "postmaster.pid"))
	lines := strings.Split(string(b), "\n")
	return err == nil && len(lines) > 7 &&
		lines[0] == strconv.Itoa(c.server.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

// launchError tells why the server ended, from what it logged after offset.
func (c *cluster) launchError(offset int64) error {
	b, _ := os.ReadFile(c.logFile())
	text := strings.TrimSpace(string(b[min(int(offset), len(b)):]))
	switch {
	case strings.Contains(text, "could not bind"):
		return fmt.Errorf("pgtest: port %d: %w", c.port, errPortTaken)
	case strings.Contains(text, "could not access file"):
		return fmt.Errorf("pgtest: %w:\n%s", errNoLibrary, text)
	}
	return fmt.Errorf("pgtest: the server did not start:\n%s", text)
}

// endedWithin waits at most d for the server and its children to end.
func (c *cluster) endedWithin(d time.Duration) bool {
	c.alive.SetReadDeadline(time.Now().Add(d))
	_, err := c.alive.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// stop stops the server if it runs, ever less politely.
func (c *cluster) stop() error {
	if c.server == nil {
		return nil
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		c.server.Process.Signal(sig) // fails if it has ended, which we are about to see
		if c.endedWithin(stopTimeout) {
			c.reap()
			return nil
		}
	}
	return errors.New("pgtest: the server does not stop")
}

// reap takes note that the server has ended.
func (c *cluster) reap() {
	c.server.Wait() // how it ended is in the log
	c.alive.Close()
	c.server, c.alive = nil, nil
}

// close stops the server and has the guardian remove the directory.
func (c *cluster) close() error {
	err := c.stop()
	c.guardian.release()
	if _, statErr := os.Lstat(c.dir); statErr == nil {
		err = errors.Join(err, fmt.Errorf("pgtest: could not remove %s", c.dir))
	}
	return err
}

func appendFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	return nil
}
