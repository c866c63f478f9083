package coalesce

import (
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// scanMaps are copies of a connection's type map for scanning replayed values
// the way pgx scans live ones. A Map is not safe for concurrent use, hence a
// pool of them.
type scanMaps struct{ pool sync.Pool }

func newScanMaps(m *pgtype.Map) *scanMaps {
	// The connection goes on using m, so copies are made of this copy, which
	// nobody uses.
	proto := copyMap(m)
	return &scanMaps{sync.Pool{New: func() any { return copyMap(proto) }}}
}

// scansOf returns type maps that know the types of the columns that d describes:
// nil, where the driver leaves scanning to database/sql. It reports false if not
// even those of l, which has read them, would do for a replay.
func (k *Connector) scansOf(l *link, d *description) (*scanMaps, bool) {
	s := k.scans.Load()
	if s == nil || l.pg == nil || d.known.Load() == s {
		return s, true
	}
	if !s.know(d.cols) {
		// A hook may have told this connection of more than the first one.
		if s = newScanMaps(l.pg.TypeMap()); !s.know(d.cols) {
			return nil, false
		}
		k.scans.Store(s)
	}
	d.known.Store(s)
	return s, true
}

func copyMap(m *pgtype.Map) *pgtype.Map {
	c := m.Copy()
	c.TryWrapScanPlanFuncs = slices.Clone(m.TryWrapScanPlanFuncs)
	c.TryWrapEncodePlanFuncs = slices.Clone(m.TryWrapEncodePlanFuncs)
	return c
}
