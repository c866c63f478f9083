package statement

import (
	"crypto/sha256"
	"strings"
	"sync"
)

// Analyze says what sql can do. It never fails: a text that it does not
// understand is private, writes and taints.
func Analyze(sql string) *Analysis {
	if len(sql) > maxScan {
		return opaque(sql, CauseTooLong, "is longer than 16 MB")
	}
	if strings.IndexByte(sql, 0) >= 0 {
		return opaque(sql, CauseUnparsed, "has a NUL byte")
	}
	s := scanners.Get().(*scanner)
	defer s.release()
	s.start(sql)
	if problem := s.run(); problem != "" {
		return opaque(sql, CauseUnparsed, problem)
	}
	return s.analysis()
}

// opaque is the analysis of a text that was not understood. Its key is that
// of the text as it stands.
func opaque(sql, cause, reason string) *Analysis {
	e := Effect{Cause: cause, Reason: reason, Writes: true, Schema: true, Taints: true}
	a := &Analysis{Effect: e, Sure: e, Backslash: strings.IndexByte(sql, '\\') >= 0}
	if len(sql) <= MaxLen {
		a.Key = sha256.Sum256([]byte(sql))
	}
	return a
}

// paren is what a parenthesis stands for.
type paren uint8

const (
	parenPlain    paren = iota
	parenCast           // CAST (, XMLSERIALIZE (: a type follows AS
	parenCTE            // the query of a CTE
	parenCTENames       // the column names of a CTE
	parenOn             // DISTINCT ON (, RETURNING WITH (: an expression may follow it directly
	parenOperator       // OPERATOR (: likewise
	parenType           // modifiers of a type: a literal may follow it
	parenTimeType       // modifiers of TIME
	parenColumns        // columns of an alias, types perhaps with them
	parenXMLParse       // XMLPARSE (: DOCUMENT or CONTENT follows it
	parenQuery          // a query, other than a CTE's
	parenClauses        // an XML or JSON function of the grammar, with clauses of its own
)

// level is what is under way in a parenthesis.
type level struct {
	from  bool // a FROM clause: behind a comma stands a relation
	item  bool // it was opened where a relation could stand, for a join perhaps
	group bool // a GROUP BY clause: behind a comma may stand ROLLUP or CUBE
}

// cteState is the place in a WITH clause.
type cteState uint8

const (
	cteNone   cteState = iota
	cteName            // a name follows
	cteNamed           // behind the name or its column names
	cteAs              // behind AS
	cteClosed          // behind the query
)

// role is what the statement's first word makes of it.
type role uint8

const (
	roleRead    role = iota
	roleDML          // plain INSERT, UPDATE, DELETE, MERGE, TRUNCATE, COPY
	roleExplain      // EXPLAIN, DECLARE: as harmless as the read in it
	roleQuiet        // writes nothing
	roleDDL          // CREATE, ALTER: may write and may call functions
	roleUpkeep       // VACUUM, CALL and the like: no DDL but what code may hide
	roleOther        // may write anything
)

// runs reports whether what the statement names is read, written or called at
// once, at least if it is executed.
func (r role) runs() bool { return r == roleRead || r == roleDML || r == roleExplain }

// rank orders the causes when a text has several; the first of the highest
// rank is reported.
type rank uint8

const (
	rankNone rank = iota
	rankJoinable
	rankPrivate
	rankLock
	rankWrite
	rankNotRead
	rankSeveral
)

type scanner struct {
	lex  lexer
	norm normalizer
	dict *dictionary
	ops  map[string]bool

	tok, next token

	// What came before tok. end says that the token before tok surely ends an
	// operand: then tok cannot start one, so a name with a parenthesis behind
	// it is no call, and a name with a literal behind it is no type.
	prev, before      kind    // the last token and the one before it
	prevWord, earlier keyword // their keywords, kwNone for none
	end               bool
	endBeforeNot      bool // end as it was before the NOT that is the last token
	closed            paren

	stack  []paren
	open   paren // what the next parenthesis is
	level  level // of the innermost open parenthesis
	levels []level
	cte    cteState

	// The chain of names with dots between them that tok belongs to.
	qualifier qualifier
	chainEnd  bool // end as it was before the chain
	named     bool // the chain names an object, no call

	expectType bool
	compares   bool // the last DISTINCT is that of IS DISTINCT FROM

	// The statement.
	first       bool    // no word of it was seen yet
	verb        keyword // its first word
	headWord    bool    // tok is its first word
	role        role
	createIndex bool
	tempTable   bool // CREATE TEMP TABLE
	stores      bool // CREATE of what keeps its query or body for later
	alters      bool // ALTER
	queries     bool // CREATE of what runs a query: a table AS, a materialized view
	danger      bool // a word that writes
	merge       bool // MERGE
	into        bool // SELECT INTO
	temp        bool // TEMP or TEMPORARY
	unknown     bool // calls what may write anything
	sureUnknown bool // calls what is built in and may write anything

	long    bool // over MaxLen
	several bool
	empty   bool // no word was seen yet

	class    Class
	rank     rank
	cause    string
	reason   string
	sure     sureVerdict
	writes   bool
	schema   bool
	tx       Tx
	taints   bool
	cleans   bool
	runs     bool // see Analysis.Defines
	defaults bool // see Analysis
	looked   bool // for them in the code of a DO
	opaque   bool
	computes bool // see Analysis
	locks    bool // it may take or give back advisory locks of the session
	// nameTaints: a name that is not built in may change the session.
	nameTaints bool

	names                               nameBuffer
	tables, functions, operators, types nameSet
	relations, qualified, ctes          nameSet
	elsewhere                           nameSet // relations named with a schema: no CTEs
	// fromChain: the chain that tok belongs to stands where only the name of
	// a relation, a function or a query can.
	fromChain bool
}

// sureVerdict is the verdict without names that are not built in.
type sureVerdict struct {
	class          Class
	rank           rank
	cause, reason  string
	writes, schema bool
}

type qualifier uint8

const (
	unqualified qualifier = iota
	inCatalog             // pg_catalog.
	inSchema              // any other
)

var scanners = sync.Pool{New: func() any { return new(scanner) }}

func (s *scanner) start(sql string) {
	keep := scanner{
		norm: s.norm, stack: s.stack[:0], levels: s.levels[:0], names: s.names,
		tables: s.tables, functions: s.functions, operators: s.operators, types: s.types,
		relations: s.relations, qualified: s.qualified, ctes: s.ctes, elsewhere: s.elsewhere,
	}
	*s = keep
	s.norm.reset()
	s.names.reset()
	s.tables.reset()
	s.functions.reset()
	s.operators.reset()
	s.types.reset()
	s.relations.reset()
	s.qualified.reset()
	s.ctes.reset()
	s.elsewhere.reset()
	s.dict, s.ops = dict(), operators()
	s.lex = lexer{sql: sql, dict: s.dict, norm: &s.norm}
	s.class, s.sure.class, s.first, s.empty = Holdable, Holdable, true, true
	if len(sql) > MaxLen {
		s.long, s.lex.norm = true, nil // nobody needs its normal form
		s.limit(rankPrivate, Private, CauseTooLong, "is longer than 256 kB")
	}
}

// release keeps the scanner's memory for the next text unless it grew large.
func (s *scanner) release() {
	s.lex = lexer{}
	if cap(s.norm.buf) <= 64<<10 && cap(s.stack) <= 64<<10 && cap(s.names.buf) <= 64<<10 {
		scanners.Put(s)
	}
}

// run reads the whole text. It returns what is wrong with a text that it
// cannot read.
func (s *scanner) run() (problem string) {
	s.tok = s.lex.next()
	for s.tok.kind != tokEOF {
		if s.tok.kind == tokBad {
			return s.lex.problem
		}
		s.next = s.lex.next()
		if s.several {
			s.limit(rankSeveral, Private, CauseSeveral, "has several statements")
		}
		if problem := s.step(); problem != "" {
			return problem
		}
		if s.long && len(s.names.buf)+len(s.stack) > MaxLen {
			return "has too many names or parentheses"
		}
		s.tok = s.next
	}
	if len(s.stack) > 0 {
		return "unbalanced parentheses"
	}
	s.finish()
	return ""
}

func (s *scanner) step() (problem string) {
	if s.first && s.tok.kind != tokOpen && s.tok.kind != tokSemicolon {
		s.head()
	}
	open, cte := s.open, s.cte
	s.open = parenPlain
	end := false
	switch s.tok.kind {
	case tokWord, tokQuoted:
		s.name()
		return ""
	case tokOpen:
		s.push(open, cte)
		cte = cteNone
	case tokClose:
		if len(s.stack) == 0 {
			return "unbalanced parentheses"
		}
		s.closed = s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		s.level = s.levels[len(s.levels)-1]
		s.levels = s.levels[:len(s.levels)-1]
		end = s.closed != parenOn && s.closed != parenOperator
		switch s.closed {
		case parenCTE:
			cte = cteClosed
		case parenCTENames:
			cte = cteNamed
		default:
			cte = cteNone
		}
	case tokString, tokBits:
		if s.prev == tokString || s.prev == tokBits {
			// PostgreSQL does not join them, but their normal form might.
			return "literals next to each other"
		}
		// N'…' is NCHAR and a literal: behind a dot, it is of a type of that name.
		if s.prev == tokDot || s.prev == tokClose && (s.closed == parenPlain || s.closed == parenQuery || s.closed == parenColumns) {
			s.limit(rankPrivate, Private, CauseUnknownType, "has a literal of a type that is not built in")
			s.callsAnything(s.role != roleDML)
		}
		end, cte = true, cteNone
	case tokNumber, tokParam, tokCloseList:
		end, cte = true, cteNone
	case tokOperator:
		s.operator(s.lex.sql[s.tok.start:s.tok.end])
		s.compute()
		cte = cteNone
	case tokComma:
		if cte == cteClosed {
			cte = cteName
		} else {
			cte = cteNone
		}
	case tokDot:
		if s.prev != tokWord && s.prev != tokQuoted {
			s.qualifier, s.chainEnd, s.named = inSchema, false, false
		}
		expect := s.expectType
		s.after(tokDot, kwNone, false, cteNone)
		s.expectType = expect
		return ""
	case tokCast:
		s.compute()
		s.after(tokCast, kwNone, false, cteNone)
		s.expectType = true
		return ""
	case tokSemicolon:
		s.finish()
		s.beginStatement()
		return ""
	default:
		cte = cteNone
	}
	s.after(s.tok.kind, kwNone, end, cte)
	return ""
}

func (s *scanner) after(k kind, word keyword, end bool, cte cteState) {
	s.before, s.prev = s.prev, k
	s.earlier, s.prevWord = s.prevWord, word
	s.end, s.cte, s.expectType = end, cte, false
}

func (s *scanner) push(open paren, cte cteState) {
	switch {
	case s.prevWord == kwAs && open == parenPlain:
		if cte == cteAs {
			open = parenCTE
		} else if s.before == tokClose || s.earlier == kwOrdinality {
			open = s.columns()
		}
	case cte == cteAs && s.prevWord == kwMaterialized:
		open = parenCTE
	}
	s.stack = append(s.stack, open)
	s.levels = append(s.levels, s.level)
	s.level = level{item: s.namesRelation(), group: s.level.group && s.prevWord == kwSets && s.earlier == kwGrouping}
}

func (s *scanner) top() paren {
	if len(s.stack) == 0 {
		return parenPlain
	}
	return s.stack[len(s.stack)-1]
}

// limit lowers the class for a cause.
func (s *scanner) limit(r rank, c Class, cause, reason string) {
	s.limitName(r, c, cause, reason)
	if r > s.sure.rank {
		s.sure.rank, s.sure.class, s.sure.cause, s.sure.reason = r, c, cause, reason
	}
}

// limitName lowers the class for a name that is not built in.
func (s *scanner) limitName(r rank, c Class, cause, reason string) {
	if r > s.rank {
		s.rank, s.class, s.cause, s.reason = r, c, cause, reason
	}
}

// runsCalls reports whether the statement runs the functions it calls, rather
// than keep them for later.
func (s *scanner) runsCalls() bool {
	return s.role.runs() || s.role == roleDDL && (s.queries || s.createIndex || s.alters)
}

// compute notes that a query computes something.
func (s *scanner) compute() { s.computes = s.computes || s.role.runs() }

// hidesCode notes that the statement runs code that nothing in it names. The
// catalog cannot say that it does no harm.
func (s *scanner) hidesCode() {
	s.unknown = true
	s.elsewhere.add(&s.names, len(s.names.buf))
}

// callsAnything notes a call of what may write anything.
func (s *scanner) callsAnything(does bool) {
	s.unknown = s.unknown || does
	s.sureUnknown = s.sureUnknown || does
}

// judge applies the verdict on a name.
func (s *scanner) judge(v verdict, verb, name string) {
	j := &verdicts[v]
	s.opaque = s.opaque || v == vCatalog
	s.locks = s.locks || v == vLocks
	if v == vCode {
		s.unknown = true
		s.nameTaints = s.nameTaints || s.runsCalls()
		s.limitName(rankPrivate, Private, CauseUnknownFunction, verb+name+", which "+j.how)
	}
	taints := j.taints && s.runsCalls()
	limit := s.limit
	if v == vNone {
		s.nameTaints = s.nameTaints || taints
		s.unknown = s.unknown || j.writes
		limit = s.limitName
	} else {
		s.taints = s.taints || taints
		s.callsAnything(j.writes)
	}
	r := rankPrivate
	switch j.class {
	case Holdable:
		return
	case Joinable:
		r = rankJoinable
	}
	if r > s.sure.rank || r > s.rank {
		limit(r, j.class, j.cause, verb+name+", which "+j.how)
	}
}

func (s *scanner) finish() {
	if s.first {
		if s.empty {
			s.limit(rankNotRead, Private, CauseNotRead, "is empty")
		}
		return
	}
	s.taints = s.taints || s.temp && (s.into || s.role == roleExplain || s.role == roleDDL)
	s.runs = s.runs || s.role.runs() || s.queries
	writes, schema := s.writing(s.unknown)
	s.writes, s.schema = s.writes || writes, s.schema || schema
	writes, schema = s.writing(s.sureUnknown)
	s.sure.writes, s.sure.schema = s.sure.writes || writes, s.sure.schema || schema
}

// writing reports whether the statement may write, and more than rows, given
// whether it calls what may do anything.
func (s *scanner) writing(unknown bool) (writes, schema bool) {
	switch s.role {
	case roleRead:
		return unknown || s.danger || s.into, unknown || s.into
	case roleDML:
		return true, unknown
	case roleExplain:
		return unknown || s.danger || s.into, unknown || s.danger || s.into
	case roleQuiet:
		return false, false
	case roleUpkeep:
		return true, unknown
	case roleDDL:
		return true, unknown || !s.tempTable
	}
	return true, true
}

// beginStatement is called behind a semicolon.
func (s *scanner) beginStatement() {
	if s.next.kind != tokEOF {
		s.several = true
	}
	s.after(tokSemicolon, kwNone, false, cteNone)
	s.first = true
	s.level, s.verb = level{}, kwNone
	s.role, s.createIndex, s.tempTable, s.stores, s.queries, s.alters = roleRead, false, false, false, false, false
	s.danger, s.merge, s.into, s.temp, s.unknown, s.sureUnknown = false, false, false, false, false, false
}

func (s *scanner) analysis() *Analysis {
	if s.lex.timeWord {
		s.limit(rankJoinable, Joinable, CauseTime, "has a literal that may mean the current time")
	}
	a := &Analysis{
		Effect: Effect{s.class, s.cause, s.reason, s.writes, s.schema, s.taints || s.nameTaints, s.locks},
		Sure:   Effect{s.sure.class, s.sure.cause, s.sure.reason, s.sure.writes, s.sure.schema, s.taints, s.locks},
		Tx:     s.tx, Cleans: s.cleans, Defines: !s.runs, Defaults: s.defaults, Opaque: s.opaque, Computes: s.computes,
		Backslash: s.lex.backslash,
	}
	if !s.long {
		a.Key = sha256.Sum256(s.norm.form())
	}
	if s.several {
		a.Writes, a.Schema, a.Tx, a.Cleans = true, true, TxNone, false
		a.Sure.Writes, a.Sure.Schema = true, true
	}
	s.relations.drop(&s.names, &s.ctes)
	s.relations.names = append(s.relations.names, s.elsewhere.names...)
	n := len(s.relations.names) + len(s.qualified.names) + len(s.tables.names) + len(s.functions.names) + len(s.operators.names) + len(s.types.names)
	if n > 0 {
		text, all := string(s.names.buf), make([]string, 0, n)
		for _, l := range []struct {
			set *nameSet
			to  *[]string
		}{{&s.tables, &a.Tables}, {&s.functions, &a.Functions}, {&s.operators, &a.Operators}, {&s.types, &a.Types}, {&s.relations, &a.Relations}, {&s.qualified, &a.Qualified}} {
			if len(l.set.names) == 0 {
				continue
			}
			from := len(all)
			for _, n := range l.set.names {
				all = append(all, text[n.start:n.end])
			}
			*l.to = all[from:len(all):len(all)]
		}
	}
	return a
}
