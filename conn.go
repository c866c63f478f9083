package coalesce

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"weak"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// conn is what database/sql's pool holds: a virtual connection, to which the
// server connection comes when it must itself talk to the server. database/sql
// lets one goroutine at a time use it; while it waits for a flight, the crew's
// lock guards its link.
type conn struct {
	k     *Connector
	link  *link          // nil: not dialled, or idle
	stmts map[string]int // open statements by text
	// idle is the link while nobody uses it: the pool has the connection, or its
	// caller reads shared rows, and the number of links is limited. Whoever swaps
	// it out owns it: c itself, or another that needs one.
	idle atomic.Pointer[link]
	// personal: a flight has the link of c, whose session c may refer to. lost:
	// it did not come back.
	personal, lost bool
	// used: c has had a link to itself since the pool lent it out. Its session
	// may be known to the caller, as by pg_backend_pid.
	used bool
	// lendable: c is in use, has a link, and it is not settled yet what for.
	// k.lendable counts these.
	lendable bool
	// query and text are those of the last read.
	query string
	text  *text
	keys  keyer
}

// mayLend notes that c has a link which it may turn out not to need.
func (c *conn) mayLend() {
	if c.link != nil && !c.lendable {
		c.lendable = true
		c.k.lendable.Add(1)
	}
}

// settled notes that it is decided what becomes of the link.
func (c *conn) settled() {
	if c.lendable {
		c.lendable = false
		c.k.lendable.Add(-1)
	}
}

var (
	_ driver.Conn               = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.StmtQueryContext   = (*stmt)(nil)
	_ driver.StmtExecContext    = (*stmt)(nil)
)

// QueryContext implements [driver.QueryerContext].
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.read(ctx, query, args, false)
}

func (c *conn) read(ctx context.Context, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	done := false
	defer func() {
		c.settled()
		c.dropUnless(&done)
	}()
	rows, err := c.answer(ctx, query, args, prepared)
	done = true
	return rows, err
}

// answer answers a query: shared if it may be, on its own otherwise. It defers
// nothing, which would be a tenth of what a held read costs here.
func (c *conn) answer(ctx context.Context, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	if c.lost {
		return nil, driver.ErrBadConn
	}
	// On a sql.Conn nobody else has asked.
	if err := ctx.Err(); err != nil {
		if c.link != nil {
			return c.direct(ctx, query, args, prepared)
		}
		return nil, err
	}
	t := c.text
	if t == nil || c.query != query {
		t = c.k.texts.get(query)
		c.query, c.text = query, t
	}
	call := callOf(ctx)
	if l := c.link; l != nil && l.changed() && !l.tainted && !c.k.off && !call.fresh && !t.plain && t.Sure.Class != statement.Private {
		if err := c.clear(ctx); err != nil {
			c.k.memo.countPrivate(CauseDoubt)
			return nil, err
		}
	}
	if cause := c.private(t, call); cause != "" {
		if err := c.consult(ctx, query); err != nil {
			c.k.memo.countPrivate(cause)
			return nil, err
		}
		return c.alone(ctx, cause, query, args, prepared)
	}
	now := c.k.memo.now()
	j, err := c.judge(ctx, t, now)
	switch {
	case err != nil:
		c.k.memo.countPrivate(statement.CauseCatalog)
		return nil, err
	case j.Class == statement.Private:
		return c.alone(ctx, j.Cause, query, args, prepared)
	}
	key := &c.keys
	args, err = key.build(t.Analysis, call.scope, prepared, args)
	if err != nil {
		return c.alone(ctx, CauseArgument, query, args, prepared)
	}
	ttl := c.k.ttl
	if call.hasTTL {
		ttl = call.ttl
	}
	if j.Class == statement.Joinable || key.saysNow {
		ttl = 0
	}
	how, res, f := c.k.memo.enter(ctx, key.key(), &t.Key, ttl, j, now)
	key.release()
	switch how {
	case enteredHeld:
		return c.replay(res), nil
	case enteredJoined:
		f.crew.join(c)
		return c.wait(ctx, f, query, args, prepared)
	case enteredLed:
		return c.lead(ctx, f, t, query, args, prepared)
	}
	return c.big(ctx, t.Key, query, args, prepared)
}

// replay returns the rows of a shared result. While they are read, which may be
// long and ask for more, others may have the link.
func (c *conn) replay(res *result) driver.Rows {
	if l := c.link; l != nil && c.k.places.limit > 0 && !c.used && l.interchangeable() {
		c.link = nil
		c.k.places.park(c, l)
	}
	return replayed(&replay{res: res})
}

// private returns why a read is private whatever the catalog says, or "".
func (c *conn) private(t *text, call *call) string {
	switch l := c.link; {
	case c.k.off:
		return CauseOff
	case call.fresh:
		return CauseFresh
	case l != nil && l.txOpen():
		return CauseTransaction
	case l != nil && (l.tainted || l.locks || l.outdated() && !l.needReset):
		return CauseSession
	case l != nil && l.busy():
		return CauseBusy
	case t.Sure.Class == statement.Private:
		return t.Sure.Cause
	case l != nil && l.doubts != nil:
		return CauseDoubt
	case t.Backslash && !c.k.standardStrings.Load(), c.k.foreignEncoding.Load():
		return statement.CauseUnparsed
	}
	return ""
}

// clear finds out whether the session of c is still changed, for a read that
// could be shared. Locks are given back, by migration tools for one, and the pool
// prefers the connection that was used last.
func (c *conn) clear(ctx context.Context) error {
	if l := c.link; l.doubts != nil && !l.txOpen() && !l.busy() && !l.dead() {
		s := c.k.snapshot.Load()
		if s == nil || !c.k.current(s, c.k.memo.now()) {
			var err error
			if s, err = c.loadCatalog(ctx, s); err != nil {
				return err
			}
		}
		if c.link == nil {
			return nil
		}
		// Asked first: who ends a change raises the schema's version before.
		if c.k.version.Load().changing.Load() == 0 && c.k.current(s, c.k.memo.now()) {
			c.link.resolve(s)
		}
	}
	if l := c.link; !l.locks || !l.needReset || l.tainted {
		return nil
	}
	l, err := c.ownUntold(ctx)
	if err == nil && !l.txOpen() {
		l.askLocks(ctx)
	}
	return err
}

// ready returns l fit for use, or a fresh connection in its place: nothing
// has been sent, so nobody need hear of one that died while it was idle.
func (k *Connector) ready(ctx context.Context, l *link) (*link, error) {
	asked := false
	defer func() {
		if !asked { // a hook of the user's panicked
			l.close()
		}
	}()
	usable := l.reset(ctx)
	asked = true
	if usable {
		return l, nil
	}
	l.closeKeepingPlace()
	return k.dial(ctx)
}

// own returns the server connection of c, dialling it if need be, with all
// statements of c prepared on it.
func (c *conn) own(ctx context.Context) (*link, error) {
	c.settled()
	if c.lost {
		return nil, driver.ErrBadConn
	}
	c.used = true
	l := c.link
	if l != nil && !l.needReset {
		// Even if it died: the session is gone, and its owner must hear of it.
		c.adopt(ctx)
		return l, nil
	}
	c.link = nil
	if l == nil {
		l = c.unpark()
	}
	if l == nil {
		got, err := c.k.places.take(ctx, nil)
		if err != nil {
			return nil, err
		}
		l = got.link
	}
	var err error
	if l == nil {
		l, err = c.k.dial(ctx)
	} else {
		l, err = c.k.ready(ctx, l)
	}
	if err != nil {
		return nil, err
	}
	c.link, l.user = l, c
	c.adopt(ctx)
	return l, nil
}

// ownUntold is own for what tells the caller nothing of the session, so that
// the link may still go to others while shared rows are read.
func (c *conn) ownUntold(ctx context.Context) (*link, error) {
	used := c.used
	l, err := c.own(ctx)
	c.used = used
	return l, err
}

// adopt makes the statements prepared on the link those of c. A statement
// that cannot be prepared now says so when it is used.
func (c *conn) adopt(ctx context.Context) {
	if c.link.adopter == c {
		return
	}
	c.link.adopter = c
	for text := range c.link.stmts {
		if c.stmts[text] == 0 {
			c.link.unprepare(text)
		}
	}
	for text := range c.stmts {
		c.link.prepare(ctx, text)
	}
}

// dropUnless closes the server connection if code called by pgx has panicked
// or ended the goroutine: database/sql never takes back what it lent to such a
// call, and what the connection is at, nobody knows.
func (c *conn) dropUnless(done *bool) {
	if l := c.link; !*done && l != nil {
		c.link = nil
		l.close()
	}
}

// run runs a statement on the server connection of c.
func run[T any](ctx context.Context, c *conn, query string, do func(*link) (T, error)) (T, error) {
	if err := c.consult(ctx, query); err != nil {
		var none T
		return none, err
	}
	return onLink(ctx, c, do)
}

// onLink does something on the server connection of c.
func onLink[T any](ctx context.Context, c *conn, do func(*link) (T, error)) (res T, err error) {
	done := false
	defer c.dropUnless(&done)
	l, err := c.own(ctx)
	if err == nil {
		res, err = do(l)
	}
	done = true
	return res, err
}

func (c *conn) alone(ctx context.Context, cause, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	c.k.memo.countPrivate(cause)
	return c.direct(ctx, query, args, prepared)
}

func (c *conn) direct(ctx context.Context, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	l, err := c.own(ctx)
	if err != nil {
		return nil, err
	}
	return l.query(ctx, query, args, prepared)
}

// big runs a read whose result is too big to share. Like that of a leader it
// stops when its caller does. If it fails, the next to come lead and wait again:
// a server in trouble sees no herd.
func (c *conn) big(ctx context.Context, text textID, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	l, err := c.own(ctx)
	if err != nil {
		c.k.memo.forgetBig(text)
		return nil, err
	}
	if l.pg == nil {
		return l.query(ctx, query, args, prepared)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	rows, err := l.query(ctx, query, args, prepared)
	if err != nil {
		cancel(nil)
		c.k.memo.forgetBig(text)
		return nil, err
	}
	res := &result{description: describe(rows, nil), scans: c.k.scans.Load()}
	return streamed(&stream{replay: replay{res: res}, live: rows, link: l, cancel: cancel}), nil
}

// errLost tells a waiter that the read could not be sent. It stands for
// driver.ErrBadConn, at which database/sql would close the waiter's own
// connection and send it in again.
var errLost = errors.New("coalesce: the server connection of the shared read was lost before the query could be sent")

// wait is a waiter's part of a flight.
func (c *conn) wait(ctx context.Context, f *flight, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	a, err := f.wait(ctx, false)
	f.crew.leave(c)
	switch {
	case err != nil:
		return nil, err
	case a.err == errTooBig:
		return c.big(ctx, f.text, query, args, prepared)
	case errors.Is(a.err, driver.ErrBadConn):
		return nil, errLost
	case a.err != nil:
		return nil, ownError(a.err)
	}
	return c.replay(a.res), nil
}

// ownError is the error of a flight for one of its callers, who may change a
// server's error: its fields are open.
func ownError(err error) error {
	if shared, ok := err.(*pgconn.PgError); ok {
		own := *shared
		return &own
	}
	return err
}

// lead is the leader's part of a flight.
func (c *conn) lead(ctx context.Context, f *flight, t *text, query string, args []driver.NamedValue, prepared bool) (driver.Rows, error) {
	a, err := c.outcome(ctx, f, t, query, args, prepared)
	switch {
	case err != nil:
		return nil, err
	case a.err != nil:
		return nil, ownError(a.err)
	case a.stream != nil:
		return a.stream.follow(ctx), nil
	}
	return c.replay(a.res), nil
}

// outcome runs a flight and returns what its leader is given.
func (c *conn) outcome(ctx context.Context, f *flight, t *text, query string, args []driver.NamedValue, prepared bool) (attempt, error) {
	f.crew.lead(c)
	defer f.crew.leave(c) // also when code called by the flight panics
	sent := copyArgs(args)
	try := func(ctx context.Context) attempt { return c.k.try(ctx, f, t, query, sent, prepared) }
	if ctx.Done() == nil {
		f.lead(try)
	} else {
		go f.run(try)
	}
	a, err := f.wait(ctx, true)
	if err == nil && a.stream != nil {
		c.link, c.used = a.stream.link, true // its rows are open: it goes to nobody else
	}
	return a, err
}

// try makes one attempt at the read of a flight.
func (k *Connector) try(ctx context.Context, f *flight, t *text, query string, args []driver.NamedValue, prepared bool) (out attempt) {
	l, err := f.crew.acquire(ctx, k)
	if err != nil {
		return attempt{err: err}
	}
	returned := false
	defer func() {
		if !returned { // user code panicked: what the connection is at, nobody knows
			l.close()
		}
	}()
	l.sharing = true
	rows, err := l.query(ctx, query, args, prepared)
	l.sharing = false
	returned = err != nil
	if err != nil {
		out = attempt{err: err, unsent: unsent(err), lost: l.dead() && ctx.Err() == nil}
		if out.unsent {
			l.close()
		} else {
			f.part(l, out.lost)
		}
		return out
	}
	last := t.lastColumns()
	d := describe(rows, last)
	scans, known := k.scansOf(l, d)
	if sets, ok := rows.(driver.RowsNextResultSet); !known || ok && sets.HasNextResultSet() {
		// Only the connection itself can scan these, or they are several
		// results of another driver: the leader has them to itself.
		returned = true
		return attempt{stream: newStream(f, &result{description: d, scans: k.scans.Load()}, rows, l)}
	}
	if d != last {
		columns := weak.Make(d)
		t.columns.Store(&columns)
	}
	res, all := drain(rows, d, d == last, f.grow)
	res.scans = scans
	returned = true
	if !all {
		return attempt{stream: newStream(f, res, rows, l)}
	}
	rows.Close()
	out = attempt{res: res, lost: res.err != nil && l.dead() && ctx.Err() == nil, lags: l.standby() || l.outdated()}
	f.part(l, out.lost)
	return out
}

// part gives back the link of an attempt. What the server still does with one
// that was lost keeps nobody from hearing of it.
func (f *flight) part(l *link, lost bool) {
	if lost {
		f.m.wg.Go(l.closeAndWait)
	} else {
		f.crew.release(l)
	}
}

// ExecContext implements [driver.ExecerContext]. It is never shared.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, c, query, func(l *link) (driver.Result, error) { return l.exec(ctx, query, args) })
}

// CheckNamedValue implements [driver.NamedValueChecker]: pgx takes every
// argument; another driver is asked once it is connected.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// BeginTx implements [driver.ConnBeginTx].
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return run(ctx, c, "BEGIN", func(l *link) (driver.Tx, error) {
		return l.conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	})
}

// Begin implements [driver.Conn].
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Ping implements [driver.Pinger]. It asks the server.
func (c *conn) Ping(ctx context.Context) error {
	_, err := onLink(ctx, c, func(l *link) (struct{}, error) {
		return struct{}{}, l.conn.(driver.Pinger).Ping(ctx)
	})
	return err
}

// ResetSession implements [driver.SessionResetter]. The server connection, if
// there is one, is reset when it is used.
func (c *conn) ResetSession(context.Context) error {
	if c.link != nil { // a wrapper that does not pass IsValid on
		c.IsValid()
	}
	c.lost, c.used = false, false
	c.reclaim()
	if c.link != nil {
		c.link.needReset = true
	}
	return nil
}

// reclaim takes c out of idleness, with its link if that is still there.
func (c *conn) reclaim() {
	// Counted first: at no moment is the link neither idle nor lendable.
	c.k.lendable.Add(1)
	if c.link = c.unpark(); c.link == nil {
		c.k.lendable.Add(-1)
		return
	}
	c.lendable = true
}

// unidle takes back the link that c gave up while its caller read shared rows, if
// it is still there: a flight might give c another, and this one would be lost.
func (c *conn) unidle() {
	if c.link == nil && c.idle.Load() != nil {
		c.reclaim()
	}
}

// unpark returns the idle link of c, or nil: another may have it.
func (c *conn) unpark() *link {
	c.k.places.unpark(c)
	return c.idle.Swap(nil)
}

// IsValid implements [driver.Validator]. database/sql calls it when it takes
// the connection back into its pool.
func (c *conn) IsValid() bool {
	c.settled()
	l := c.link
	if l == nil {
		return true
	}
	c.link = nil
	l.conceal()
	// An open transaction would hold its locks until somebody needs the
	// connection; pgx's ResetSession would not let it be used then.
	if l.dead() || l.txOpen() {
		l.close()
		return true
	}
	c.k.places.park(c, l)
	return true
}

// Close implements [driver.Conn].
func (c *conn) Close() error {
	if c.link == nil {
		c.reclaim()
	}
	c.settled()
	l := c.link
	c.link = nil
	if l = c.k.places.remove(l); l == nil {
		return nil
	}
	err := l.close()
	if spare := c.k.places.surplus(); spare != nil {
		spare.close()
	}
	return err
}

// Conn returns the pgx connection, dialling it if need be: what the method of
// the same name of *stdlib.Conn does, for use in [sql.Conn.Raw]. From then on
// the connection shares nothing until it is closed. It returns nil if the
// server cannot be reached or the driver is not pgx; [Raw] tells why.
func (c *conn) Conn() *pgx.Conn {
	pg, _ := c.pgx()
	return pg
}

// rawDialTime bounds dialling where there is no context to bound it.
const rawDialTime = time.Minute

func (c *conn) pgx() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rawDialTime)
	defer cancel()
	l, err := c.own(ctx)
	if err != nil {
		return nil, err
	}
	if l.pg == nil {
		return nil, fmt.Errorf("coalesce: the connection is a %T, not one of pgx", l.raw)
	}
	return l.expose(), nil
}

// Raw calls f with the pgx connection under sc, dialled if need be, and
// returns its error. f must not keep the connection. What f does counts as a
// write to everything, and the connection under sc shares nothing from then on, also
// when it is back in the pool, until that closes it.
func Raw(sc *sql.Conn, f func(*pgx.Conn) error) error {
	return sc.Raw(func(dc any) error {
		c, ok := dc.(*conn)
		if !ok {
			return fmt.Errorf("coalesce: Raw needs a connection of the coalesce-pgx driver, not a %T", dc)
		}
		pg, err := c.pgx()
		if err != nil {
			return err
		}
		defer c.link.conceal()
		return f(pg)
	})
}

// Prepare implements [driver.Conn].
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements [driver.ConnPrepareContext]. The server is asked
// if there is a connection to it already, or if no connection has prepared
// this text with success since the schema last changed.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	schema := c.k.schemaVersion()
	inputs, known := c.k.prepared.get(query, schema)
	if c.link != nil || !known {
		l, err := c.ownUntold(ctx)
		if err != nil {
			return nil, err
		}
		st, err := l.prepare(ctx, query)
		if err != nil {
			return nil, err
		}
		inputs = st.NumInput()
		c.k.prepared.put(query, schema, inputs)
	}
	if c.stmts == nil {
		c.stmts = make(map[string]int)
	}
	c.stmts[query]++
	c.mayLend()
	return &stmt{c: c, query: query, inputs: inputs}, nil
}

// stmt is a prepared statement of a virtual connection. On the server it is
// prepared when it must run there.
type stmt struct {
	c      *conn
	query  string
	inputs int
}

func (s *stmt) NumInput() int { return s.inputs }

func (s *stmt) Close() error {
	c := s.c
	if c.stmts[s.query]--; c.stmts[s.query] > 0 {
		return nil
	}
	delete(c.stmts, s.query)
	if l := c.link; l != nil {
		return l.unprepare(s.query)
	}
	// database/sql closes statements of connections that lie in its pool too.
	l := c.idle.Swap(nil)
	if l == nil {
		return nil
	}
	defer c.k.places.park(c, l)
	return l.unprepare(s.query)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.read(ctx, s.query, args, true)
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, s.c, s.query, func(l *link) (driver.Result, error) { return l.execStmt(ctx, s.query, args) })
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (s *stmt) CheckNamedValue(nv *driver.NamedValue) error { return s.c.CheckNamedValue(nv) }

// Exec implements [driver.Stmt]; database/sql uses ExecContext.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), named(args))
}

// Query implements [driver.Stmt]; database/sql uses QueryContext.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), named(args))
}

func named(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, v := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}
