package coalesce

import (
	"context"
	"sync"
)

// crew is the callers of a flight as owners of server connections. The flight
// runs on the link of one of them, its owner, or on one dialled for it. When
// it ends the owner has the link back; if the owner has left by then, a caller
// without a link gets it, and the last to leave closes what nobody took.
type crew struct {
	mu      sync.Mutex
	members int
	owner   *conn
	link    *link // what the flight runs on, while it is not running
	// lenders have an idle link of their own. It is borrowed when the flight
	// needs one and there is no place to dial: else callers waiting for the
	// flight could hold all the places that it waits for.
	lenders map[*conn]struct{}
	lent    chan *link // nil without a limit; has room for one, sent to while seeking is set
	seeking bool
}

// lead makes c, which leads the flight, a member. Others may have joined.
func (w *crew) lead(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members++
	w.owner = c
	w.link, c.link = c.link, nil
	if c.k.places.limit > 0 {
		w.lent = make(chan *link, 1)
	}
}

func (w *crew) join(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members++
	if c.link == nil || c.k.places.limit == 0 {
		return
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
	if w.link != nil && c.link == nil && (w.owner == c || w.owner == nil) {
		w.link, c.link = nil, w.link
	}
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
	w.seeking = l == nil && k.places.limit > 0
	w.mu.Unlock()
	if l == nil {
		var err error
		if l, err = w.seek(ctx, k); err != nil {
			return nil, err
		}
	}
	return k.ready(ctx, l)
}

// seek gets a place for the flight, and with it perhaps a link.
func (w *crew) seek(ctx context.Context, k *Connector) (*link, error) {
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
		if got.link != nil {
			got.link.close()
		} else {
			k.places.giveBack()
		}
		return extra, nil
	}
	if got.link != nil {
		return got.link, nil
	}
	return k.dial(ctx)
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
