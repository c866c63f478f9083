// Package catalog says what a text can do, given what the server's own catalog
// says of the names in it.
package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// Snapshot is what the catalog said at one moment. Names stand for every
// object of that name, whatever its schema; the worst of them counts. It is
// immutable and safe for concurrent use.
type Snapshot struct {
	// Database is what the server calls the database; "" if it did not tell.
	Database string

	relations map[string]*relation
	functions map[string]function
	operators map[string]volatility
	types     map[string]typ
	hidden    hidden
}

// hidden is the worst function that a text may call without naming it.
type hidden struct {
	volatility
	by string // a cast, an operator with a built-in name, or the check of a domain
}

func (h *hidden) note(v volatility, by string) {
	if v > h.volatility {
		*h = hidden{v, by}
	}
}

type volatility uint8

const (
	immutable volatility = iota
	stable
	volatile
)

func volatilityOf(s string) volatility {
	switch s {
	case "i":
		return immutable
	case "s":
		return stable
	}
	return volatile
}

func (v volatility) String() string { return [...]string{"IMMUTABLE", "STABLE", "VOLATILE"}[v] }

type function struct {
	volatility volatility
	// random: it is VOLATILE because it is random, and does nothing else.
	random bool
	// attribute: it can be called as if it were a column, t.f for f(t).
	attribute bool
}

// randomExtensions are those whose VOLATILE functions make random values, and
// neither write nor change the session.
var randomExtensions = map[string]bool{"pgcrypto": true, "uuid-ossp": true}

// ofExtension is the volatility of an operator or a cast. A STABLE one of an
// extension, such as pg_trgm's %, depends on settings, which are the session's.
func ofExtension(v volatility, deptype string) volatility {
	if v == stable && deptype == "e" {
		return immutable
	}
	return v
}

type typ struct {
	input volatility
	// checks are what the constraints of a domain do.
	checks []*statement.Analysis
}

// relation is all relations of one name.
type relation struct {
	secured  bool // row security
	policy   bool // whose policies call VOLATILE functions
	calls    bool // a default, constraint or index calls a VOLATILE function
	triggers bool
	rules    bool
	typed    bool // has a column of a type of the user's
	foreign  bool // or has a part that is
	sequence bool
	table    bool                // has rows of its own: a table or a materialized view
	view     *statement.Analysis // nil: none of them is one

	// touched with it: partitions, parents, and tables that a foreign key of
	// theirs makes follow.
	with    []string
	parents []string
}

// Row is one row of Query.
type Row struct{ Kind, Name, A, B, Text string }

// Fields are the fields of r in the order of the columns of Query.
func (r *Row) Fields() [5]*string { return [5]*string{&r.Kind, &r.Name, &r.A, &r.B, &r.Text} }

// Parse makes a snapshot of the rows of Query.
func Parse(rows []Row) (*Snapshot, error) {
	s := &Snapshot{
		relations: make(map[string]*relation),
		functions: make(map[string]function),
		operators: make(map[string]volatility),
		types:     make(map[string]typ),
	}
	views := make(map[string]*view)
	for i := range rows {
		if err := s.add(&rows[i], views); err != nil {
			return nil, err
		}
	}
	for name, v := range views {
		rel := s.relation(name)
		rel.view = statement.Analyze(v.text())
	}
	for _, rel := range s.relations {
		if rel.foreign {
			s.markForeign(rel)
		}
	}
	return s, nil
}

// view collects what the views of one name use.
type view struct{ calls, from, words []string }

// text is a query that uses the same.
func (v *view) text() string {
	var b strings.Builder
	b.WriteString("SELECT 1")
	for _, call := range v.calls {
		b.WriteString(", " + call + "()")
	}
	for _, word := range v.words {
		switch word {
		case "time":
			b.WriteString(", CURRENT_DATE")
		case "xmltable":
			b.WriteString(", XMLTABLE()")
		}
	}
	for i, from := range v.from {
		b.WriteString([]string{" FROM ", " CROSS JOIN "}[min(i, 1)] + from)
	}
	for _, word := range v.words {
		switch word {
		case "lock":
			b.WriteString(" FOR UPDATE")
		case "sample":
			b.WriteString(" TABLESAMPLE SYSTEM (1)")
		}
	}
	return b.String()
}

func (v *view) use(r *Row) {
	switch r.A {
	case "relation":
		schema := ""
		if r.B == "c" {
			schema = "pg_catalog."
		}
		v.from = append(v.from, schema+quote(r.Text))
	case "function":
		schema := "pg_catalog."
		if r.B == "u" {
			schema = "users."
		}
		v.calls = append(v.calls, schema+quote(r.Text))
	case "type":
		v.calls = append(v.calls, "NULL::users."+quote(strings.TrimPrefix(r.Text, "_"))+"::text || concat")
	case "word":
		v.words = append(v.words, r.Text)
	}
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (s *Snapshot) add(r *Row, views map[string]*view) error {
	name := strings.Clone(r.Name)
	switch r.Kind {
	case "relation":
		if r.A == "v" && views[name] == nil {
			views[name] = new(view)
		}
		s.addRelation(s.relation(name), r)
	case "uses":
		if views[name] == nil {
			views[name] = new(view)
		}
		views[name].use(r)
	case "child":
		s.relation(name).touch(r.A)
		child := s.relation(strings.Clone(r.A))
		child.touch(name)
		child.parents = append(child.parents, name)
	case "cascade":
		s.relation(name).touch(r.A)
	case "function":
		f, more := s.functions[name]
		f.random = (f.random || !more) && randomExtensions[r.Text]
		f.volatility = max(f.volatility, volatilityOf(r.A))
		f.attribute = f.attribute || r.B == "a"
		s.functions[name] = f
	case "operator":
		v := max(s.operators[name], ofExtension(volatilityOf(r.A), r.B))
		s.operators[name] = v
		if statement.BuiltinOperator(name) {
			s.hidden.note(v, "the operator "+name)
		}
	case "type":
		t := s.types[name]
		if r.A == "b" {
			t.input = max(t.input, volatilityOf(r.B))
		}
		if r.Text != "" {
			check := statement.Analyze("SELECT 1 WHERE " + strings.TrimPrefix(r.Text, "CHECK "))
			if check.Sure.Class == statement.Private {
				s.hidden.note(volatile, "the check of the domain "+name)
			}
			t.checks = append(t.checks, check)
		}
		s.types[name] = t
	case "cast":
		s.hidden.note(ofExtension(volatilityOf(r.A), r.B), name)
	case "database":
		s.Database = name
	case "domain":
		s.hidden.note(volatilityOf(r.A), "the check of the domain "+name)
	default:
		return fmt.Errorf("coalesce: the catalog has a row of the unknown kind %q", r.Kind)
	}
	return nil
}

func (s *Snapshot) relation(name string) *relation {
	rel := s.relations[name]
	if rel == nil {
		rel = new(relation)
		s.relations[name] = rel
	}
	return rel
}

// markForeign marks the tables that a foreign table is a part of.
func (s *Snapshot) markForeign(rel *relation) {
	for _, name := range rel.parents {
		if parent := s.relation(name); !parent.foreign {
			parent.foreign = true
			s.markForeign(parent)
		}
	}
}

func (s *Snapshot) addRelation(rel *relation, r *Row) {
	switch r.A {
	case "r", "p", "m":
		rel.table = true
	case "f":
		rel.foreign = true
	case "S":
		rel.sequence = true
	}
	rel.secured = rel.secured || strings.Contains(r.B, "s")
	rel.policy = rel.policy || strings.Contains(r.B, "p")
	rel.calls = rel.calls || strings.Contains(r.B, "c")
	rel.triggers = rel.triggers || strings.Contains(r.B, "t")
	rel.rules = rel.rules || strings.Contains(r.B, "r")
	rel.typed = rel.typed || strings.Contains(r.B, "y")
}

func (rel *relation) touch(name string) {
	if !slices.Contains(rel.with, name) {
		rel.with = append(rel.with, strings.Clone(name))
	}
}
