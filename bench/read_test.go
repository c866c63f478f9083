package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coalesce-pgx/coalesce"
)

var errRows = errors.New("got another number of rows than there are")

// ops are the same read on several drivers.
func ops(b *testing.B, drivers, options []string, ctx context.Context, want int, query string, args ...any) []op {
	b.Helper()
	dsn := database(b)
	var ops []op
	for _, name := range drivers {
		read := readerOf(b, name, dsn, options, query, args...)
		ops = append(ops, op{name, func() error {
			n, err := read(ctx, query, args...)
			if err == nil && n != want {
				err = errRows
			}
			return err
		}})
	}
	return ops
}

// BenchmarkHeld is a read that was made before, and what reading it costs
// where nothing is held.
func BenchmarkHeld(b *testing.B) {
	for _, rows := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			query, arg := itemsUpTo, rows
			if rows == 1 {
				query = itemByID
			}
			drivers := []string{"floor", "coalesce", "ristretto", "pgx", "pool"}
			side(b, ops(b, drivers, held, bg, rows, query, arg), "floor")
		})
	}
}

// BenchmarkHeldArgs is a held read of one row with arguments of several types,
// all of which are in the key.
func BenchmarkHeldArgs(b *testing.B) {
	for _, c := range []struct {
		query string
		args  []any
	}{
		{"SELECT id, name, added FROM item WHERE id = 1", nil},
		{itemByID + " AND name = $2 AND $3::bool AND $4::float8 > 2", []any{int64(1), "item number 1", true, 2.5}},
	} {
		b.Run(fmt.Sprintf("args=%d", len(c.args)), func(b *testing.B) {
			side(b, ops(b, []string{"floor", "coalesce", "ristretto"}, held, bg, 1, c.query, c.args...), "floor")
		})
	}
}

type namedContext struct {
	name string
	ctx  context.Context
}

// contexts are one that cannot be cancelled and one that can: database/sql and
// pgx watch the latter.
func contexts(b *testing.B) []namedContext {
	ctx, cancel := context.WithCancel(bg)
	b.Cleanup(cancel)
	return []namedContext{{"background", bg}, {"cancellable", ctx}}
}

// BenchmarkLed is a read that must be made, and that nobody joins: results are
// not held.
func BenchmarkLed(b *testing.B) {
	drivers := []string{"pgx", "coalesce", "pool", "pool-sql", "singleflight"}
	for _, rows := range []int{1, 100} {
		for _, c := range contexts(b) {
			b.Run(fmt.Sprintf("rows=%d,context=%s", rows, c.name), func(b *testing.B) {
				query := itemsUpTo
				if rows == 1 {
					query = itemByID
				}
				side(b, ops(b, drivers, []string{"coalesce_ttl=0"}, c.ctx, rows, query, rows), "pgx")
			})
		}
	}
}

// BenchmarkLedDistinct is a read that was never made before, and whose result
// is held, among as many others as there is room for.
func BenchmarkLedDistinct(b *testing.B) {
	const query = "SELECT id, name, added FROM item WHERE id = 1 AND $1::int8 <> 0"
	for _, c := range contexts(b) {
		b.Run("context="+c.name, func(b *testing.B) {
			dsn := database(b)
			var ops []op
			for _, driver := range []string{"pgx", "coalesce", "singleflight", "ristretto"} {
				read := readerOf(b, driver, dsn, nil, query, 1)
				n := 0
				ops = append(ops, op{driver, func() error {
					n++
					_, err := read(c.ctx, query, n)
					return err
				}})
			}
			side(b, ops, "pgx")
		})
	}
}

// BenchmarkPrepared is a read of one row by a statement of db.Prepare.
func BenchmarkPrepared(b *testing.B) {
	for _, c := range []struct {
		name    string
		drivers []string
		options []string
		pair    string
	}{
		{"held", []string{"floor", "coalesce", "pgx"}, held, "floor"},
		{"led", []string{"pgx", "coalesce"}, []string{"coalesce_ttl=0"}, "pgx"},
	} {
		b.Run("read="+c.name, func(b *testing.B) {
			dsn := database(b)
			var ops []op
			for _, driver := range c.drivers {
				var db *sql.DB
				if driver == "floor" {
					db = openFloor(b, dsn, itemByID, 1)
				} else {
					db = open(b, driver, dsn, c.options...)
				}
				st, err := db.Prepare(itemByID)
				if err != nil {
					b.Fatal(err)
				}
				defer st.Close()
				read := readStmt(st)
				ops = append(ops, op{driver, func() error {
					_, err := read(bg, "", 1)
					return err
				}})
			}
			side(b, ops, c.pair)
		})
	}
}

// BenchmarkTexts is held reads of a thousand kinds: one text with a thousand
// arguments, or a thousand texts with one.
func BenchmarkTexts(b *testing.B) {
	for _, c := range []struct{ texts, args int }{{1, 1000}, {1000, 1}} {
		b.Run(fmt.Sprintf("texts=%d,args=%d", c.texts, c.args), func(b *testing.B) {
			texts := make([]string, c.texts)
			for i := range texts {
				texts[i] = fmt.Sprintf("%s AND %d = %[2]d", itemByID, i)
			}
			dsn := database(b)
			var ops []op
			for _, driver := range []string{"floor", "coalesce", "ristretto", "pgx"} {
				read := readerOf(b, driver, dsn, held, texts[0], 1)
				i := 0
				do := func() error {
					i++
					_, err := read(bg, texts[i%c.texts], 1+i%c.args)
					return err
				}
				for range 1000 { // of which all that is held has been read
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
				ops = append(ops, op{driver, do})
			}
			side(b, ops, "floor")
		})
	}
}

// BenchmarkKeys is held reads of one row in random order, among more and more
// of them. A map of prebuilt rows under a mutex shows what the processor's
// caches, and the garbage collector, make of that many.
func BenchmarkKeys(b *testing.B) {
	const query = "SELECT id, name, added FROM item WHERE id = 1 AND $1::int8 >= 0"
	for _, keys := range []int{1, 100, 10000, 100000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			dsn := database(b)
			order := rand.New(rand.NewPCG(1, 2)).Perm(keys)
			for _, driver := range []string{"map", "coalesce", "ristretto"} {
				b.Run("driver="+driver, func(b *testing.B) {
					var read reader
					if driver == "map" {
						read = readSQL(mapOf(b, dsn, keys, query))
					} else {
						read = readerOf(b, driver, dsn, held, query)
					}
					fill(b, read, query, keys)
					i := 0
					alone(b, func() error {
						i++
						_, err := read(bg, query, order[i%keys])
						return err
					})
				})
			}
		})
	}
}

// mapOf is a floor that has its rows in a map, by argument.
func mapOf(b *testing.B, dsn string, keys int, query string) *sql.DB {
	f := newFloor(b, dsn, query, 1)
	var mu sync.Mutex
	rows := make(map[string]*floor, keys)
	for i := range keys {
		rows[handKey(query, []any{int64(i)})] = newRows(f)
	}
	f.before = func(query string, args []driver.NamedValue) error {
		key := make([]byte, 0, 128)
		key = fmt.Append(append(key, query...), args[0].Value)
		mu.Lock()
		defer mu.Unlock()
		if r := rows[string(key)]; r == nil || len(r.rows) != 1 {
			return errRows
		}
		return nil
	}
	return closed(b, sql.OpenDB(f))
}

// newRows is a copy of f at another place in memory.
func newRows(f *floor) *floor {
	c := &floor{columns: f.columns}
	for _, r := range f.rows {
		c.rows = append(c.rows, append([]driver.Value(nil), r...))
	}
	return c
}

// fill reads with each argument once.
func fill(b *testing.B, read reader, query string, keys int) {
	b.Helper()
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= keys || b.Failed() {
					return
				}
				if _, err := read(bg, query, i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkGoroutines is held reads of one row, each goroutine its own.
func BenchmarkGoroutines(b *testing.B) {
	const reads = 6400 // in one op, all goroutines together
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d,reads=%d", goroutines, reads), func(b *testing.B) {
			dsn := database(b)
			var ops []op
			for _, driver := range []string{"floor", "coalesce", "ristretto"} {
				read := readerIdle(b, driver, dsn, goroutines)
				fill(b, read, itemByID, goroutines+1)
				ops = append(ops, op{driver, func() error {
					var wg sync.WaitGroup
					errs := make(chan error, goroutines)
					for i := range goroutines {
						wg.Go(func() {
							for range reads / goroutines {
								if _, err := read(bg, itemByID, i+1); err != nil {
									errs <- err
									return
								}
							}
						})
					}
					wg.Wait()
					close(errs)
					return <-errs
				}})
			}
			side(b, ops, "floor")
		})
	}
}

// readerIdle is readerOf with a pool that keeps a connection for each
// goroutine, so that it is not the pool's own closing that is measured.
func readerIdle(b *testing.B, driver, dsn string, conns int) reader {
	b.Helper()
	if driver == "ristretto" {
		return readerOf(b, driver, dsn, nil, itemByID)
	}
	var db *sql.DB
	if driver == "floor" {
		db = openFloor(b, dsn, itemByID, 1)
	} else {
		db = open(b, driver, dsn, held...)
	}
	db.SetMaxIdleConns(conns)
	return readSQL(db)
}

// BenchmarkParallel is held reads of one row on all cores.
func BenchmarkParallel(b *testing.B) {
	for _, conns := range []string{"default", "all"} {
		b.Run("idle="+conns, func(b *testing.B) {
			dsn := database(b)
			idle := 2
			if conns == "all" {
				idle = 1024
			}
			for _, driver := range []string{"floor", "coalesce", "ristretto"} {
				read := readerIdle(b, driver, dsn, idle)
				fill(b, read, itemByID, 2)
				b.Run("driver="+driver, func(b *testing.B) {
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if _, err := read(bg, itemByID, 1); err != nil {
								b.Error(err)
								return
							}
						}
					})
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
				})
			}
		})
	}
}

// BenchmarkDriver is the driver's part of a held read of one row, without
// that of database/sql.
func BenchmarkDriver(b *testing.B) {
	dsn := database(b)
	query := itemByID
	var ops []op
	for _, name := range []string{"floor", "coalesce"} {
		var c driver.Connector = newFloor(b, dsn, query, 1)
		if name == "coalesce" {
			k, err := new(coalesce.Driver).OpenConnector(withOptions(dsn, held...))
			if err != nil {
				b.Fatal(err)
			}
			c = k
		}
		conn, err := c.Connect(bg)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		dest := make([]driver.Value, 3)
		args := []driver.NamedValue{{Ordinal: 1, Value: int64(1)}}
		ops = append(ops, op{name, func() error {
			rows, err := conn.(driver.QueryerContext).QueryContext(bg, query, args)
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Columns()
			return rows.Next(dest)
		}})
	}
	b.Run("read=held", func(b *testing.B) { side(b, ops, "floor") })
}
