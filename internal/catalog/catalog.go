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
	// CommitsElsewhere: there is an extension by which code can write in a
	// transaction other than its own.
	CommitsElsewhere bool

	relations map[string]*relation
	functions map[string]function
	operators map[string]operator
	types     map[string]typ
	// hidden may be called where values of the user's types occur, builtin
	// where there is none.
	hidden, builtin hidden
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

// noteHidden notes an operator or a cast. What an extension does to built-in
// types it is trusted with.
func (s *Snapshot) noteHidden(r *Row, by string) {
	v := ofExtension(volatilityOf(r.A), r.B)
	s.hidden.note(v, by)
	if r.B == "b" {
		s.builtin.note(v, by)
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
	// changes: run by a trigger, say, it may leave its session changed.
	changes bool
	// defaults are what the default arguments do; nil if they are constants.
	defaults *statement.Analysis
	// takes are the delicate types of its arguments and of what it returns, see
	// [loading.delicate].
	takes []string
}

type operator struct {
	volatility volatility
	takes      []string // as a function's
}

// randomExtensions are those whose VOLATILE functions make random values, and
// neither write nor change the session.
var randomExtensions = map[string]bool{"pgcrypto": true, "uuid-ossp": true}

// quietExtensions are those whose VOLATILE functions and triggers leave the
// session as it was.
var quietExtensions = map[string]bool{"pgcrypto": true, "uuid-ossp": true, "moddatetime": true, "autoinc": true, "insert_username": true, "lo": true, "tcn": true}

// ofExtension is the volatility of an operator or a cast. A STABLE one of an
// extension, such as pg_trgm's %, depends on settings, which are the session's.
func ofExtension(v volatility, flags string) volatility {
	if v == stable && strings.Contains(flags, "e") {
		return immutable
	}
	return v
}

type typ struct {
	input volatility
	// checks are what the constraints of a domain do.
	checks []*statement.Analysis
	// within are the types that a domain, a range or a composite type is made
	// of, and the delicate ones of the columns of a relation.
	within []string
}

// relation is all relations of one name.
type relation struct {
	secured  bool                // row security
	policy   *statement.Analysis // what the policies run; nil: there are none
	calls    bool                // a default, constraint or index writes
	changes  bool                // a write to it may leave the session changed
	triggers bool
	rules    bool
	typed    bool // has a column of a type of the user's
	zoned    bool // has a column of type timetz
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
		operators: make(map[string]operator),
		types:     make(map[string]typ),
	}
	l := loading{Snapshot: s, trees: make(map[stored]*tree), runs: make(map[string][]string), domains: make(map[string][]string), bodies: make(map[string][]body)}
	for i := range rows {
		if err := l.add(&rows[i]); err != nil {
			return nil, err
		}
	}
	l.finish()
	return s, nil
}

// loading is a snapshot that is being made, with what it does not keep.
type loading struct {
	*Snapshot
	trees   map[stored]*tree
	runs    map[string][]string // functions that a write to a relation runs
	domains map[string][]string // functions that the checks of a domain call
	bodies  map[string][]body
	// takes are the types of arguments that have parts or checks.
	takes []argument
}

// argument is a type that a function or an operator takes.
type argument struct {
	operator  bool
	name, typ string
}

// stored is what has trees in the catalog: the views, default arguments,
// policies or other code of one name.
type stored struct{ kind, name string }

func (l *loading) finish() {
	does := make(map[string]*statement.Analysis)
	for of, t := range l.trees {
		a := statement.Analyze(t.text())
		switch of.kind {
		case "uses":
			l.relation(of.name).view = a
		case "argument":
			f := l.functions[of.name]
			f.defaults = a
			l.functions[of.name] = f
		case "policy":
			l.relation(of.name).policy = a
		case "does":
			does[of.name] = a
		}
	}
	for name, a := range does {
		l.relation(name).calls = l.judged(a).Writes
	}
	for name, functions := range l.runs {
		rel := l.relation(name)
		rel.calls = rel.calls || slices.ContainsFunc(functions, func(f string) bool { return l.called(f).Writes })
	}
	for name, functions := range l.domains {
		if slices.ContainsFunc(functions, func(f string) bool { return l.called(f).Class == statement.Private }) {
			l.hidden.note(volatile, "the check of the domain "+name)
		}
	}
	for _, rel := range l.relations {
		if rel.foreign {
			l.markForeign(rel)
		}
	}
	l.followChanges(does)
	l.followDelicate()
}

// followDelicate notes where values are made of delicate types that the text
// does not name: their checks run before a function is called, or as a row is
// made.
func (l *loading) followDelicate() {
	known := make(map[string]bool)
	delicate := func(name string) bool {
		d, ok := known[name]
		if !ok {
			d = l.delicate(name)
			known[name] = d
		}
		return d
	}
	// All of them first: the check of a domain may call what takes another.
	for _, a := range l.takes {
		if !a.operator {
			f := l.functions[a.name]
			f.takes = append(f.takes, a.typ)
			l.functions[a.name] = f
		} else if o, ok := l.operators[a.name]; ok { // else it is built in, or one of a temporary schema
			o.takes = append(o.takes, a.typ)
			l.operators[a.name] = o
		}
	}
	plain := func(typ string) bool { return !delicate(typ) }
	for _, a := range l.takes {
		if a.operator && statement.BuiltinOperator(a.name) && delicate(a.typ) {
			l.hidden.note(stable, "the check of the domain "+a.typ)
		}
	}
	for name, f := range l.functions {
		if f.takes != nil {
			f.takes = slices.DeleteFunc(f.takes, plain)
			l.functions[name] = f
		}
	}
	for name, o := range l.operators {
		o.takes = slices.DeleteFunc(o.takes, plain)
		l.operators[name] = o
	}
	for name := range l.relations {
		t, ok := l.types[name]
		if !ok {
			continue
		}
		t.within = slices.DeleteFunc(t.within, plain)
		l.types[name] = t
		if len(t.within) == 0 && t.checks == nil && t.input == immutable {
			delete(l.types, name)
		}
	}
}

// delicate reports whether to make a value of a type depends on more than what
// it is made of: a domain in it has a check that reads a table or the time.
func (l *loading) delicate(name string) bool {
	j := judge{s: l.Snapshot, v: Verdict{Effect: statement.Effect{Class: statement.Holdable}}}
	j.typ(name, "")
	return j.v.Class != statement.Holdable && !j.v.Unknown
}

// tree collects what the trees of one kind and name use.
type tree struct{ calls, from, words []string }

// text is a query that uses the same.
func (t *tree) text() string {
	var b strings.Builder
	b.WriteString("SELECT 1")
	for _, call := range t.calls {
		b.WriteString(", " + call + "()")
	}
	for _, word := range t.words {
		switch word {
		case "time":
			b.WriteString(", CURRENT_DATE")
		case "xmltable":
			b.WriteString(", XMLTABLE()")
		}
	}
	for i, from := range t.from {
		b.WriteString([]string{" FROM ", " CROSS JOIN "}[min(i, 1)] + from)
	}
	for _, word := range t.words {
		switch word {
		case "lock":
			b.WriteString(" FOR UPDATE")
		case "sample":
			b.WriteString(" TABLESAMPLE SYSTEM (1)")
		}
	}
	return b.String()
}

func (t *tree) use(r *Row) {
	switch r.A {
	case "relation":
		schema := ""
		if r.B == "c" {
			schema = "pg_catalog."
		}
		t.from = append(t.from, schema+quote(r.Text))
	case "function":
		schema := "pg_catalog."
		if r.B == "u" {
			schema = "users."
		}
		t.calls = append(t.calls, schema+quote(r.Text))
	case "type":
		t.calls = append(t.calls, "NULL::users."+quote(strings.TrimPrefix(r.Text, "_"))+"::text || concat")
	case "word":
		t.words = append(t.words, r.Text)
	}
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (l *loading) tree(kind, name string) *tree {
	t := l.trees[stored{kind, name}]
	if t == nil {
		t = new(tree)
		l.trees[stored{kind, name}] = t
	}
	return t
}

func (l *loading) add(r *Row) error {
	s := l.Snapshot
	name := strings.Clone(r.Name)
	switch r.Kind {
	case "relation":
		if r.A == "v" {
			l.tree("uses", name)
		}
		s.addRelation(s.relation(name), r)
		if r.Text != "" {
			l.runs[name] = append(l.runs[name], strings.Split(r.Text, "\n")...)
		}
	case "uses", "argument", "policy", "does":
		l.tree(r.Kind, name).use(r)
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
		f.attribute = f.attribute || strings.Contains(r.B, "a")
		f.changes = f.changes || strings.Contains(r.B, "x") && !quietExtensions[r.Text]
		s.functions[name] = f
		s.CommitsElsewhere = s.CommitsElsewhere || r.Text == "dblink"
	case "body":
		l.bodies[name] = append(l.bodies[name], scan(r.Text))
	case "operator":
		o := s.operators[name]
		o.volatility = max(o.volatility, ofExtension(volatilityOf(r.A), r.B))
		s.operators[name] = o
		if statement.BuiltinOperator(name) {
			s.noteHidden(r, "the operator "+name)
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
	case "range":
		v := volatilityOf(r.A)
		t, f := s.types[name], s.functions[name] // which makes one of its ends
		t.input, f.volatility = max(t.input, v), max(f.volatility, v)
		s.types[name], s.functions[name] = t, f
	case "within":
		t := s.types[name]
		t.within = append(t.within, strings.Clone(r.A))
		s.types[name] = t
	case "takes", "operates":
		l.takes = append(l.takes, argument{r.Kind == "operates", name, strings.Clone(r.A)})
	case "cast":
		s.noteHidden(r, name)
	case "database":
		s.Database = name
	case "domain":
		l.domains[name] = append(l.domains[name], r.A)
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
	rel.triggers = rel.triggers || strings.Contains(r.B, "t")
	rel.rules = rel.rules || strings.Contains(r.B, "r")
	rel.typed = rel.typed || strings.Contains(r.B, "y")
	rel.zoned = rel.zoned || strings.Contains(r.B, "z")
}

func (rel *relation) touch(name string) {
	if !slices.Contains(rel.with, name) {
		rel.with = append(rel.with, strings.Clone(name))
	}
}
