// Package embedded downloads a PostgreSQL for machines that have none. It is
// kept out of the core module, which has no use for its dependencies.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const version = embeddedpostgres.V17

// repository is where the archives are; tests have their own.
var repository = "https://repo1.maven.org/maven2"

// Download gives the directory of PostgreSQL's programs, which it downloads
// once and keeps in the user's cache. It is a pgtest.Download.
func Download(ctx context.Context) (binDir string, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return download(ctx, cache)
}

// cacheDir is the user's; root's is out of reach for the user that the server
// will run as.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if os.Geteuid() == 0 {
		dir, err = "/var/cache", nil
	}
	return filepath.Join(dir, "coalesce-pgtest"), err
}

func download(ctx context.Context, cache string) (string, error) {
	home := filepath.Join(cache, "postgresql-"+string(version))
	binDir := filepath.Join(home, "bin")
	if complete(binDir) {
		return binDir, nil
	}
	fmt.Fprintf(os.Stderr, "no PostgreSQL is installed: downloading PostgreSQL %s to %s\n", version, cache)
	done := make(chan error, 1)
	go func() { done <- fetch(cache, home) }()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err := <-done:
		if !complete(binDir) {
			return "", fmt.Errorf("PostgreSQL %s from %s: %w", version, repository, err)
		}
	}
	// The archive is unpacked into a directory that is ours alone.
	return binDir, errors.Join(os.Chmod(cache, 0o755), os.Chmod(home, 0o755))
}

func complete(binDir string) bool {
	_, err1 := os.Stat(filepath.Join(binDir, "postgres"))
	_, err2 := os.Stat(filepath.Join(binDir, "initdb"))
	return err1 == nil && err2 == nil
}

// fetch downloads and unpacks. The library does so only on the way to starting
// a server, which would outlive us if we were killed, and which it cannot do
// as root. So it is asked for a locale that does not exist: it fails, as it
// must, once the programs are there. pgtest does the rest.
func fetch(cache, home string) error {
	scratch, err := os.MkdirTemp("", "embedded-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	return embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		BinaryRepositoryURL(repository).
		CachePath(cache).
		BinariesPath(home).
		RuntimePath(filepath.Join(scratch, "runtime")).
		DataPath(filepath.Join(scratch, "data")).
		Port(uint32(port)).
		Locale("no-such-locale").
		Logger(io.Discard)).Start()
}
