package coalesce

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// version counts the writes to one database that may have changed an answer.
// A result is used only at the version it was read at. Counters are raised
// when a write has finished and before its caller hears of it, whatever the
// outcome.
type version struct {
	data    atomic.Uint64 // writes that may have changed anything
	schema  atomic.Uint64 // and may have been DDL
	suspect atomic.Uint64 // calls of code that may hide DDL
	// sequences rises with everything that may advance one.
	sequences atomic.Uint64
	any       atomic.Uint64 // writes, whatever they changed
	// unsettled are the writes whose callers have left and which the server
	// may still commit. Nothing is held meanwhile.
	unsettled atomic.Int64
	defaults  atomic.Uint64             // changes of the settings that sessions begin with
	changing  atomic.Int64              // statements under way that may change the schema
	written   atomic.Pointer[time.Time] // when something was raised last
	tables    sync.Map                  // name → *atomic.Uint64: writes to the tables of that name

	// opened are the writes whose rows are being read. Nothing is held meanwhile
	// that they may change.
	openMu sync.Mutex
	opened map[*judged]int

	// aliasOf are the databases that this name has turned out to stand for:
	// what raises this raises those.
	aliasOf atomic.Pointer[[]*version]
}

var (
	versionsMu sync.Mutex
	// versions has one entry for each database name that this process has
	// opened. The name alone: one server has many addresses (a socket, a
	// pooler, a second listener), and raising too much is safe.
	versions = make(map[string]*version)
)

func versionOf(database string) *version {
	versionsMu.Lock()
	defer versionsMu.Unlock()
	v := versions[database]
	if v == nil {
		v = new(version)
		versions[database] = v
	}
	return v
}

// each calls do with v and those it is an alias of.
func (v *version) each(do func(*version)) {
	do(v)
	if others := v.aliasOf.Load(); others != nil {
		for _, o := range *others {
			do(o)
		}
	}
}

// count adds one to a counter of v and of those it is an alias of, and returns
// what takes it back from the same.
func (v *version) count(counter func(*version) *atomic.Int64) (undo func()) {
	var counted []*atomic.Int64
	v.each(func(v *version) {
		n := counter(v)
		n.Add(1)
		counted = append(counted, n)
	})
	return func() {
		for _, n := range counted {
			n.Add(-1)
		}
	}
}

// change notes that a statement that may change the schema is under way, which
// it is until done is called.
func (v *version) change() (done func()) {
	return v.count(func(v *version) *atomic.Int64 { return &v.changing })
}

// open notes that the rows of a write are open, which they are until closed is
// called.
func (v *version) open(w *judged) (closed func()) {
	var in []*version
	v.each(func(v *version) {
		v.openMu.Lock()
		defer v.openMu.Unlock()
		if v.opened == nil {
			v.opened = make(map[*judged]int)
		}
		v.opened[w]++
		in = append(in, v)
	})
	return func() {
		for _, v := range in {
			v.openMu.Lock()
			if v.opened[w]--; v.opened[w] == 0 {
				delete(v.opened, w)
			}
			v.openMu.Unlock()
		}
	}
}

// mayChange reports whether a write whose rows are open may raise one of the
// counters.
func (v *version) mayChange(counters []*atomic.Uint64) bool {
	v.openMu.Lock()
	defer v.openMu.Unlock()
	for w := range v.opened {
		writes := v.writtenBy(w)
		if w.All || w.of != v || slices.ContainsFunc(counters, func(c *atomic.Uint64) bool {
			return c == &v.any || c == &v.sequences || slices.Contains(writes, c)
		}) {
			return true
		}
	}
	return false
}

// writtenBy returns the counters of the tables that j writes. Names that it did
// not know somebody else's snapshot may know, and reads depend on them.
func (v *version) writtenBy(j *judged) []*atomic.Uint64 {
	writes := slices.Clip(j.writes)
	for _, name := range j.Strangers {
		if c, ok := v.tables.Load(name); ok {
			writes = append(writes, c.(*atomic.Uint64))
		}
	}
	return writes
}

func (v *version) standFor(database *version) {
	versionsMu.Lock()
	defer versionsMu.Unlock()
	var others []*version
	if p := v.aliasOf.Load(); p != nil {
		others = *p
	}
	if !slices.Contains(others, database) {
		others = append(slices.Clip(others), database)
		v.aliasOf.Store(&others)
	}
}

// lagTime is how long a standby may take to repeat a write for its answers to
// be held as those of the server that was written to are.
const lagTime = DefaultTTL

func (v *version) write() {
	now := time.Now()
	v.written.Store(&now)
}

func (v *version) writtenLately() bool {
	w := v.written.Load()
	return w != nil && time.Since(*w) < lagTime
}

// table returns the counter of the tables of one name, all schemas together.
func (v *version) table(name string) *atomic.Uint64 {
	if c, ok := v.tables.Load(name); ok {
		return c.(*atomic.Uint64)
	}
	c, _ := v.tables.LoadOrStore(name, new(atomic.Uint64))
	return c.(*atomic.Uint64)
}

// reckoning is a database's version as one connector counts it.
type reckoning struct {
	*version
	// data, schema and suspect of version plus these are what the connector
	// goes by: its count must not go back when it learns which database it
	// leads to.
	dataOffset, schemaOffset, suspectOffset uint64
}

func (r *reckoning) dataVersion() uint64    { return r.data.Load() + r.dataOffset }
func (r *reckoning) schemaVersion() uint64  { return r.schema.Load() + r.schemaOffset }
func (r *reckoning) suspectVersion() uint64 { return r.suspect.Load() + r.suspectOffset }

// follow returns v as who has reckoned with r until now counts it.
func (r *reckoning) follow(v *version) *reckoning {
	return &reckoning{
		version:       v,
		dataOffset:    r.dataVersion() - v.data.Load(),
		schemaOffset:  r.schemaVersion() - v.schema.Load(),
		suspectOffset: r.suspectVersion() - v.suspect.Load(),
	}
}

// leadsTo lets k share the version of the database that it was told to connect
// to. It stays with the first: versions of different ones cannot be compared.
func (k *Connector) leadsTo(database string) {
	k.identified.Do(func() { k.version.Store(k.version.Load().follow(versionOf(database))) })
}

// turnsOutToBe is leadsTo with the name that the server itself has for the
// database, where a pooler has another. If that is news, what was judged before
// counts by the other name: the catalog is loaded once more.
func (k *Connector) turnsOutToBe(database string) {
	old, v := k.version.Load(), versionOf(database)
	if old.version == v {
		return
	}
	k.identified.Do(func() {})
	old.standFor(v) // for those who know it by that name only
	r := old.follow(v)
	// Whoever raises both meanwhile must not make the count go back.
	r.dataOffset++
	r.schemaOffset++
	r.suspectOffset++
	k.version.CompareAndSwap(old, r) // else the next loading tells again
}

// extent is what a write that may have touched everything may have changed.
type extent uint8

const (
	rowsOnly   extent = iota
	mayHideDDL        // rows, and the schema if code that it called does such things
	mayBeDDL          // the schema
)

// raiseAll makes all that was read before stale, whatever it depends on.
func (k *Connector) raiseAll(e extent) {
	k.version.Load().each(func(v *version) { v.raiseAll(e) })
}

func (v *version) raiseAll(e extent) {
	v.data.Add(1)
	switch e {
	case mayHideDDL:
		v.suspect.Add(1)
	case mayBeDDL:
		v.schema.Add(1)
	}
	v.write()
}

// raiseDatabases makes stale what was read of databases that DDL names: it may
// have dropped one, or made it anew.
func raiseDatabases(names []string) {
	versionsMu.Lock()
	defer versionsMu.Unlock()
	for _, name := range names {
		if v := versions[name]; v != nil {
			v.raiseAll(mayBeDDL)
		}
	}
}

func (k *Connector) schemaVersion() uint64 { return k.version.Load().schemaVersion() }
