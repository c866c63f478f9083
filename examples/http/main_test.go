package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coalesce-pgx/coalesce"
)

// service is the program while it runs.
type service struct {
	url  string
	stop func() string // ends it as Ctrl-C does, and gives what it printed
}

func start(t *testing.T) service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var out strings.Builder
	done := make(chan error, 1)
	go func() { done <- run(ctx, listener, "coalesce-pgx", "", &out) }()
	stopped := false
	s := service{
		// Requests wait in the listener until the service is ready for them.
		url: "http://" + listener.Addr().String(),
		stop: func() string {
			if !stopped {
				stopped = true
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				t.Logf("printed:\n%s", out.String())
			}
			return out.String()
		},
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func body(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %s, %v:\n%s", resp.Status, err, b)
	}
	return string(b)
}

// stars gives the stars of a repository on a page.
func stars(t *testing.T, page string, repository int) int {
	t.Helper()
	m := regexp.MustCompile(fmt.Sprintf(`value="%d">★ (\d+)<`, repository)).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no repository %d on the page:\n%s", repository, page)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadersShareThePageAndAWriterSeesItsStar(t *testing.T) {
	const readers = 50
	s := start(t)
	pages := make(chan string, readers)
	for range readers {
		go func() {
			resp, err := http.Get(s.url + "/")
			pages <- body(t, resp, err)
		}()
	}
	first := <-pages
	for range readers - 1 {
		if page := <-pages; page != first {
			t.Errorf("got two pages:\n%s\n%s", first, page)
		}
	}
	before := stars(t, first, 1)

	resp, err := http.PostForm(s.url+"/star", url.Values{"repository": {"1"}})
	if got := stars(t, body(t, resp, err), 1); got != before+1 {
		t.Errorf("the page after the redirect has %d stars, want %d", got, before+1)
	}
	resp, err = http.Get(s.url + "/admin")
	if got := stars(t, body(t, resp, err), 1); got != before+1 {
		t.Errorf("the page for administrators has %d stars, want %d", got, before+1)
	}

	resp, err = http.Get(s.url + "/debug")
	var stats coalesce.Stats
	if err := json.Unmarshal([]byte(body(t, resp, err)), &stats); err != nil {
		t.Fatal(err)
	}
	if stats.Reads != readers+2 || stats.Led != 2 || stats.PrivateBy[coalesce.CauseFresh] != 1 {
		t.Errorf("got %+v, want %d reads, 2 of them led and 1 fresh", stats, readers+2)
	}

	for repository, want := range map[string]int{"": 400, "x": 400, "-1": 404} {
		resp, err := http.PostForm(s.url+"/star", url.Values{"repository": {repository}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("star for %q: got %s, want %d", repository, resp.Status, want)
		}
	}

	http.DefaultClient.CloseIdleConnections()
	printed := s.stop()
	if !strings.Contains(printed, "not available") && !strings.Contains(printed, "panel queries executed: 3, connections accepted: 1\n") {
		t.Error("want 3 queries on 1 connection")
	}
}
