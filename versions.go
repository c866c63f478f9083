package coalesce

import (
	"sync"
	"sync/atomic"
)

// version counts the writes to one database that may have changed an answer.
// A result is used only at the version it was read at. It is raised when a
// write has finished and before its caller hears of it, whatever the outcome.
type version struct {
	data   atomic.Uint64
	schema atomic.Uint64 // rises only with what may be more than rows
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

// reckoning is a database's version as one connector counts it.
type reckoning struct {
	*version
	// data and schema of version plus these are what the connector goes by:
	// its count must not jump when it learns which database it leads to.
	dataOffset, schemaOffset uint64
}

func (r *reckoning) dataVersion() uint64   { return r.data.Load() + r.dataOffset }
func (r *reckoning) schemaVersion() uint64 { return r.schema.Load() + r.schemaOffset }

// leadsTo lets k share the version of a database. It stays with the first it
// is told of: versions of different databases cannot be compared.
func (k *Connector) leadsTo(database string) {
	k.identified.Do(func() {
		old := k.version.Load()
		r := &reckoning{version: versionOf(database)}
		r.dataOffset = old.dataVersion() - r.data.Load()
		r.schemaOffset = old.schemaVersion() - r.schema.Load()
		k.version.Store(r)
	})
}

// raise makes all that was read before stale; schema, what was prepared too.
func (k *Connector) raise(schema bool) {
	v := k.version.Load()
	v.data.Add(1)
	if schema {
		v.schema.Add(1)
	}
}

func (k *Connector) dataVersion() uint64   { return k.version.Load().dataVersion() }
func (k *Connector) schemaVersion() uint64 { return k.version.Load().schemaVersion() }
