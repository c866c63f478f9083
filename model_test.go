package coalesce_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/coalesce-pgx/coalesce"
)

// Own writes, checked by a model: a read that starts after a write has returned
// sees it. A linearizability checker (porcupine) asks for more than that: while a
// write is under way, who reads fresh may see it, and who reads then need not. A
// property test (rapid) takes one step at a time. For longer than CI does:
//
//	go test -race -run Model -model.duration 1h -timeout 0 .
//
// The seed settles what each client does, not how the server interleaves it.
// internal/mutants/run shows that the test fails for drivers that are broken.
var (
	modelSeed     = flag.Uint64("model.seed", 0, "seed of the model test; 0: a new one")
	modelSteps    = flag.Int("model.steps", 6000, "operations of the model test, those of all clients together")
	modelDuration = flag.Duration("model.duration", 0, "run the model test for so long, however many operations that makes")
)

const (
	modelClients = 8
	modelRows    = 2

	// mark is added to a counter in a transaction and taken away again before
	// that commits: nobody else may ever see it.
	mark = 1_000_000

	// slowly makes a read last some milliseconds, so that writes overtake it.
	slowly = "(SELECT count(*) FROM generate_series(1, 25000)) > 0"
)

// modelSchema has a few tables of counters, and other ways to the same ones.
// The counters of child are those of parent, by its foreign key.
var modelSchema = []string{
	"CREATE TABLE a(id int PRIMARY KEY, n bigint NOT NULL)",
	"CREATE TABLE b(id int PRIMARY KEY, n bigint NOT NULL)",
	"CREATE TABLE parent(id int PRIMARY KEY, n bigint NOT NULL, UNIQUE (id, n))",
	"CREATE TABLE child(id int PRIMARY KEY, n bigint NOT NULL, FOREIGN KEY (id, n) REFERENCES parent(id, n) ON UPDATE CASCADE)",
	"CREATE TABLE split(id int PRIMARY KEY, n bigint NOT NULL) PARTITION BY LIST (id)",
	"CREATE TABLE split_1 PARTITION OF split FOR VALUES IN (1)",
	"CREATE TABLE split_2 PARTITION OF split DEFAULT",
	"CREATE VIEW only_a AS SELECT id, n FROM a",
	"CREATE VIEW both_ab AS SELECT id, only_a.n AS an, b.n AS bn FROM only_a JOIN b USING (id)",
}

var modelTables = []string{"a", "b", "parent", "split"}

// counter is one row. Its n begins at 0 and grows by one with each write that
// commits.
type counter struct {
	table string
	id    int

	// begun counts the writes, failed those that surely did not commit,
	// committed those that said they did. What is left has an unknown outcome.
	begun, failed, committed int64
	// floor is the least that a read may give that starts now; by says why.
	floor int64
	by    string
	// seen is committed too, and its writer has returned, though with an error.
	// It may have been committed after that, so that a read may still join a
	// flight that began in between. But nothing older may be held.
	seen   int64
	seenBy string
	// running are the writes that have not returned.
	running map[*modelWrite]struct{}
	sights  []sight
	recent  []event // the last few on this counter
}

// sight is a value that was seen above floor, so that it was committed by one
// of the writes that ran then, or by one that had failed for its caller. When
// those have returned it is seen for good.
type sight struct {
	n     int64
	by    string
	after map[*modelWrite]struct{}
}

// event is one operation on one counter, for the report of a failure.
type event struct {
	client   int
	what     string
	from, to time.Duration
	n        int64 // what was read, or what a write left; -1: not known
	outcome  string
}

func (e event) String() string {
	s := fmt.Sprintf("%v – %v client %d: %s: %s", e.from.Round(time.Microsecond), e.to.Round(time.Microsecond), e.client, e.what, e.outcome)
	if e.n >= 0 {
		s += fmt.Sprintf(" %d", e.n)
	}
	return s
}

const recentEvents = 24

// raise notes that n is surely committed, and its writer has returned.
func (c *counter) raise(n int64, by string) {
	if n > c.floor {
		c.floor, c.by = n, by
	}
}

func (c *counter) note(e event) {
	if len(c.recent) == recentEvents {
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, e)
}

func (c *counter) saw(n int64, by string) {
	if n <= max(c.floor, c.seen) {
		return
	}
	if len(c.running) == 0 {
		c.seen, c.seenBy = n, by
		return
	}
	for _, s := range c.sights {
		if s.n >= n && len(s.after) <= len(c.running) {
			return // says as much
		}
	}
	after := make(map[*modelWrite]struct{}, len(c.running))
	for w := range c.running {
		after[w] = struct{}{}
	}
	c.sights = append(c.sights, sight{n, by, after})
}

func (c *counter) returned(w *modelWrite) {
	delete(c.running, w)
	left := c.sights[:0]
	for _, s := range c.sights {
		delete(s.after, w)
		if len(s.after) > 0 {
			left = append(left, s)
		} else if s.n > c.seen {
			c.seen, c.seenBy = s.n, s.by
		}
	}
	c.sights = left
}

// model knows what reads may give.
type model struct {
	f       *fixture
	dbs     []*sql.DB
	start   time.Time
	stopped atomic.Bool // something is wrong
	steps   atomic.Int64
	// for the log
	reads, commits, failures, unknown, kills atomic.Int64

	mu       sync.Mutex // guards the counters and wrong
	counters map[string][]*counter
	wrong    string
}

func (m *model) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failLocked(format, args...)
}

func (m *model) failLocked(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
		m.stopped.Store(true)
	}
}

// modelWrite is a write to some counters under way.
type modelWrite struct {
	of    []*counter
	from  time.Duration
	floor []int64
}

type outcome string

const (
	committed outcome = "committed"
	failed    outcome = "failed"
	unknown   outcome = "unknown outcome"
)

func (m *model) begin(of []*counter) *modelWrite {
	w := &modelWrite{of: of, floor: make([]int64, len(of))}
	m.mu.Lock()
	defer m.mu.Unlock()
	w.from = time.Since(m.start)
	for i, c := range of {
		c.begun++
		c.running[w] = struct{}{}
		w.floor[i] = c.floor
	}
	return w
}

// end notes how a write returned. left are the values it said it left, if it
// said so.
func (m *model) end(client int, what string, w *modelWrite, how outcome, left []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := event{client: client, what: what, from: w.from, to: time.Since(m.start), outcome: string(how)}
	for i, c := range w.of {
		e.n = -1
		switch how {
		case committed:
			c.committed++
			least, most := w.floor[i]+1, c.begun-c.failed
			if len(left) > 0 {
				e.n = left[i]
				if e.n < least || e.n > most {
					m.failLocked("%s %d: a write left %d, want %d to %d:\n\t%v\nbefore that%s", c.table, c.id, e.n, least, most, e, c.history())
				}
			}
			c.raise(max(least, c.committed, e.n), e.String())
		case failed:
			c.failed++
		}
		c.note(e)
		c.returned(w)
	}
	switch how {
	case committed:
		m.commits.Add(1)
	case failed:
		m.failures.Add(1)
	default:
		m.unknown.Add(1)
	}
}

func (c *counter) history() string {
	var s strings.Builder
	for _, e := range c.recent {
		fmt.Fprintf(&s, "\n\t%v", e)
	}
	return s.String()
}

// bound is a counter's floor and what was seen, as of the start of a read.
type bound struct {
	floor, seen int64
	by, seenBy  string
}

func (m *model) bounds(of []*counter) (floors []bound, from time.Duration) {
	floors = make([]bound, len(of))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range of {
		floors[i] = bound{c.floor, c.seen, c.by, c.seenBy}
	}
	return floors, time.Since(m.start)
}

// check compares what a read gave with what it may give. own is what the
// reader's own transaction has added. Unless it is sure that the read joined no
// flight, it reports false for one that must be made again; see seen.
func (m *model) check(client int, what string, of []*counter, floors []bound, from time.Duration, values []int64, own int64, sure bool) bool {
	m.reads.Add(1)
	if len(values) != len(of) {
		m.fail("client %d: %s: got %v, want %d values", client, what, values, len(of))
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, c := range of {
		n := values[i] - own
		e := event{client, what, from, time.Since(m.start), values[i], "read"}
		var why string
		switch most := c.begun - c.failed; {
		case n < floors[i].floor:
			why = fmt.Sprintf("is stale: got %d, want %d at least, since\n\t%s", n, floors[i].floor, floors[i].by)
		case n < floors[i].seen && !sure:
			c.note(e)
			return false
		case n < floors[i].seen:
			why = fmt.Sprintf("is stale: got %d, want %d at least, since all of its writers have returned, and\n\t%s", n, floors[i].seen, floors[i].seenBy)
		case n > most:
			why = fmt.Sprintf("was never committed: got %d, want %d at most", n, most)
		}
		if why != "" {
			m.failLocked("%s %d %s\nread by\n\t%v\nbefore that\n\t%s", c.table, c.id, why, e, strings.TrimSpace(c.history()))
			return true
		}
		c.note(e)
		c.saw(n, e.String())
	}
	return true
}

// client does one thing after another.
type client struct {
	*model
	id   int
	rand *rand.Rand
}

func (c *client) one(in int) bool { return c.rand.IntN(in) == 0 }

func (c *client) db() *sql.DB { return c.dbs[c.rand.IntN(len(c.dbs))] }

func (c *client) target() *counter {
	return c.counters[modelTables[c.rand.IntN(len(modelTables))]][c.rand.IntN(modelRows)]
}

// context is that of one operation: now and then of an impatient one.
func (c *client) context() (ctx context.Context, cancel context.CancelFunc, impatient bool) {
	if c.one(8) {
		ctx, cancel = context.WithTimeout(bg, time.Duration(c.rand.IntN(8000))*time.Microsecond)
		return ctx, cancel, true
	}
	ctx, cancel = context.WithTimeout(bg, patience)
	return ctx, cancel, false
}

// excused reports whether an error is one that the model's own doings explain:
// cancelled contexts, connections killed, and deadlocks. A patient caller must
// not hear of the contexts of others.
func excused(err error, impatient bool) bool {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch sqlState(err) {
	case "":
		return impatient || !ended
	case "57014": // query_canceled
		return impatient
	case "57P01", "40P01": // admin_shutdown, deadlock_detected
		return true
	}
	return false
}

// outcomeOf is that of a statement on its own, or of a COMMIT.
func outcomeOf(err error) outcome {
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return committed
	case errors.As(err, &pg) && pg.Severity == "ERROR":
		return failed
	}
	return unknown
}

func (c *client) step() {
	switch n := c.rand.IntN(100); {
	case n < 70:
		c.read(c.target())
	case n < 86:
		c.write()
	case n < 98:
		c.transaction()
	case n < 99:
		c.kill()
	default:
		time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Microsecond)
	}
}

// read reads a counter, perhaps with others.
func (c *client) read(of *counter) {
	ctx, cancel, impatient := c.context()
	defer cancel()
	var text string
	var args []any
	table, counters := of.table, []*counter{of}
	if table == "parent" && c.one(2) {
		table = "child"
	}
	prepared := false
	switch n := c.rand.IntN(10); {
	case n < 4:
		text, args = "SELECT n FROM "+table+" WHERE id = $1", []any{of.id}
		prepared = c.one(2)
	case n < 5:
		text, counters = "SELECT n FROM "+table+" ORDER BY id", c.counters[of.table]
	case n < 8:
		text, counters = "SELECT n FROM "+table+" WHERE "+slowly+" ORDER BY id", c.counters[of.table]
	case of.table == "split":
		table = []string{"split_1", "split_2"}[c.rand.IntN(2)]
		text, counters = "SELECT n FROM "+table+" ORDER BY id", c.counters["split"][:1]
		if table == "split_2" {
			counters = c.counters["split"][1:]
		}
	case of.table == "parent":
		text = "SELECT x.n, y.n FROM parent AS x JOIN a AS y USING (id) WHERE id = $1"
		args, counters = []any{of.id}, []*counter{of, c.counters["a"][of.id-1]}
	default:
		text = "SELECT an, bn FROM both_ab WHERE id = $1"
		args, counters = []any{of.id}, []*counter{c.counters["a"][of.id-1], c.counters["b"][of.id-1]}
	}
	if c.one(20) {
		ctx = coalesce.Fresh(ctx)
	}
	db := c.db()
	for again := true; again && !c.stopped.Load(); again = c.one(2) {
		c.ask(ctx, db, impatient, counters, prepared, text, args...)
	}
}

// ask makes one read and checks what it gives.
func (c *client) ask(ctx context.Context, db *sql.DB, impatient bool, of []*counter, prepared bool, text string, args ...any) {
	floors, _ := c.bounds(of)
	for _, again := range []bool{false, true} {
		from := time.Since(c.start)
		var values []int64
		var err error
		if prepared {
			values, err = c.prepared(ctx, db, text, args)
		} else {
			values, err = numbers(db.QueryContext(ctx, text, args...))
		}
		if err != nil {
			if !excused(err, impatient) {
				c.fail("client %d: %s %v: %v", c.id, text, args, err)
			}
			return
		}
		if c.check(c.id, text, of, floors, from, values, 0, again) {
			return
		}
	}
}

// follow reads counters after a write. If its outcome is unknown, it may come
// about later: that must not go unseen.
func (c *client) follow(of []*counter, how outcome) {
	if how != unknown {
		if c.one(2) {
			c.read(of[0])
		}
		return
	}
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	for _, o := range of {
		text, one := "SELECT n FROM "+o.table+" WHERE id = $1", []*counter{o}
		c.ask(ctx, c.dbs[0], false, one, false, text, o.id)
		for range 3 {
			time.Sleep(time.Duration(c.rand.IntN(4000)) * time.Microsecond)
			c.ask(coalesce.Fresh(ctx), c.dbs[0], false, one, false, text, o.id)
			c.ask(ctx, c.dbs[0], false, one, false, text, o.id)
		}
	}
}

func (c *client) prepared(ctx context.Context, db *sql.DB, text string, args []any) ([]int64, error) {
	st, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	return numbers(st.QueryContext(ctx, args...))
}

// numbers are all the values of a result, row by row.
func numbers(rows *sql.Rows, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	row, dest := make([]int64, len(columns)), make([]any, len(columns))
	for i := range row {
		dest[i] = &row[i]
	}
	var all []int64
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		all = append(all, row...)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// write is one statement that commits on its own.
func (c *client) write() {
	ctx, cancel, impatient := c.context()
	defer cancel()
	of, db := c.target(), c.db()
	counters, table, args := []*counter{of}, of.table, []any{of.id}
	if table == "split" && c.one(2) {
		table = "split_" + fmt.Sprint(min(of.id, 2))
	}
	if table == "a" && c.one(8) {
		table = "only_a" // through the view
	}
	text := "UPDATE " + table + " SET n = n + 1 WHERE id = $1"
	if impatient {
		text += " AND pg_sleep(0.004) IS NOT NULL" // so that its caller often leaves while it runs
	}
	var do func() ([]int64, error)
	look := func() {}
	exec := func() ([]int64, error) { _, err := db.ExecContext(ctx, text, args...); return nil, err }
	query := func() ([]int64, error) { return numbers(db.QueryContext(ctx, text, args...)) }
	switch c.rand.IntN(8) {
	case 0, 1:
		do = exec
	case 2:
		text, do = text+" RETURNING n", query
	case 3:
		text += " RETURNING n"
		do = func() ([]int64, error) { return c.prepared(ctx, db, text, args) }
	case 4:
		do = func() ([]int64, error) {
			st, err := db.PrepareContext(ctx, text)
			if err != nil {
				return nil, err
			}
			defer st.Close()
			_, err = st.ExecContext(ctx, args...)
			return nil, err
		}
	case 5:
		text, args, counters, do = "UPDATE "+of.table+" SET n = n + 1", nil, c.counters[of.table], exec
	case 6:
		other := c.counters["b"][of.id-1]
		if of.table == "b" {
			other = c.counters["a"][of.id-1]
		}
		text = "WITH u AS (UPDATE " + of.table + " SET n = n + 1 WHERE id = $1 RETURNING n), v AS (UPDATE " + other.table +
			" SET n = n + 1 WHERE id = $1 RETURNING n) SELECT u.n, v.n FROM u, v"
		counters, do = []*counter{of, other}, query
	case 7:
		// Its first rows come some milliseconds before it commits. What is read in
		// between must not be held any longer.
		text = "WITH u AS (" + text + " RETURNING n) SELECT u.n FROM u, generate_series(1, 3000) AS i WHERE i < 3000 OR pg_sleep(0.01) IS NOT NULL"
		look = func() {
			// Who has all places may wait for this write.
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			defer cancel()
			c.ask(ctx, db, true, []*counter{of}, false, "SELECT n FROM "+of.table+" WHERE id = $1", of.id)
		}
		do = func() ([]int64, error) {
			rows, err := db.QueryContext(ctx, text, args...)
			if err == nil && rows.Next() {
				look()
			}
			left, err := numbers(rows, err)
			return left[:min(len(left), 1)], err
		}
	}
	w := c.begin(counters)
	left, err := do()
	how := outcomeOf(err)
	if how == committed && len(left) > 0 && ctx.Err() != nil {
		how = unknown // database/sql may have closed the rows before their end
	}
	c.end(c.id, text, w, how, left)
	if err != nil && !excused(err, impatient) {
		c.fail("client %d: %s %v: %v", c.id, text, args, err)
	}
	look()
	c.follow(counters, how)
}

// transaction writes one counter or two, and commits or does not. Its reads
// see what it wrote.
func (c *client) transaction() {
	ctx, cancel, impatient := c.context()
	defer cancel()
	of := []*counter{c.target()}
	if other := c.target(); other.table != of[0].table {
		of = append(of, other)
		if other.table < of[0].table { // in one order, lest they deadlock
			of[0], of[1] = of[1], of[0]
		}
	}
	kind := "transaction"
	byHand := c.one(2)
	if byHand {
		kind = "transaction by hand"
	}
	if c.one(3) {
		err := c.inTransaction(ctx, byHand, func(tx sqlTx) error { return c.dirty(ctx, tx, of, kind+" rolled back") }, false)
		if err != nil && !excused(err, impatient) {
			c.fail("client %d: %s: %v", c.id, kind, err)
		}
		return
	}
	w := c.begin(of)
	sent := false
	err := c.inTransaction(ctx, byHand, func(tx sqlTx) error {
		if err := c.dirty(ctx, tx, of, kind); err != nil {
			return err
		}
		for _, o := range of {
			if _, err := tx.ExecContext(ctx, "UPDATE "+o.table+" SET n = n + $2 WHERE id = $1", o.id, 1-mark); err != nil {
				return err
			}
		}
		sent = true
		return nil
	}, true)
	how := failed
	if sent {
		how = outcomeOf(err)
	}
	c.end(c.id, kind, w, how, nil)
	if err != nil && !excused(err, impatient) {
		c.fail("client %d: %s: %v", c.id, kind, err)
	}
	c.follow(of, how)
}

type sqlTx interface {
	queryer
	execer
}

// dirty adds the mark to counters and looks at them from within.
func (c *client) dirty(ctx context.Context, tx sqlTx, of []*counter, kind string) error {
	for _, o := range of {
		add := "UPDATE " + o.table + " SET n = n + $2 WHERE id = $1"
		look := func(own int64) error {
			text := "SELECT n FROM " + o.table + " WHERE id = $1"
			one := []*counter{o}
			floors, from := c.bounds(one)
			values, err := numbers(tx.QueryContext(ctx, text, o.id))
			if err == nil {
				c.check(c.id, kind+": "+text, one, floors, from, values, own, true)
			}
			return err
		}
		if c.one(4) {
			if err := look(0); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, add, o.id, mark); err != nil {
			return err
		}
		if c.one(3) {
			for _, s := range []string{"SAVEPOINT s", strings.NewReplacer("$1", fmt.Sprint(o.id), "$2", fmt.Sprint(mark)).Replace(add), "ROLLBACK TO s"} {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					return err
				}
			}
		}
		if c.one(2) {
			if err := look(mark); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTransaction begins, does, and ends a transaction. It returns the error of
// COMMIT if it came to that.
func (c *client) inTransaction(ctx context.Context, byHand bool, do func(sqlTx) error, commit bool) error {
	if !byHand {
		tx, err := c.db().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err = do(tx); err != nil || !commit {
			tx.Rollback() // its error is that of the connection, if any
			return err
		}
		return tx.Commit()
	}
	sc, err := c.db().Conn(ctx)
	if err != nil {
		return err
	}
	defer sc.Close()
	if _, err = sc.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	if err = do(sc); err == nil && commit {
		_, err = sc.ExecContext(ctx, "COMMIT")
		return err
	}
	if c.one(2) { // otherwise the pool gets it as it is
		sc.ExecContext(ctx, "ROLLBACK")
	}
	return err
}

// kill ends a server connection of a database under test.
func (c *client) kill() {
	c.kills.Add(1)
	_, err := c.f.plain.ExecContext(bg, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = '`+appName+`' ORDER BY random() LIMIT 1`)
	if err != nil {
		c.fail("pg_terminate_backend: %v", err)
	}
}

// slowDial takes its time, so that what pgx sends to cancel a query often comes
// too late.
func slowDial(ctx context.Context, network, addr string) (net.Conn, error) {
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func TestModelEveryReadSeesTheWritesThatReturnedBeforeIt(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i, places := range []int{0, 3} {
		t.Run(fmt.Sprintf("max-conns-%d", places), func(t *testing.T) { runModel(t, seed+uint64(i), places) })
		if t.Failed() {
			t.Logf("again: go test -run Model -model.seed %d -model.steps %d .", seed, *modelSteps)
			return
		}
	}
}

// runModel runs half of what the flags say.
func runModel(t *testing.T, seed uint64, places int) {
	leakCheck(t)
	f := newFixture(t, setup{config: coalesce.Config{MaxConns: places}, pgx: func(cfg *pgx.ConnConfig) {
		cfg.Tracer = nil // it remembers every query
		cfg.DialFunc = slowDial
	}})
	second := openCoalesce(t, f.dsn, "application_name="+appName, fmt.Sprintf("coalesce_max_conns=%d", places))
	m := &model{f: f, dbs: []*sql.DB{f.db, second}, start: time.Now(), counters: make(map[string][]*counter)}
	f.by(modelSchema...)
	for _, table := range append(modelTables, "child") {
		f.by(fmt.Sprintf("INSERT INTO %s SELECT i, 0 FROM generate_series(1, %d) AS i", table, modelRows))
	}
	for _, table := range modelTables {
		for id := range modelRows {
			m.counters[table] = append(m.counters[table], &counter{table: table, id: id + 1, by: "it began so", running: make(map[*modelWrite]struct{})})
		}
	}
	perClient, end := *modelSteps/2/modelClients, time.Now().Add(*modelDuration/2)
	var wg sync.WaitGroup
	for id := range modelClients {
		c := &client{model: m, id: id, rand: rand.New(rand.NewPCG(seed, uint64(id)))}
		wg.Go(func() {
			for i := 0; !m.stopped.Load() && (*modelDuration > 0 && time.Now().Before(end) || *modelDuration == 0 && i < perClient); i++ {
				c.step()
				m.steps.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(m.start)
	t.Logf("seed %d: %d steps in %v: %d reads, writes: %d committed, %d failed, %d unknown; %d kills; %+v", seed, m.steps.Load(), took.Round(time.Millisecond),
		m.reads.Load(), m.commits.Load(), m.failures.Load(), m.unknown.Load(), m.kills.Load(), f.stats())
	if m.wrong != "" {
		t.Fatalf("seed %d, step %d, after %v: %s", seed, m.steps.Load(), took, m.wrong)
	}
	// What the writes said is what the server has.
	for _, table := range modelTables {
		for _, q := range []queryer{f.plain, f.db, second} {
			text := "SELECT n FROM " + table + " ORDER BY id"
			floors, from := m.bounds(m.counters[table])
			values, err := numbers(q.QueryContext(bg, text))
			// Of a connection killed in the last steps its next user hears, once.
			for kills := m.kills.Load(); kills > 0 && err != nil && excused(err, false); kills-- {
				values, err = numbers(q.QueryContext(bg, text))
			}
			if err != nil {
				t.Fatal(err)
			}
			m.check(modelClients, text, m.counters[table], floors, from, values, 0, true)
		}
	}
	if m.wrong != "" {
		t.Fatalf("seed %d, at the end: %s", seed, m.wrong)
	}
	f.quiet()
	until(t, func() bool { return second.Stats().InUse == 0 }, says("nothing is in use of the second database"))
}
