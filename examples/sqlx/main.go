// Sqlx shows sqlx on coalesce-pgx: many readers ask the same at once, the
// server is asked once, and a write is seen by the next read.
//
//	go run ./examples/sqlx
//
// With -dsn it uses that server, in a database of its own that it drops.
package main

import (
	"context"

	_ "github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
)

// sqlx chooses the placeholders of Rebind and of named queries by the driver's
// name. For a name that it does not know it leaves question marks, which
// PostgreSQL refuses. A program that has a *sql.DB already can do without:
// sqlx.NewDb(db, "pgx").
func init() { sqlx.BindDriver("coalesce-pgx", sqlx.DOLLAR) }

const schema = `
DROP TABLE IF EXISTS repositories;
CREATE TABLE repositories (
	id       bigint PRIMARY KEY,
	name     text NOT NULL,
	language text NOT NULL,
	stars    int NOT NULL
);
INSERT INTO repositories
SELECT r, 'repository-' || r, (ARRAY['go', 'sql'])[1 + r % 2], r % 100 FROM generate_series(1, 1000) AS r`

type repository struct {
	ID    int64  `db:"id"`
	Name  string `db:"name"`
	Stars int    `db:"stars"`
}

func main() { demo.Main("sqlx", program) }

func program(ctx context.Context, run *demo.Run) error {
	db, err := sqlx.ConnectContext(ctx, run.Driver, run.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}

	read := func(ctx context.Context) (stars int, err error) {
		var top []repository
		query := db.Rebind("SELECT id, name, stars FROM repositories WHERE language = ? ORDER BY stars DESC, id LIMIT 10")
		if err := db.SelectContext(ctx, &top, query, "go"); err != nil {
			return 0, err
		}
		for _, r := range top {
			stars += r.Stars
		}
		return stars, nil
	}
	write := func(ctx context.Context) error {
		_, err := db.NamedExecContext(ctx, "UPDATE repositories SET stars = stars + 1 WHERE id = :id", repository{ID: 98})
		return err
	}
	return run.Show(ctx, db.DB, read, write)
}
