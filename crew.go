package coalesce

import (
	"context"
	"sync"
	"time"
)

// crew is the callers of a flight as owners of server connections. The flight
// runs on the link of one of them, its owner, or on one dialled for it. When
// it ends the owner has the link back; if the owner has left by then, a caller
// without a link gets it, and the last to leave closes what nobody took.
type crew struct {
	mu      sync.Mutex
	members int
	leader  *conn
	owner   *conn
	link    *link // what the flight runs on, while it is not running
	// lenders have an idle link of their own. It is borrowed when the flight
	// needs one: else it would dial while its own callers have connections that
	// they do not use, and hold, perhaps, all the places it waits for.
	lenders map[*conn]struct{}
	lent    chan *link // has room for one, sent to while seeking is set
	seeking bool
	// foreign: what the flight runs on came from no member.
	foreign bool
	// promised: link is counted in Connector.lendable until its owner has it.
	promised bool
}

// lead makes c, which leads the flight, a member. Others may have joined.
func (w *crew) lead(c *conn) {
	c.unidle()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members++
	w.leader, w.owner = c, c
	c.personal = c.link != nil && c.link.personal()
	w.link, c.link = c.link, nil
	c.settled()
}

func (w *crew) join(c *conn) {
	c.unidle()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members++
	defer c.settled()
	if c.link == nil || c.link.personal() && c.k.places.limit == 0 {
		return // another link can be had, and this one might not come back
	}
	if w.seeking {
		w.seeking = false
		w.lent <- w.borrowLocked(c)
		return
	}
	if w.lenders == nil {
		w.lenders = make(map[*conn]struct{})
	}
	w.lenders[c] = struct{}{}
}

func (w *crew) borrowLocked(c *conn) *link {
	l := c.link
	c.link = nil
	c.personal = l.personal()
	w.foreign = false
	delete(w.lenders, c)
	if w.owner == nil || w.owner.link == nil {
		w.owner = c
	}
	return l
}

// leave takes c out of the flight, with the link that is due to it.
func (w *crew) leave(c *conn) {
	w.mu.Lock()
	w.members--
	delete(w.lenders, c)
	// A session that may be changed is its owner's: the catalog alone is read in a flight on it.
	if w.link != nil && c.link == nil && (w.owner == c || w.owner == nil && !w.link.changed()) {
		w.link, c.link = nil, w.link
		c.lendable, w.promised = w.promised, false
		c.link.needReset = c.link.needReset || c.link.user != c
	}
	c.lost = c.lost || c.personal && c.link == nil
	c.personal = false
	if w.owner == c {
		w.owner = nil
	}
	left := w.takeLeftLocked()
	w.mu.Unlock()
	if left != nil {
		left.close()
	}
}

// takeLeftLocked returns the link that nobody is left to take.
func (w *crew) takeLeftLocked() *link {
	if w.members > 0 {
		return nil
	}
	l := w.link
	w.link = nil
	if l != nil && w.promised {
		w.promised = false
		l.k.lendable.Add(-1)
	}
	return l
}

// acquire returns a link that the flight may use: its own, or a new one.
func (w *crew) acquire(ctx context.Context, k *Connector) (*link, error) {
	w.mu.Lock()
	l := w.link
	w.link = nil
	if l == nil {
		for c := range w.lenders {
			l = w.borrowLocked(c)
			break
		}
	}
	if l == nil {
		w.seeking, w.foreign = true, true
		w.lent = make(chan *link, 1)
	}
	w.mu.Unlock()
	if l == nil {
		var err error
		if l, err = w.seek(ctx, k); err != nil {
			return nil, err
		}
	}
	l, err := k.ready(ctx, l)
	if err == nil && (l.wasReset || l.user == nil) {
		l.user = w.leader
	}
	return l, err
}

// seek gets a place for the flight, and with it perhaps a link.
func (w *crew) seek(ctx context.Context, k *Connector) (*link, error) {
	w.awaitLender(ctx, k)
	got, err := k.places.take(ctx, w.lent)
	w.mu.Lock()
	w.seeking = false
	var extra *link
	select {
	case extra = <-w.lent:
	default:
	}
	w.mu.Unlock()
	if err != nil {
		if extra != nil {
			w.release(extra)
		}
		return nil, err
	}
	if extra != nil {
		// A place and a loan came at once: the loan will do.
		if got.link == nil {
			k.places.giveBack()
		} else if !k.places.leave(got.link) {
			got.link.close()
		}
		return extra, nil
	}
	if got.link != nil {
		return got.link, nil
	}
	return k.dial(ctx)
}

// A connection that the pool has just lent out takes microseconds to come to
// where it joins, much longer on a busy machine, and for ever if its caller
// does nothing with it. lenderTime bounds the waiting, and those that did not
// come in that time are not waited for again.
const (
	lenderTime = 250 * time.Millisecond
	lenderPoll = 200 * time.Microsecond
)

// awaitLender waits while there are connections that may yet be lent to this
// flight: dialling takes longer, and one stampede shall cost one connection.
func (w *crew) awaitLender(ctx context.Context, k *Connector) {
	for start := time.Now(); ctx.Err() == nil && len(w.lent) == 0; time.Sleep(lenderPoll) {
		n := k.lendable.Load()
		idlers := min(k.idlers.Load(), n)
		k.idlers.Store(idlers)
		if n == idlers {
			return
		}
		if time.Since(start) >= lenderTime {
			k.idlers.Store(n)
			return
		}
	}
}

// releaseToAny is release for a flight whose callers all go on to a read: the
// first of them to need a link shall find it, whoever that is, or wait for its
// owner to come and lend it.
func (w *crew) releaseToAny(l *link, k *Connector) {
	if w.foreign && l.interchangeable() && k.places.leave(l) {
		return
	}
	if !l.dead() {
		k.lendable.Add(1)
		w.mu.Lock()
		w.promised = true
		w.mu.Unlock()
	}
	w.release(l)
}

// release hands back what acquire gave, once the flight is done with it.
func (w *crew) release(l *link) {
	if l.dead() {
		l.closeAndWait()
		return
	}
	w.mu.Lock()
	w.link = l
	left := w.takeLeftLocked()
	w.mu.Unlock()
	if left != nil {
		left.close()
	}
}
