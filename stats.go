package coalesce

import "maps"

// Causes of a private read that are not in its text, as they stand in
// [Stats].PrivateBy. Those that are have the words that the reason of [Explain]
// gives at more length: "write", "row lock", "volatile function", "unknown
// function", "unknown relation", "unknown type", "unknown operator",
// "session-bound", "system catalog" (also where the catalog could not be read),
// "system column", "several statements", "not a read", "unparsed" and "text too
// long".
const (
	CauseOff         = "off"
	CauseFresh       = "fresh"
	CauseTransaction = "transaction"
	CauseSession     = "changed session"
	CauseDoubt       = "session in doubt" // by what it ran while the schema was changing
	CauseBusy        = "busy connection"
	CauseArgument    = "argument"
	CauseTooBig      = "too big"
	CauseClosed      = "closed"
)

// Stats is one snapshot of a database's counters, all taken at the same
// moment. Reads = Held + Joined + Led + Private, and Private is the sum of
// PrivateBy.
type Stats struct {
	Reads   uint64 // calls of Query and QueryRow, on anything, whose context had not ended
	Held    uint64 // answered with a held result
	Joined  uint64 // waited for a flight that another caller led
	Led     uint64 // led a flight
	Private uint64 // ran on their own

	// PrivateBy splits Private by cause, in a few words each.
	PrivateBy map[string]uint64

	Errors      uint64 // attempts of flights that ended in an error
	Cancelled   uint64 // callers whose context ended before their flight did
	TooBig      uint64 // flights whose result outgrew its limit
	Evicted     uint64 // results dropped to make room
	Invalidated uint64 // results dropped because a write overtook them

	StoredBytes int64 // held results and their keys
	Flights     int   // under way now
	Conns       int   // server connections open now
}

type counters struct {
	held, joined, led, errors, cancelled, tooBig, evicted, invalidated uint64

	private map[string]uint64
	stored  int64
}

func (m *memo) stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.count
	s := Stats{
		Held: c.held, Joined: c.joined, Led: c.led,
		PrivateBy: maps.Clone(c.private),
		Errors:    c.errors, Cancelled: c.cancelled, TooBig: c.tooBig,
		Evicted: c.evicted, Invalidated: c.invalidated,
		StoredBytes: c.stored,
	}
	for f := range m.running {
		if !f.quiet {
			s.Flights++
		}
	}
	for _, n := range c.private {
		s.Private += n
	}
	s.Reads = s.Held + s.Joined + s.Led + s.Private
	return s
}
