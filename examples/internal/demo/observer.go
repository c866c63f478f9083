package demo

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
	"github.com/jackc/pgx/v5/pgconn"
)

// Observer asks the server what it did for the program, on a connection that it
// opened before the program's. Nothing is reset, since a given server's
// statistics are its owner's: what happened is the difference of two answers.
type Observer struct {
	Where string // the server, for people
	Slots int    // connections left for the program

	conn    *pgx.Conn
	server  *pgtest.Server
	pattern string // of the queries to count

	// Why something cannot be told, or "" if it can.
	noQueries  string
	noSessions string // matters only if the server is not ours: its log tells
}

// Count is a number that the server may not be able to tell.
type Count struct {
	N     int
	Known bool
}

func (c Count) String() string {
	if !c.Known {
		return "not available"
	}
	return fmt.Sprint(c.N)
}

// Minus is what came after d and up to c.
func (c Count) Minus(d Count) Count { return Count{N: c.N - d.N, Known: c.Known && d.Known} }

func newObserver(ctx context.Context, st *Stage, pattern string) (*Observer, error) {
	conn, err := pgx.Connect(ctx, pgtest.WithDatabase(st.server.DSN(), st.database))
	if err != nil {
		return nil, err
	}
	o := &Observer{conn: conn, server: st.server, pattern: pattern}
	if err := o.describe(ctx); err != nil {
		o.close(ctx)
		return nil, err
	}
	o.tryStatistics(ctx)
	if err := ctx.Err(); err != nil {
		o.close(context.WithoutCancel(ctx))
		return nil, err
	}
	return o, nil
}

func (o *Observer) describe(ctx context.Context) error {
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
	o.Where = fmt.Sprintf("PostgreSQL %s at %s, %s; max_connections=%d, %d of them for superusers",
		version, net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)), whose, maxConns, reserved)
	o.Slots = maxConns - reserved - 1
	return nil
}

const (
	queriesSQL = `SELECT coalesce(sum(s.calls), 0)::int FROM pg_stat_statements AS s
JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = current_database() AND lower(s.query) LIKE $1`

	sessionsSQL = `SELECT sessions::int FROM pg_stat_database WHERE datname = current_database()`
)

// tryStatistics finds out what the server can tell.
func (o *Observer) tryStatistics(ctx context.Context) {
	_, err := o.conn.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
	if err == nil {
		_, err = o.ask(ctx, queriesSQL, o.pattern)
	}
	if err != nil {
		o.noQueries = err.Error()
	}
	if _, err := o.ask(ctx, sessionsSQL); err != nil {
		o.noSessions = err.Error()
	}
}

func (o *Observer) ask(ctx context.Context, sql string, args ...any) (Count, error) {
	var n int
	err := o.conn.QueryRow(ctx, sql, args...).Scan(&n)
	return Count{N: n, Known: err == nil}, err
}

// Queries counts the executions of the program's queries so far.
func (o *Observer) Queries(ctx context.Context) (Count, error) {
	if o.noQueries != "" {
		return Count{}, nil
	}
	return o.ask(ctx, queriesSQL, o.pattern)
}

// Connections counts the program's connections so far, and those refused if the
// server's log can be read. db is the program's pool, at rest, or nil if it has
// none yet; its idle connections may be closed.
func (o *Observer) Connections(ctx context.Context, db *sql.DB) (accepted, refused Count, err error) {
	if o.server.Owned() {
		log, err := o.server.Log()
		if err != nil {
			return accepted, refused, err
		}
		accepted, refused = connections(log)
		return accepted, refused, nil
	}
	if o.noSessions != "" {
		return accepted, refused, nil
	}
	if err := o.settle(ctx, db); err != nil {
		return accepted, refused, err
	}
	accepted, err = o.ask(ctx, sessionsSQL)
	return accepted, refused, err
}

// connections counts the program's connections that the log tells of. One may
// be refused before it has said who it is, or when it has been authorized and
// only reserved slots are left.
func connections(log string) (accepted, refused Count) {
	authorized := strings.Count(log, "connection authorized: user="+programRole+" ")
	early := strings.Count(log, "too many clients already")
	late := strings.Count(log, "remaining connection slots are reserved")
	return Count{N: authorized - late, Known: true}, Count{N: early + late, Known: true}
}

// settle waits until the server has counted the program's sessions, which it
// does for certain only when they end: so it closes those that db keeps idle.
func (o *Observer) settle(ctx context.Context, db *sql.DB) error {
	if db != nil {
		db.SetMaxIdleConns(0)
		defer db.SetMaxIdleConns(2) // the default
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("connections stay open though the pool has closed them"))
	defer cancel()
	for {
		n, err := o.ask(ctx, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		if err == nil && n.N == 0 {
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

// Sources says where the numbers come from, or why they do not.
func (o *Observer) Sources() []string {
	queries, connections := "pg_stat_statements", "pg_stat_database"
	if o.noQueries != "" {
		queries = o.noQueries
	}
	switch {
	case o.server.Owned():
		connections = "the server's log"
	case o.noSessions != "":
		connections = o.noSessions
	}
	return []string{"queries executed: " + queries, "connections accepted: " + connections}
}

// Reason is the server's own words for err, if it has said any.
func Reason(err error) string {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return fmt.Sprintf("%s (SQLSTATE %s)", refusal.Message, refusal.Code)
	}
	return err.Error()
}

// IsFull reports whether the server refused a connection for want of slots.
func IsFull(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "53300"
}

func (o *Observer) close(ctx context.Context) { o.conn.Close(ctx) }
