package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/catalog"
)

// fake is a server of which a test decides everything: what dialling and each
// query do. It has no sockets, so it runs in a synctest bubble.
//
// Its connections write a plain field on every call, which lets -race catch
// two goroutines using one connection.
type fake struct {
	dial    func(ctx context.Context) error                                       // nil: succeeds
	query   func(ctx context.Context, q string, c *fakeConn) (driver.Rows, error) // nil: one row, 1
	exec    func(ctx context.Context, q string) error                             // nil: succeeds
	catalog func(ctx context.Context) error                                       // nil: succeeds
	begin   func()                                                                // nil: succeeds

	dials, queries, execs, open, catalogs atomic.Int64

	mu   sync.Mutex
	seen []string // texts in order of arrival, also of Exec
}

func (f *fake) note(q string) {
	f.mu.Lock()
	f.seen = append(f.seen, q)
	f.mu.Unlock()
}

func (f *fake) Driver() driver.Driver { return nil }

func (f *fake) Connect(ctx context.Context) (driver.Conn, error) {
	f.dials.Add(1)
	if f.dial != nil {
		if err := f.dial(ctx); err != nil {
			return nil, err
		}
	}
	f.open.Add(1)
	return &fakeConn{f: f, id: f.dials.Load()}, nil
}

type fakeConn struct {
	f    *fake
	id   int64
	line int // for -race
	dead bool
}

func (c *fakeConn) touch() { c.line++ }

func (c *fakeConn) Close() error { c.touch(); c.f.open.Add(-1); return nil }

func (c *fakeConn) Begin() (driver.Tx, error) {
	c.touch()
	if c.f.begin != nil {
		c.f.begin()
	}
	return fakeTx{c}, nil
}

func (c *fakeConn) IsValid() bool { return !c.dead }

func (c *fakeConn) Ping(context.Context) error { c.touch(); return nil }

func (c *fakeConn) Prepare(q string) (driver.Stmt, error) { c.touch(); return &fakeStmt{c, q}, nil }

func (c *fakeConn) QueryContext(ctx context.Context, q string, _ []driver.NamedValue) (driver.Rows, error) {
	c.touch()
	if q == catalog.Query {
		c.f.catalogs.Add(1)
		if c.f.catalog != nil {
			if err := c.f.catalog(ctx); err != nil {
				c.dead = true
				return nil, err
			}
		}
		return &catalogRows{}, nil
	}
	c.f.queries.Add(1)
	c.f.note(q)
	if c.f.query == nil {
		return ints(1), nil
	}
	return c.f.query(ctx, q, c)
}

func (c *fakeConn) ExecContext(ctx context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	c.touch()
	c.f.execs.Add(1)
	c.f.note(q)
	if c.f.exec != nil {
		if err := c.f.exec(ctx, q); err != nil {
			return nil, err
		}
	}
	return driver.RowsAffected(1), nil
}

// catalogRows say that there is a table, t, and nothing else.
type catalogRows struct{ done bool }

func (*catalogRows) Columns() []string { return make([]string, 5) }
func (*catalogRows) Close() error      { return nil }
func (r *catalogRows) Next(dest []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	dest[0], dest[1], dest[2], dest[3], dest[4] = "relation", "t", "r", "", nil
	return nil
}

type fakeStmt struct {
	c *fakeConn
	q string
}

func (s *fakeStmt) Close() error  { s.c.touch(); return nil }
func (s *fakeStmt) NumInput() int { return -1 }
func (s *fakeStmt) Exec([]driver.Value) (driver.Result, error) {
	return s.c.ExecContext(context.Background(), s.q, nil)
}
func (s *fakeStmt) Query([]driver.Value) (driver.Rows, error) {
	return s.c.QueryContext(context.Background(), s.q, nil)
}

type fakeTx struct{ c *fakeConn }

func (t fakeTx) Commit() error   { t.c.touch(); t.c.f.note("commit"); return nil }
func (t fakeTx) Rollback() error { t.c.touch(); t.c.f.note("rollback"); return nil }

// fakeRows give what next returns, until it returns an error.
type fakeRows struct {
	next   func() (driver.Value, error)
	closed func()
}

func (r *fakeRows) Columns() []string { return []string{"v"} }
func (r *fakeRows) Close() error {
	if r.closed != nil {
		r.closed()
	}
	return nil
}
func (r *fakeRows) Next(dest []driver.Value) (err error) {
	dest[0], err = r.next()
	return err
}

func ints(values ...int64) *fakeRows {
	return &fakeRows{next: func() (driver.Value, error) {
		if len(values) == 0 {
			return nil, io.EOF
		}
		v := values[0]
		values = values[1:]
		return v, nil
	}}
}

// failAfter gives the values and then err.
func failAfter(err error, values ...int64) *fakeRows {
	r := ints(values...)
	rest := r.next
	r.next = func() (driver.Value, error) {
		v, e := rest()
		if e == io.EOF {
			return nil, err
		}
		return v, nil
	}
	return r
}

// openFake opens f with cfg and closes it with the test.
func openFake(t testing.TB, f *fake, cfg coalesce.Config) *sql.DB {
	db := sql.OpenDB(coalesce.NewConnector(f, cfg))
	t.Cleanup(func() { db.Close() })
	return db
}

// q is a read that may be held.
const q = "SELECT v FROM t"

// one reads one integer.
func one(ctx context.Context, db interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string, args ...any) (n int64, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

// all reads integers to their end or error.
func all(ctx context.Context, db *sql.DB, query string, args ...any) (got []int64, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return got, err
		}
		got = append(got, n)
	}
	return got, rows.Err()
}

var errServer = errors.New("server says no")
