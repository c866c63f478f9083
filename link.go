package coalesce

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ngrok/sqlmw"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// link is one connection to the server, with what is known of its session.
// It belongs to one virtual connection or one flight at a time, and only its
// owner touches it.
type link struct {
	k    *Connector
	raw  driver.Conn
	conn driver.Conn // raw behind sqlmw: every statement passes the tap
	tap  *tap
	pg   *pgx.Conn // nil if the connector is not pgx's
	born time.Time
	// begun and defaults are what tells whether its session began with other
	// settings than a fresh one.
	begun    *version
	defaults uint64

	// home is the connection in whose idle it was put last.
	home atomic.Pointer[conn]

	// stmts are the statements prepared on it, by text; adopter is the
	// connection whose statements these are.
	stmts   map[string]driver.Stmt
	adopter *conn
	// user is the connection for which the session was begun or reset last: its
	// hooks may have made it that of one caller.
	user *conn

	wasReset  bool // the last call of reset did so
	needReset bool // the pool has lent it out anew since it was last used
	early     bool // dialled to read the catalog, it has done nothing else
	tainted   bool // the session may differ from a fresh one
	locks     bool // the session may hold advisory locks
	// doubts are the names in what it ran while the catalog could not tell what
	// these do to the session; nil: there are none.
	doubts  *statement.Analysis
	sharing bool // it runs a read that the catalog allows to be shared
	drawn   bool // since it was lent out it may have drawn from a sequence
	exposed bool // its *pgx.Conn was handed out
	inTx    bool // where pg is nil; pgx knows better
	dirty   dirt // what the open transaction may have written
	closed  bool
}

// dial opens a server connection. The caller has a place for it.
func (k *Connector) dial(ctx context.Context) (*link, error) {
	dialled := false
	defer func() {
		if !dialled { // it was refused, or a hook of the user's panicked
			k.places.giveBack()
		}
	}()
	v := k.version.Load().version
	defaults := v.defaults.Load()
	raw, err := k.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{k: k, raw: raw, born: time.Now(), begun: v, defaults: defaults}
	l.tap = &tap{link: l}
	// One interceptor for each connection: it could not tell them apart.
	l.conn, err = sqlmw.Driver(opener{raw}, l.tap).Open("")
	if err != nil {
		raw.Close()
		return nil, err
	}
	if c, ok := raw.(interface{ Conn() *pgx.Conn }); ok {
		l.pg = c.Conn()
	}
	k.learn(l.pg)
	k.conns.Add(1)
	dialled = true
	return l, nil
}

// opener lets sqlmw wrap one connection that is open already.
type opener struct{ conn driver.Conn }

func (o opener) Open(string) (driver.Conn, error) { return o.conn, nil }

func (l *link) dead() bool {
	if l.closed {
		return true
	}
	if l.pg != nil {
		return l.pg.IsClosed()
	}
	v, ok := l.raw.(driver.Validator)
	return ok && !v.IsValid()
}

func (l *link) txOpen() bool {
	if l.pg != nil {
		return l.pg.PgConn().TxStatus() != 'I'
	}
	return l.inTx
}

// outdated reports whether a fresh session may begin with other settings.
func (l *link) outdated() bool {
	v := l.k.version.Load().version
	if v == l.begun {
		return v.defaults.Load() != l.defaults
	}
	return v.defaults.Load() > 0 // it was not known which database this is
}

// busy reports whether rows of an earlier query are still open.
func (l *link) busy() bool { return l.pg != nil && l.pg.PgConn().IsBusy() }

// standby reports whether the server is one that repeats what another does.
// PostgreSQL tells so from 14 on.
func (l *link) standby() bool {
	return l.pg != nil && l.pg.PgConn().ParameterStatus("in_hot_standby") == "on"
}

// changed reports whether the session may differ from a fresh one.
func (l *link) changed() bool { return l.tainted || l.locks || l.doubts != nil }

// interchangeable reports whether a fresh connection would do as well.
func (l *link) interchangeable() bool {
	return !l.changed() && !l.exposed && !l.dead() && !l.txOpen() && !l.busy()
}

// personal reports whether who has the connection may ask for what its session
// has drawn from a sequence, or to what may have changed it. All else that it may
// refer to taints it.
func (l *link) personal() bool { return (l.drawn || l.doubts != nil) && !l.needReset }

// reset does what database/sql asked for when it lent the connection out.
// It reports false if the connection cannot be used any more.
func (l *link) reset(ctx context.Context) bool {
	l.wasReset = false
	if l.dead() || l.needReset && l.outdated() {
		return false
	}
	if !l.needReset {
		return true
	}
	l.needReset, l.wasReset, l.drawn = false, true, false
	early := l.early
	l.early = false
	if early && l.k.opened {
		// pgx's first reset asks the server whether the connection is still there.
		// That comes after its first use, and there is no hook to call before.
		return time.Since(l.born) < time.Second || l.pg.PgConn().Ping(ctx) == nil
	}
	// database/sql takes heed of no other error either.
	err := l.conn.(driver.SessionResetter).ResetSession(ctx)
	return !errors.Is(err, driver.ErrBadConn)
}

// close closes the connection and gives its place back. It does not wait for
// a query that was cut off; see closeAndWait.
func (l *link) close() error {
	if l.closed {
		return nil
	}
	cleanup, err := l.closeKeepingPlace()
	if cleanup == nil {
		l.k.places.giveBack()
	} else {
		go func() { // ends with pgx's own, which is cancelling the query
			awaitFor(cleanup, placeTime)
			l.k.places.giveBack()
		}()
	}
	return err
}

// closeAndWait also waits until the server has stopped the query that was cut
// off, if there was one. pgx asks it to once; a server that was asked before
// the query had reached it does not stop, so it is asked again.
func (l *link) closeAndWait() {
	if l.closed {
		return
	}
	cleanup, _ := l.closeKeepingPlace()
	giveBack := sync.OnceFunc(l.k.places.giveBack)
	defer giveBack()
	for start := time.Now(); time.Since(start) < closeTime; {
		if time.Since(start) >= placeTime {
			giveBack()
		}
		if cleanup == nil || awaitFor(cleanup, cancelAgain) {
			return
		}
		select {
		case <-l.k.closing: // which waits for this
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), cancelAgain)
		l.pg.PgConn().CancelRequest(ctx)
		cancel()
	}
}

// closeKeepingPlace closes the connection. If it was closed already, because a
// query was cut off, pgx goes on cancelling that until cleanup is closed.
// Where cleanup is nil, pg may belong to another already: its pool.
func (l *link) closeKeepingPlace() (cleanup <-chan struct{}, err error) {
	l.conceal()
	if l.pg != nil && l.pg.IsClosed() {
		cleanup = l.pg.PgConn().CleanupDone()
	}
	l.closed = true
	l.k.conns.Add(-1)
	l.k.places.lastIdle.CompareAndSwap(l, nil) // its buffers are large
	return cleanup, l.conn.Close()
}

// closeTime bounds how long pgx's cancelling of a query is waited for.
const closeTime = 15 * time.Second

// placeTime bounds how long the place of a connection is kept meanwhile: the
// server may never answer, and others wait for the place.
const placeTime = 2 * time.Second

// cancelAgain is after how long a server is asked again to stop a query.
const cancelAgain = time.Second

func await(cleanup <-chan struct{}) {
	if cleanup != nil {
		awaitFor(cleanup, closeTime)
	}
}

func awaitFor(cleanup <-chan struct{}, d time.Duration) bool {
	select {
	case <-cleanup:
		return true
	case <-time.After(d):
		return false
	}
}

// cancelQuery asks the server to stop the running query.
func (l *link) cancelQuery(ctx context.Context) bool {
	return l.pg != nil && !l.dead() && l.pg.PgConn().CancelRequest(ctx) == nil
}

// expose hands out the pgx connection. What is done with it is not seen; each
// message to or from the server counts as a write until conceal.
func (l *link) expose() *pgx.Conn {
	if l.pg != nil && !l.exposed {
		l.exposed, l.tainted = true, true
		if !l.dead() { // else pgx may still be using it to close the connection
			l.pg.PgConn().Frontend().Trace(raiser{l.k}, pgproto3.TracerOptions{SuppressTimestamps: true})
		}
	}
	return l.pg
}

func (l *link) conceal() {
	if l.exposed {
		l.exposed = false
		if !l.dead() {
			l.pg.PgConn().Frontend().Untrace()
		}
		l.dirty.all = l.dirty.all || l.txOpen()
		l.k.raiseAll(mayBeDDL)
	}
}

// raiser takes pgx's protocol trace: a line for each message.
type raiser struct{ k *Connector }

func (r raiser) Write(p []byte) (int, error) {
	r.k.raiseAll(mayHideDDL)
	return len(p), nil
}

func (l *link) exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if _, ok := l.raw.(driver.ExecerContext); !ok {
		return nil, driver.ErrSkip // database/sql prepares the statement then
	}
	args, err := l.convert(args)
	if err != nil {
		return nil, err
	}
	return l.conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// query runs a query on the connection, as a prepared statement if asked to.
// The rows are the driver's own where sqlmw's would hide something of them.
func (l *link) query(ctx context.Context, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	args, err := l.convert(args)
	if err != nil {
		return nil, err
	}
	if !prepared {
		rows, err := l.conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		if err != driver.ErrSkip {
			return l.unwrap(rows, err)
		}
	}
	st, err := l.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return l.unwrap(st.(driver.StmtQueryContext).QueryContext(ctx, args))
}

func (l *link) unwrap(rows driver.Rows, err error) (driver.Rows, error) {
	own, writer := l.tap.rows, l.tap.writer
	l.tap.rows, l.tap.writer = nil, nil
	if err != nil {
		return nil, err
	}
	if writer == nil {
		return own, nil
	}
	if pg, ok := own.(*stdlib.Rows); ok {
		return &watchedRows{Rows: pg, done: func() { l.rowsClosed(writer) }}, nil
	}
	l.tap.closing = writer
	return rows, nil
}

func (l *link) execStmt(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	args, err := l.convert(args)
	if err != nil {
		return nil, err
	}
	st, err := l.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.(driver.StmtExecContext).ExecContext(ctx, args)
}

// prepare returns the statement prepared for a text, preparing it once.
func (l *link) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if st, ok := l.stmts[query]; ok {
		return st, nil
	}
	st, err := l.conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if l.stmts == nil {
		l.stmts = make(map[string]driver.Stmt)
	}
	l.stmts[query] = st
	return st, nil
}

func (l *link) unprepare(query string) error {
	st, ok := l.stmts[query]
	if !ok {
		return nil
	}
	delete(l.stmts, query)
	if l.dead() {
		return nil
	}
	return st.Close()
}

// convert applies the driver's own argument checks, which database/sql could
// not ask for before there was a connection. pgx takes every argument.
func (l *link) convert(args []driver.NamedValue) ([]driver.NamedValue, error) {
	if l.pg != nil {
		return args, nil
	}
	check := l.conn.(driver.NamedValueChecker).CheckNamedValue
	out := make([]driver.NamedValue, 0, len(args))
	for _, a := range args {
		err := check(&a)
		if err == driver.ErrSkip {
			a.Value, err = driver.DefaultParameterConverter.ConvertValue(a.Value)
		}
		switch err {
		case nil:
			a.Ordinal = len(out) + 1
			out = append(out, a)
		case driver.ErrRemoveArgument:
		default:
			return nil, err
		}
	}
	return out, nil
}

// unsent reports whether a statement that failed never reached the server.
func unsent(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}
