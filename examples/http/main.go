// Http is a small web service on coalesce-pgx: a page with the figures of
// repositories, whose query all its readers share; a form that writes, after
// which the page shows the new state at once; a page for administrators that is
// read past all sharing; and the driver's counters at /debug.
//
//	go run ./examples/http
//	go run ./examples/http/load -url http://127.0.0.1:8080/ -c 200 -n 2000
//
// It starts a PostgreSQL of its own, or with -dsn uses that server, in a
// database of its own that it drops at the end. Ctrl-C ends it; it then says
// what the server was asked. The same load with -driver pgx is the comparison.
package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	_ "github.com/jackc/pgx/v5/stdlib"
)

//go:embed schema.sql
var schema string

// counted is panel as the server keeps it, with its constants as parameters.
const counted = "%from repositories as r%stars%limit%"

// shutdownTime is what requests under way have left after Ctrl-C.
const shutdownTime = 10 * time.Second

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	driver := flag.String("driver", "coalesce-pgx", "coalesce-pgx or pgx")
	dsn := flag.String("dsn", "", "PostgreSQL to use (default: COALESCE_TEST_DSN, DATABASE_URL, or one started for the purpose)")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains(demo.Drivers, *driver) {
		fmt.Fprintln(os.Stderr, "http: needs -driver coalesce-pgx or pgx, and no other arguments")
		flag.Usage()
		os.Exit(2)
	}
	demo.Command("http", func(ctx context.Context) error {
		// First of all: to fill a database for an address that is taken is in vain.
		listener, err := net.Listen("tcp", *addr)
		if err != nil {
			return err
		}
		return run(ctx, listener, *driver, *dsn, os.Stdout)
	})
}

// run serves until ctx ends, and then reports what the server was asked.
func run(ctx context.Context, listener net.Listener, driver, dsn string, out io.Writer) (err error) {
	defer listener.Close()
	st, err := demo.SetStage(ctx, demo.Options{Name: "http", DSN: dsn, Queries: counted}, out)
	if err != nil {
		return err
	}
	defer func() { err = st.Close(err) }()
	for _, sql := range []string{schema, "VACUUM ANALYZE repositories, commits, stars"} {
		if err := st.Exec(ctx, sql); err != nil {
			return err
		}
	}
	accepted, _, err := st.Observer.Connections(ctx, nil)
	if err != nil {
		return err
	}

	// The name of the driver is all that differs from a service on pgx.
	db, err := sql.Open(driver, st.DSN)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\nserving http://%s/ on %s; Ctrl-C ends it\n", st.Observer.Where, listener.Addr(), driver)
	err = serve(ctx, listener, &site{db: db, log: log.New(out, "", log.LstdFlags)})
	// Before the server is asked for its figures, so that they are complete.
	err = errors.Join(err, db.Close())
	if err != nil {
		return err
	}
	return report(context.WithoutCancel(ctx), st.Observer, accepted, out)
}

// serve serves s until ctx ends, and lets the requests under way finish.
func serve(ctx context.Context, listener net.Listener, s *site) error {
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ErrorLog: s.log}
	down := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		down <- server.Shutdown(grace)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	return <-down
}

func report(ctx context.Context, o *demo.Observer, before demo.Count, out io.Writer) error {
	queries, err := o.Queries(ctx)
	if err != nil {
		return err
	}
	accepted, _, err := o.Connections(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "PostgreSQL: panel queries executed: %s, connections accepted: %s\n", queries, accepted.Minus(before))
	return nil
}
