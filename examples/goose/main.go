// Goose shows migrations by goose on coalesce-pgx: many readers ask the same at
// once, the server is asked once, and what a migration changes is seen by the
// next read.
//
//	go run ./examples/goose
//
// With -dsn it uses that server, in a database of its own that it drops.
package main

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	_ "github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

func main() { demo.Main("goose", program) }

func program(ctx context.Context, run *demo.Run) error {
	db, err := sql.Open(run.Driver, run.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	// Goose is told the dialect, so it need not know the driver. Its command
	// line, which does, can go on using pgx: it is another process anyway.
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return err
	}
	if _, err := provider.DownTo(ctx, 0); err != nil { // what the run before has left
		return err
	}
	if _, err := provider.UpTo(ctx, 1); err != nil {
		return err
	}

	read := func(ctx context.Context) (stars int, err error) {
		rows, err := db.QueryContext(ctx, "SELECT stars FROM repositories WHERE language = $1 ORDER BY stars DESC, id LIMIT 10", "go")
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for rows.Next() {
			var n int
			if err := rows.Scan(&n); err != nil {
				return 0, err
			}
			stars += n
		}
		return stars, rows.Err()
	}
	write := func(ctx context.Context) error {
		_, err := provider.UpByOne(ctx)
		return err
	}
	return run.Show(ctx, db, read, write)
}
