// Package demo is what the examples share: a PostgreSQL with a database of the
// program's own on it, an observer that asks the server what it was made to
// do, and the frame of the examples that show a tool on both drivers.
package demo

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// Drivers are compared; nothing else differs between their runs.
var Drivers = []string{"pgx", "coalesce-pgx"}

// Program is what a user's program does with a tool. It runs on one driver
// after the other, in the same database, and calls run.Show.
type Program func(ctx context.Context, run *Run) error

// reads is the pattern of the reads that are counted. Every Program reads a
// table of this name.
const reads = "%select%from%repositories%"

// Main is the main function of an example.
func Main(name string, p Program) {
	opt := Options{Name: name, Queries: reads}
	flag.StringVar(&opt.DSN, "dsn", "", "PostgreSQL to use (default: COALESCE_TEST_DSN, DATABASE_URL, or one started for the purpose)")
	readers := flag.Int("readers", 50, "readers that ask the same at once")
	flag.Parse()
	if flag.NArg() > 0 || *readers < 1 {
		fmt.Fprintf(os.Stderr, "%s: needs -readers >= 1 and no other arguments\n", name)
		flag.Usage()
		os.Exit(2)
	}
	Command(name, func(ctx context.Context) error { return compare(ctx, p, opt, *readers, os.Stdout) })
}

// compare runs p on each driver and reports. The error is what went wrong, or
// that coalesce-pgx did not keep its promise.
func compare(ctx context.Context, p Program, opt Options, readers int, out io.Writer) (err error) {
	st, err := SetStage(ctx, opt, out)
	if err != nil {
		return err
	}
	defer func() { err = st.Close(err) }()

	var runs []*Run
	for _, driver := range Drivers {
		run := &Run{Driver: driver, DSN: st.DSN, observer: st.Observer, readers: readers}
		if run.accepted, _, err = st.Observer.Connections(ctx, nil); err != nil {
			return err
		}
		if err := p(ctx, run); err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
		runs = append(runs, run)
	}
	report(out, st.Observer, opt.Name, runs)
	return verdict(runs)
}

// Run is one run of a Program.
type Run struct {
	Driver string // to open
	DSN    string // of an empty database, but for what the program left there itself

	observer *Observer
	readers  int

	// What Show has found. Until then accepted is what came before the run.
	queries, accepted Count
	took              time.Duration
	failures          map[string]int // readers that failed, by the reason given
	before, after     int            // what was read before the write and after it
}

// Show lets readers read in the same instant, counts what that cost the server,
// writes once and reads again. db is the pool under the tool. read gives the
// stars of all repositories it has read; write adds one.
func (r *Run) Show(ctx context.Context, db *sql.DB, read func(context.Context) (int, error), write func(context.Context) error) error {
	queries, err := r.observer.Queries(ctx)
	if err != nil {
		return err
	}
	if err := r.readAtOnce(ctx, read); err != nil {
		return err
	}
	if r.queries, err = r.observer.Queries(ctx); err != nil {
		return err
	}
	r.queries = r.queries.Minus(queries)
	accepted, _, err := r.observer.Connections(ctx, db)
	if err != nil {
		return err
	}
	r.accepted = accepted.Minus(r.accepted)

	if err := write(ctx); err != nil {
		return err
	}
	r.after, err = read(ctx)
	return err
}

func (r *Run) readAtOnce(ctx context.Context, read func(context.Context) (int, error)) error {
	type answer struct {
		stars int
		err   error
	}
	answers := make(chan answer, r.readers)
	var ready sync.WaitGroup
	gate := make(chan struct{}) // closed once all readers stand ready
	ready.Add(r.readers)
	for range r.readers {
		go func() { // ends before readAtOnce, which takes its answer
			ready.Done()
			<-gate
			stars, err := read(ctx)
			answers <- answer{stars, err}
		}()
	}
	ready.Wait()
	start := time.Now()
	close(gate)
	stars := map[int]bool{}
	r.failures = map[string]int{}
	for range r.readers {
		if a := <-answers; a.err != nil {
			r.failures[Reason(a.err)]++
		} else {
			stars[a.stars] = true
			r.before = a.stars
		}
	}
	r.took = time.Since(start)
	if len(stars) > 1 {
		return fmt.Errorf("the readers have read %v: they should have read the same", slices.Sorted(maps.Keys(stars)))
	}
	return ctx.Err()
}

func (r *Run) failed() (n int) {
	for _, of := range r.failures {
		n += of
	}
	return n
}

func report(out io.Writer, o *Observer, name string, runs []*Run) {
	fmt.Fprintf(out, "%s\n%d readers ask the same at once through %s, then one writes and reads again\n\n", o.Where, runs[0].readers, name)
	tw := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "driver\tread\tfailed\tqueries executed\tconnections accepted\twall time\tstars\tafter the write\t\n")
	for _, r := range runs {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t\n", r.Driver, r.readers-r.failed(), r.failed(),
			r.queries, r.accepted, r.took.Round(time.Millisecond), r.before, r.after)
	}
	tw.Flush()
	fmt.Fprintln(out)
	for _, source := range o.Sources() {
		fmt.Fprintln(out, source)
	}
	for _, r := range runs {
		for _, reason := range slices.Sorted(maps.Keys(r.failures)) {
			fmt.Fprintf(out, "%s: %d readers failed: %s\n", r.Driver, r.failures[reason], reason)
		}
	}
}

// verdict is an error unless every run's write was seen by its next read, and
// through coalesce-pgx the readers cost one query and one connection.
func verdict(runs []*Run) error {
	for _, r := range runs {
		coalesced := r.Driver == "coalesce-pgx"
		switch {
		case r.failed() < r.readers && r.after != r.before+1:
			return fmt.Errorf("%s: %d stars after one was added to %d", r.Driver, r.after, r.before)
		case coalesced && r.failed() > 0:
			return fmt.Errorf("%d readers failed through coalesce-pgx", r.failed())
		case coalesced && r.queries.Known && r.queries.N != 1:
			return fmt.Errorf("coalesce-pgx had the server execute %d queries where one would do", r.queries.N)
		case coalesced && r.accepted.Known && r.accepted.N != 1:
			return fmt.Errorf("coalesce-pgx opened %d connections where one would do", r.accepted.N)
		}
	}
	return nil
}
