package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// Verdict is what a text can do, as far as text and catalog tell. It is
// immutable.
type Verdict struct {
	statement.Effect
	// Reads are the tables that the answer depends on.
	Reads []string
	// Touches are the tables that the text may change, Strangers names in it
	// that may be tables which the catalog did not know. All stands for
	// everything; it is false where Writes is.
	Touches   []string
	Strangers []string
	All       bool
	// Sequences: the answer depends on one.
	Sequences bool
	// Opaque: the answer depends on tables that nobody can name, those that a
	// STABLE function or a policy reads, or on the system catalog.
	Opaque bool
	// Unknown names were not in the catalog: it may be out of date.
	Unknown bool
}

// maxViews bounds how many views are followed from one text, each once.
const maxViews = 1000

// Judge returns the verdict on a text.
func (s *Snapshot) Judge(a *statement.Analysis) Verdict {
	j := judge{s: s, v: Verdict{Effect: a.Sure}}
	j.names(a, "")
	if j.typed {
		j.volatility(s.hidden.volatility, "may use "+s.hidden.by+", whose function is ", "")
	}
	if j.v.Writes {
		j.touches(a)
	}
	slices.Sort(j.v.Reads)
	return j.v
}

type judge struct {
	s    *Snapshot
	v    Verdict
	seen map[string]bool // relations that were looked at
	// typed: values of types of the user's may occur, to which hidden
	// functions apply.
	typed bool
}

// limit lowers the class; the first cause of the lowest class is kept.
func (j *judge) limit(c statement.Class, cause, reason string) {
	if c < j.v.Class {
		j.v.Class, j.v.Cause, j.v.Reason = c, cause, reason
	}
}

// names takes in what the names of a text can do; via says through which
// view, in words that follow a verb's object.
func (j *judge) names(a *statement.Analysis, via string) {
	j.v.Opaque = j.v.Opaque || a.Opaque
	for _, name := range a.Functions {
		j.function(name, via)
	}
	for _, name := range a.Qualified {
		if _, ok := j.s.functions[name]; !ok {
			j.unknown(statement.CauseUnknownFunction, "calls "+name+", which is not in the catalog"+via)
		}
	}
	for _, name := range a.Operators {
		v, known := j.s.operators[name]
		if !known && !statement.BuiltinOperator(name) {
			j.unknown(statement.CauseOperator, "uses the operator "+name+", which is not in the catalog"+via)
		}
		j.volatility(v, "uses the operator "+name+", whose function is ", via)
	}
	for _, name := range a.Types {
		j.typ(name, via)
	}
	for _, name := range a.Tables {
		if f, ok := j.s.functions[name]; ok && f.attribute {
			j.volatility(f.volatility, "may call "+name+", which is ", via)
		}
		if rel, ok := j.s.relations[name]; ok {
			j.relation(name, rel, via)
		}
	}
	for _, name := range a.Relations {
		if _, ok := j.s.relations[name]; !ok {
			// A view that writes, perhaps; that it changes the session as well
			// is too odd to give the connection up for.
			taints := j.v.Taints
			j.unknown(statement.CauseUnknownRelation, "reads "+name+", which is not in the catalog"+via)
			j.v.Taints = taints
		}
	}
}

func (j *judge) function(name, via string) {
	f, user := j.s.functions[name]
	j.typed = j.typed || user
	if statement.RunsCode(name) {
		for _, t := range slices.Sorted(maps.Keys(j.s.types)) {
			j.typ(t, via)
		}
	}
	if !user && !statement.BuiltinFunction(name) {
		j.unknown(statement.CauseUnknownFunction, "calls "+name+", which is not in the catalog"+via)
		return
	}
	if f.random && f.volatility == volatile {
		j.limit(statement.Private, statement.CauseVolatile, "calls "+name+", which is VOLATILE"+via)
		return
	}
	j.volatility(f.volatility, "calls "+name+", which is ", via)
}

// volatility takes in a call of a function of the user's. What a VOLATILE one
// does nobody knows; what a STABLE one reads neither.
func (j *judge) volatility(v volatility, what, via string) {
	switch v {
	case volatile:
		j.v.Writes, j.v.Schema, j.v.Taints = true, true, true
		j.limit(statement.Private, statement.CauseVolatile, what+"VOLATILE"+via)
	case stable:
		j.v.Opaque = true
		j.limit(statement.Joinable, statement.CauseStable, what+"STABLE"+via)
	}
}

func (j *judge) unknown(cause, reason string) {
	j.v.Unknown = true
	j.v.Writes, j.v.Schema, j.v.Taints = true, true, true
	j.limit(statement.Private, cause, reason)
}

func (j *judge) typ(name, via string) {
	j.typed = true
	if _, ok := j.s.relations[name]; ok {
		return // the row type of a table
	}
	t, ok := j.s.types[name]
	if !ok {
		j.unknown(statement.CauseUnknownType, "has a value of the type "+name+", which is not in the catalog"+via)
		return
	}
	j.volatility(t.input, "has a value of the type "+name+", whose input function is ", via)
	for _, check := range t.checks {
		j.v.Opaque = j.v.Opaque || check.Opaque
		for _, f := range check.Functions {
			j.function(f, via)
		}
		if check.Sure.Class < j.v.Class {
			j.limit(check.Sure.Class, check.Sure.Cause, "has a value of the type "+name+", whose check "+check.Sure.Reason+via)
		}
	}
}

func (j *judge) relation(name string, rel *relation, via string) {
	if j.seen[name] {
		return
	}
	if j.seen == nil {
		j.seen = make(map[string]bool)
	}
	j.seen[name] = true
	j.v.Opaque = j.v.Opaque || rel.secured || rel.foreign
	j.typed = j.typed || rel.typed
	switch {
	case rel.policy:
		j.limit(statement.Private, statement.CauseVolatile, "reads "+name+", whose policies call a VOLATILE function"+via)
	case rel.secured:
		j.limit(statement.Joinable, statement.CauseSecured, "reads "+name+", which has row security"+via)
	case rel.foreign:
		j.limit(statement.Joinable, statement.CauseForeign, "reads "+name+", which is a foreign table"+via)
	case rel.sequence:
		j.v.Sequences = true
		j.limit(statement.Joinable, statement.CauseSequence, "reads "+name+", which is a sequence"+via)
	}
	if rel.table || rel.foreign || rel.sequence {
		j.v.Reads = append(j.v.Reads, name)
	}
	def := rel.view
	if def == nil {
		return
	}
	if len(j.seen) > maxViews {
		j.limit(statement.Private, statement.CauseUnparsed, "reads too many views"+via)
		return
	}
	through := ", through the view " + name
	if def.Sure.Class < j.v.Class {
		j.limit(def.Sure.Class, def.Sure.Cause, def.Sure.Reason+through)
	}
	j.v.Writes = j.v.Writes || def.Sure.Writes
	j.v.Schema = j.v.Schema || def.Sure.Schema
	j.v.Taints = j.v.Taints || def.Sure.Taints
	j.v.Locks = j.v.Locks || def.Sure.Locks
	j.names(def, through)
}

// touches finds what a statement that writes may change: every table it names
// and what follows those. Where anything else may be written too, or nothing
// that is written is known, it is everything.
func (j *judge) touches(a *statement.Analysis) {
	if j.v.Schema {
		j.v.All = true
		return
	}
	var todo []string
	for _, name := range a.Tables {
		if strings.HasPrefix(name, "pg_") && !slices.Contains(a.Functions, name) {
			// A write to the system catalog itself, perhaps.
			j.v.Schema, j.v.All = true, true
			return
		}
		if _, ok := j.s.relations[name]; ok {
			todo = append(todo, name)
		} else {
			j.v.Strangers = append(j.v.Strangers, name)
		}
	}
	seen := make(map[string]bool)
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[name] {
			continue
		}
		seen[name] = true
		rel := j.s.relations[name]
		if rel == nil || rel.triggers || rel.rules || rel.calls || rel.policy || rel.view != nil {
			j.v.All = true
			return
		}
		j.v.Touches = append(j.v.Touches, name)
		todo = append(todo, rel.with...)
	}
	j.v.All = len(j.v.Touches) == 0
}
