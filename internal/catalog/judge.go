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
	if j.v.Writes || a.Sure.Cause != statement.CauseNotRead {
		j.volatility(s.builtin.volatility, "may use "+s.builtin.by+", whose function is ", "")
	}
	if j.typed {
		j.volatility(s.hidden.volatility, "may use "+s.hidden.by+", whose function is ", "")
	}
	if j.v.Writes {
		j.touches(a)
	}
	slices.Sort(j.v.Reads)
	return j.v
}

// judged returns what a tree of the catalog does.
func (s *Snapshot) judged(a *statement.Analysis) statement.Effect {
	j := judge{s: s, v: Verdict{Effect: a.Sure}}
	j.names(a, "")
	return j.v.Effect
}

// called returns what a function does.
func (s *Snapshot) called(name string) statement.Effect {
	j := judge{s: s, v: Verdict{Effect: statement.Effect{Class: statement.Holdable}}}
	j.function(name, "")
	return j.v.Effect
}

type judge struct {
	s *Snapshot
	v Verdict
	// seen are the relations that were looked at, and with their kind behind a
	// NUL, which no name has, functions and types.
	seen map[string]bool
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
		j.operator(name, via)
	}
	for _, name := range a.Types {
		j.typ(name, via)
	}
	for _, name := range a.Tables {
		if f, ok := j.s.functions[name]; ok && f.attribute {
			j.volatility(f.volatility, "may call "+name+", which is ", via)
			j.defaults(name, f, via)
			j.made(f.takes, ", for "+name+via)
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

func (j *judge) operator(name, via string) {
	o, known := j.s.operators[name]
	j.typed = j.typed || known
	if !known && !statement.BuiltinOperator(name) {
		j.unknown(statement.CauseOperator, "uses the operator "+name+", which is not in the catalog"+via)
	}
	j.volatility(o.volatility, "uses the operator "+name+", whose function is ", via)
	j.made(o.takes, ", for the operator "+name+via)
}

func (j *judge) function(name, via string) {
	f, user := j.s.functions[name]
	j.typed = j.typed || user
	if _, ok := j.s.types[name]; ok { // a literal in its parentheses may be cast to it
		j.made([]string{name}, ", for "+name+via)
	}
	if statement.RunsCode(name) {
		j.made(slices.Sorted(maps.Keys(j.s.types)), via) // each once: the check of one may run code itself
	}
	if !user && !statement.BuiltinFunction(name) {
		j.unknown(statement.CauseUnknownFunction, "calls "+name+", which is not in the catalog"+via)
		return
	}
	if f.random && f.volatility == volatile {
		j.limit(statement.Private, statement.CauseVolatile, "calls "+name+", which is VOLATILE"+via)
	} else {
		j.volatility(f.volatility, "calls "+name+", which is ", via)
	}
	j.defaults(name, f, via)
	j.made(f.takes, ", for "+name+via)
}

// made takes in that values of types may be made.
func (j *judge) made(types []string, via string) {
	for _, name := range types {
		if j.first(name + "\x00type") {
			j.typ(name, via)
		}
	}
}

// defaults takes in the default arguments of a function that is called, with
// which it may be called.
func (j *judge) defaults(name string, f function, via string) {
	if f.defaults != nil && j.first(name+"\x00function") {
		j.takes(f.defaults, ", in a default argument of "+name+via)
	}
}

// first reports whether something was not looked at before.
func (j *judge) first(what string) bool {
	if j.seen[what] {
		return false
	}
	if j.seen == nil {
		j.seen = make(map[string]bool)
	}
	j.seen[what] = true
	return true
}

// takes takes in what code behind the text does.
func (j *judge) takes(a *statement.Analysis, via string) {
	if a.Sure.Class < j.v.Class {
		j.limit(a.Sure.Class, a.Sure.Cause, a.Sure.Reason+via)
	}
	j.v.Writes = j.v.Writes || a.Sure.Writes
	j.v.Schema = j.v.Schema || a.Sure.Schema
	j.v.Taints = j.v.Taints || a.Sure.Taints
	j.v.Locks = j.v.Locks || a.Sure.Locks
	j.names(a, via)
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
	t, ok := j.s.types[name]
	if !ok {
		if _, ok := j.s.relations[name]; ok {
			return // the row type of a table
		}
		j.unknown(statement.CauseUnknownType, "has a value of the type "+name+", which is not in the catalog"+via)
		return
	}
	j.volatility(t.input, "has a value of the type "+name+", whose input function is ", via)
	j.made(t.within, via)
	for _, check := range t.checks {
		j.v.Opaque = j.v.Opaque || check.Opaque
		for _, f := range check.Functions {
			j.function(f, via)
		}
		for _, op := range check.Operators {
			j.operator(op, via)
		}
		j.made(check.Types, via)
		if check.Sure.Class < j.v.Class {
			j.limit(check.Sure.Class, check.Sure.Cause, "has a value of the type "+name+", whose check "+check.Sure.Reason+via)
		}
	}
}

func (j *judge) relation(name string, rel *relation, via string) {
	if !j.first(name) {
		return
	}
	j.v.Opaque = j.v.Opaque || rel.secured || rel.foreign
	j.typed = j.typed || rel.typed
	j.made(j.s.types[name].within, ", in "+name+via)
	switch {
	case rel.secured:
		j.limit(statement.Joinable, statement.CauseSecured, "reads "+name+", which has row security"+via)
	case rel.foreign:
		j.limit(statement.Joinable, statement.CauseForeign, "reads "+name+", which is a foreign table"+via)
	case rel.sequence:
		j.v.Sequences = true
		j.limit(statement.Joinable, statement.CauseSequence, "reads "+name+", which is a sequence"+via)
	case rel.zoned:
		// A time of day in a named zone, or in that of the session, depends on the date.
		j.limit(statement.Joinable, statement.CauseStable, "reads "+name+", which has a column of type timetz"+via)
	}
	if rel.table || rel.foreign || rel.sequence {
		j.v.Reads = append(j.v.Reads, name)
	}
	if rel.secured && rel.policy != nil {
		j.takes(rel.policy, ", in a policy of "+name+via)
	}
	def := rel.view
	if def == nil {
		return
	}
	if len(j.seen) > maxViews {
		j.limit(statement.Private, statement.CauseUnparsed, "reads too many views"+via)
		return
	}
	j.takes(def, ", through the view "+name)
}

// changesSession reports whether a write to a table of this name may run what
// leaves the session changed, or is what does.
func (s *Snapshot) changesSession(name string) bool {
	rel := s.relations[name]
	return rel != nil && rel.changes || name == "pg_settings"
}

// touches finds what a statement that writes may change: every table it names
// and what follows those. Where anything else may be written too, or nothing
// that is written is known, it is everything.
func (j *judge) touches(a *statement.Analysis) {
	j.v.Taints = j.v.Taints || slices.ContainsFunc(a.Tables, j.s.changesSession)
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
		if rel == nil || rel.triggers || rel.rules || rel.calls || rel.foreign || rel.policy != nil && j.s.judged(rel.policy).Writes || rel.view != nil {
			j.v.All = true
			return
		}
		j.v.Touches = append(j.v.Touches, name)
		todo = append(todo, rel.with...)
	}
	j.v.All = len(j.v.Touches) == 0
}
