package coalesce

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"
	"weak"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// text is what is known of one text: what it says itself, and the last verdict
// on it.
type text struct {
	*statement.Analysis
	judged   atomic.Pointer[judged]
	columns  atomic.Pointer[weak.Pointer[description]] // of the last result, while one is held
	advances bool                                      // it calls nextval
	plain    bool                                      // the catalog could tell no more of it
}

func (t *text) lastColumns() *description {
	if w := t.columns.Load(); w != nil {
		return w.Value()
	}
	return nil
}

func newText(query string) *text {
	a := statement.Analyze(query)
	return &text{
		Analysis: a,
		advances: slices.Contains(a.Functions, "nextval"),
		plain:    !a.Computes && len(a.Tables)+len(a.Functions)+len(a.Operators)+len(a.Types) == 0 || query == catalog.Query,
	}
}

// judged is the verdict on a text under one snapshot of the catalog. It is
// immutable.
type judged struct {
	catalog.Verdict
	k      *Connector
	snap   *snapshot        // nil: the text alone decided
	reads  []*atomic.Uint64 // the counters of what it reads
	writes []*atomic.Uint64 // the counters of what it touches
	of     *version         // whose counters these are
}

// version implements clock. The counters only rise, so their sum tells
// whether any of them did.
func (j *judged) version() uint64 {
	sum := j.k.version.Load().dataVersion()
	for _, c := range j.reads {
		sum += c.Load()
	}
	return sum
}

// comparable implements clock. The same text may read other tables under
// another snapshot, and sums of different counters say nothing.
func (j *judged) comparable(other clock) bool {
	o, ok := other.(*judged)
	return ok && (j == o || slices.Equal(j.reads, o.reads))
}

// settled implements clock.
func (j *judged) settled(lags bool) bool {
	v := j.k.version.Load()
	return v.unsettled.Load() == 0 && !(lags && v.writtenLately()) && !v.mayChange(j.reads)
}

// snapshot is what the catalog said when it was last loaded.
type snapshot struct {
	*catalog.Snapshot               // nil: it could not be read
	reason            string        // why not
	schema, suspect   uint64        // versions when the loading began
	begun             time.Duration // on the memo's clock
	lasts             time.Duration // how long it may be judged by, being one that could not be read; 0: catalogLast
}

const (
	// catalogAge is how old a snapshot gets before it is loaded again: others
	// change the schema too. It may be judged by for as long once more, lest
	// everybody wait for the loading.
	catalogAge  = time.Minute
	catalogLast = 2 * catalogAge
	// catalogGap is how long a snapshot must last though names were not in it,
	// code was called that may have changed the schema, or it could not be read.
	catalogGap = time.Second
)

// current reports whether s may be judged by.
func (k *Connector) current(s *snapshot, now time.Duration) bool {
	v := k.version.Load()
	age := now - s.begun
	return s.schema == v.schemaVersion() && age < or(s.lasts, catalogLast) && (s.suspect == v.suspectVersion() || age < catalogGap)
}

func (s *snapshot) aged(now time.Duration) bool { return now-s.begun >= catalogAge }

// passes reports whether a server that refused a query may soon answer it: it
// was stopped, or had not the means.
func passes(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || len(pe.Code) < 2 {
		return false
	}
	switch pe.Code[:2] {
	case "08", "40", "53", "55", "57", "58":
		return true
	}
	return false
}

// judge returns the verdict on a text, loading the catalog if that is needed
// and was not done since the schema last changed.
func (c *conn) judge(ctx context.Context, t *text, now time.Duration) (*judged, error) {
	j, s := t.judged.Load(), c.k.snapshot.Load()
	if j != nil && (j.snap == nil || j.snap == s && c.k.current(s, now) && !s.aged(now)) &&
		!(j.Unknown && now-j.snap.begun >= catalogGap) {
		return j, nil
	}
	if t.plain || t.Sure.Class == statement.Private {
		j = &judged{Verdict: catalog.Verdict{Effect: t.Sure}, k: c.k}
		t.judged.Store(j)
		return j, nil
	}
	if s == nil || !c.k.current(s, now) {
		var err error
		if s, err = c.loadCatalog(ctx, s); err != nil {
			return nil, err
		}
	} else if s.aged(now) {
		c.refresh(ctx, s, now) // what goes wrong, the read itself will show
		s = c.k.snapshot.Load()
	}
	if j == nil || j.snap != s {
		j = c.k.judgeUnder(t, s)
	}
	if j.Unknown && now-s.begun >= catalogGap {
		s, err := c.loadCatalog(ctx, s)
		if err != nil {
			return nil, err
		}
		j = c.k.judgeUnder(t, s)
	}
	t.judged.Store(j)
	return j, nil
}

func (k *Connector) judgeUnder(t *text, s *snapshot) *judged {
	j := &judged{k: k, snap: s}
	if s.Snapshot == nil {
		j.Effect = t.Effect
		j.Class, j.Cause, j.Reason = statement.Private, statement.CauseCatalog, "may use what is not built in, and the catalog cannot be read: "+s.reason
		j.All = true
		return j
	}
	j.Verdict = s.Judge(t.Analysis)
	v := k.version.Load()
	j.of = v.version
	for _, name := range j.Reads {
		j.reads = append(j.reads, v.table(name))
	}
	if j.Opaque {
		j.reads = append(j.reads, &v.any)
	}
	if j.Sequences {
		j.reads = append(j.reads, &v.sequences)
	}
	for _, name := range j.Touches {
		j.writes = append(j.writes, v.table(name))
	}
	return j
}

// known returns the verdict on a statement that runs now, if there is a
// snapshot that holds. Else nothing is known of its names: what looks like a
// read may be of a view that writes.
func (k *Connector) known(t *text) *judged {
	s := k.snapshot.Load()
	if s == nil || !k.current(s, k.memo.now()) {
		e := t.Effect
		if len(t.Tables) > 0 && t.Sure.Cause != statement.CauseNotRead {
			e.Writes, e.Schema = true, true
		}
		return &judged{Verdict: catalog.Verdict{Effect: e, All: true}, k: k}
	}
	j := t.judged.Load()
	if j == nil || j.snap != s {
		j = k.judgeUnder(t, s)
		t.judged.Store(j)
	}
	if v := k.version.Load(); j.Writes && !j.All && (s.suspect != v.suspectVersion() || v.changing.Load() > 0) {
		// What it sets off may be what another statement has just made.
		all := *j
		all.All = true
		return &all
	}
	return j
}

// unsure reports whether the catalog at hand may not tell what a statement that
// runs now sets off: the schema has changed, or is changing.
func (l *link) unsure() bool {
	k := l.k
	s := k.snapshot.Load()
	return s == nil || !k.current(s, k.memo.now()) || k.version.Load().changing.Load() > 0 || l.dirty.mayBeDDL()
}

// maxDoubts bounds the names of a kind that a link remembers.
const maxDoubts = 1 << 10

// doubt notes that t may have changed the session of l, by what its names stand
// for: tables by their triggers, and what it calls by what that does.
func (l *link) doubt(t *text) {
	if l.tainted || l.k.off || t.Defines && !t.Taints {
		return
	}
	d := l.doubts
	if d == nil {
		d = &statement.Analysis{Sure: statement.Effect{Class: statement.Private, Writes: true}}
		l.doubts = d
	}
	add := func(to *[]string, names []string) {
		for _, name := range names {
			if !slices.Contains(*to, name) {
				*to = append(*to, name)
			}
		}
		l.tainted = l.tainted || len(*to) > maxDoubts
	}
	add(&d.Tables, t.Tables)
	if t.Taints {
		add(&d.Functions, t.Functions)
		add(&d.Qualified, t.Qualified)
		add(&d.Operators, t.Operators)
		add(&d.Types, t.Types)
	}
}

// resolve finds out whether what l has run did change its session.
func (l *link) resolve(s *snapshot) {
	d := l.doubts
	if d == nil || s.lasts > 0 {
		return // it is another link, or nothing could be read but may be soon
	}
	l.doubts = nil
	if s.Snapshot != nil { // else nothing is shared that a session could change
		v := s.Judge(d)
		l.tainted, l.locks = l.tainted || v.Taints, l.locks || v.Locks
	}
}

// commitsElsewhere reports whether code in the database may write outside the
// transaction that calls it, so that this need not commit.
func (k *Connector) commitsElsewhere() bool {
	s := k.snapshot.Load()
	return s != nil && s.Snapshot != nil && s.CommitsElsewhere
}

// consult loads the catalog before a statement that may write, if that was not
// done lately: else it would count as one that writes everything and leaves its
// session in doubt, and a database that is only written to would learn nothing
// better for ever. Its error is that of refresh.
func (c *conn) consult(ctx context.Context, query string) error {
	s, now := c.k.snapshot.Load(), c.k.memo.now()
	if c.k.off || s != nil && (c.k.current(s, now) && !s.aged(now) || now-s.begun < catalogGap) {
		return nil
	}
	t := c.k.texts.get(query)
	if t.Tx != statement.TxBegin && (t.plain || t.Defines && t.Taints == t.Sure.Taints) {
		return nil
	}
	if l := c.link; l != nil && (l.txOpen() || l.tainted || l.locks || l.busy() || l.dead()) {
		return nil
	}
	return c.refresh(ctx, s, now)
}

// refreshTime is how long a statement that can do without the catalog waits for
// it, half its time at most: the connection on which it is read may be lost.
const refreshTime = 2 * time.Second

// refresh loads the catalog in place of old for a caller who can do without.
// One a second leads: writes of which nothing is known overtake the loading.
// The others wait with it if there is nothing to judge by. Its error is one of
// dialling; what else may go wrong, the caller's own statement will show.
func (c *conn) refresh(ctx context.Context, old *snapshot, now time.Duration) error {
	last := c.k.refreshed.Load()
	lead := now-time.Duration(last) >= catalogGap && c.k.refreshed.CompareAndSwap(last, int64(now))
	if !lead && old != nil && c.k.current(old, now) {
		return nil
	}
	bound := ctx
	if c.link == nil || !c.link.personal() { // else the session would be lost with the link
		patience := refreshTime
		if until, ok := ctx.Deadline(); ok {
			patience = min(patience, time.Until(until)/2)
		}
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	if _, undialled, err := c.joinCatalog(bound, old, lead); undialled && err != errLost && bound.Err() == nil {
		return err
	}
	return nil
}

// raise makes stale what a statement may have changed.
func (k *Connector) raise(t *text, j *judged) {
	v := k.version.Load()
	if t.Defaults {
		v.each(func(v *version) { v.defaults.Add(1) })
	}
	switch {
	case t.Sure.Schema:
		k.raiseAll(mayBeDDL)
		raiseDatabases(t.Tables)
	case j.Schema:
		k.raiseAll(mayHideDDL)
	case j.All || j.of != v.version:
		k.raiseAll(rowsOnly)
	default:
		for _, c := range v.writtenBy(j) {
			c.Add(1)
		}
	}
	v.each(func(v *version) {
		v.sequences.Add(1)
		v.any.Add(1)
		v.write()
	})
}

var catalogKey = []byte("catalog") // no key of a read begins like it

// catalogClock is the clock of the loading of the catalog.
type catalogClock struct{ k *Connector }

func (c catalogClock) version() uint64 {
	v := c.k.version.Load()
	return v.schemaVersion() + v.suspectVersion()
}

func (c catalogClock) comparable(clock) bool { return true }
func (c catalogClock) settled(bool) bool     { return true }

// loadCatalog loads the catalog, together with others who need a newer snapshot
// than old.
func (c *conn) loadCatalog(ctx context.Context, old *snapshot) (*snapshot, error) {
	s, _, err := c.joinCatalog(ctx, old, true)
	return s, err
}

// joinCatalog is loadCatalog for a caller that leads only if told so; without,
// the snapshot may be empty. It also reports whether nothing could be dialled.
func (c *conn) joinCatalog(ctx context.Context, old *snapshot, lead bool) (s *snapshot, undialled bool, err error) {
	k := c.k
	how, f := k.memo.enterQuietly(ctx, catalogKey, catalogClock{k}, lead)
	switch how {
	case enteredAlone:
		return &snapshot{reason: ErrClosed.Error(), begun: k.memo.now()}, false, nil
	case enteredLed:
		f.crew.lead(c)
		go f.run(func(ctx context.Context) attempt { return k.tryCatalog(ctx, f, old) })
	default:
		f.crew.join(c)
	}
	defer c.mayLend()
	defer f.crew.leave(c)
	a, err := f.wait(ctx, how == enteredLed)
	switch {
	case err != nil:
		return nil, false, err
	case how != enteredLed && errors.Is(a.err, driver.ErrBadConn):
		return nil, a.undialled, errLost
	case a.err != nil:
		return nil, a.undialled, a.err
	}
	return a.value.(*snapshot), false, nil
}

// tryCatalog makes one attempt at loading the catalog.
func (k *Connector) tryCatalog(ctx context.Context, f *flight, old *snapshot) attempt {
	// Another flight may have ended between the caller's look and this one.
	if s := k.snapshot.Load(); s != nil && s != old && k.current(s, k.memo.now()) {
		return attempt{value: s}
	}
	l, err := f.crew.acquire(ctx, k)
	if err != nil {
		return attempt{err: err, undialled: true}
	}
	f.goOn()
	returned := false
	defer func() {
		if !returned { // as in try
			l.close()
		}
	}()
	v := k.version.Load()
	s := &snapshot{schema: v.schemaVersion(), suspect: v.suspectVersion(), begun: k.memo.now()}
	// A hook may have made the session that of whoever leads this: its owner, or
	// who gets it next, has it reset for itself.
	again := l.wasReset || f.crew.foreign
	l.early = l.pg != nil && !l.wasReset && f.crew.foreign
	rows, err := readCatalog(ctx, l)
	returned = true
	lost := err != nil && l.dead() && ctx.Err() == nil
	if !lost {
		k.catalogLosses.Store(0)
	} else if n := k.catalogLosses.Add(1); n > 1 && !unsent(err) {
		// It may be the catalog's query that the server does not suffer, or the
		// server is in trouble: that is asked again less and less often.
		lost = false
		s.lasts = min(catalogGap<<min(n-2, 16), catalogLast)
	}
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	if late {
		s.lasts, err = catalogLast, errors.New("it takes longer than "+quietTime.String())
	} else if err != nil && (lost || unsent(err) || ctx.Err() != nil) {
		f.crew.release(l)
		return attempt{err: err, unsent: unsent(err), lost: lost}
	}
	l.needReset = again
	if late {
		f.crew.release(l)
	} else {
		f.crew.releaseToAny(l, k)
	}
	if err == nil {
		s.Snapshot, err = catalog.Parse(rows)
	}
	if err != nil {
		// Not a PostgreSQL, or one that shows nothing: known names only.
		s.Snapshot, s.reason = nil, err.Error()
		if passes(err) {
			s.lasts = max(s.lasts, catalogGap)
		}
	} else if s.Database != "" {
		k.turnsOutToBe(s.Database)
	}
	k.snapshot.Store(s)
	return attempt{value: s}
}

func readCatalog(ctx context.Context, l *link) ([]catalog.Row, error) {
	if _, ok := l.raw.(*stdlib.Conn); ok { // itself, not in somebody's wrapper that wants to see queries
		return readPgxCatalog(ctx, l.pg)
	}
	rows, err := l.query(ctx, catalog.Query, nil, false)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []catalog.Row
	dest := make([]driver.Value, max(len(rows.Columns()), 5))
	for {
		if err := rows.Next(dest); err != nil {
			if err == io.EOF {
				err = nil
			}
			return out, err
		}
		var r catalog.Row
		for i, to := range r.Fields() {
			switch v := dest[i].(type) {
			case string:
				*to = v
			case []byte:
				*to = string(v)
			}
		}
		out = append(out, r)
	}
}

// readPgxCatalog sends what it needs as one implicit transaction, and leaves
// no prepared statement in the session.
func readPgxCatalog(ctx context.Context, pg *pgx.Conn) (out []catalog.Row, err error) {
	if t := pg.Config().Tracer; t != nil {
		ctx = t.TraceQueryStart(ctx, pg, pgx.TraceQueryStartData{SQL: catalog.Query})
		defer func() { t.TraceQueryEnd(ctx, pg, pgx.TraceQueryEndData{Err: err}) }()
	}
	var results *pgconn.MultiResultReader
	if pg.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		results = pg.PgConn().Exec(ctx, catalog.Prelude+";"+catalog.Query)
	} else {
		var b pgconn.Batch
		b.ExecParams(catalog.Prelude, nil, nil, nil, nil)
		b.ExecParams(catalog.Query, nil, nil, nil, nil)
		results = pg.PgConn().ExecBatch(ctx, &b)
	}
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			values := rows.Values()
			var r catalog.Row
			fields := r.Fields()
			if len(values) != len(fields) {
				continue // of the prelude
			}
			for i, to := range fields {
				*to = string(values[i])
			}
			out = append(out, r)
		}
		rows.Close() // its error is that of results too
	}
	return out, results.Close()
}

func (c *conn) explain(ctx context.Context, query string) (Explanation, error) {
	t := newText(query)
	if t.Backslash && !c.k.standardStrings.Load() { // a session tells
		if _, err := c.own(ctx); err != nil {
			return Explanation{}, err
		}
		if !c.k.standardStrings.Load() {
			return Explanation{Verdict: statement.Private.String(), Reason: "has a backslash in a literal, and standard_conforming_strings is not on"}, nil
		}
	}
	if !t.plain && t.Sure.Class == statement.Private {
		// The catalog cannot change the verdict, but it knows the tables.
		if s := c.k.snapshot.Load(); s == nil || !c.k.current(s, c.k.memo.now()) {
			if _, err := c.loadCatalog(ctx, s); err != nil {
				return Explanation{}, err
			}
		}
	}
	j, err := c.judge(ctx, t, c.k.memo.now())
	if err != nil {
		return Explanation{}, err
	}
	if c.k.foreignEncoding.Load() {
		return Explanation{Verdict: statement.Private.String(), Reason: "is sent in an encoding whose characters may have a backslash in them"}, nil
	}
	if s := c.k.snapshot.Load(); j.snap == nil && !t.plain && s != nil {
		j = c.k.judgeUnder(t, s)
	}
	e := Explanation{Verdict: j.Class.String(), Reason: j.Reason, Tables: slices.Concat(j.Reads, j.Touches)}
	slices.Sort(e.Tables)
	e.Tables = slices.Compact(e.Tables)
	return e, nil
}
