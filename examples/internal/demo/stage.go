package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/embedded"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Options says what stage a program needs.
type Options struct {
	Name     string // the program's; part of the database's
	DSN      string // if empty: COALESCE_TEST_DSN, DATABASE_URL, or one started for the purpose
	MaxConns int    // of the server that is started; 0: its default
	Queries  string // a LIKE pattern of the queries to count, as the server keeps them, in lower case
}

// Stage is a server with a database of the program's own on it, which the
// program fills. It must be closed.
type Stage struct {
	DSN      string // what the program connects with
	Observer *Observer

	server   *pgtest.Server
	turn     *pgx.Conn // holds our turn on a server that is not ours
	database string
}

// SetStage starts or finds the server and creates the database.
func SetStage(ctx context.Context, opt Options, out io.Writer) (_ *Stage, err error) {
	st := &Stage{database: "coalesce_" + opt.Name + "_" + rand.Text()[:8]}
	if err := st.findServer(ctx, opt, out); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = st.Close(err)
		}
	}()
	if err := st.createDatabase(ctx); err != nil {
		return nil, err
	}
	// Before the program's: afterwards there may be no slot left for it.
	st.Observer, err = newObserver(ctx, st, opt.Queries)
	return st, err
}

// patience bounds how long a server without a free connection is asked again:
// another example may have them all for a moment.
const patience = 30 * time.Second

func (st *Stage) findServer(ctx context.Context, opt Options, out io.Writer) error {
	if opt.DSN == "" {
		fmt.Fprintln(out, "looking for a PostgreSQL")
	}
	for deadline := time.Now().Add(patience); ; {
		err := st.tryServer(ctx, opt)
		if !IsFull(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (st *Stage) tryServer(ctx context.Context, opt Options) (err error) {
	if opt.DSN != "" {
		st.server, err = pgtest.Attach(ctx, opt.DSN)
	} else {
		pgtest.Download = embedded.Download
		st.server, err = pgtest.Start(ctx, pgtest.Options{MaxConnections: opt.MaxConns})
	}
	if err != nil || st.server.Owned() {
		return err
	}
	// Examples that run at once on one server, as their tests may, would take
	// each other's connections.
	turn, err := pgx.Connect(ctx, st.server.DSN())
	if err != nil {
		return err
	}
	if _, err := turn.Exec(ctx, "SELECT pg_advisory_lock(hashtext('examples of coalesce-pgx'))"); err != nil {
		turn.Close(context.WithoutCancel(ctx))
		return err
	}
	st.turn = turn
	return nil
}

// programRole is the program's role on a server of our own, as any program
// should have one: the slots reserved for superusers are not for it.
const programRole = "web"

func (st *Stage) createDatabase(ctx context.Context) error {
	create := "CREATE DATABASE " + st.quoted() + " TEMPLATE template0"
	st.DSN = pgtest.WithDatabase(st.server.DSN(), st.database)
	if st.server.Owned() {
		if err := exec(ctx, st.server.DSN(), "CREATE ROLE "+programRole+" LOGIN"); err != nil {
			return err
		}
		create += " OWNER " + programRole
		u, err := url.Parse(st.DSN)
		if err != nil {
			return err
		}
		u.User = url.User(programRole)
		st.DSN = u.String()
	}
	if err := exec(ctx, st.server.DSN(), create); err != nil {
		return fmt.Errorf("a database of our own: %w", err)
	}
	return nil
}

func (st *Stage) quoted() string { return pgx.Identifier{st.database}.Sanitize() }

// Exec runs sql, of one or more statements, in the program's database, on a
// connection of its own.
func (st *Stage) Exec(ctx context.Context, sql string) error { return exec(ctx, st.DSN, sql) }

func exec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// ErrLeftBehind is in an error of Close that says what could not be removed.
var ErrLeftBehind = errors.New("something is left behind")

// Close removes all that SetStage made, and adds to err what it could not. It
// runs after Ctrl-C too, so it takes no context from above.
func (st *Stage) Close(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if st.Observer != nil {
		st.Observer.close(ctx)
	}
	var left error
	if !st.server.Owned() {
		// On the connection that is open: there may be no slot for another.
		_, left = st.turn.Exec(ctx, "DROP DATABASE IF EXISTS "+st.quoted()+" WITH (FORCE)")
		st.turn.Close(ctx)
	}
	if left = errors.Join(left, st.server.Close()); left != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrLeftBehind, left))
	}
	return err
}
