package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// observer asks the server what it did, on a connection that it opened before
// the pages came.
type observer struct {
	conn   *pgx.Conn
	server *pgtest.Server
	where  string // the server, for people
	slots  int    // connections left for the pages

	// Why something cannot be told, or "" if it can.
	noQueries  string
	noSessions string // matters only if the server is not ours: its log tells
}

// count is a number that the server may not be able to tell.
type count struct {
	n     int
	known bool
}

func (c count) String() string {
	if !c.known {
		return "not available"
	}
	return fmt.Sprint(c.n)
}

func (c count) minus(d count) count { return count{n: c.n - d.n, known: c.known && d.known} }

// sight is what the server had done up to a moment. A wave is what came between
// two of them: nothing is reset, since a given server's statistics are its
// owner's.
type sight struct {
	queries  count // executions of otherEntries
	accepted count // connections of pages
	refused  count // known from a log only
}

func newObserver(ctx context.Context, server *pgtest.Server, dsn string) (*observer, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	o := &observer{conn: conn, server: server}
	if err := o.describe(ctx); err != nil {
		o.close(ctx)
		return nil, err
	}
	o.tryStatistics(ctx)
	return o, ctx.Err()
}

func (o *observer) describe(ctx context.Context) error {
	var version string
	var maxConns, reserved int
	err := o.conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('max_connections')::int,
		current_setting('superuser_reserved_connections')::int`).Scan(&version, &maxConns, &reserved)
	if err != nil {
		return err
	}
	whose := "started for this"
	if !o.server.Owned() {
		whose = "given"
	}
	cfg := o.conn.Config()
	o.where = fmt.Sprintf("PostgreSQL %s at %s, %s; max_connections=%d, %d of them for superusers",
		version, net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)), whose, maxConns, reserved)
	o.slots = maxConns - reserved - 1
	return nil
}

const (
	// otherEntries as the server keeps it, with its constants as parameters.
	queriesSQL = `SELECT coalesce(sum(s.calls), 0)::int FROM pg_stat_statements AS s
JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = current_database() AND s.query LIKE '%FROM entries AS e%revisions AS v%LIMIT%'`

	sessionsSQL = `SELECT sessions::int FROM pg_stat_database WHERE datname = current_database()`
)

// tryStatistics finds out what the server can tell.
func (o *observer) tryStatistics(ctx context.Context) {
	_, err := o.conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	if err == nil {
		_, err = o.ask(ctx, queriesSQL)
	}
	if err != nil {
		o.noQueries = err.Error()
	}
	if _, err := o.ask(ctx, sessionsSQL); err != nil {
		o.noSessions = err.Error()
	}
}

func (o *observer) ask(ctx context.Context, sql string) (count, error) {
	var n int
	err := o.conn.QueryRow(ctx, sql).Scan(&n)
	return count{n: n, known: err == nil}, err
}

// look takes a sight. db is the pages' pool, at rest.
func (o *observer) look(ctx context.Context, db *sql.DB) (s sight, err error) {
	if o.noQueries == "" {
		if s.queries, err = o.ask(ctx, queriesSQL); err != nil {
			return s, err
		}
	}
	if o.server.Owned() {
		log, err := o.server.Log()
		s.accepted, s.refused = connections(log)
		return s, err
	}
	if o.noSessions == "" {
		if err := o.settle(ctx, db); err != nil {
			return s, err
		}
		s.accepted, err = o.ask(ctx, sessionsSQL)
	}
	return s, err
}

// connections counts the pages' connections that the log tells of. One may be
// refused before it has said who it is, or when it has been authorized and
// only reserved slots are left.
func connections(log string) (accepted, refused count) {
	authorized := strings.Count(log, "connection authorized: user="+pageRole+" ")
	early := strings.Count(log, "too many clients already")
	late := strings.Count(log, "remaining connection slots are reserved")
	return count{n: authorized - late, known: true}, count{n: early + late, known: true}
}

// settle waits until the server has counted the pages' sessions, which it does
// for certain only when they end: so it closes those that db keeps idle.
func (o *observer) settle(ctx context.Context, db *sql.DB) error {
	db.SetMaxIdleConns(0)
	defer db.SetMaxIdleConns(2) // the default
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("connections stay open though the pool has closed them"))
	defer cancel()
	for {
		n, err := o.ask(ctx, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		if err == nil && n.n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
		if err != nil {
			return err
		}
	}
}

func (o *observer) close(ctx context.Context) { o.conn.Close(ctx) }
