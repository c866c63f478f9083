package faults

import (
	"context"
	"testing"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// Writes whose answer never came, though they were made: the next read sees
// them, as if it had.

const (
	insert  = "INSERT INTO written VALUES (1)"
	counted = "SELECT count(*) FROM written"
)

// writes are ways to write one row, and to have it committed by what begin
// does at last.
var writes = map[string]func(c *client) (begin func(context.Context) error){
	"exec": func(c *client) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.ExecContext(ctx, insert); return err }
	},
	"returning": func(c *client) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.QueryRowContext(ctx, insert+" RETURNING n").Scan(new(int))
		}
	},
	"commit": func(c *client) func(context.Context) error {
		tx, err := c.Begin()
		must(c, err)
		_, err = tx.Exec(insert)
		must(c, err)
		return func(context.Context) error { return tx.Commit() }
	},
	"commit-by-hand": func(c *client) func(context.Context) error {
		conn, err := c.Conn(bg)
		must(c, err)
		c.Cleanup(func() { conn.Close() })
		for _, s := range []string{"BEGIN", insert} {
			_, err = conn.ExecContext(bg, s)
			must(c, err)
		}
		return func(ctx context.Context) error {
			_, err := conn.ExecContext(ctx, "COMMIT")
			conn.Close()
			return err
		}
	},
}

func TestWriteWhoseAnswerIsLostIsSeenByTheNextRead(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.do(t, "CREATE TABLE written (n int)", "ALTER TABLE written OWNER TO app")
	for how, write := range writes {
		for name, to := range map[string]fate{"reset": reset, "closed": closed, "lost": lost} {
			if to == lost && how == "commit" {
				continue // which has no context to end it
			}
			t.Run(how+"-"+name, func(t *testing.T) {
				w.leavesNothing(t)
				var got [2]string
				for i, driver := range drivers {
					c := w.open(t, driver, clientOptions{config: coalesce.Config{TTL: coalesce.DefaultTTL}})
					got[i] = describe(w.cutOff(t, c, write, to))
				}
				t.Logf("pgx: %s", got[0])
				if to != lost { // of a context that ended the type is not pgx's everywhere
					same(t, "error", got[1], got[0])
				}
			})
		}
	}
}

// cutOff makes a write whose answer meets its fate after the first byte.
func (w *world) cutOff(t *testing.T, c *client, write func(*client) func(context.Context) error, to fate) error {
	t.Helper()
	must(t, write(c)(bg)) // has the statements prepared
	begin := write(c)
	before := c.count()
	same(t, "held", c.count(), before)
	w.proxy.trapAfter(1)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- begin(ctx) }()
	until(t, "the answer is on its way", func() bool { return w.proxy.in(held) == 1 })
	w.proxy.disarm()
	w.proxy.turn(to, held)
	if to == lost {
		cancel()
	}
	err := receive(t, done)
	if err == nil {
		t.Error("a write whose answer was lost has succeeded")
	}
	same(t, "the next read", c.count(), before+1)
	same(t, "and another", c.count(), before+1)
	w.proxy.turn(reset, lost)
	c.Close()
	return err
}

func (c *client) count() (n int) {
	c.Helper()
	must(c, c.QueryRow(counted).Scan(&n))
	return n
}

// A write may be made after its caller has left, if the server did not hear
// that it should not. What was read before that is not held.
func TestWriteThatIsMadeAfterItsCallerLeftIsSeen(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.do(t, "CREATE TABLE written (n int)", "ALTER TABLE written OWNER TO app")
	w.leavesNothing(t)
	c := w.open(t, "coalesce-pgx", clientOptions{config: coalesce.Config{TTL: coalesce.DefaultTTL}})
	other := w.open(t, "coalesce-pgx", clientOptions{config: coalesce.Config{TTL: coalesce.DefaultTTL}})
	same(t, "rows", c.count(), 0)
	same(t, "rows", other.count(), 0)

	tx, err := w.root.Begin()
	must(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("LOCK TABLE written IN SHARE MODE") // who reads may
	must(t, err)
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error, 1)
	go func() { _, err := c.ExecContext(ctx, insert); done <- err }()
	until(t, "the write waits", func() bool {
		return ask[int](t, w, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", appName) == 1
	})
	w.proxy.deafen(true)
	defer w.proxy.deafen(false)
	cancel()
	if err := receive(t, done); err == nil {
		t.Error("a write that waits has succeeded")
	}
	for range 2 {
		same(t, "rows before it is made", c.count(), 0)
		same(t, "rows before it is made", other.count(), 0)
	}
	must(t, tx.Rollback())
	until(t, "it is made", func() bool { return ask[int](t, w, counted) == 1 })
	same(t, "rows", c.count(), 1)
	same(t, "rows", other.count(), 1)
	w.proxy.turn(reset, lost)
}
