package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// Each benchmark has its yardstick beside it, so that one run gives a ratio:
//
//	go test -run '^$' -bench . -count 10 . | benchstat -col /driver -

// floor is a driver that returns prebuilt rows at once: what database/sql
// itself costs.
type floor struct{}

func (floor) Connect(context.Context) (driver.Conn, error) { return floor{}, nil }
func (floor) Driver() driver.Driver                        { return nil }
func (floor) Prepare(string) (driver.Stmt, error)          { return nil, errServer }
func (floor) Close() error                                 { return nil }
func (floor) Begin() (driver.Tx, error)                    { return nil, errServer }
func (floor) ResetSession(context.Context) error           { return nil }
func (floor) CheckNamedValue(*driver.NamedValue) error     { return nil }
func (floor) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &floorRows{}, nil
}

type floorRows struct{ done bool }

func (*floorRows) Columns() []string { return floorColumns }
func (*floorRows) Close() error      { return nil }
func (r *floorRows) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	dest[0] = floorValue
	return nil
}

var (
	floorColumns              = []string{"n"}
	floorValue   driver.Value = int64(1)
)

func benchRead(b *testing.B, ctx context.Context, db *sql.DB, query string, args ...any) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := one(ctx, db, query, args...); err != nil {
			b.Fatal(err)
		}
	}
}

func openBench(b *testing.B, driverName, options string) *sql.DB {
	b.Helper()
	dsn := pgtest.DSN(b)
	if driverName == "coalesce-pgx" {
		dsn = withOptions(dsn, options)
	}
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	if err := db.Ping(); err != nil {
		b.Fatal(err)
	}
	return db
}

func withOptions(dsn, options string) string {
	switch {
	case options == "":
		return dsn
	case !strings.Contains(dsn, "://"):
		return dsn + " " + strings.ReplaceAll(options, "&", " ")
	case strings.Contains(dsn, "?"):
		return dsn + "&" + options
	}
	return dsn + "?" + options
}

func BenchmarkHeldRead(b *testing.B) {
	dbs := map[string]*sql.DB{
		"floor":    sql.OpenDB(floor{}),
		"coalesce": openBench(b, "coalesce-pgx", ""),
	}
	for _, name := range []string{"floor", "coalesce"} {
		db := dbs[name]
		b.Run("args=0/driver="+name, func(b *testing.B) { benchRead(b, context.Background(), db, "SELECT 1") })
		b.Run("args=2/driver="+name, func(b *testing.B) {
			benchRead(b, context.Background(), db, "SELECT $1::int8 WHERE $2 <> ''", 1, "some text")
		})
		b.Run("distinct-keys=64/driver="+name, func(b *testing.B) {
			db.SetMaxIdleConns(64)
			b.ReportAllocs()
			var wg sync.WaitGroup
			each := b.N/64 + 1
			for i := range 64 {
				wg.Go(func() {
					for range each {
						if _, err := one(context.Background(), db, "SELECT $1::int8", i); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkLedRead(b *testing.B) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, driverName := range []string{"pgx", "coalesce-pgx"} {
		db := openBench(b, driverName, "coalesce_ttl=0")
		b.Run("context=background/driver="+driverName, func(b *testing.B) { benchRead(b, context.Background(), db, "SELECT 1") })
		b.Run("context=cancellable/driver="+driverName, func(b *testing.B) { benchRead(b, cancellable, db, "SELECT 1") })
	}
}

func BenchmarkPrivate(b *testing.B) {
	for _, driverName := range []string{"pgx", "coalesce-pgx"} {
		db := openBench(b, driverName, "")
		b.Run("statement=select/driver="+driverName, func(b *testing.B) {
			benchRead(b, context.Background(), db, "SELECT (random() * 0)::int8")
		})
		b.Run("statement=insert/driver="+driverName, func(b *testing.B) {
			db.SetMaxOpenConns(1)
			if _, err := db.Exec("CREATE TEMP TABLE IF NOT EXISTS bench_insert(n int)"); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.Exec("INSERT INTO bench_insert VALUES ($1)", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBurst reports the time of one burst; plain pgx cannot be put
// beside the larger ones without exhausting the server, which is the point.
func BenchmarkBurst(b *testing.B) {
	for _, callers := range []int{1, 19, 1000, 10000} {
		for _, driverName := range []string{"pgx", "coalesce-pgx"} {
			if driverName == "pgx" && callers > 19 {
				continue
			}
			b.Run(fmt.Sprintf("callers=%d/driver=%s", callers, driverName), func(b *testing.B) {
				db := openBench(b, driverName, "coalesce_ttl=0")
				b.ReportAllocs()
				for b.Loop() {
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							if _, err := one(context.Background(), db, "SELECT count(*) FROM generate_series(1, 100000)"); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
				if driverName == "coalesce-pgx" {
					b.ReportMetric(float64(coalesce.StatsOf(db).Led)/float64(b.N), "queries/op")
				}
			})
		}
	}
}
