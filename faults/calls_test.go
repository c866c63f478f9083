package faults

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// call is a way to need the server.
type call struct {
	name string
	// lay makes what the call needs, while the server answers still, and returns
	// the call, which is over when ctx is.
	lay func(c *client, ctx context.Context) func() error
	// fresh: it needs no connection beforehand, so it can meet the silence as it
	// dials. cold: it needs none once there was one.
	fresh, cold bool
	// second: another read is under way, which the call joins, or whose place it
	// waits for.
	second, joins bool
	want          error // of a connection that there is; default: context.Canceled
}

const volatile = "SELECT random()"

var calls = []call{
	{name: "led read", fresh: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { return c.read(ctx).err }
	}},
	{name: "joined read", fresh: true, second: true, joins: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { return c.read(ctx).err }
	}},
	{name: "Fresh read", fresh: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { return c.read(coalesce.Fresh(ctx)).err }
	}},
	{name: "private read", fresh: true, lay: private},
	{name: "private read beside a led one", fresh: true, second: true, lay: private},
	{name: "Exec", fresh: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { _, err := c.ExecContext(ctx, "DELETE FROM truth"); return err }
	}},
	{name: "Ping", fresh: true, want: driver.ErrBadConn /* so says pgx */, lay: func(c *client, ctx context.Context) func() error {
		return func() error { return c.PingContext(ctx) }
	}},
	{name: "Prepare", fresh: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { _, err := c.PrepareContext(ctx, volatile); return err }
	}},
	{name: "Begin", fresh: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { _, err := c.BeginTx(ctx, nil); return err }
	}},
	{name: "Explain", fresh: true, cold: true, lay: func(c *client, ctx context.Context) func() error {
		return func() error { _, err := coalesce.Explain(ctx, c.DB, truth); return err }
	}},
	{name: "led read of a statement", lay: func(c *client, ctx context.Context) func() error {
		c.prepared()
		return func() error { return c.read(ctx).err }
	}},
	{name: "private read of a statement", lay: func(c *client, ctx context.Context) func() error {
		st, err := c.Prepare(volatile)
		must(c, err)
		return func() error { return st.QueryRowContext(ctx).Scan(new(float64)) }
	}},
	{name: "Exec of a statement", lay: func(c *client, ctx context.Context) func() error {
		st, err := c.Prepare(volatile)
		must(c, err)
		return func() error { _, err := st.ExecContext(ctx); return err }
	}},
	{name: "read on a Conn", lay: func(c *client, ctx context.Context) func() error {
		conn := c.pinned()
		return func() error {
			defer conn.Close()
			return conn.QueryRowContext(ctx, "SELECT count(*) FROM truth").Scan(new(int))
		}
	}},
	{name: "Raw", lay: func(c *client, ctx context.Context) func() error {
		conn := c.pinned()
		raw := func() error {
			return coalesce.Raw(conn, func(pg *pgx.Conn) error { return pg.QueryRow(ctx, volatile).Scan(new(float64)) })
		}
		return func() error {
			defer conn.Close()
			err := raw()
			raw() // while pgx closes the connection
			return err
		}
	}},
	{name: "read in a transaction", lay: func(c *client, ctx context.Context) func() error {
		tx, err := c.BeginTx(ctx, nil)
		must(c, err)
		return func() error { return tx.QueryRowContext(ctx, "SELECT count(*) FROM truth").Scan(new(int)) }
	}},
	{name: "Commit", lay: func(c *client, ctx context.Context) func() error {
		tx, err := c.BeginTx(ctx, nil)
		must(c, err)
		return tx.Commit
	}},
	{name: "Rollback", lay: func(c *client, ctx context.Context) func() error {
		tx, err := c.BeginTx(ctx, nil)
		must(c, err)
		return tx.Rollback
	}},
}

func private(c *client, ctx context.Context) func() error {
	return func() error { return c.QueryRowContext(ctx, volatile).Scan(new(float64)) }
}

// pinned is a connection of the pool that has one to the server.
func (c *client) pinned() *sql.Conn {
	c.Helper()
	conn, err := c.Conn(bg)
	must(c, err)
	must(c, conn.PingContext(bg))
	return conn
}

func TestNoCallOutlastsItsContextOnASilentServer(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	for _, call := range calls {
		for _, silent := range []fate{held, lost} {
			for _, dials := range []bool{false, true} {
				for _, places := range []int{0, 1} {
					if dials && !call.fresh || !dials && call.cold {
						continue
					}
					name := fmt.Sprintf("%s/%s,dials=%v,places=%d", call.name, map[fate]string{held: "held", lost: "lost"}[silent], dials, places)
					t.Run(name, func(t *testing.T) {
						w.leavesNothing(t)
						call.meets(t, w, silent, dials, w.open(t, "coalesce-pgx", clientOptions{config: coalesce.Config{MaxConns: places}}))
					})
				}
			}
		}
	}
}

// meets has the call meet the silence, leave it, and the server come back.
func (call call) meets(t *testing.T, w *world, silent fate, dials bool, c *client) {
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	if !dials {
		c.warm()
	}
	do := call.lay(c, ctx)
	w.proxy.greet(silent)
	w.proxy.all(silent)
	heal := func() {
		w.proxy.greet(passing)
		w.proxy.turn(passing, held) // what was held comes late
		w.proxy.turn(reset, lost)
	}
	t.Cleanup(heal)

	said := w.proxy.said()
	first, leave := context.WithCancel(bg)
	defer leave()
	var other <-chan outcome
	if call.second {
		other = c.begin(first)
		until(t, "the first read is sent", func() bool { return w.proxy.said() > said })
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	until(t, "the call has come to its place", func() bool {
		switch s := c.DB.Stats(); {
		case call.joins && !dials:
			return c.stats().Joined == 1
		case call.second:
			return s.InUse == 2
		}
		return w.proxy.said() > said
	})
	cancel()
	want := context.Canceled
	if call.want != nil && !dials {
		want = call.want
	}
	select {
	case err := <-done:
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	case <-time.After(10 * time.Second): // pgx takes 15 to give the connection up
		t.Error("the call hangs beyond its context")
	}
	if call.second {
		leave()
		if o := receive(t, other); !errors.Is(o.err, context.Canceled) {
			t.Errorf("the first read: got %v, want context.Canceled", o)
		}
	}
	heal()
	if n := (silence{}).triesUntilWell(t, c); n > 2 {
		t.Errorf("%d tries until all is well", n)
	}
}
