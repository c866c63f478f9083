// Gorm shows GORM on coalesce-pgx: many readers ask the same at once, the
// server is asked once, and a write is seen by the next read.
//
//	go run ./examples/gorm
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
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Repository is in the table repositories, as GORM names it.
type Repository struct {
	ID       int64
	Name     string
	Language string
	Stars    int
}

func main() { demo.Main("gorm", program) }

func program(ctx context.Context, run *demo.Run) error {
	db, err := sql.Open(run.Driver, run.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	// GORM takes a pool that is open. Given DriverName and DSN instead it would
	// open this one too, but take no notice of PreferSimpleProtocol, nor of what
	// a TimeZone in the DSN means for timestamps.
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{
		Logger: logger.Discard, // it would tell of each read through pgx that took long to connect
	})
	if err != nil {
		return err
	}
	if err := fill(orm.WithContext(ctx)); err != nil {
		return err
	}

	read := func(ctx context.Context) (stars int, err error) {
		var top []Repository
		err = orm.WithContext(ctx).Where("language = ?", "go").Order("stars DESC, id").Limit(10).Find(&top).Error
		for _, r := range top {
			stars += r.Stars
		}
		return stars, err
	}
	write := func(ctx context.Context) error {
		return orm.WithContext(ctx).Model(&Repository{ID: 98}).Update("stars", gorm.Expr("stars + 1")).Error
	}
	return run.Show(ctx, db, read, write)
}

// fill makes the table anew.
func fill(orm *gorm.DB) error {
	if err := orm.Migrator().DropTable(&Repository{}); err != nil {
		return err
	}
	if err := orm.AutoMigrate(&Repository{}); err != nil {
		return err
	}
	repositories := make([]Repository, 1000)
	for i := range repositories {
		id := int64(i + 1)
		repositories[i] = Repository{ID: id, Name: fmt.Sprintf("repository-%d", id), Language: []string{"go", "sql"}[id%2], Stars: int(id % 100)}
	}
	return orm.CreateInBatches(repositories, 500).Error
}
