// Explain tells what the driver would do with each statement it is given, so
// that a team can look at its own queries before it switches. Nothing is run:
//
//	go run ./examples/explain -dsn postgres://… < queries.sql
//
// Statements are read from standard input, each ended by a semicolon. The
// server's catalog decides what the text cannot. Without -dsn it is that of
// COALESCE_TEST_DSN or DATABASE_URL, or an empty PostgreSQL started for this,
// which knows none of your tables.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/embedded"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

func main() {
	dsn := flag.String("dsn", "", "the server whose catalog is asked")
	flag.Parse()
	given := false
	flag.Visit(func(*flag.Flag) { given = true })
	if flag.NArg() > 0 || given && *dsn == "" {
		fmt.Fprintln(os.Stderr, "explain: -dsn needs a connection string, and there are no other arguments: statements are read from standard input")
		os.Exit(2)
	}
	text, err := io.ReadAll(os.Stdin) // until then, Ctrl-C ends the program
	if err != nil {
		fmt.Fprintln(os.Stderr, "explain:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dsn, string(text), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "explain:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn, text string, out io.Writer) error {
	if dsn == "" {
		pgtest.Download = embedded.Download
		server, err := pgtest.Start(ctx, pgtest.Options{})
		if err != nil {
			return err
		}
		defer server.Close()
		dsn = server.DSN()
	}
	db, err := sql.Open("coalesce-pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "VERDICT\tTABLES\tREASON\tSTATEMENT")
	for _, query := range statement.Split(text) {
		e, err := coalesce.Explain(ctx, db, query)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.Verdict, strings.Join(e.Tables, ","), e.Reason, strings.Join(strings.Fields(query), " "))
	}
	return nil
}
