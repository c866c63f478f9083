package faults

import (
	"context"
	"crypto/md5"
	"database/sql"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

var (
	soakDuration = flag.Duration("soak.duration", time.Minute, "how long the soak runs")
	soakSeed     = flag.Uint64("soak.seed", 0, "what the soak's choices follow from; 0: the clock")
)

const (
	soakKeys  = 20
	soakParts = 40 // rows of one key
)

// A key is rows that carry the same counter, and each a checksum of it: an
// answer that is short, or put together of two, shows.
const soakTables = `
CREATE TABLE ledger (k int, part int, counter bigint, sum text, PRIMARY KEY (k, part));
INSERT INTO ledger SELECT k, part, 0, repeat(md5(concat_ws(':', k, part, 0)), 8) FROM generate_series(1, 20) k, generate_series(1, 40) part;
CREATE FUNCTION advance(bigint, bigint) RETURNS bigint LANGUAGE sql VOLATILE AS
	$$ UPDATE ledger SET counter = $2, sum = repeat(md5(concat_ws(':', k, part, $2)), 8) WHERE k = $1 AND counter < $2; SELECT $2 $$;
ALTER TABLE ledger OWNER TO app`

const (
	soakRead = "SELECT part, counter, sum FROM ledger WHERE k = $1::bigint ORDER BY part"
	// A write whose answer was lost may come late, and shall undo no other.
	soakWrite = `UPDATE ledger SET counter = $2::bigint, sum = repeat(md5(concat_ws(':', k, part, $2::bigint)), 8)
		WHERE k = $1::bigint AND counter < $2::bigint`
)

// key is the truth about one key.
type key struct {
	k       int
	writing sync.Mutex // held by its one writer

	mu     sync.Mutex // guards all below
	newest int64      // that a write was begun with
	acked  int64      // the newest whose write returned without an error
	// unseen are those that nobody else may see: of transactions that were
	// rolled back, or that are open still.
	unseen map[int64]bool
}

// soak is a load whose every answer is compared with the truth.
type soak struct {
	testing.TB
	w        *world
	dbs      []*sql.DB
	prepared bool // statements may be prepared
	calm     bool // nothing goes wrong: no error but that of a caller's own context
	keys     [soakKeys]*key

	reads, writes, errs, faults, wrong atomic.Int64
}

func newSoak(t testing.TB, w *world, dbs ...*sql.DB) *soak {
	s := &soak{TB: t, w: w, dbs: dbs}
	for i := range s.keys {
		s.keys[i] = &key{k: i + 1, unseen: make(map[int64]bool)}
	}
	return s
}

// mismatch is an answer that cannot be.
func (s *soak) mismatch(format string, args ...any) {
	s.Helper()
	if s.wrong.Add(1) <= 10 {
		s.Errorf(format, args...)
	}
}

// work makes reads and writes while more says so.
func (s *soak) work(r *rand.Rand, more func() bool) {
	for more() {
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		if r.IntN(10) == 0 {
			cancel()
			ctx, cancel = context.WithTimeout(bg, time.Duration(r.IntN(15_000))*time.Microsecond)
		}
		var err error
		db, key := s.dbs[r.IntN(len(s.dbs))], s.keys[r.IntN(soakKeys)]
		if r.IntN(40) == 0 {
			err = s.write(ctx, r, db, key)
		} else {
			err = s.read(ctx, r, db, key)
		}
		end, _ := ctx.Deadline()
		late := time.Since(end)
		cancel()
		if late > patience {
			s.mismatch("a caller hung beyond its context: %v", err)
		}
		if err == nil {
			continue
		}
		s.errs.Add(1)
		if errors.Is(err, coalesce.ErrClosed) || strings.Contains(err.Error(), "too big") {
			s.mismatch("an error that no caller should see: %v", err)
		}
		if s.calm && late < 0 {
			s.mismatch("an error without a cause: %v", err)
		}
	}
}

// querier is what reads: a database, a connection, a transaction.
type querier interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}

func (s *soak) read(ctx context.Context, r *rand.Rand, db *sql.DB, key *key) error {
	s.reads.Add(1)
	var q querier = db
	few := 0 // rows after which the caller has seen enough; 0: all
	switch n := r.IntN(16); {
	case n == 0:
		ctx = coalesce.Fresh(ctx)
	case n == 1:
		ctx = coalesce.TTL(ctx, 5*time.Millisecond)
	case n == 2:
		few = 1 + r.IntN(soakParts)
	case n == 3:
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		q = c
	case n == 4 && s.prepared:
		st, err := db.PrepareContext(ctx, soakRead)
		if err != nil {
			return err
		}
		defer st.Close()
		q = stmt{st}
	}
	key.mu.Lock()
	floor := key.acked
	key.mu.Unlock()
	counter, n, err := s.rows(ctx, q, key.k, few)
	key.mu.Lock()
	defer key.mu.Unlock()
	switch {
	case n == 0:
	case counter < floor:
		s.mismatch("key %d: read %d after the write of %d had returned (%d rows, %v)", key.k, counter, floor, n, err)
	case counter > key.newest:
		s.mismatch("key %d: read %d, which nobody wrote; the newest is %d", key.k, counter, key.newest)
	case key.unseen[counter]:
		s.mismatch("key %d: read %d, which was not committed", key.k, counter)
	}
	return err
}

type stmt struct{ *sql.Stmt }

func (s stmt) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return s.Stmt.QueryContext(ctx, args...)
}

// rows reads a key, checks each row, and returns their counter and number.
func (s *soak) rows(ctx context.Context, q querier, k, few int) (counter int64, n int, err error) {
	rows, err := q.QueryContext(ctx, soakRead, k)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var part int
		var c int64
		var sum string
		if err := rows.Scan(&part, &c, &sum); err != nil {
			return counter, n, err
		}
		if n++; n == 1 {
			counter = c
		}
		if part != n || c != counter || sum != checksum(k, part, c) {
			s.mismatch("key %d: row %d is of part %d with counter %d, sum %.8s…; the first has %d", k, n, part, c, sum, counter)
		}
		if n == few {
			return counter, n, nil
		}
	}
	if err := rows.Err(); err != nil {
		return counter, n, err
	}
	if n != soakParts {
		s.mismatch("key %d: an answer of %d rows, without an error", k, n)
	}
	return counter, n, nil
}

func checksum(k, part int, counter int64) string {
	sum := md5.Sum(fmt.Appendf(nil, "%d:%d:%d", k, part, counter))
	return strings.Repeat(hex.EncodeToString(sum[:]), 8)
}

func (s *soak) write(ctx context.Context, r *rand.Rand, db *sql.DB, key *key) (err error) {
	s.writes.Add(1)
	key.writing.Lock()
	defer key.writing.Unlock()
	key.mu.Lock()
	key.newest++
	v := key.newest
	key.unseen[v] = true
	key.mu.Unlock()
	// sent says that from now on the value may be seen.
	sent := func() {
		key.mu.Lock()
		delete(key.unseen, v)
		key.mu.Unlock()
	}
	committed := true
	switch r.IntN(6) {
	case 0:
		committed, err = s.transaction(ctx, r, db, key.k, v, sent)
	case 1:
		committed, err = s.byHand(ctx, r, db, key.k, v, sent)
	case 2:
		sent()
		err = db.QueryRowContext(ctx, "SELECT advance($1::bigint, $2::bigint)", key.k, v).Scan(new(int64))
	case 3:
		sent()
		err = db.QueryRowContext(ctx, "WITH w AS ("+soakWrite+" RETURNING 1) SELECT count(*) FROM w", key.k, v).Scan(new(int64))
	case 4:
		if s.prepared {
			var st *sql.Stmt
			if st, err = db.PrepareContext(ctx, soakWrite); err == nil {
				sent()
				_, err = st.ExecContext(ctx, key.k, v)
				st.Close()
			}
			break
		}
		fallthrough
	default:
		sent()
		_, err = db.ExecContext(ctx, soakWrite, key.k, v)
	}
	if err == nil && committed {
		key.mu.Lock()
		key.acked = v
		key.mu.Unlock()
	}
	return err
}

func (s *soak) transaction(ctx context.Context, r *rand.Rand, db *sql.DB, k int, v int64, sent func()) (committed bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, soakWrite, k, v); err != nil {
		return false, err
	}
	if err := s.ownRead(ctx, tx, k, v); err != nil || r.IntN(3) == 0 {
		return false, err
	}
	sent()
	return true, tx.Commit()
}

func (s *soak) byHand(ctx context.Context, r *rand.Rand, db *sql.DB, k int, v int64, sent func()) (committed bool, err error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return false, err
	}
	if _, err := c.ExecContext(ctx, soakWrite, k, v); err != nil {
		return false, err
	}
	if err := s.ownRead(ctx, c, k, v); err != nil {
		return false, err
	}
	end := "ROLLBACK"
	if committed = r.IntN(3) > 0; committed {
		end = "COMMIT"
		sent()
	}
	_, err = c.ExecContext(ctx, end)
	return committed, err
}

// ownRead reads what the transaction has just written.
func (s *soak) ownRead(ctx context.Context, q querier, k int, v int64) error {
	counter, n, err := s.rows(ctx, q, k, 0)
	if n > 0 && counter != v {
		s.mismatch("key %d: a transaction wrote %d and reads %d", k, v, counter)
	}
	return err
}

// settled compares, when nobody writes any more, what each way to read gives
// with what the server has.
func (s *soak) settled() {
	bounded, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	for _, key := range s.keys {
		have := ask[int64](s, s.w, "SELECT min(counter) FROM ledger WHERE k = $1", key.k)
		if have < key.acked || have > key.newest || key.unseen[have] {
			s.mismatch("key %d: the server has %d; acknowledged %d, newest %d", key.k, have, key.acked, key.newest)
		}
		for _, db := range s.dbs {
			for _, ctx := range []context.Context{bounded, bounded, coalesce.Fresh(bounded)} {
				if counter, _, err := s.rows(ctx, db, key.k, 0); err != nil || counter != have {
					s.mismatch("key %d, at the end: %d, %v; the server has %d", key.k, counter, err, have)
				}
			}
		}
	}
}

// trouble brings faults about while more says so.
func (s *soak) trouble(r *rand.Rand, more func() bool) {
	p := s.w.proxy
	a := func(fates ...fate) fate { return fates[r.IntN(len(fates))] }
	pause := func(most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
	signal := func(function string) {
		s.w.root.Exec("SELECT "+function+"(pid) FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 1", appName)
	}
	restarted := time.Now()
	for more() {
		pause(100 * time.Millisecond)
		if s.faults.Add(1)%20 == 0 {
			pause(4 * time.Second) // without faults, results are held
		}
		switch n := r.IntN(100); {
		case n < 30:
			p.turnOne(r, a(reset, closed))
		case n < 50:
			signal("pg_terminate_backend")
		case n < 60:
			signal("pg_cancel_backend")
		case n < 70:
			p.turnOne(r, held)
			pause(200 * time.Millisecond)
			p.turn(a(passing, reset), held)
		case n < 80:
			p.turnOne(r, lost)
			pause(200 * time.Millisecond)
			p.turn(reset, lost)
		case n < 95:
			p.trapAfter(1 + r.IntN(30<<10))
			pause(50 * time.Millisecond)
			p.disarm()
			p.turn(a(passing, closed, reset), held)
		case n < 97:
			p.all(a(reset, closed))
		case n < 98:
			// DDL, after which the catalog is read anew
			ctx, cancel := context.WithTimeout(bg, time.Second)
			s.dbs[0].ExecContext(ctx, "COMMENT ON TABLE ledger IS 'of the soak'")
			cancel()
		default:
			if time.Since(restarted) > 15*time.Second {
				must(s, s.w.server.Restart())
				restarted = time.Now()
			}
		}
	}
}

func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak.seed %d", seed)
	w := newWorld(t, pgtest.Options{MaxConnections: 60})
	w.do(t, soakTables)
	w.admit(t, "host all app 127.0.0.1/32 trust") // the time is for better things than passwords
	heap := heapInUse()
	w.leavesNothing(t)

	bounded, err := sql.Open("coalesce-pgx", w.dsn("coalesce_max_conns=8"))
	must(t, err)
	short, err := sql.Open("coalesce-pgx", w.dsn("coalesce_ttl=100ms"))
	must(t, err)
	short.SetMaxOpenConns(24)
	s := newSoak(t, w, bounded, short)
	s.prepared = true

	end := time.Now().Add(*soakDuration)
	more := func() bool { return time.Now().Before(end) && !t.Failed() }
	var wg sync.WaitGroup
	for i := range uint64(64) {
		wg.Go(func() { s.work(rand.New(rand.NewPCG(seed, i)), more) })
	}
	s.trouble(rand.New(rand.NewPCG(seed, 1000)), more)
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	receive(t, ended)

	// What was cut off may be at the server still, and commit.
	w.proxy.all(reset)
	until(t, "the server is done with what was cut off", func() bool { return w.backends(t) == 0 })
	for _, db := range s.dbs {
		db.SetMaxIdleConns(0) // forgets the connections that were cut
		db.SetMaxIdleConns(2)
	}
	s.settled()
	var sum coalesce.Stats
	for _, db := range s.dbs {
		st := coalesce.StatsOf(db)
		sum.Reads, sum.Held, sum.Joined, sum.Led, sum.Private = sum.Reads+st.Reads, sum.Held+st.Held, sum.Joined+st.Joined, sum.Led+st.Led, sum.Private+st.Private
		must(t, db.Close())
	}
	fmt.Printf("soak: seed %d: %d reads (%d held, %d joined, %d led, %d private), %d writes, %d errors, %d faults, %d mismatches\n",
		seed, sum.Reads, sum.Held, sum.Joined, sum.Led, sum.Private, s.writes.Load(), s.errs.Load(), s.faults.Load(), s.wrong.Load())
	s = nil
	if grown := int64(heapInUse()) - int64(heap); grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
