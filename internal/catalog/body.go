package catalog

import (
	"slices"
	"strings"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// body is what a function in SQL or PL/pgSQL may do to its session.
type body struct {
	changes bool     // it may change it by what it says itself
	calls   []string // names before a parenthesis
	names   []string // all names
	ops     []string
}

// commands change the session, or may do anything, as the first word of a
// statement. A table that is created may be a temporary one, by a search_path.
var commands = map[string]bool{"set": true, "reset": true, "discard": true, "listen": true, "unlisten": true, "load": true, "prepare": true, "deallocate": true, "do": true, "create": true}

// words do so wherever they stand.
var words = map[string]bool{"execute": true, "call": true, "temp": true, "temporary": true}

// openers are words behind which PL/pgSQL has a statement.
var openers = map[string]bool{"begin": true, "then": true, "else": true, "loop": true}

// scan reads a body. It may take more for names and calls than there are.
func scan(src string) body {
	var b body
	calls, names, ops := make(set), make(set), make(set)
	first, dot := true, false // tok begins a statement, stands behind a dot
	last := ""                // the name before tok
	for i := 0; i < len(src) && !b.changes; {
		start, c := i, src[i]
		switch {
		case strings.IndexByte(" \t\n\r\f\v", c) >= 0:
			i++
			continue
		case strings.HasPrefix(src[i:], "--"):
			i += lineEnd(src[i:])
			continue
		case strings.HasPrefix(src[i:], "/*"):
			if i = statement.CommentEnd(src, i); i < 0 {
				i = len(src)
			}
			continue
		case c == '\'':
			escapes := i > 0 && last == "e" && src[i-1]|0x20 == 'e'
			i = quoteEnd(src, i, escapes)
			// Which quote ends it depends on a setting of the session.
			b.changes = !escapes && strings.Contains(src[start:i], `\'`)
			first, dot, last = false, false, ""
			continue
		case c == '"':
			i = quoteEnd(src, i, false)
			last = strings.ReplaceAll(strings.TrimSuffix(src[start+1:i], `"`), `""`, `"`)
			b.changes = start > 0 && src[start-1] == '&' || strings.HasPrefix(last, "pg_temp")
			names[last] = true
			first, dot = false, false
			continue
		case starts(c):
			for i < len(src) && (starts(src[i]) || '0' <= src[i] && src[i] <= '9' || src[i] == '$') {
				i++
			}
			last = strings.ToLower(src[start:i])
			b.changes = first && commands[last] || !dot && words[last] || strings.HasPrefix(last, "pg_temp") || last == "pg_settings"
			names[last] = true
			first, dot = openers[last], false
			continue
		case c == '$':
			i = dollarEnd(src, i)
			first = false
		case c == '(':
			if last != "" {
				calls[last] = true
			}
			i++
			first = false
		case strings.IndexByte("~!@#^&|`?+-*/%<>=", c) >= 0:
			for i < len(src) && strings.IndexByte("~!@#^&|`?+-*/%<>=", src[i]) >= 0 && (i == start || !strings.HasPrefix(src[i:], "--") && !strings.HasPrefix(src[i:], "/*")) {
				i++
			}
			ops[src[start:i]] = true
			first = strings.HasSuffix(src[start:i], ">>") // the end of a label
		default:
			i++
			first = c == ';'
		}
		dot, last = c == '.', ""
	}
	b.calls, b.names, b.ops = calls.list(), names.list(), ops.list()
	return b
}

type set map[string]bool

func (s set) list() []string {
	l := make([]string, 0, len(s))
	for name := range s {
		l = append(l, strings.Clone(name))
	}
	return l
}

func starts(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func lineEnd(s string) int {
	if i := strings.IndexAny(s, "\n\r"); i >= 0 {
		return i
	}
	return len(s)
}

// quoteEnd returns the end of what is in quotes from i on.
func quoteEnd(s string, i int, escapes bool) int {
	quote := s[i]
	for i++; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] != quote:
		case i+1 < len(s) && s[i+1] == quote:
			i++
		default:
			return i + 1
		}
	}
	return len(s)
}

// dollarEnd returns the end of a literal in dollar quotes, or of the dollar.
func dollarEnd(s string, i int) int {
	j := i + 1
	for j < len(s) && (starts(s[j]) || j > i+1 && '0' <= s[j] && s[j] <= '9') {
		j++
	}
	if j >= len(s) || s[j] != '$' {
		return i + 1
	}
	tag := s[i : j+1]
	if n := strings.Index(s[j+1:], tag); n >= 0 {
		return j + 1 + n + len(tag)
	}
	return len(s)
}

// quietTriggers are built-in trigger functions that change a row only.
var quietTriggers = map[string]bool{"tsvector_update_trigger": true, "tsvector_update_trigger_column": true, "suppress_redundant_updates_trigger": true}

// followChanges finds the relations a write to which may leave the session
// changed: by what they run, and what that runs, and so on.
func (l *loading) followChanges(does map[string]*statement.Analysis) {
	c := changes{l, make(map[string]bool)}
	for again := true; again; {
		again = false
		for name, f := range l.functions {
			if !f.changes && (slices.ContainsFunc(l.bodies[name], c.body) || f.defaults != nil && c.analysis(f.defaults)) {
				f.changes, again = true, true
				l.functions[name] = f
			}
		}
		for name, rel := range l.relations {
			if !rel.changes && c.relation(name, rel, does[name]) {
				rel.changes, again = true, true
			}
		}
	}
}

// changes asks whether something changes the session, by what is known so far.
type changes struct {
	*loading
	builtin map[string]bool
}

func (c *changes) relation(name string, rel *relation, does *statement.Analysis) bool {
	return slices.ContainsFunc(c.runs[name], func(f string) bool { return c.function(f) || c.unknown(f) }) ||
		does != nil && c.analysis(does) ||
		rel.view != nil && slices.ContainsFunc(rel.view.Tables, c.changesSession) ||
		slices.ContainsFunc(rel.with, c.changesSession)
}

func (c *changes) analysis(a *statement.Analysis) bool {
	return slices.ContainsFunc(a.Functions, c.function) || slices.ContainsFunc(a.Tables, c.changesSession)
}

func (c *changes) body(b body) bool {
	return b.changes || slices.ContainsFunc(b.calls, c.function) || slices.ContainsFunc(b.names, c.name) ||
		slices.ContainsFunc(b.ops, func(op string) bool { return c.operators[op].volatility == volatile })
}

// name asks of a name in a body that need not be a call.
func (c *changes) name(name string) bool {
	f := c.functions[name]
	rel := c.relations[name]
	return f.attribute && f.changes || rel != nil && (rel.changes || rel.view != nil && slices.ContainsFunc(rel.view.Functions, c.function))
}

func (c *changes) function(name string) bool {
	return c.functions[name].changes || c.builtIn(name)
}

// builtIn asks of the built-in function of a name, if there is one.
func (c *changes) builtIn(name string) bool {
	known, asked := c.builtin[name]
	if asked || quietTriggers[name] || !statement.BuiltinFunction(name) {
		return known
	}
	e := statement.Analyze("SELECT pg_catalog." + quote(name) + "()").Sure
	c.builtin[name] = e.Taints || e.Locks
	return c.builtin[name]
}

// unknown asks whether a function is not in the catalog as it was read.
func (c *changes) unknown(name string) bool {
	_, user := c.functions[name]
	return !user && !statement.BuiltinFunction(name)
}
