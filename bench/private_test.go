package bench

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// BenchmarkPrivate is what goes straight through.
func BenchmarkPrivate(b *testing.B) {
	type work struct {
		sql  func(context.Context, *sql.DB) error
		pool func(context.Context, *pgxpool.Pool) error
	}
	const (
		insert = "INSERT INTO written VALUES ($1)"
		update = "UPDATE account SET balance = balance + 1 WHERE id = $1"
		random = "SELECT random() FROM account WHERE id = $1"
	)
	for _, c := range []struct {
		name string
		work
	}{
		{"insert", work{
			func(ctx context.Context, db *sql.DB) error { _, err := db.ExecContext(ctx, insert, 1); return err },
			func(ctx context.Context, p *pgxpool.Pool) error { _, err := p.Exec(ctx, insert, 1); return err },
		}},
		{"transaction", work{
			func(ctx context.Context, db *sql.DB) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if _, err := tx.ExecContext(ctx, update, 1); err != nil {
					return err
				}
				return tx.Commit()
			},
			func(ctx context.Context, p *pgxpool.Pool) error {
				return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, update, 1); return err })
			},
		}},
		{"select", work{
			func(ctx context.Context, db *sql.DB) error {
				var x float64
				return db.QueryRowContext(ctx, random, 1).Scan(&x)
			},
			func(ctx context.Context, p *pgxpool.Pool) error {
				var x float64
				return p.QueryRow(ctx, random, 1).Scan(&x)
			},
		}},
	} {
		b.Run("statement="+c.name, func(b *testing.B) {
			dsn := database(b)
			var ops []op
			for _, driver := range []string{"pgx", "coalesce", "pool", "pool-sql"} {
				switch driver {
				case "pool":
					p := openPool(b, dsn)
					ops = append(ops, op{driver, func() error { return c.pool(bg, p) }})
					continue
				case "pool-sql":
					db := closed(b, sql.OpenDB(stdlib.GetPoolConnector(openPool(b, dsn))))
					ops = append(ops, op{driver, func() error { return c.sql(bg, db) }})
					continue
				}
				db := open(b, driver, dsn)
				// The catalog is known, as it is in a program that reads too.
				if _, err := readSQL(db)(bg, itemByID, 1); err != nil {
					b.Fatal(err)
				}
				ops = append(ops, op{driver, func() error { return c.sql(bg, db) }})
			}
			side(b, ops, "pgx")
		})
	}
}
