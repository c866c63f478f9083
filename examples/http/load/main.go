// Load asks for one page many times, so many at once, and says how it was
// served and what the driver's counters, at /debug of the same server, say of
// it.
//
//	go run ./examples/http/load -url http://127.0.0.1:8080/ -c 200 -n 2000
//
// It sends GETs for the URL and for /debug, and nothing else: it follows no
// redirect and uses no proxy. It leaves the machine only with -remote.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of what the command line can ask for.
const (
	maxRequests   = 1_000_000
	maxConcurrent = 10_000
	maxTime       = 10 * time.Minute
)

type options struct {
	url        string
	concurrent int
	requests   int
	time       time.Duration
	remote     bool
}

func main() {
	var opt options
	flag.StringVar(&opt.url, "url", "http://127.0.0.1:8080/", "page to ask for")
	flag.IntVar(&opt.concurrent, "c", 200, "requests under way at once")
	flag.IntVar(&opt.requests, "n", 2000, "requests in all")
	flag.DurationVar(&opt.time, "t", time.Minute, "time after which no request is under way any more")
	flag.BoolVar(&opt.remote, "remote", false, "allow a server on another machine: yours, that is")
	flag.Parse()
	if flag.NArg() > 0 || opt.requests < 1 || opt.requests > maxRequests || opt.concurrent < 1 ||
		opt.concurrent > min(opt.requests, maxConcurrent) || opt.time <= 0 || opt.time > maxTime {
		fmt.Fprintf(os.Stderr, "load: needs 1 <= -c <= -n, -c <= %d, -n <= %d, -t <= %s and no other arguments\n", maxConcurrent, maxRequests, maxTime)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opt, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opt options, out io.Writer) error {
	page, err := url.Parse(opt.url)
	if err != nil || page.Scheme != "http" && page.Scheme != "https" || page.Host == "" {
		return fmt.Errorf("-url %q: want http://host:port/path", opt.url)
	}
	client := newClient(opt)
	defer client.CloseIdleConnections()

	before, errBefore := debug(ctx, client, page)
	if unreachable := new(net.OpError); errors.As(errBefore, &unreachable) {
		return errBefore // as would be every request
	}
	l := &load{client: client, url: page.String(), requests: opt.requests, statuses: map[string]int{}}
	took := l.run(ctx, opt)
	l.report(out, page.Redacted(), opt, took)
	if len(l.latencies) == 0 {
		return errors.New("no request was answered")
	}
	after, errAfter := debug(ctx, client, page)
	if err := cmp.Or(errBefore, errAfter); err != nil {
		fmt.Fprintf(out, "no counters: %v\n", err)
		return nil
	}
	after.since(before, out)
	return nil
}

// newClient makes a client that goes where it is told, and nowhere else.
func newClient(opt options) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !opt.remote {
		// Here the name has been resolved: what counts is where it leads.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !to.Addr().Unmap().IsLoopback() {
				return fmt.Errorf("%s is not this machine: -remote allows it", address)
			}
			return nil
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               nil,
			DialContext:         dialer.DialContext,
			MaxConnsPerHost:     opt.concurrent,
			MaxIdleConnsPerHost: opt.concurrent,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// load is one load while it is sent.
type load struct {
	client   *http.Client
	url      string
	requests int
	sent     atomic.Int64

	mu        sync.Mutex
	statuses  map[string]int  // how requests ended; guarded by mu
	latencies []time.Duration // of those answered; guarded by mu
}

func (l *load) run(ctx context.Context, opt options) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, opt.time)
	defer cancel()
	start := time.Now()
	var workers sync.WaitGroup
	for range opt.concurrent {
		workers.Go(func() {
			for ctx.Err() == nil && l.sent.Add(1) <= int64(l.requests) {
				l.request(ctx)
			}
		})
	}
	workers.Wait()
	return time.Since(start)
}

func (l *load) request(ctx context.Context) {
	start := time.Now()
	status, err := l.get(ctx)
	took := time.Since(start)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		// The cause alone: the request is the same every time.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		l.statuses[err.Error()]++
		return
	}
	l.statuses[status]++
	l.latencies = append(l.latencies, took)
}

func (l *load) get(ctx context.Context) (status string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return "", err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Status, err
}

func (l *load) report(out io.Writer, page string, opt options, took time.Duration) {
	fmt.Fprintf(out, "%s: %d requests answered in %s, up to %d at once\n", page, len(l.latencies), took.Round(time.Millisecond), opt.concurrent)
	for _, status := range slices.Sorted(maps.Keys(l.statuses)) {
		fmt.Fprintf(out, "  %6d  %s\n", l.statuses[status], status)
	}
	if len(l.latencies) == 0 {
		return
	}
	slices.Sort(l.latencies)
	at := func(percent int) time.Duration {
		return l.latencies[(len(l.latencies)-1)*percent/100].Round(100 * time.Microsecond)
	}
	fmt.Fprintf(out, "latency: median %s, 90%% within %s, 99%% within %s, all within %s\n", at(50), at(90), at(99), at(100))
}

// counters are the numbers that a server keeps, by name.
type counters map[string]float64

const (
	debugTime  = 10 * time.Second
	debugBytes = 1 << 20
)

// debug gives the counters that the server of page serves at /debug.
func debug(ctx context.Context, client *http.Client, page *url.URL) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, debugTime)
	defer cancel()
	at := url.URL{Scheme: page.Scheme, User: page.User, Host: page.Host, Path: "/debug"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", at.Redacted(), resp.Status)
	}
	var all map[string]any
	if err := json.NewDecoder(io.LimitReader(resp.Body, debugBytes)).Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", at.Redacted(), err)
	}
	c := counters{}
	c.add("", all)
	return c, nil
}

func (c counters) add(prefix string, all map[string]any) {
	for name, v := range all {
		switch v := v.(type) {
		case float64:
			c[prefix+name] = v
		case map[string]any:
			c.add(prefix+name+": ", v)
		}
	}
}

// since tells what has changed.
func (c counters) since(before counters, out io.Writer) {
	fmt.Fprint(out, "/debug:")
	unchanged := true
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if d := c[name] - before[name]; d != 0 {
			fmt.Fprintf(out, "  %s %+.0f", name, d)
			unchanged = false
		}
	}
	if unchanged {
		fmt.Fprint(out, "  nothing has changed")
	}
	fmt.Fprintln(out)
}
