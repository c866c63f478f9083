package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/singleflight"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

var bg = context.Background()

// The tables of every database here. They are unlogged, so that no disk is in
// the figures.
var tables = []string{
	`CREATE UNLOGGED TABLE item (id int8 PRIMARY KEY, name text NOT NULL, added timestamptz NOT NULL)`,
	`INSERT INTO item SELECT n, 'item number ' || n, timestamptz '2024-01-01 12:00Z' + n * interval '1 minute' FROM generate_series(1, 10000) AS g(n)`,
	`CREATE UNLOGGED TABLE written (n int8)`,
	`CREATE UNLOGGED TABLE account (id int8 PRIMARY KEY, balance int8 NOT NULL) WITH (fillfactor = 50)`,
	`INSERT INTO account VALUES (1, 0)`,
	`VACUUM ANALYZE item`,
}

type item struct {
	id    int64
	name  string
	added time.Time
}

const (
	itemByID  = "SELECT id, name, added FROM item WHERE id = $1"
	itemsUpTo = "SELECT id, name, added FROM item WHERE id <= $1"
)

// database creates a database with the tables and gives its URL.
func database(tb testing.TB) string {
	tb.Helper()
	dsn := withOptions(pgtest.Database(tb), "synchronous_commit=off")
	db := open(tb, "pgx", dsn)
	for _, s := range tables {
		mustExec(tb, db, s)
	}
	return dsn
}

func withOptions(dsn string, options ...string) string {
	for _, o := range options {
		sep := "?"
		if strings.Contains(dsn, "?") {
			sep = "&"
		}
		dsn += sep + o
	}
	return dsn
}

// held are the options under which nothing that a benchmark reads is dropped
// before it ends.
var held = []string{"coalesce_ttl=1h", "coalesce_max_bytes=4GiB", "coalesce_max_result_bytes=64MiB"}

func open(tb testing.TB, driverName, dsn string, options ...string) *sql.DB {
	tb.Helper()
	if driverName == "coalesce" {
		driverName, dsn = "coalesce-pgx", withOptions(dsn, options...)
	}
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return closed(tb, db)
}

// closed closes db with the benchmark.
func closed(tb testing.TB, db *sql.DB) *sql.DB {
	tb.Cleanup(func() { db.Close() })
	return db
}

func openPool(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	p, err := pgxpool.New(bg, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func mustExec(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

// A reader reads items and says how many there were.
type reader func(ctx context.Context, query string, args ...any) (int, error)

// readerOf returns the reader of a driver. The floor's answer is that to query,
// whatever it is asked. Options are for coalesce.
func readerOf(tb testing.TB, name, dsn string, options []string, query string, args ...any) reader {
	tb.Helper()
	switch name {
	case "floor":
		return readSQL(openFloor(tb, dsn, query, args...))
	case "pool":
		return readPool(openPool(tb, dsn))
	case "pool-sql":
		return readSQL(closed(tb, sql.OpenDB(stdlib.GetPoolConnector(openPool(tb, dsn)))))
	case "singleflight":
		return readSingleflight(open(tb, "pgx", dsn))
	case "ristretto":
		return readRistretto(tb, open(tb, "pgx", dsn))
	}
	return readSQL(open(tb, name, dsn, options...))
}

type queryer interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

func readSQL(db queryer) reader {
	return func(ctx context.Context, query string, args ...any) (int, error) {
		rows, err := db.QueryContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return scanItems(rows)
	}
}

func readStmt(st *sql.Stmt) reader {
	return func(ctx context.Context, _ string, args ...any) (int, error) {
		rows, err := st.QueryContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		return scanItems(rows)
	}
}

func scanItems(rows *sql.Rows) (n int, err error) {
	defer rows.Close()
	var it item
	for rows.Next() {
		if err := rows.Scan(&it.id, &it.name, &it.added); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}

func readPool(p *pgxpool.Pool) reader {
	return func(ctx context.Context, query string, args ...any) (n int, err error) {
		rows, err := p.Query(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		var it item
		for rows.Next() {
			if err := rows.Scan(&it.id, &it.name, &it.added); err != nil {
				return n, err
			}
			n++
		}
		return n, rows.Err()
	}
}

func collect(ctx context.Context, db *sql.DB, query string, args ...any) (items []item, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var it item
		if err := rows.Scan(&it.id, &it.name, &it.added); err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, rows.Err()
}

func handKey(query string, args []any) string { return query + fmt.Sprint(args...) }

func readSingleflight(db *sql.DB) reader {
	var group singleflight.Group
	return func(ctx context.Context, query string, args ...any) (int, error) {
		v, err, _ := group.Do(handKey(query, args), func() (any, error) { return collect(ctx, db, query, args...) })
		if err != nil {
			return 0, err
		}
		return len(v.([]item)), nil
	}
}

func readRistretto(tb testing.TB, db *sql.DB) reader {
	tb.Helper()
	cache, err := ristretto.NewCache(&ristretto.Config[string, []item]{NumCounters: 1e6, MaxCost: 1 << 30, BufferItems: 64})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cache.Close)
	return func(ctx context.Context, query string, args ...any) (int, error) {
		key := handKey(query, args)
		items, ok := cache.Get(key)
		if !ok {
			var err error
			if items, err = collect(ctx, db, query, args...); err != nil {
				return 0, err
			}
			cache.SetWithTTL(key, items, int64(len(items))*64, time.Hour)
		}
		return len(items), nil
	}
}

// floor is a driver that returns prebuilt rows at once.
type floor struct {
	columns []string
	rows    [][]driver.Value
	// before, if set, is what a query waits for.
	before func(query string, args []driver.NamedValue) error
}

var errFloor = errors.New("the floor only reads")

func (f *floor) Connect(context.Context) (driver.Conn, error) { return floorConn{f}, nil }
func (f *floor) Driver() driver.Driver                        { return nil }

type floorConn struct{ *floor }

func (c floorConn) Prepare(string) (driver.Stmt, error)       { return floorStmt{c}, nil }
func (floorConn) Close() error                                { return nil }
func (floorConn) Begin() (driver.Tx, error)                   { return nil, errFloor }
func (floorConn) ResetSession(context.Context) error          { return nil }
func (floorConn) CheckNamedValue(nv *driver.NamedValue) error { return nil }
func (c floorConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.before != nil {
		if err := c.before(query, args); err != nil {
			return nil, err
		}
	}
	return &floorRows{floor: c.floor}, nil
}

type floorStmt struct{ c floorConn }

func (floorStmt) Close() error                                { return nil }
func (floorStmt) NumInput() int                               { return -1 }
func (floorStmt) CheckNamedValue(nv *driver.NamedValue) error { return nil }
func (floorStmt) Exec([]driver.Value) (driver.Result, error)  { return nil, errFloor }
func (s floorStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errFloor }
func (s floorStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, "", args)
}

type floorRows struct {
	*floor
	i int
}

func (r *floorRows) Columns() []string { return r.columns }
func (*floorRows) Close() error        { return nil }
func (r *floorRows) Next(dest []driver.Value) error {
	if r.i == len(r.rows) {
		return io.EOF
	}
	copy(dest, r.rows[r.i])
	r.i++
	return nil
}

// newFloor has the answer of pgx's driver to a query.
func newFloor(tb testing.TB, dsn, query string, args ...any) *floor {
	tb.Helper()
	f, err := prebuild(dsn, query, args)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func openFloor(tb testing.TB, dsn, query string, args ...any) *sql.DB {
	tb.Helper()
	return closed(tb, sql.OpenDB(newFloor(tb, dsn, query, args...)))
}

func prebuild(dsn, query string, args []any) (*floor, error) {
	c, err := stdlib.GetDefaultDriver().Open(dsn)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return fetch(c, query, args)
}

func fetch(c driver.Conn, query string, args []any) (*floor, error) {
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	rows, err := c.(driver.QueryerContext).QueryContext(bg, query, named)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	f := &floor{columns: slices.Clone(rows.Columns())}
	for {
		row := make([]driver.Value, len(f.columns))
		switch err := rows.Next(row); err {
		case nil:
			f.rows = append(f.rows, row)
		case io.EOF:
			return f, nil
		default:
			return nil, err
		}
	}
}

// together makes a floor whose callers share queries in the plainest way: of
// those with the same argument the first runs query, the rest wait for it.
func together(tb testing.TB, dsn, query string, args ...any) *sql.DB {
	tb.Helper()
	f := newFloor(tb, dsn, query, args...)
	c, err := stdlib.GetDefaultDriver().Open(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	var (
		mu   sync.Mutex
		arg  any // of the last query
		done chan struct{}
		fail error
	)
	f.before = func(query string, args []driver.NamedValue) error {
		mu.Lock()
		if args[0].Value == arg {
			wait := done
			mu.Unlock()
			<-wait
			return fail
		}
		arg, done = args[0].Value, make(chan struct{})
		mu.Unlock()
		defer close(done)
		_, fail = fetch(c, query, []any{args[0].Value})
		return fail
	}
	return closed(tb, sql.OpenDB(f))
}
