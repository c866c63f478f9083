// Package statement says what an SQL text can do, from the text alone: whether
// its result may be shared, whether it may write, what it does to its session
// and transaction, and which names it uses.
//
// It is a scanner of PostgreSQL's lexical grammar with a little memory, not a
// parser: it takes linear time, cannot recurse, and errs on one side only.
// What it calls shareable is one plain read made of names that are built in or
// are taken for tables; whatever it does not understand is private, writes and
// taints its session.
//
// Some things cannot be seen in a text and are left to the caller: a relation
// that is a view, a sequence, a temporary table or under row security; a name
// resolved by an unusual search_path; user-defined overloads of a built-in
// function or operator for other argument types; a column that is a function
// in disguise (t.f for f(t)); casts, operators and domains behind built-in
// syntax on values of user-defined types; text arguments and stored text that
// say now (see SaysNow).
package statement

// Class is the most sharing that a text allows.
type Class uint8

const (
	// Private texts run on their own.
	Private Class = iota
	// Joinable texts are shared while in flight, never held.
	Joinable
	// Holdable texts are shared in flight and held.
	Holdable
)

// String returns "private", "joinable" or "holdable".
func (c Class) String() string {
	switch c {
	case Joinable:
		return "joinable"
	case Holdable:
		return "holdable"
	}
	return "private"
}

// Tx is what a text does to the transaction it runs in.
type Tx uint8

const (
	// TxNone texts neither start nor end a transaction. So says the analysis
	// of several statements in one text too, whatever they are.
	TxNone Tx = iota
	// TxBegin is BEGIN or START TRANSACTION.
	TxBegin
	// TxCommit is COMMIT, END or PREPARE TRANSACTION.
	TxCommit
	// TxRollback is ROLLBACK or ABORT of the whole transaction.
	TxRollback
)

// The causes, fit as labels of a statistic.
const (
	CauseWrite           = "write"
	CauseLock            = "row lock"
	CauseVolatile        = "volatile function"
	CauseStable          = "stable function" // joinable only: depends on more than session settings
	CauseUnknownFunction = "unknown function"
	CauseSession         = "session-bound"
	CauseCatalog         = "system catalog" // joinable if it is only looked up in
	CauseSeveral         = "several statements"
	CauseNotRead         = "not a read"
	CauseUnparsed        = "unparsed"
	CauseTooLong         = "text too long"
	CauseTime            = "depends on time"
	CauseUnknownType     = "unknown type"
	CauseOperator        = "unknown operator"
	CauseSystemColumn    = "system column"

	// These need the server's catalog; Analyze gives none of them.
	CauseUnknownRelation = "unknown relation"
	CauseSecured         = "row security"
	CauseForeign         = "foreign table"
	CauseSequence        = "sequence"
)

// MaxLen is the length in bytes of the longest text that may be shared. Longer
// ones, up to maxScan, are read for their effects: a bulk INSERT is no reason to
// give its session up.
const (
	MaxLen  = 256 << 10
	maxScan = 16 << 20
)

// Effect is what a text can do to others and to its session.
type Effect struct {
	Class Class

	// Cause is the constant that tells why Class is not Holdable; "" if it is.
	Cause string

	// Reason says the same in plain words, with the name at fault.
	Reason string

	// Writes reports whether the text may change data or schema that another
	// session can read. It is false only if the text proves it.
	Writes bool

	// Schema reports whether the text may change the schema or code in the
	// database. It implies Writes.
	Schema bool

	// Taints reports whether the text may leave the session different from a
	// fresh one. Casts to types that are not built in are not counted: enums
	// are too common, and a CHECK of a domain that changes the session too odd.
	Taints bool

	// Locks reports whether the text may take or give back advisory locks of
	// the session, which is all that it then need differ in.
	Locks bool
}

// Analysis is what Analyze found out about a text. It is immutable and safe
// for concurrent use, and keeps no reference to the text.
type Analysis struct {
	// Effect is the verdict where nothing is known of names that are not
	// built in: they may do anything, but relations are taken for tables.
	Effect

	// Sure is the verdict where none of those names does any harm.
	Sure Effect

	Tx Tx

	// Cleans reports whether the text is DISCARD ALL.
	Cleans bool

	// Defines reports whether the text runs no query and writes no rows, so that
	// what its tables set off does not happen: it is DDL, upkeep, or less.
	Defines bool

	// Defaults reports whether the text may change the settings that sessions
	// begin with, which those under way keep as they were.
	Defaults bool

	// Opaque reports whether the answer depends on what no name in the text
	// leads to: the system catalog, in which functions and casts look things up.
	Opaque bool

	// Computes reports whether a query has more in it than literals and
	// parameters: operators and casts of built-in names may be the user's.
	Computes bool

	// Backslash reports whether an ordinary literal has a backslash: with
	// standard_conforming_strings off the text would mean something else.
	Backslash bool

	// Key is the SHA-256 of the text's normal form: comments count as white
	// space, runs of white space are folded, a last semicolon is dropped.
	// /*+ hints */ and everything in quotes stay. It is zero for texts over MaxLen.
	Key [32]byte

	// Tables are the identifiers that may name a relation, Functions those
	// that may be called, the parameterless CURRENT_DATE and the like
	// included. Both are supersets, without schema, folded as PostgreSQL
	// folds them, in order of appearance. The other two list the names that
	// are not built in.
	Tables    []string
	Functions []string
	Operators []string
	Types     []string

	// Relations are those of Tables that surely name relations: what stands
	// behind FROM or JOIN and is no common table expression. There may be more.
	// "", which no catalog has, stands for code that no name leads to: the body
	// of a DO, a procedure, event triggers.
	Relations []string

	// Qualified are those of Functions that are called with a schema other
	// than pg_catalog, so that they are no built-in ones.
	Qualified []string
}

// BuiltinFunction reports whether PostgreSQL has a function of this name.
func BuiltinFunction(name string) bool {
	d := dict()
	w := &d.words[d.lookup(hash(name), name, false)]
	// A type's name is a cast where it is used as a function.
	return w.function != vNone || w.typ != vNone || w.keyword.isFunction()
}

// RunsCode reports whether a built-in function of this name runs code that its
// arguments name, such as the input function of any type.
func RunsCode(name string) bool {
	d := dict()
	return d.words[d.lookup(hash(name), name, false)].function == vCode
}

// BuiltinOperator reports whether PostgreSQL has an operator of this name.
func BuiltinOperator(name string) bool { return len(name) == 1 || operators()[name] }
