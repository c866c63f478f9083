package coalesce

import (
	"runtime"
	"weak"
)

// largeBytes is from what size on a result counts for as long as it is read. A
// caller may keep a smaller one beside the budget, and costs it nothing.
const largeBytes = 64 << 10

// charge is what a result takes from the budget while anybody needs it: the
// entry that holds it, and the callers who read it.
type charge struct {
	m     weak.Pointer[memo] // a cleanup has the charge, and must not keep the memo
	bytes int64              // guarded by memo.mu
	users int                // guarded by memo.mu
}

// newCharge returns a charge for res. It ends at the latest when nobody has res
// any more: rows are not always closed.
func (m *memo) newCharge(res *result, bytes int64, users int) *charge {
	c := &charge{m: weak.Make(m), bytes: bytes, users: users}
	runtime.AddCleanup(res, func(c *charge) {
		c.change(func(m *memo) {
			if c.users > 0 {
				c.users = 1
				c.dropLocked(m)
			}
		})
	}, c)
	return c
}

// chargeLocked counts n more callers who will read res, if it is large. Each
// must close its replay.
func (m *memo) chargeLocked(res *result, n int) {
	switch {
	case res == nil || res.bytes <= largeBytes || n == 0:
	case res.charge == nil:
		res.charge = m.newCharge(res, res.bytes, n)
		m.used += res.bytes
	default:
		res.charge.users += n
	}
}

// chargeStreamLocked charges s with what it has buffered, rather than f. The row
// that found no room is not in it: without a buffer it would be in memory too.
func (f *flight) chargeStreamLocked(s *stream) {
	if n := min(f.taken, s.res.bytes); n > largeBytes {
		f.taken -= n
		s.res.charge = f.m.newCharge(s.res, n, 1)
	}
}

func (c *charge) dropLocked(m *memo) {
	if c.users--; c.users == 0 {
		m.used -= c.bytes
	}
}

// change calls f under the lock of the memo, if that is there still.
func (c *charge) change(f func(*memo)) {
	if m := c.m.Value(); m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		f(m)
	}
}

// end takes one reader out. c may be nil: the result is not charged.
func (c *charge) end() {
	if c != nil {
		c.change(c.dropLocked)
	}
}

// giveBack gives back n bytes, or what is left, before the end. c may be nil.
func (c *charge) giveBack(n int64) {
	if c != nil {
		c.change(func(m *memo) {
			n = min(n, c.bytes)
			c.bytes -= n
			m.used -= n
		})
	}
}
