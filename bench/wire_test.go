package bench

import (
	"context"
	"database/sql"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
)

// wire counts what goes over the connections that it has dialled.
type wire struct {
	dials    atomic.Int64
	queries  atomic.Int64 // simple queries, and executions of prepared ones
	received atomic.Int64 // bytes
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.dials.Add(1)
	return &wireConn{Conn: c, w: w}, nil
}

// config is that of a connection to dsn which w counts.
func (w *wire) config(tb testing.TB, dsn string) *pgx.ConnConfig {
	tb.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.DialFunc = w.dial
	return cfg
}

func (w *wire) coalesce(tb testing.TB, dsn string, cfg coalesce.Config) *sql.DB {
	return closed(tb, sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(*w.config(tb, dsn)), cfg)))
}

func (w *wire) pgx(tb testing.TB, dsn string) *sql.DB {
	return closed(tb, stdlib.OpenDB(*w.config(tb, dsn)))
}

// wireConn finds the messages in what is written. One goroutine writes.
type wireConn struct {
	net.Conn
	w      *wire
	header []byte // of the message being written, as far as it is known
	skip   int    // bytes left of its body
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.received.Add(int64(n))
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.see(p[:n])
	return n, err
}

func (c *wireConn) see(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			c.skip -= n
			p = p[n:]
			continue
		}
		c.header = append(c.header, p[0])
		p = p[1:]
		// What begins a connection has no type, and a length that begins with 0.
		untyped := c.header[0] == 0
		switch {
		case untyped && len(c.header) == 4:
			c.skip = int(binary.BigEndian.Uint32(c.header)) - 4
		case len(c.header) == 5:
			c.skip = int(binary.BigEndian.Uint32(c.header[1:])) - 4
			if c.header[0] == 'Q' || c.header[0] == 'E' {
				c.w.queries.Add(1)
			}
		default:
			continue
		}
		c.header = c.header[:0]
	}
}
