package coalesce

import (
	"sync"
	"sync/atomic"
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
	tables    sync.Map // name → *atomic.Uint64: writes to the tables of that name
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
	// goes by: its count must not jump when it learns which database it leads
	// to.
	dataOffset, schemaOffset, suspectOffset uint64
}

func (r *reckoning) dataVersion() uint64    { return r.data.Load() + r.dataOffset }
func (r *reckoning) schemaVersion() uint64  { return r.schema.Load() + r.schemaOffset }
func (r *reckoning) suspectVersion() uint64 { return r.suspect.Load() + r.suspectOffset }

// leadsTo lets k share the version of a database. It stays with the first it
// is told of: versions of different databases cannot be compared.
func (k *Connector) leadsTo(database string) {
	k.identified.Do(func() {
		old := k.version.Load()
		r := &reckoning{version: versionOf(database)}
		r.dataOffset = old.dataVersion() - r.data.Load()
		r.schemaOffset = old.schemaVersion() - r.schema.Load()
		r.suspectOffset = old.suspectVersion() - r.suspect.Load()
		k.version.Store(r)
	})
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
	v := k.version.Load()
	v.data.Add(1)
	switch e {
	case mayHideDDL:
		v.suspect.Add(1)
	case mayBeDDL:
		v.schema.Add(1)
	}
}

func (k *Connector) schemaVersion() uint64 { return k.version.Load().schemaVersion() }
