package bench

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/coalesce-pgx/coalesce"
)

// slow takes the server some 10 ms. Each burst has an argument of its own, so
// that no answer is there before it.
const slow = "SELECT sum(n) FROM generate_series(1, 100000) AS g(n) WHERE n <> $1"

// crowd is callers that are released all at once.
type crowd struct {
	ready, done sync.WaitGroup
	release     chan struct{}
	errs        chan error
}

func gather(callers int, read func() error) *crowd {
	c := &crowd{release: make(chan struct{}), errs: make(chan error, callers)}
	c.ready.Add(callers)
	for range callers {
		c.done.Go(func() {
			c.ready.Done()
			<-c.release
			if err := read(); err != nil {
				c.errs <- err
			}
		})
	}
	c.ready.Wait()
	return c
}

// let returns when the last of them has its answer.
func (c *crowd) let() error {
	close(c.release)
	c.done.Wait()
	close(c.errs)
	return <-c.errs
}

// burst makes bursts, each with another argument, and returns how many. Only
// from the release to the last answer is measured, by the clock and by what
// this process used of the processor.
func burst(b *testing.B, callers int, read func(arg int64) error) (bursts int) {
	b.ReportAllocs()
	var cpu time.Duration
	for b.Loop() {
		b.StopTimer()
		bursts++
		c := gather(callers, func() error { return read(-int64(bursts)) })
		used := cpuTime()
		b.StartTimer()
		if err := c.let(); err != nil {
			b.Fatal(err)
		}
		cpu += cpuTime() - used
	}
	b.ReportMetric(float64(cpu)/float64(bursts), "cpu-ns/op")
	return bursts
}

// BenchmarkBurst is callers of one read that is not held yet. Without sharing,
// more than a few cannot be put beside it: a server refuses them, and a pool
// with a bound takes as many times longer.
func BenchmarkBurst(b *testing.B) {
	const shareless = 19
	for _, callers := range []int{1, shareless, 1000, 10000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			for _, driver := range []string{"floor", "coalesce", "singleflight", "pgx", "pool"} {
				if callers > shareless && (driver == "pgx" || driver == "pool") {
					continue
				}
				b.Run("driver="+driver, func(b *testing.B) {
					w := new(wire)
					read := burstReader(b, driver, w)
					if err := read(0); err != nil { // so that the catalog is known, and a server there
						b.Fatal(err)
					}
					dials, queries := w.dials.Load(), w.queries.Load()
					n := burst(b, callers, read)
					if driver != "floor" {
						b.ReportMetric(float64(w.dials.Load()-dials)/float64(n), "conns/op")
						b.ReportMetric(float64(w.queries.Load()-queries)/float64(n), "queries/op")
					}
				})
			}
			var ops []op
			for _, driver := range []string{"floor", "coalesce"} {
				read, arg := burstReader(b, driver, new(wire)), int64(0)
				ops = append(ops, op{driver, func() error {
					arg--
					return gather(callers, func() error { return read(arg) }).let()
				}})
			}
			b.Run("driver=coalesce÷floor", func(b *testing.B) { paired(b, ops[0], ops[1]) })
		})
	}
}

func burstReader(b *testing.B, driver string, w *wire) func(arg int64) error {
	dsn := database(b)
	one := func(db *sql.DB, arg int64) (sum int64, err error) {
		err = db.QueryRow(slow, arg).Scan(&sum)
		return sum, err
	}
	var db *sql.DB
	switch driver {
	case "floor":
		db = together(b, dsn, slow, int64(0))
	case "coalesce":
		db = w.coalesce(b, dsn, coalesce.Config{})
	case "pgx":
		db = w.pgx(b, dsn)
	case "singleflight":
		db = w.pgx(b, dsn)
		var group singleflight.Group
		return func(arg int64) error {
			_, err, _ := group.Do(handKey(slow, []any{arg}), func() (any, error) { return one(db, arg) })
			return err
		}
	case "pool":
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			b.Fatal(err)
		}
		cfg.ConnConfig.DialFunc = w.dial
		p, err := pgxpool.NewWithConfig(bg, cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.Close)
		return func(arg int64) error {
			var sum int64
			return p.QueryRow(bg, slow, arg).Scan(&sum)
		}
	}
	return func(arg int64) error {
		_, err := one(db, arg)
		return err
	}
}

// The megabyte results: a thousand rows of a kilobyte.
var megabytes = []struct{ typ, query string }{
	{"text", "SELECT repeat('x', 1000) || n FROM generate_series(1, 1000) AS g(n) WHERE n <> $1"},
	{"bytea", "SELECT decode(repeat('00ff', 500), 'hex') || int8send(n) FROM generate_series(1, 1000) AS g(n) WHERE n <> $1"},
}

// The destinations that rows of one column are scanned into.
var destinations = []struct {
	name string
	scan func(*sql.Rows) error
}{
	{"bytes", func(r *sql.Rows) error { var v []byte; return r.Scan(&v) }},
	{"string", func(r *sql.Rows) error { var v string; return r.Scan(&v) }},
	{"raw", func(r *sql.Rows) error { var v sql.RawBytes; return r.Scan(&v) }},
}

// BenchmarkBurstMegabyte is what each of many callers of a large result
// allocates, by type and by what it is scanned into. pgx, whose callers each
// have the server send it, must have a bound on its connections.
func BenchmarkBurstMegabyte(b *testing.B) {
	const callers = 1000
	for _, m := range megabytes {
		for _, into := range destinations {
			b.Run("type="+m.typ+",into="+into.name, func(b *testing.B) {
				dsn := database(b)
				for _, driver := range []string{"floor", "coalesce", "pgx"} {
					callers := callers
					var db *sql.DB
					switch driver {
					case "floor":
						db = together(b, dsn, m.query, int64(0))
					case "coalesce":
						db = open(b, driver, dsn)
					case "pgx":
						callers = 10
						db = open(b, driver, dsn)
						db.SetMaxOpenConns(callers)
					}
					read := func(arg int64) error { return readAll(bg, db, into.scan, m.query, arg) }
					if err := read(0); err != nil {
						b.Fatal(err)
					}
					b.Run("driver="+driver, func(b *testing.B) {
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						n := burst(b, callers, read)
						runtime.ReadMemStats(&after)
						b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(n*callers), "B/caller")
					})
				}
			})
		}
	}
}

func readAll(ctx context.Context, db *sql.DB, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
