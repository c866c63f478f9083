package embedded

import (
	"archive/zip"
	_ "embed"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// standins is bin/postgres, bin/initdb and bin/pg_ctl as scripts that fail.
//
//go:embed testdata/standins.txz
var standins []byte

// serve stands in for the repository, and counts what is fetched from it.
func serve(t *testing.T, handler http.HandlerFunc) *atomic.Int64 {
	t.Helper()
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	before := repository
	repository = srv.URL
	t.Cleanup(func() { repository = before; srv.Close() })
	return &requests
}

func TestProgramsAreDownloadedOnce(t *testing.T) {
	requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		jar := zip.NewWriter(w)
		f, err := jar.Create("postgres.txz")
		if err == nil {
			_, err = f.Write(standins)
		}
		if err != nil || jar.Close() != nil {
			t.Error("could not make the archive")
		}
	})
	cache := filepath.Join(t.TempDir(), "cache")
	var first int64
	for try := range 2 {
		binDir, err := download(t.Context(), cache)
		if err != nil {
			t.Fatal(err)
		}
		for dir := binDir; dir != cache; dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err != nil || info.Mode()&0o005 != 0o005 {
				t.Errorf("%s: got %v, %v, want a directory open to the server's user", dir, info.Mode(), err)
			}
		}
		if try == 0 {
			first = requests.Load()
		}
	}
	if n := requests.Load(); first == 0 || n != first {
		t.Errorf("got %d requests, then %d more, want none the second time", first, n-first)
	}
}

func TestFailedDownloadSaysFromWhere(t *testing.T) {
	serve(t, http.NotFound)
	_, err := download(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), repository) {
		t.Errorf("got %v, want an error that names %s", err, repository)
	}
}
