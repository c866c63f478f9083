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

func copyMap(m *pgtype.Map) *pgtype.Map {
	c := m.Copy()
	c.TryWrapScanPlanFuncs = slices.Clone(m.TryWrapScanPlanFuncs)
	c.TryWrapEncodePlanFuncs = slices.Clone(m.TryWrapEncodePlanFuncs)
	return c
}
