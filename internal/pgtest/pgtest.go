// Package pgtest gives tests and examples a PostgreSQL server to talk to: the
// one named by COALESCE_TEST_DSN or DATABASE_URL, or else a throwaway server
// of an installed PostgreSQL, started in a temporary directory and removed at
// the end, even if the process that started it is killed.
//
// It never skips and never falls back on something less than a real server: if
// there is none, the error says what can be done about it.
//
// A test binary shares one server:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		db, err := sql.Open("pgx", pgtest.Database(t))
//		…
//	}
//
// A test that needs settings of its own, or that stops the server, asks for
// Private.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// startTimeout bounds initdb and the start of a server on a slow machine.
const startTimeout = 2 * time.Minute

// Options says what kind of server Start must give. The zero value is any
// server at all.
type Options struct {
	// MaxConnections is max_connections of a server that we start; 0 leaves
	// the default. It does not change a server named by the environment.
	MaxConnections int

	// Settings are further lines of postgresql.conf. They need Private, since
	// a server that is not ours cannot be given any.
	Settings map[string]string

	// Private asks for a server that nobody else uses, whatever the
	// environment names: the caller needs settings, or stops the server.
	Private bool
}

// Server is a PostgreSQL server. It must be closed. Its methods may be called
// from several goroutines.
type Server struct {
	dsn string

	mu      sync.Mutex
	cluster *cluster // nil if the server is not ours; guarded by mu
	closed  bool     // transitions to true once, in Close; guarded by mu
}

// Download, if set, is asked for a directory of PostgreSQL programs when none
// is installed. The core module leaves it nil: only the examples can afford
// the dependencies of a download.
var Download func(ctx context.Context) (binDir string, err error)

// host is the machine that Start looks at; tests use others.
var host = system{
	getenv:   os.Getenv,
	binDirs:  installedBinDirs,
	tempDirs: func() []string { return []string{os.TempDir(), "/tmp", "/var/tmp"} },
	freePort: freePort,
}

// system is what Start asks of the machine.
type system struct {
	getenv   func(string) string
	binDirs  func() []string // where postgres and initdb may be, best first
	tempDirs func() []string // where a server's directory may be, best first
	freePort func() (int, error)
}

// Start gives a running server: the one that COALESCE_TEST_DSN or DATABASE_URL
// names, or one that it starts. When ctx ends during Start, nothing is left
// behind; afterwards ctx has no meaning for the server.
func Start(ctx context.Context, opt Options) (*Server, error) {
	return host.start(ctx, opt)
}

// Attach gives the server that dsn names, as Start does for one named by the
// environment. The server is not owned.
func Attach(ctx context.Context, dsn string) (*Server, error) {
	return attach(ctx, "the DSN", dsn)
}

func (sys system) start(ctx context.Context, opt Options) (*Server, error) {
	if len(opt.Settings) > 0 && !opt.Private {
		return nil, errors.New("pgtest: Options.Settings need Options.Private")
	}
	if !opt.Private {
		for _, name := range []string{"COALESCE_TEST_DSN", "DATABASE_URL"} {
			if dsn := sys.getenv(name); dsn != "" {
				return attach(ctx, name, dsn)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := sys.startCluster(ctx, opt)
	if err != nil {
		return nil, err
	}
	return &Server{dsn: c.tcpDSN(), cluster: c}, nil
}

// DSN is the server's URL, by TCP, for its database "postgres" or the one that
// the environment named.
func (s *Server) DSN() string { return s.dsn }

// SocketDSN is the URL of the same database by unix socket, or "" if the
// server is not ours or its directory's path is too long for a socket.
func (s *Server) SocketDSN() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == nil {
		return ""
	}
	return s.cluster.socketDSN()
}

// Owned reports whether the server was started by us, and so can be stopped.
func (s *Server) Owned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster != nil
}

// Stop stops the server, ending its connections; Restart brings it back with
// its data. Stopping a stopped server does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedLocked("stop"); err != nil {
		return err
	}
	return s.cluster.stop()
}

// Restart starts the server again at the same port and socket, stopping it
// first if it runs.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedLocked("restart"); err != nil {
		return err
	}
	if err := s.cluster.stop(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return s.cluster.launch(ctx)
}

// Log is all that the server has logged so far, connections included.
func (s *Server) Log() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedLocked("read the log of"); err != nil {
		return "", err
	}
	b, err := os.ReadFile(s.cluster.logFile())
	return string(b), err
}

// Close stops the server and removes its directory if it is ours. Further
// calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cluster == nil {
		return nil
	}
	s.closed = true
	return s.cluster.close()
}

func (s *Server) ownedLocked(verb string) error {
	switch {
	case s.cluster == nil:
		return fmt.Errorf("pgtest: cannot %s a server that was not started here", verb)
	case s.closed:
		return fmt.Errorf("pgtest: cannot %s a closed server", verb)
	}
	return nil
}

// errNoServer is in every error that means: there is no PostgreSQL to start.
var errNoServer = errors.New("no PostgreSQL server to use")

// noServer is the one message for that; reasons says what was tried.
func noServer(private bool, reasons []string) error {
	msg := `. Any one of these gives one:
  1. docker compose up -d --wait
     and COALESCE_TEST_DSN='postgres://coalesce:coalesce@127.0.0.1:55432/coalesce?sslmode=disable'
  2. ` + installHint() + `
     (it is found and started by itself)
  3. DATABASE_URL=postgres://… of a server where databases may be created`
	if private {
		msg += `
  but here a server is needed that can be configured and stopped: only 2. will do`
	}
	for _, r := range reasons {
		msg += "\n  tried: " + r
	}
	return fmt.Errorf("pgtest: %w%s", errNoServer, msg)
}

func installHint() string {
	switch runtime.GOOS {
	case "darwin":
		return "install PostgreSQL: brew install postgresql"
	case "windows":
		return "run this in WSL and install PostgreSQL there: apt-get install postgresql"
	default:
		return "install PostgreSQL: apt-get install postgresql, or brew install postgresql"
	}
}
