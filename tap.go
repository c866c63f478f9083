package coalesce

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/ngrok/sqlmw"

	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// tap sees every statement that goes to the server.
type tap struct {
	sqlmw.NullInterceptor
	link *link

	rows    driver.Rows // of the last query, before sqlmw wrapped them
	writer  *writer     // the last query, if it may write
	closing *writer     // that of the open rows that sqlmw wraps
}

func (t *tap) ConnExecContext(ctx context.Context, c driver.ExecerContext, query string, args []driver.NamedValue) (driver.Result, error) {
	a := t.link.begin(query, args)
	res, err := c.ExecContext(ctx, query, args)
	t.done(a, err)
	return res, err
}

func (t *tap) StmtExecContext(ctx context.Context, s driver.StmtExecContext, query string, args []driver.NamedValue) (driver.Result, error) {
	a := t.link.begin(query, args)
	res, err := s.ExecContext(ctx, args)
	t.done(a, err)
	return res, err
}

func (t *tap) ConnQueryContext(ctx context.Context, c driver.QueryerContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	a := t.link.begin(query, args)
	rows, err := c.QueryContext(ctx, query, args)
	return ctx, t.opened(a, rows, err), err
}

func (t *tap) StmtQueryContext(ctx context.Context, s driver.StmtQueryContext, query string, args []driver.NamedValue) (context.Context, driver.Rows, error) {
	a := t.link.begin(query, args)
	rows, err := s.QueryContext(ctx, args)
	return ctx, t.opened(a, rows, err), err
}

// opened notes the rows of a query. One that writes has perhaps not finished
// yet, but may have: its version is raised now and when the rows are closed.
// It returns the rows that sqlmw shall wrap: none where unwrap takes the others.
func (t *tap) opened(a begun, rows driver.Rows, err error) driver.Rows {
	var settled func()
	if err == nil {
		settled = t.link.opening(a) // before the version is raised: no read may be held in between
	}
	again := t.done(a, err)
	if err != nil {
		return nil
	}
	t.rows, t.writer = rows, nil
	if again {
		t.writer = &writer{a, settled}
	} else if settled != nil {
		settled()
	}
	if _, ok := rows.(*stdlib.Rows); ok || !again {
		return nil
	}
	return rows
}

func (t *tap) done(a begun, err error) (again bool) {
	if a.changed != nil {
		defer a.changed()
	}
	if t.link.refused(a, err) {
		t.link.tainted, t.link.locks = a.tainted, a.locks
		return false
	}
	again = t.link.finish(a)
	if err != nil && t.link.txOpen() {
		t.link.dirty.failed = true
	}
	if a.Cleans && err == nil {
		t.link.cleaned()
	}
	return again
}

func (t *tap) RowsClose(_ context.Context, rows driver.Rows) error {
	err := rows.Close()
	if t.closing != nil {
		t.link.rowsClosed(t.closing)
		t.closing = nil
	}
	return err
}

func (t *tap) ConnBeginTx(ctx context.Context, c driver.ConnBeginTx, opts driver.TxOptions) (context.Context, driver.Tx, error) {
	tx, err := c.BeginTx(ctx, opts)
	if err == nil {
		t.link.inTx = true
	}
	return ctx, tx, err
}

func (t *tap) TxCommit(_ context.Context, tx driver.Tx) error {
	if t.link.dirty.mayBeDDL() {
		defer t.link.k.version.Load().change()()
	}
	err := tx.Commit()
	t.link.commit()
	return err
}

func (t *tap) TxRollback(_ context.Context, tx driver.Tx) error {
	err := tx.Rollback()
	t.link.rollback()
	return err
}

// begun is a statement that was sent.
type begun struct {
	*text
	// tainted and locks are those of the link before.
	tainted, locks bool
	changed        func()  // to be called when it is over; nil if it cannot change the schema
	judged         *judged // the verdict when it began; nil if that could not be another, or the read is shared
	calm           bool    // no change of the schema was under way then
}

// anything stands for a text that pgx makes of another: nobody has seen it.
var anything = newText("\x00")

// begin notes what a statement may do to the session, before it is sent: a
// failure may come after the deed.
func (l *link) begin(query string, args []driver.NamedValue) begun {
	t := l.k.texts.get(query)
	if slices.ContainsFunc(args, rewrites) || query != catalog.Query && l.misreads(t) {
		t = anything
	}
	b := begun{text: t, tainted: l.tainted, locks: l.locks, calm: l.k.version.Load().changing.Load() == 0}
	e, unsure := &t.Sure, false
	if !t.plain && !l.sharing {
		unsure, b.judged = l.unsure(), l.k.known(t)
	}
	if e.Taints {
		e = &t.Effect
	} else if j := b.judged; j != nil {
		e = &j.Effect
		if unsure || j.snap == nil || j.snap.lasts > 0 {
			l.doubt(t)
		}
		l.tainted = l.tainted || e.Taints && j.snap != nil && !(unsure && j.Unknown)
	}
	l.tainted = l.tainted || t.Sure.Taints || t.Sure.Schema && l.k.tempPath.Load()
	l.locks = l.locks || e.Locks
	if t.Sure.Schema || e.Schema || t.Tx == statement.TxCommit && l.dirty.mayBeDDL() {
		b.changed = l.k.version.Load().change()
	}
	return b
}

// writer is a statement that may write, whose rows are open.
type writer struct {
	begun
	settled func() // nil if it is in a transaction: the end of that counts
}

// opening notes that the rows of a statement are open. If it writes the server
// may do so at any time until they are closed, when what it returns is to be
// called.
func (l *link) opening(b begun) (settled func()) {
	w := b.judged
	if w == nil && b.plain && b.Writes {
		w = l.k.known(b.text)
	}
	if l.txOpen() || w == nil || !w.Writes {
		return nil
	}
	return l.k.version.Load().open(w)
}

func (l *link) rowsClosed(w *writer) {
	l.finish(w.begun)
	if w.settled != nil {
		w.settled()
	}
}

// misreads reports whether the server may read t otherwise than it was analysed:
// a backslash hides the end of a literal from one of the two.
func (l *link) misreads(t *text) bool {
	if l.k.foreignEncoding.Load() {
		return true
	}
	return t.Backslash && !(l.pg != nil && l.pg.PgConn().ParameterStatus("standard_conforming_strings") == "on")
}

func rewrites(a driver.NamedValue) bool {
	switch a.Value.(type) {
	case pgx.NamedArgs, pgx.StrictNamedArgs:
		return false
	case pgx.QueryRewriter:
		return true
	}
	return false
}

// refused reports whether the server has found a statement wrong before it ran
// any of it: its text is known to be one statement, and the mistake has a place
// in it that no code came upon while it was running. DDL may run some of what it
// says before it has looked at the rest.
func (l *link) refused(b begun, err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pe.Position == 0 || pe.Where != "" || pe.InternalQuery != "" {
		return false
	}
	switch b.Cause {
	case statement.CauseSeveral, statement.CauseUnparsed, statement.CauseTooLong:
		return false
	}
	switch pe.Code {
	case "42601": // syntax error
		return true
	case "42P01", "42703", "42883": // no such table, column, function
		return !b.Sure.Schema
	}
	return false
}

// finish raises the versions of what a statement may have written, whether it
// succeeded or not: a lost answer may have been a commit. It reports whether
// the statement is one to finish again when its rows are closed.
func (l *link) finish(b begun) (again bool) {
	t := b.text
	switch t.Tx {
	case statement.TxBegin:
		l.inTx = true
	case statement.TxCommit:
		l.commit()
		return true
	case statement.TxRollback:
		l.rollback()
	}
	if t.advances {
		l.drawn = true
		l.k.version.Load().each(func(v *version) { v.sequences.Add(1) })
	}
	again = t.Tx != statement.TxNone
	if t.plain && !t.Writes {
		return again
	}
	changing := b.calm && l.k.version.Load().changing.Load() > 0 // asked first: who ends one raises versions before
	j := l.k.known(t)
	if b.judged != nil && (changing || j.snap == nil || b.judged.snap != j.snap) {
		l.doubt(t) // it may have waited for a change that was not under way when it began
	}
	j = b.outcome(j)
	if !j.Writes {
		return again
	}
	l.drawn = true
	if l.txOpen() {
		l.dirty.add(t, j)
		l.k.version.Load().each(func(v *version) { v.sequences.Add(1) }) // which no transaction undoes
	}
	// Several statements, or one that is not understood, may have committed.
	unclear := t.Cause == statement.CauseSeveral || t.Cause == statement.CauseUnparsed || t.Cause == statement.CauseTooLong
	if !l.txOpen() || l.dead() || unclear || j.All && l.k.commitsElsewhere() {
		l.raise(func() { l.k.raise(t, j) })
	}
	return true
}

// outcome returns what a statement may have done that is j by what is known now.
// What it called may be another since it began.
func (b begun) outcome(j *judged) *judged {
	was := b.judged
	if was == nil || !was.Writes || was.snap == j.snap || j.Writes && !was.All && !j.All && slices.Equal(was.Touches, j.Touches) {
		return j
	}
	both := *j
	both.Writes, both.All = true, true
	both.Schema = j.Schema || was.snap != nil && was.Schema
	return &both
}

// raise raises versions for a write that has finished. If the connection died
// of it the server may still be at it, and commit after its caller has left:
// until it has let go of the connection nothing is held, and the versions are
// raised again then.
func (l *link) raise(versions func()) {
	v := l.k.version.Load()
	unsettled := l.pg != nil && l.pg.IsClosed()
	var settled func()
	if unsettled {
		settled = v.count(func(v *version) *atomic.Int64 { return &v.unsettled })
	}
	versions()
	if unsettled {
		cleanup := l.pg.PgConn().CleanupDone()
		go func() { // ends with pgx's own, which is cancelling the statement
			await(cleanup)
			versions()
			settled()
		}()
	}
}

// hooked reports whether code of the user's may have made the session what it
// was when it began.
func (l *link) hooked() bool {
	if !l.k.opened || l.pg == nil {
		return true
	}
	cfg := l.pg.Config()
	return cfg.AfterConnect != nil || cfg.ValidateConnect != nil
}

// cleaned notes that DISCARD ALL has made the session a fresh one, unless it has
// also undone what a hook did. What was prepared in it is gone: pgx must forget
// it too, lest a shared read fail.
func (l *link) cleaned() {
	clear(l.stmts)
	fresh := !l.hooked()
	if l.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
		defer cancel()
		fresh = l.pg.DeallocateAll(ctx) == nil && fresh
	}
	l.tainted, l.locks = l.exposed || !fresh, l.locks && !fresh
	if fresh {
		l.doubts = nil
	}
}

const heldLocks = "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid())"

// askLocks asks the server whether the session still holds advisory locks.
func (l *link) askLocks(ctx context.Context) {
	if l.pg == nil {
		return
	}
	res := l.pg.PgConn().ExecParams(ctx, heldLocks, nil, nil, nil, nil).Read()
	if res.Err == nil && len(res.Rows) == 1 {
		l.locks = string(res.Rows[0][0]) != "f"
	}
}

const forgetTime = 5 * time.Second

func (l *link) commit() { l.endTx(true) }

// rollback raises versions if a statement has failed: perhaps for what others
// have written (a duplicate key), which who reads next must see.
func (l *link) rollback() { l.endTx(l.dirty.failed) }

func (l *link) endTx(raises bool) {
	d := l.dirty
	l.inTx, l.dirty = false, dirt{}
	if raises && (d.all || len(d.statements) > 0) {
		l.raise(func() { d.raise(l.k) })
	}
}

// dirt is what the open transaction may have written.
type dirt struct {
	statements []dirtyStatement
	all        bool
	failed     bool // one of its statements
}

type dirtyStatement struct {
	t *text
	j *judged
}

// covers reports whether what s raises is all that t raises. Texts that are not
// remembered are judged each time.
func (s *dirtyStatement) covers(t *text, j *judged) bool {
	return s.j == j || !t.Defaults && !j.Schema && (s.j.All ||
		!j.All && s.j.of == j.of && slices.Equal(s.j.Touches, j.Touches) && slices.Equal(s.j.Strangers, j.Strangers))
}

func (d *dirt) mayBeDDL() bool {
	return d.all || slices.ContainsFunc(d.statements, func(s dirtyStatement) bool { return s.t.Sure.Schema || s.j.Schema })
}

const maxDirty = 32

func (d *dirt) add(t *text, j *judged) {
	for _, s := range d.statements {
		if s.covers(t, j) {
			return
		}
	}
	if len(d.statements) == maxDirty {
		d.all = true
	}
	if !d.all || t.Defaults {
		d.statements = append(d.statements, dirtyStatement{t, j})
	}
}

func (d *dirt) raise(k *Connector) {
	if d.all {
		k.raiseAll(mayBeDDL)
	}
	for _, s := range d.statements {
		k.raise(s.t, s.j)
	}
}
