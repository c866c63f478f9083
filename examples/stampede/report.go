package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
)

// tally is one line of the report.
type tally struct {
	driver, wave      string
	rendered, failed  int
	queries, accepted demo.Count
	refused           demo.Count
	refusedByClients  bool // refused is what the pages saw: there was no log to read
	took              time.Duration
	reasons           map[string]int
}

func newTally(driver, name string, w *wave, before, after sight, took time.Duration) tally {
	t := tally{
		driver: driver, wave: name,
		rendered: int(w.rendered.Load()), failed: int(w.failed.Load()),
		queries:  after.queries.Minus(before.queries),
		accepted: after.accepted.Minus(before.accepted),
		refused:  after.refused.Minus(before.refused),
		took:     took,
		reasons:  w.reasons,
	}
	if !t.refused.Known {
		t.refused, t.refusedByClients = demo.Count{N: w.refused, Known: true}, true
	}
	return t
}

func report(out io.Writer, o *demo.Observer, tallies []tally, opt options) {
	fmt.Fprintf(out, "\n%s\n%d pages at once, %d distinct reads among them\n\n", o.Where, opt.pages, opt.repositories)
	tw := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "driver\twave\tpages rendered\tfailed\tqueries executed\tconnections accepted\trefused\twall time\t\n")
	for _, t := range tallies {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", t.driver, t.wave, t.rendered, t.failed,
			t.queries, t.accepted, t.refused, t.took.Round(time.Millisecond))
	}
	tw.Flush()
	fmt.Fprintln(out)
	for _, note := range notes(o, tallies) {
		fmt.Fprintln(out, note)
	}
}

// notes tells where the numbers come from and why pages failed.
func notes(o *demo.Observer, tallies []tally) []string {
	notes := o.Sources()
	if slices.ContainsFunc(tallies, func(t tally) bool { return t.refusedByClients }) {
		notes = append(notes, "connections refused: as the pages saw it (SQLSTATE 53300), the server's log being out of reach")
	}
	for _, t := range tallies {
		for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
			n := t.reasons[reason]
			notes = append(notes, fmt.Sprintf("%s, %s: %d pages failed: %s", t.driver, t.wave, n, reason))
		}
	}
	return notes
}

// verdict is an error unless coalesce-pgx rendered all pages, asking the
// server for each distinct read once.
func verdict(tallies []tally, distinct int) error {
	failed, queries := 0, 0
	for _, t := range tallies {
		if t.driver == "coalesce-pgx" {
			failed += t.failed
			queries += t.queries.N
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d pages failed through coalesce-pgx", failed)
	case queries > distinct:
		return fmt.Errorf("coalesce-pgx had the server execute %d queries for %d distinct reads", queries, distinct)
	}
	return nil
}

// progress shows how a wave gets on, until ended.
type progress struct {
	stop chan struct{} // closed by end
	done chan struct{} // closed by the goroutine that shows, at its end
}

func showProgress(out *os.File, title string, pages int, w *wave) progress {
	p := progress{stop: make(chan struct{}), done: make(chan struct{})}
	every, before, after := time.Second, "", "\n"
	if isTerminal(out) {
		// One line, written over.
		every, before, after = 200*time.Millisecond, "\r\033[K", ""
	}
	start := time.Now()
	show := func() {
		fmt.Fprintf(out, "%s%s: %d of %d pages rendered, %d failed, %.1f s%s", before, title,
			w.rendered.Load(), pages, w.failed.Load(), time.Since(start).Seconds(), after)
	}
	show()
	go func() {
		defer close(p.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show()
			case <-p.stop:
				show()
				if after == "" {
					fmt.Fprintln(out)
				}
				return
			}
		}
	}()
	return p
}

func (p progress) end() {
	close(p.stop)
	<-p.done
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
