package coalesce_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
)

func Example() {
	db, err := sql.Open("coalesce-pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()

	// However many callers ask this at once, the server is asked once.
	var n int
	err = db.QueryRow("SELECT count(*) FROM entries WHERE repository = $1", 7).Scan(&n)
	fmt.Println(n, err)
}

func ExampleNewConnector() {
	cfg, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	hook := func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET TimeZone = 'UTC'")
		return err
	}
	db := sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(*cfg, stdlib.OptionAfterConnect(hook)), coalesce.Config{}))
	defer db.Close()
}

func ExampleExplain() {
	db, err := sql.Open("coalesce-pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	e, err := coalesce.Explain(context.Background(), db, "SELECT nextval('s')")
	fmt.Println(e.Verdict, e.Reason, err) // private calls nextval, which is VOLATILE
}

func ExampleFresh() {
	db, err := sql.Open("coalesce-pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	// Written by another process a moment ago.
	var title string
	err = db.QueryRowContext(coalesce.Fresh(context.Background()), "SELECT title FROM entries WHERE id = 1").Scan(&title)
	fmt.Println(title, err)
}

func ExampleRaw() {
	ctx := context.Background()
	db, err := sql.Open("coalesce-pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	err = coalesce.Raw(conn, func(c *pgx.Conn) error {
		_, err := c.CopyFrom(ctx, pgx.Identifier{"entries"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}, {2}}))
		return err
	})
	fmt.Println(err)
}
