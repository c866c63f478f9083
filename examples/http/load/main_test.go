package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// server counts what it is asked for: pages and the rest.
func server(t *testing.T, page http.HandlerFunc) (url string, pages, rest *atomic.Int64) {
	t.Helper()
	pages, rest = new(atomic.Int64), new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { pages.Add(1); page(w, r) })
	mux.HandleFunc("GET /debug", func(w http.ResponseWriter, r *http.Request) {
		if pages.Load() == 0 {
			w.Write([]byte(`{"Reads": 7, "Led": 1, "Conns": 1, "PrivateBy": {}}`))
		} else {
			w.Write([]byte(`{"Reads": 27, "Led": 2, "Conns": 1, "PrivateBy": {"fresh": 3}}`))
		}
	})
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { rest.Add(1) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + "/", pages, rest
}

func runHere(t *testing.T, opt options) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), opt, &out)
	t.Logf("printed:\n%s", out.String())
	return out.String(), err
}

func TestLoadIsCountedAndComparedWithTheCounters(t *testing.T) {
	var n atomic.Int64
	url, pages, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	out, err := runHere(t, options{url: url, concurrent: 5, requests: 20, time: time.Minute})
	if err != nil || pages.Load() != 20 {
		t.Errorf("got %d requests and %v, want 20", pages.Load(), err)
	}
	for _, want := range []string{"20 requests answered", "15  200 OK\n", "5  503 Service Unavailable\n", "/debug:  Led +1  PrivateBy: fresh +3  Reads +20\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q was not printed", want)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	url, pages, rest := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	out, err := runHere(t, options{url: url, concurrent: 1, requests: 3, time: time.Minute})
	if err != nil || pages.Load() != 3 || rest.Load() != 0 || !strings.Contains(out, "3  302 Found\n") {
		t.Errorf("got %d requests for the page, %d for others, %v", pages.Load(), rest.Load(), err)
	}
}

func TestLoadEndsWithItsTime(t *testing.T) {
	url, pages, _ := server(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := runHere(t, options{url: url, concurrent: 2, requests: 100, time: 100 * time.Millisecond})
	if err == nil || pages.Load() > 2 {
		t.Errorf("got %d requests and %v, want an error, none having been answered", pages.Load(), err)
	}
}

// The address is one that is not routed, of those reserved for documentation:
// it is refused before it is tried.
func TestOtherMachinesAreLeftAlone(t *testing.T) {
	out, err := runHere(t, options{url: "http://192.0.2.1/", concurrent: 1, requests: 1, time: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:80 is not this machine") || out != "" {
		t.Errorf("got %v and %q, want it refused before any request", err, out)
	}
}
