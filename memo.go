package coalesce

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrClosed is returned to callers whose read was under way when their
// database was closed.
var ErrClosed = errors.New("coalesce: database is closed")

// errReaderFailed reaches the waiters of a flight whose leader's own code
// panicked or ended its goroutine; the leader gets the panic itself.
var errReaderFailed = errors.New("coalesce: the shared read was abandoned: code called by it panicked or called runtime.Goexit")

const (
	// maxBigTexts bounds how many texts are remembered as too big to share.
	maxBigTexts = 1024
	bigTextHold = 30 * time.Second
	// growStep is the least that a flight takes from the budget at a time; it
	// takes as much again as it has, so that draining seldom needs the lock.
	growStep = 1 << 10
	// moveGap is how long a use of a held result counts as recent: to note each
	// would touch the memory of three others.
	moveGap = time.Second
	// joinAge is how old a flight gets for others to join it: one that takes
	// longer may wait for a connection that was lost without a word.
	joinAge = 10 * time.Second
	// quietTime bounds the driver's own reads, which nobody need wait for.
	quietTime = time.Minute
	// entryBytes is what a held result costs beside its values and its key.
	entryBytes = 304
	// smallShare of the budget is for results that are not large: they shall be
	// shared also while callers who do not read on keep all the rest.
	smallShare = 8 // one part in so many
)

// textID names a text, whatever its arguments.
type textID = [32]byte

// memo holds the flights under way and the results that outlive them. It
// knows keys, versions, sizes and times; what a read is, it leaves to attempts.
//
// Nothing slow happens under mu: no I/O, no user code, no copying of rows.
type memo struct {
	maxBytes  int64     // immutable
	maxResult int64     // immutable
	start     time.Time // immutable
	wg        sync.WaitGroup

	mu      sync.Mutex // guards all below
	flights map[string]*flight
	held    map[string]*entry
	lru     entry                    // the ring of the held: next is the most recently used, prev the least
	used    int64                    // bytes of held results, their keys, flights under way, and charges
	big     map[textID]time.Duration // until when
	// running are the flights under way. It has more than flights when writes
	// have overtaken some: those still run for the callers they have.
	running map[*flight]struct{}
	closed  bool
	count   counters
}

// entry is a held result. Its fields are immutable, but for those of the ring.
type entry struct {
	prev, next *entry        // guarded by memo.mu
	moved      time.Duration // when it came to the front; guarded by memo.mu

	key      string
	res      *result
	clock    clock
	version  uint64
	resolved time.Duration // on the memo's clock
	ttl      time.Duration
	size     int64
}

// flight is one read under way and the callers who want its answer.
type flight struct {
	m       *memo
	key     string
	text    textID
	clock   clock
	version uint64 // what clock said before the query was sent
	begun   time.Duration
	quiet   bool // of the driver's own: it is in no statistics and has no limit
	ctx     context.Context
	cancel  context.CancelCauseFunc
	crew    crew // the server connection of the flight; memo does not touch it

	// led is closed once the leader's outcome is known, done once the
	// waiters' is. leaderOut and out are written before that and not after.
	// done is made, under m.mu, when the first waiter joins.
	led, done      chan struct{}
	leaderOut, out attempt

	size int64 // bytes drained so far; touched by the flight's goroutine only

	// guarded by m.mu
	callers   int // who still waits, the leader included
	leaderIn  bool
	goesOn    bool // though nobody waits: the next caller will need it as well
	settled   bool // out is decided: nobody can leave any more
	ledClosed bool
	older     *flight       // of the same key, begun before and not joined, perhaps not over
	ttl       time.Duration // longest hold any caller asked for
	taken     int64         // bytes taken from the budget
}

// clock tells the version of what a read depends on. It never goes back, and
// is higher after every write that may change the answer.
type clock interface {
	version() uint64
	// comparable reports whether versions of the other clock can be compared
	// with those of this one: both depend on the same.
	comparable(other clock) bool
	// settled reports whether an answer got now may be held: no write is under
	// way that nobody waits for and that may still raise the version. One that
	// lags comes from a server that gets to know of writes later.
	settled(lags bool) bool
}

// attempt is how one try of a read ended.
type attempt struct {
	res *result // drained to its end, or to its error
	err error   // the read failed before its first row
	// stream is set instead of res when the result outgrew its limit: what was
	// drained and the rest of it, for one reader.
	stream *stream
	// unsent: nothing reached the server. lost: the connection died under way.
	unsent, lost bool
	undialled    bool // there was no connection to make it on
	lags         bool // it was made on a standby, or in a session that began with older settings
	// value is set instead of res by the driver's own reads.
	value any

	panicked any // value of a panic in code called by the read
	goexit   bool
}

// failed reports whether nothing of the attempt may be held.
func (a *attempt) failed() bool {
	return a.err != nil || a.res == nil && a.value == nil || a.res != nil && a.res.err != nil
}

type entered uint8

const (
	enteredHeld   entered = iota // a held result answers
	enteredJoined                // a flight under way will answer
	enteredLed                   // the caller must run the flight
	enteredAlone                 // not to be shared: too big lately, or closed
)

func newMemo(maxBytes, maxResult int64) *memo {
	m := &memo{
		maxBytes: maxBytes, maxResult: min(maxResult, maxBytes-maxBytes/smallShare), start: time.Now(),
		flights: make(map[string]*flight),
		running: make(map[*flight]struct{}),
		held:    make(map[string]*entry),
		big:     make(map[textID]time.Duration),
		count:   counters{private: make(map[string]uint64)},
	}
	m.lru.prev, m.lru.next = &m.lru, &m.lru
	return m
}

// toFrontLocked puts e, which is in the ring or new, at its front.
func (m *memo) toFrontLocked(e *entry, now time.Duration) {
	e.out()
	e.moved = now
	e.prev, e.next = &m.lru, m.lru.next
	e.prev.next, e.next.prev = e, e
}

// out takes e out of the ring, if it is in.
func (e *entry) out() {
	if e.next != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
	}
}

// oldestLocked returns the least recently used of the held, or nil.
func (m *memo) oldestLocked() *entry {
	if e := m.lru.prev; e != &m.lru {
		return e
	}
	return nil
}

// now is the time since the memo was made. The monotonic clock alone costs half
// of what time.Now does.
func (m *memo) now() time.Duration { return time.Since(m.start) }

// enter looks key up for a caller that wants its result held for ttl, 0 for
// not at all. A caller told enteredLed must call run or lead; one told enteredJoined
// must call wait.
func (m *memo) enter(ctx context.Context, key []byte, text *textID, ttl time.Duration, c clock, now time.Duration) (entered, *result, *flight) {
	// Read before the query: a write that returned before this call is in it.
	version := c.version()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.countPrivateLocked(CauseClosed)
		return enteredAlone, nil, nil
	}
	if ttl > 0 {
		if e, ok := m.held[string(key)]; ok {
			age := now - e.resolved
			switch {
			case e.version < version || !c.comparable(e.clock):
				m.count.invalidated++
				m.dropLocked(e)
			case age >= e.ttl:
				m.dropLocked(e)
			case age < ttl:
				if now-e.moved >= moveGap {
					m.toFrontLocked(e, now)
				}
				m.count.held++
				if e.size > largeBytes { // the memory of a small one need not be touched here
					m.chargeLocked(e.res, 1)
				}
				return enteredHeld, e.res, nil
			}
		}
	}
	if f := m.joinLocked(key, c, version, ttl, now); f != nil {
		m.count.joined++
		return enteredJoined, nil, f
	}
	if until, ok := m.big[*text]; ok {
		if now < until {
			m.countPrivateLocked(CauseTooBig)
			return enteredAlone, nil, nil
		}
		delete(m.big, *text)
	}
	m.count.led++
	return enteredLed, nil, m.startLocked(ctx, &flight{key: string(key), text: *text, clock: c, version: version, begun: now, ttl: ttl})
}

// enterQuietly is enter for a read of the driver's own, which is not held. A
// caller that shall not lead is told enteredAlone if there is nothing to join.
func (m *memo) enterQuietly(ctx context.Context, key []byte, c clock, lead bool) (entered, *flight) {
	version, now := c.version(), m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return enteredAlone, nil
	}
	if f := m.joinLocked(key, c, version, 0, now); f != nil {
		return enteredJoined, f
	}
	if !lead {
		return enteredAlone, nil
	}
	return enteredLed, m.startLocked(ctx, &flight{key: string(key), clock: c, version: version, begun: now, quiet: true})
}

// joinLocked adds a caller to the flight under way, if there is one that no
// write has overtaken and that is not too old.
func (m *memo) joinLocked(key []byte, c clock, version uint64, ttl, now time.Duration) *flight {
	f, ok := m.flights[string(key)]
	if !ok || f.version < version || !c.comparable(f.clock) || now-f.begun >= joinAge {
		return nil
	}
	if f.done == nil {
		f.done = make(chan struct{})
	}
	f.callers++
	f.ttl = max(f.ttl, ttl)
	return f
}

func (m *memo) startLocked(ctx context.Context, f *flight) *flight {
	f.m = m
	f.led = make(chan struct{})
	f.callers, f.leaderIn = 1, true
	// The leader's values, for tracing, but not its end.
	f.ctx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if f.quiet {
		stop := time.AfterFunc(quietTime, func() { f.cancel(context.DeadlineExceeded) })
		context.AfterFunc(f.ctx, func() { stop.Stop() })
	}
	for f.older = m.flights[f.key]; f.older != nil && f.older.settled; {
		f.older = f.older.older
	}
	m.flights[f.key] = f
	m.running[f] = struct{}{}
	m.wg.Add(1)
	return f
}

// run makes the attempts of a flight and tells everybody how they ended. It
// runs on a goroutine of its own, so that the leader can leave at any time.
func (f *flight) run(try func(context.Context) attempt) {
	growStack(0)
	if f.attempt(try, true) {
		f.attempt(try, false)
	}
}

// growStack makes the stack of a new goroutine as large as a query needs, while
// there is nothing on it: growing on the way, it would be copied three times,
// a twentieth of the time that a short query takes.
//
//go:noinline
func growStack(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// lead is run for a leader that cannot leave: it returns with the leader's
// outcome, and what the others still need goes on without it.
func (f *flight) lead(try func(context.Context) attempt) {
	if f.attempt(try, true) {
		go f.attempt(try, false) // ends with the flight
	}
}

// attempt makes the first attempts of a flight, or the last. It reports whether
// the leader has its error and the read must be made again for the others.
func (f *flight) attempt(try func(context.Context) attempt, first bool) (again bool) {
	var a attempt
	finished := false
	defer func() {
		if again {
			return
		}
		defer f.m.wg.Done()
		if !finished {
			a = attempt{err: errReaderFailed, panicked: recover()}
			a.goexit = a.panicked == nil
			f.settle(a)
		}
		if a.stream == nil { // whose query is still running
			f.cancel(nil)
		}
	}()
	a = try(f.ctx)
	if first && a.unsent {
		a = try(f.ctx)
	}
	if first && a.lost && f.passOn(a) {
		return true
	}
	finished = true
	f.settle(a)
	return false
}

// goOn lets f go on when nobody waits for it any more.
func (f *flight) goOn() {
	f.m.mu.Lock()
	f.goesOn = true
	f.m.mu.Unlock()
}

// passOn gives the leader, whose connection died under it, its error, and
// reports whether a waiter is left for whom the read must be made again.
func (f *flight) passOn(a attempt) bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	// What the attempt had drained is the leader's alone.
	f.giveBackLocked()
	if f.leaderIn {
		f.leaderIn = false
		f.callers--
		f.countLocked(&f.m.count.errors)
		f.m.chargeLocked(a.res, 1)
		f.closeLedLocked(a)
	}
	if f.callers == 0 {
		f.forgetLocked()
		return false
	}
	return true
}

// settle decides the outcome of the flight: it is forgotten, and its result
// held if it may be, before anyone is woken.
func (f *flight) settle(a attempt) {
	m := f.m
	// The caller's own clock for the hold starts when the result resolves.
	now := m.now()
	if cause := context.Cause(f.ctx); errors.Is(cause, ErrClosed) && a.failed() && a.stream == nil {
		a = attempt{err: ErrClosed}
	}
	m.mu.Lock()
	answered := f.settled
	f.settled = true
	f.forgetLocked()
	outgrown := f.size > m.maxResult
	if a.stream != nil {
		f.chargeStreamLocked(a.stream)
	}
	f.giveBackLocked()
	delete(m.running, f)
	if answered {
		f.older = nil
		m.mu.Unlock()
		if a.stream != nil {
			a.stream.discard()
		}
		return
	}
	if !a.failed() {
		for old := f.older; old != nil; old = old.older {
			if now-old.begun >= joinAge {
				old.answerLocked(a)
			}
		}
		f.older = nil
	}
	m.chargeLocked(a.res, f.callers)
	waiters := a
	if a.stream != nil {
		m.count.tooBig++
		if outgrown { // rather than having met a full memo
			m.rememberBigLocked(f.text, now)
		}
		waiters = attempt{err: errTooBig}
		released := f.callers
		if f.leaderIn {
			released--
		}
		m.count.joined -= uint64(released)
		if released > 0 {
			m.count.private[CauseTooBig] += uint64(released)
		}
	} else if a.failed() {
		if f.callers > 0 {
			f.countLocked(&m.count.errors)
		}
	} else if f.ttl > 0 && f.callers > 0 && f.clock.settled(a.lags) && f.clock.version() == f.version {
		m.holdLocked(f, a.res, now)
	}
	abandoned := a.stream != nil && !f.leaderIn
	if f.leaderIn {
		f.closeLedLocked(a)
	}
	f.out = waiters
	if f.done != nil {
		close(f.done)
	}
	m.mu.Unlock()
	if abandoned {
		a.stream.discard()
	}
}

// answerLocked gives the callers of f, if they still wait, the outcome of a
// flight that began after all of them had come, and ends f.
func (f *flight) answerLocked(a attempt) {
	if f.settled {
		return
	}
	f.settled = true
	f.m.chargeLocked(a.res, f.callers)
	if f.leaderIn {
		f.leaderIn = false
		f.closeLedLocked(a)
	}
	f.callers = 0
	f.out = a
	if f.done != nil {
		close(f.done)
	}
	f.cancel(context.Canceled)
}

func (f *flight) closeLedLocked(a attempt) {
	if !f.ledClosed {
		f.ledClosed = true
		f.leaderOut = a
		close(f.led)
	}
}

// countLocked adds one to a counter, unless the flight is the driver's own.
func (f *flight) countLocked(n *uint64) {
	if !f.quiet {
		*n++
	}
}

// forgetLocked lets nobody join f any more. An older one that is still under
// way stays known to those who come.
func (f *flight) forgetLocked() {
	if f.m.flights[f.key] != f {
		return
	}
	delete(f.m.flights, f.key)
	for old := f.older; old != nil; old = old.older {
		if !old.settled && old.callers > 0 {
			f.m.flights[f.key] = old
			return
		}
	}
}

func (f *flight) giveBackLocked() {
	f.m.used -= f.taken
	f.taken, f.size = 0, 0
}

// errTooBig tells a waiter to run the read itself; no caller sees it.
var errTooBig = errors.New("coalesce: result too big to share")

// wait returns how the flight ended, or the context's error if that ends
// first. The outcome of a led flight is the leader's.
func (f *flight) wait(ctx context.Context, leader bool) (attempt, error) {
	ready := f.led
	if !leader {
		ready = f.done
	}
	select {
	case <-ready:
	case <-ctx.Done():
		if f.leave(leader) {
			return attempt{}, ctx.Err()
		}
		<-ready
	}
	if !leader {
		if f.out.panicked != nil || f.out.goexit {
			return attempt{err: errReaderFailed}, nil
		}
		return f.out, nil
	}
	if f.leaderOut.panicked != nil {
		panic(f.leaderOut.panicked)
	}
	if f.leaderOut.goexit {
		runtime.Goexit()
	}
	return f.leaderOut, nil
}

// leave takes a caller out of the flight and reports whether it was still in.
// The query is cancelled when nobody is left, unless it goes on; from then on
// nobody can join.
func (f *flight) leave(leader bool) bool {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.settled || leader && !f.leaderIn {
		return false
	}
	if leader {
		f.leaderIn = false
	}
	f.callers--
	f.countLocked(&m.count.cancelled)
	if f.callers == 0 && !f.goesOn {
		f.forgetLocked()
		f.cancel(context.Canceled)
	}
	return true
}

// grow accounts for n more bytes drained. It reports false when the result
// has outgrown its own limit or the memo's.
func (f *flight) grow(n int64) bool {
	f.size += n
	if f.size > f.m.maxResult {
		return false
	}
	if f.size <= f.taken {
		return true
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	need := f.size - f.taken
	return f.takeLocked(max(growStep, f.taken, need)) || f.takeLocked(need)
}

// takeLocked takes n bytes from the budget, if it has them.
func (f *flight) takeLocked(n int64) bool {
	limit := f.m.maxBytes
	if f.taken+n > largeBytes {
		limit -= limit / smallShare
	}
	if !f.m.makeRoomLocked(n, limit) {
		return false
	}
	f.m.used += n
	f.taken += n
	return true
}

// makeRoomLocked drops what is held until n more bytes are within limit. It
// reports false if that would not be enough.
func (m *memo) makeRoomLocked(n, limit int64) bool {
	for m.used+n > limit {
		if m.used-m.count.stored+n > limit {
			return false
		}
		m.count.evicted++
		m.dropLocked(m.oldestLocked())
	}
	return true
}

func (m *memo) dropLocked(e *entry) {
	e.out()
	delete(m.held, e.key)
	m.count.stored -= e.size
	if c := e.res.charge; c != nil {
		c.dropLocked(m)
	} else {
		m.used -= e.size
	}
}

func (m *memo) holdLocked(f *flight, res *result, now time.Duration) {
	if m.closed {
		return
	}
	if e, ok := m.held[f.key]; ok {
		m.dropLocked(e)
	}
	// Results past their time, if nobody asks for them again, end here.
	for e := m.oldestLocked(); e != nil && now-e.resolved >= e.ttl; e = m.oldestLocked() {
		m.dropLocked(e)
	}
	e := &entry{
		key: f.key, res: res, clock: f.clock, version: f.version, resolved: now, ttl: f.ttl,
		size: res.bytes + int64(len(f.key)) + entryBytes,
	}
	more := e.size
	if res.charge != nil { // with what its callers read
		more -= res.bytes
	}
	if !m.makeRoomLocked(more, m.maxBytes) {
		return
	}
	if c := res.charge; c != nil {
		c.bytes += more
		c.users++
	}
	m.used += more
	m.count.stored += e.size
	m.held[f.key] = e
	m.toFrontLocked(e, now)
}

func (m *memo) dropAllLocked() {
	m.count.invalidated += uint64(len(m.held))
	for _, e := range m.held {
		m.dropLocked(e)
	}
}

func (m *memo) rememberBigLocked(text textID, now time.Duration) {
	if len(m.big) >= maxBigTexts {
		clear(m.big)
	}
	m.big[text] = now + bigTextHold
}

// forgetBig lets reads of a text be shared again.
func (m *memo) forgetBig(text textID) {
	m.mu.Lock()
	delete(m.big, text)
	m.mu.Unlock()
}

func (m *memo) countPrivateLocked(cause string) { m.count.private[cause]++ }

// countPrivate records a read that ran on its own.
func (m *memo) countPrivate(cause string) {
	m.mu.Lock()
	m.countPrivateLocked(cause)
	m.mu.Unlock()
}

// close ends every flight, drops every held result and returns when no
// goroutine of the memo is left.
func (m *memo) close() {
	m.mu.Lock()
	m.closed = true
	m.dropAllLocked()
	for f := range m.running {
		f.cancel(ErrClosed)
	}
	m.mu.Unlock()
	m.wg.Wait()
}
