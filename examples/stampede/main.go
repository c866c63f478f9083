// Stampede re-enacts an outage: hundreds of pages are rendered in the same
// instant, a dozen or more of them asking the same question, on a PostgreSQL
// that takes twenty connections. It happens first through pgx's own driver and
// then through coalesce-pgx, and the server tells what it was asked to do.
//
//	go run ./examples/stampede
//
// It starts a PostgreSQL of its own and removes it at the end. With -dsn, or
// COALESCE_TEST_DSN or DATABASE_URL in the environment, it uses that server,
// in a database of its own that it drops at the end.
//
// It exits with 1 if a page failed through coalesce-pgx, or if the server had
// to answer more than once what was asked many times.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	_ "github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	_ "github.com/jackc/pgx/v5/stdlib"
)

type options struct {
	pages        int
	repositories int
	dsn          string
	maxConns     int
}

func main() {
	opt := parseFlags()
	demo.Command("stampede", func(ctx context.Context) error { return run(ctx, opt, os.Stdout) })
}

func parseFlags() options {
	var opt options
	flag.IntVar(&opt.pages, "pages", 215, "pages to render at once")
	flag.IntVar(&opt.repositories, "repositories", 14, "repositories the pages belong to, so distinct reads")
	flag.StringVar(&opt.dsn, "dsn", "", "PostgreSQL to use (default: COALESCE_TEST_DSN, DATABASE_URL, or one started for the purpose)")
	flag.IntVar(&opt.maxConns, "max-conns", 20, "max_connections of the PostgreSQL that is started")
	flag.Parse()
	if flag.NArg() > 0 || opt.repositories < 1 || opt.pages < opt.repositories || opt.maxConns < 5 {
		fmt.Fprintln(os.Stderr, "stampede: needs 1 <= -repositories <= -pages, -max-conns >= 5 and no other arguments")
		flag.Usage()
		os.Exit(2)
	}
	return opt
}

// run sets the stage, lets the pages loose through each driver, and reports.
// The error is what went wrong, or that coalesce-pgx did not keep its promise.
func run(ctx context.Context, opt options, out *os.File) (err error) {
	st, err := setStage(ctx, opt, out)
	if err != nil {
		return err
	}
	defer func() { err = st.Close(err) }()

	if opt.repositories > st.Observer.Slots {
		fmt.Fprintf(out, "note: %d distinct reads do not fit into the server's %d free connections: pages will fail with either driver\n",
			opt.repositories, st.Observer.Slots)
	}
	pages := spread(opt.pages, opt.repositories)
	answers := new(answers)
	var tallies []tally
	for _, driver := range demo.Drivers {
		t, err := stampede(ctx, st, driver, pages, answers, out)
		if err != nil {
			return err
		}
		tallies = append(tallies, t...)
	}
	report(out, st.Observer, tallies, opt)
	return verdict(tallies, opt.repositories)
}
