package coalesce

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maxHandOverAge is how old a server connection may be when it is handed from
// one virtual connection to another: older ones are closed and their place
// given away, so that SetConnMaxLifetime is stretched by a minute at most.
const maxHandOverAge = time.Minute

// places limits how many server connections one connector has, and finds a
// new owner for those whose virtual connection has no use for them.
//
// No connection is opened, closed or used under mu.
type places struct {
	limit int           // immutable; 0: no limit
	links *atomic.Int64 // server connections open
	// lastIdle is the link that became idle last, if it can change hands. It
	// may be in use again.
	lastIdle atomic.Pointer[link]

	mu      sync.Mutex
	conns   int        // virtual connections open
	taken   int        // places given, if there is a limit
	waiting *list.List // of *seeker, first come first served
	// parked are, if there is a limit, the virtual connections with an idle
	// link. These go to whoever waits for a place: the pool, which knows of no
	// shortage, would keep them for good.
	parked map[*conn]struct{}
	// spare is the link of a virtual connection that was closed, for the next
	// one that needs one. After a burst the pool keeps few connections, hardly
	// ever the one that led: without this each burst would dial anew. There is
	// one only while there are as many virtual connections as links.
	spare *link
	// closed: the connector was closed, and there is no spare any more.
	closed bool
}

// seeker waits for a place. got has room for one and is sent to once, under
// places.mu, when the seeker leaves waiting.
type seeker struct{ got chan place }

// place is the right to one server connection: link, or one to be dialled.
type place struct{ link *link }

func newPlaces(limit int, links *atomic.Int64) *places {
	return &places{limit: limit, links: links, waiting: list.New(), parked: make(map[*conn]struct{})}
}

// take returns a place, waiting for one if need be. A link that arrives on
// lent meanwhile is returned in its stead.
func (p *places) take(ctx context.Context, lent <-chan *link) (place, error) {
	p.mu.Lock()
	if l := p.takeSpareLocked(); l != nil {
		p.mu.Unlock()
		return p.handOver(l), nil
	}
	if l := p.takeLastIdle(); l != nil {
		p.mu.Unlock()
		return p.handOver(l), nil
	}
	if p.limit == 0 || p.taken < p.limit {
		p.taken++
		p.mu.Unlock()
		return place{}, nil
	}
	if l := p.unparkAnyLocked(); l != nil {
		p.mu.Unlock()
		return p.handOver(l), nil
	}
	s := &seeker{got: make(chan place, 1)}
	el := p.waiting.PushBack(s)
	p.mu.Unlock()
	select {
	case got := <-s.got:
		return p.handOver(got.link), nil
	case l := <-lent:
		p.giveUp(el, s)
		return place{link: l}, nil
	case <-ctx.Done():
		p.giveUp(el, s)
		return place{}, ctx.Err()
	}
}

// giveUp takes a seeker out of the queue and passes on what it got meanwhile.
func (p *places) giveUp(el *list.Element, s *seeker) {
	p.mu.Lock()
	p.waiting.Remove(el)
	p.mu.Unlock()
	select {
	case got := <-s.got:
		if got.link != nil {
			got.link.close() // gives its place back
		} else {
			p.giveBack()
		}
	default:
	}
}

// handOver makes a place of a link taken from another virtual connection.
func (p *places) handOver(l *link) place {
	if l == nil {
		return place{}
	}
	if l.interchangeable() && time.Since(l.born) < maxHandOverAge {
		l.needReset = true
		return place{link: l}
	}
	l.closeKeepingPlace()
	return place{}
}

// giveBack returns the place of a server connection that is no more.
func (p *places) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.serveLocked(place{}) {
		p.taken--
	}
}

func (p *places) serveLocked(got place) bool {
	el := p.waiting.Front()
	if el == nil {
		return false
	}
	p.waiting.Remove(el).(*seeker).got <- got
	return true
}

// park makes l the idle link of c, which does not use it.
func (p *places) park(c *conn, l *link) {
	l.home.Store(c)
	lendable := l.interchangeable()
	if !lendable {
		p.lastIdle.CompareAndSwap(l, nil) // it could, when it was idle before
	}
	c.idle.Store(l)
	if p.limit == 0 {
		if lendable {
			p.lastIdle.Store(l)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Len() > 0 && c.idle.CompareAndSwap(l, nil) {
		p.serveLocked(place{link: l})
		return
	}
	p.parked[c] = struct{}{}
}

// unpark notes that c is in use again.
func (p *places) unpark(c *conn) {
	if p.limit == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parked, c)
}

func (p *places) unparkAnyLocked() *link {
	for c := range p.parked {
		delete(p.parked, c)
		if l := c.idle.Swap(nil); l != nil {
			return l
		}
	}
	return nil
}

// takeLastIdle takes the link that became idle last, if nobody uses it and it
// may change hands.
func (p *places) takeLastIdle() *link {
	l := p.lastIdle.Load()
	if l == nil || time.Since(l.born) >= maxHandOverAge || !l.home.Load().idle.CompareAndSwap(l, nil) {
		return nil
	}
	return l
}

// leave gives l to whoever waits for a place or needs a link next. It reports
// false if there is a spare one already, or nobody left to need one.
func (p *places) leave(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serveLocked(place{link: l}) {
		return true
	}
	if p.closed || p.spare != nil || int64(p.conns) < p.links.Load() {
		return false
	}
	p.spare = l
	return true
}

func (p *places) takeSpareLocked() *link {
	l := p.spare
	p.spare = nil
	return l
}

// close returns the spare link, if there is one. There will be no other.
func (p *places) close() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.takeSpareLocked()
}

// surplus returns the spare link if nobody is left to need it: its like was
// being dialled when it became the spare, and was closed instead of it.
func (p *places) surplus() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int64(p.conns) >= p.links.Load() {
		return nil
	}
	return p.takeSpareLocked()
}

// add notes a new virtual connection.
func (p *places) add() {
	p.mu.Lock()
	p.conns++
	p.mu.Unlock()
}

// remove notes that a virtual connection was closed, and finds a use for its
// link. It returns the link, if any, that the caller must close.
func (p *places) remove(l *link) *link {
	keep := l != nil && l.interchangeable() && time.Since(l.born) < maxHandOverAge
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns--
	if keep && p.serveLocked(place{link: l}) {
		return nil
	}
	if keep && p.spare == nil && !p.closed {
		p.spare, l = l, nil
	}
	if l == nil && int64(p.conns) < p.links.Load() {
		return p.takeSpareLocked()
	}
	return l
}
