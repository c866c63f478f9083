// Bun shows bun on coalesce-pgx: many readers ask the same at once, the server
// is asked once, and a write is seen by the next read.
//
//	go run ./examples/bun
//
// With -dsn it uses that server, in a database of its own that it drops.
package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// Repository is in the table repositories, as bun names it.
type Repository struct {
	ID       int64 `bun:",pk"`
	Name     string
	Language string
	Stars    int
}

func main() { demo.Main("bun", program) }

func program(ctx context.Context, run *demo.Run) error {
	db, err := sql.Open(run.Driver, run.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	// The dialect says that it is PostgreSQL: bun does not ask for the name of
	// the driver.
	orm := bun.NewDB(db, pgdialect.New())
	if err := fill(ctx, orm); err != nil {
		return err
	}

	// Bun writes arguments into the text of a query, so that it is the text
	// alone that readers have in common.
	read := func(ctx context.Context) (stars int, err error) {
		var top []Repository
		err = orm.NewSelect().Model(&top).Where("language = ?", "go").Order("stars DESC", "id").Limit(10).Scan(ctx)
		for _, r := range top {
			stars += r.Stars
		}
		return stars, err
	}
	write := func(ctx context.Context) error {
		_, err := orm.NewUpdate().Model((*Repository)(nil)).Set("stars = stars + 1").Where("id = ?", 98).Exec(ctx)
		return err
	}
	return run.Show(ctx, db, read, write)
}

// fill makes the table anew.
func fill(ctx context.Context, orm *bun.DB) error {
	if err := orm.ResetModel(ctx, (*Repository)(nil)); err != nil {
		return err
	}
	repositories := make([]Repository, 1000)
	for i := range repositories {
		id := int64(i + 1)
		repositories[i] = Repository{ID: id, Name: fmt.Sprintf("repository-%d", id), Language: []string{"go", "sql"}[id%2], Stars: int(id % 100)}
	}
	_, err := orm.NewInsert().Model(&repositories).Exec(ctx)
	return err
}
