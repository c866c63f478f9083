package statement

import "strings"

// name takes in an identifier or a keyword.
func (s *scanner) name() {
	t, next := s.tok, s.next.kind
	w := &s.dict.words[t.word]
	kw, cat := kwNone, catNone
	if t.kind == tokWord {
		kw, cat = w.keyword, w.category
	}
	head, afterDot := s.headWord, s.prev == tokDot
	s.headWord = false
	switch kw {
	case kwSelect, kwValues, kwNull, kwTrue, kwFalse:
	default:
		s.compute()
	}
	if kw != kwNone {
		s.keyword(kw)
	}
	cte, isCTE := s.nextCTE(kw)
	if isCTE {
		s.add(&s.ctes, t)
	}

	end := s.end
	if s.prevWord == kwNot {
		end = s.endBeforeNot
	}
	if afterDot {
		end = s.chainEnd
	} else {
		s.chainEnd, s.qualifier, s.named = end, unqualified, s.namesObject()
		s.fromChain = s.namesRelation()
	}

	typ := s.expectType || cat != catReserved && s.inColumnType()
	switch {
	case next == tokDot:
		s.qualify(t, w, afterDot)
		s.after(t.kind, kw, true, cte)
		s.expectType = typ
		return
	case typ:
		s.typeName(t, w)
		if next == tokOpen {
			s.open = typeParen(kw)
		}
	case head:
		// The statement's first word is no name.
	case next == tokOpen:
		s.beforeParenthesis(t, w, kw, cat, end, isCTE)
	case next == tokString && !end && (afterDot || cat != catReserved && cat != catColumn) && !s.isSyntax(kw):
		s.typeName(t, w)
	case afterDot, cat != catReserved && cat != catFunction && !s.isSyntax(kw):
		s.relation(t, w)
	}

	s.after(t.kind, kw, s.ends(kw, cat, afterDot), cte)
	if kw == kwNot {
		s.endBeforeNot = end
	}
	s.expectType = kw == kwAs && s.top() == parenCast ||
		kw == kwReturning && s.role == roleRead && !s.danger
}

// keyword takes in what a keyword means wherever it stands. There are no
// exceptions: a column that is called update makes its text private.
func (s *scanner) keyword(kw keyword) {
	switch kw {
	case kwFrom:
		// Not that of EXTRACT, SUBSTRING or TRIM, nor IS DISTINCT FROM.
		top := s.top()
		if !(s.prevWord == kwDistinct && s.compares) && s.verb != kwCopy && (len(s.stack) == 0 || top == parenQuery || top == parenCTE) {
			s.level.from = s.prev != tokDot || s.level.from
		}
	case kwWhere, kwGroup, kwHaving, kwWindow, kwUnion, kwExcept, kwIntersect, kwOrder, kwLimit, kwOffset:
		s.level.from = s.level.from && s.prev == tokDot
		s.level.group = false
	case kwBy:
		s.level.group = s.prevWord == kwGroup && s.before != tokDot
	case kwReturning:
		s.level.group = false
	case kwCascade:
		if s.verb == kwTruncate {
			// It follows every foreign key, whatever its action.
			s.callsAnything(true)
		}
	case kwSelect:
		s.level.from, s.level.group = false, false
		s.queries = s.queries || s.role == roleDDL && !s.stores
		s.startsQuery()
	case kwAs:
		s.queries = s.queries || s.role == roleDDL && !s.stores && s.queryNext()
	case kwMerge:
		s.merge = true
		s.write()
	case kwInsert, kwDelete, kwTruncate:
		s.write()
	case kwUpdate:
		if s.prevWord != kwFor && !(s.prevWord == kwKey && s.earlier == kwNo) {
			s.write()
		}
	case kwInto:
		if s.prevWord == kwInsert || s.prevWord == kwMerge {
			s.write()
			return
		}
		s.into = true
		s.limit(rankWrite, Private, CauseWrite, "makes a table (SELECT INTO)")
	case kwDistinct:
		s.compares = s.prevWord == kwIs && s.before != tokDot || s.prevWord == kwNot && s.earlier == kwIs
	case kwFetch:
		s.level.from, s.level.group = s.level.from && s.prev == tokDot, false
	case kwFor:
		s.level.from, s.level.group = s.level.from && s.prev == tokDot, false
		switch s.nextKeyword() {
		case kwUpdate:
			s.limit(rankLock, Private, CauseLock, "locks rows (FOR UPDATE)")
		case kwNo:
			s.limit(rankLock, Private, CauseLock, "locks rows (FOR NO KEY UPDATE)")
		case kwShare:
			s.limit(rankLock, Private, CauseLock, "locks rows (FOR SHARE)")
		case kwKey:
			s.limit(rankLock, Private, CauseLock, "locks rows (FOR KEY SHARE)")
		}
	case kwTablesample:
		s.limit(rankPrivate, Private, CauseVolatile, "samples rows (TABLESAMPLE)")
	case kwCurrentDate, kwCurrentTime, kwCurrentTimestamp, kwLocaltime, kwLocaltimestamp:
		s.add(&s.functions, s.tok)
		s.limit(rankJoinable, Joinable, CauseTime, "depends on the time")
	case kwCurrentCatalog, kwCurrentRole, kwCurrentSchema, kwCurrentUser, kwSessionUser, kwSystemUser, kwUser:
		s.add(&s.functions, s.tok)
		s.limit(rankJoinable, Joinable, CauseSession, "depends on the session's user, schema or database")
	case kwTemp, kwTemporary:
		s.temp = true
	case kwWith:
		s.startsQuery()
		// A time without date becomes a timetz by today's offset.
		if s.nextKeyword() == kwTime && (s.prevWord == kwTime || s.prev == tokClose && s.closed == parenTimeType) {
			s.limit(rankJoinable, Joinable, CauseTime, "uses time with time zone, which depends on the date")
		}
	case kwExecute:
		if s.role == roleExplain || s.role == roleDDL && s.prevWord == kwAs {
			s.danger, s.taints = true, true
		}
	case kwCreate, kwRefresh:
		s.danger = s.danger || s.role == roleExplain
	case kwHold:
		s.taints = s.taints || s.role == roleExplain && s.prevWord == kwWith
	}
}

// startsQuery notes that tok, if it follows a parenthesis, starts a query in it.
func (s *scanner) startsQuery() {
	if top := s.top(); s.prev == tokOpen && (top == parenPlain || top == parenClauses) {
		s.stack[len(s.stack)-1] = parenQuery
	}
}

func (s *scanner) write() {
	s.danger = true
	if s.sure.rank < rankWrite {
		s.limit(rankWrite, Private, CauseWrite, "writes ("+s.shout(s.tok)+")")
	}
}

// queryNext reports whether a query follows tok.
func (s *scanner) queryNext() bool {
	l := s.ahead()
	t := s.next
	for t.kind == tokOpen {
		t = l.next()
	}
	return t.kind == tokWord && s.dict.words[t.word].keyword.isQuery()
}

// nextKeyword returns the keyword that follows tok.
func (s *scanner) nextKeyword() keyword {
	if s.next.kind != tokWord {
		return kwNone
	}
	return s.dict.words[s.next.word].keyword
}

// nextCTE returns the place in a WITH clause behind tok, and whether tok is
// the name of a CTE.
func (s *scanner) nextCTE(kw keyword) (next cteState, isCTE bool) {
	if kw == kwWith {
		return cteName, false
	}
	switch s.cte {
	case cteName:
		switch kw {
		case kwRecursive:
			if s.prevWord == kwWith && s.next.kind != tokOpen && s.nextKeyword() != kwAs {
				return cteName, false
			}
		case kwTies, kwOrdinality, kwTime:
			return cteNone, false
		}
		return cteNamed, true
	case cteNamed:
		if kw == kwAs {
			return cteAs, false
		}
	case cteAs:
		if kw == kwNot || kw == kwMaterialized {
			return cteAs, false
		}
	}
	return cteNone, false
}

// qualify takes in the name in front of a dot.
func (s *scanner) qualify(t token, w *word, afterDot bool) {
	if w.name == "pg_catalog" && !afterDot {
		s.qualifier = inCatalog
		return
	}
	s.qualifier = inSchema
	from := s.fromChain && w.name != "information_schema"
	s.fromChain = false
	s.relation(t, w)
	s.fromChain = from
}

// namesObject reports whether a chain of names that starts with tok names an
// object even if a parenthesis follows it.
func (s *scanner) namesObject() bool {
	if s.prevWord == kwInto {
		return true
	}
	switch s.role {
	case roleDML:
		return s.prevWord == kwCopy
	case roleUpkeep:
		return s.verb != kwCall
	case roleDDL:
	default:
		return false
	}
	switch s.prevWord {
	case kwTable, kwReferences, kwExists, kwView, kwFunction, kwProcedure, kwRoutine:
		return true
	case kwOn, kwOnly:
		return s.createIndex
	case kwUsing:
		return s.createIndex || s.earlier == kwExclude
	}
	return false
}

// namesRelation reports whether a relation, a function or a query stands where
// tok does, at the start of a chain of names or with a parenthesis.
func (s *scanner) namesRelation() bool {
	switch s.prevWord {
	case kwJoin:
		return true
	case kwFrom, kwOnly, kwLateral:
		return s.level.from || s.level.item || s.prevWord == kwOnly && (s.earlier == kwTable && (s.role == roleRead || s.verb == kwTruncate) || s.namesTarget(s.earlier, kwNone))
	case kwTable:
		return s.role == roleRead || s.verb == kwTruncate
	}
	return s.prev == tokComma && (s.level.from || s.verb == kwTruncate) || s.prev == tokOpen && s.level.item || s.namesTarget(s.prevWord, s.earlier)
}

// namesTarget reports whether what is written to stands behind a word, which
// stands behind another.
func (s *scanner) namesTarget(word, before keyword) bool {
	switch word {
	case kwInto, kwCopy, kwTruncate:
		return s.role.runs()
	case kwUpdate:
		setsAtOnce := s.tok.kind == tokWord && s.dict.words[s.tok.word].keyword == kwSet // in MERGE, ON CONFLICT
		return s.role.runs() && before != kwFor && before != kwKey && !setsAtOnce
	}
	return false
}

// inColumnType reports whether tok starts the type in a column definition.
func (s *scanner) inColumnType() bool {
	return (s.prev == tokWord || s.prev == tokQuoted) && (s.before == tokOpen || s.before == tokComma) && s.top() == parenColumns
}

func typeParen(kw keyword) paren {
	if kw == kwTime {
		return parenTimeType
	}
	return parenType
}

// beforeParenthesis takes in a name that an opening parenthesis follows: a
// call, unless the grammar leaves no place for one.
func (s *scanner) beforeParenthesis(t token, w *word, kw keyword, cat category, end, isCTE bool) {
	afterDot := s.prev == tokDot
	switch {
	case kw == kwOperator && !afterDot && s.operatorAhead():
		s.open = parenOperator
	case s.named:
		s.relation(t, w)
	case isCTE:
		s.open = parenCTENames
	case afterDot:
		s.call(t, w)
	case s.prevWord == kwAs:
		s.open = s.columns()
	case cat == catReserved:
		switch {
		case kw == kwCast:
			s.open = parenCast
		case kw == kwOn && s.prevWord == kwDistinct, kw == kwWith && s.prevWord == kwReturning:
			s.open = parenOn
		}
	case cat == catColumn:
		s.open = s.columnKeyword(t, w, kw, end)
	case s.isSyntax(kw):
	case kw == kwSets && s.prevWord == kwGrouping:
	case (kw == kwRollup || kw == kwCube) && s.level.group && (s.prevWord == kwBy || s.prev == tokComma || s.prev == tokOpen):
	case (s.role != roleRead || s.danger) && s.isWriteSyntax(kw):
	default:
		s.callOrAlias(t, w, kw, cat, end)
	}
}

func (s *scanner) callOrAlias(t token, w *word, kw keyword, cat category, end bool) {
	switch {
	case !end:
		s.call(t, w)
		if kw == kwJSON {
			s.open = parenClauses
		}
	case cat == catFunction:
		// An operator such as LIKE or a JOIN.
	case kw == kwOver && !s.columnsInWindow():
	default:
		s.open = s.columns()
		if s.role != roleRead {
			s.relation(t, w)
		}
	}
}

// columnKeyword returns what a parenthesis behind a keyword is that can name
// a column and no function.
func (s *scanner) columnKeyword(t token, w *word, kw keyword, end bool) paren {
	switch kw {
	case kwBetween:
		if !end || !s.columnsInBetween() {
			return parenPlain
		}
	case kwValues:
		if !end || s.role != roleRead || s.danger || s.prev == tokClose && s.closed == parenCTE {
			return parenPlain
		}
	case kwTreat:
		// It calls the function that is called like the type.
		s.add(&s.functions, t)
		s.judge(vNone, "calls ", "TREAT")
	case kwXMLTable:
		// The types of its columns are hard to tell from their other words.
		s.limit(rankPrivate, Private, CauseUnknownType, "uses XMLTABLE, whose column types are not looked at")
		s.callsAnything(s.role != roleDML)
	}
	if end {
		return s.columns()
	}
	switch kw {
	case kwXMLParse:
		return parenXMLParse
	case kwXMLRoot, kwXMLExists:
		return parenClauses
	case kwXMLSerialize:
		return parenCast
	}
	if w.grammar != vNone {
		return typeParen(kw)
	}
	if w.function != vNone {
		s.add(&s.functions, t) // there may be overloads of it
	}
	return parenPlain
}

// isSyntax reports whether the word tok is part of a clause here, though it
// could be a name elsewhere.
func (s *scanner) isSyntax(kw keyword) bool {
	switch kw {
	case kwBy:
		return s.prevWord == kwGroup || s.prevWord == kwOrder || s.prevWord == kwPartition
	case kwFirst, kwNext:
		return s.prevWord == kwFetch
	case kwZone:
		return s.prevWord == kwTime
	case kwMaterialized:
		return s.cte == cteAs
	case kwRows:
		return s.fromChain && s.nextKeyword() == kwFrom
	case kwContent, kwDocument:
		return s.prev == tokOpen && s.top() == parenXMLParse
	}
	return false
}

// isWriteSyntax reports whether the word is part of a clause of a statement
// that writes. That such a statement calls a function of that name goes
// unseen: it runs on its own all the same.
func (s *scanner) isWriteSyntax(kw keyword) bool {
	switch kw {
	case kwSet:
		return s.prevWord == kwUpdate
	case kwInsert:
		return s.merge
	case kwConflict:
		return s.prevWord == kwOn
	}
	if s.role != roleDDL {
		return false
	}
	switch kw {
	case kwKey, kwInclude, kwExclude, kwOptions, kwReset, kwInherits:
		return true
	case kwRange, kwList, kwHash:
		return s.prevWord == kwBy && s.earlier == kwPartition
	}
	return false
}

// ends reports whether the word tok surely ends an operand or a name, so that
// no operand can start behind it.
func (s *scanner) ends(kw keyword, cat category, afterDot bool) bool {
	if afterDot {
		return true
	}
	switch cat {
	case catNone:
		return true
	case catColumn:
		return kw != kwBetween && kw != kwSetof && kw != kwNational
	case catFunction:
		switch kw {
		case kwIsnull, kwNotnull, kwCurrentSchema, // end an operand
			kwCross, kwFull, kwInner, kwLeft, kwNatural, kwOuter, kwRight: // only JOIN or the like can follow
			return true
		}
		return false
	case catReserved:
		switch kw {
		case kwNull, kwTrue, kwFalse, kwEnd, kwAsc, kwDesc, kwUser, kwSessionUser,
			kwCurrentCatalog, kwCurrentDate, kwCurrentRole, kwCurrentTime, kwCurrentTimestamp, kwCurrentUser,
			kwLocaltime, kwLocaltimestamp:
			return true
		}
		return false
	}
	switch kw {
	case kwBy, kwCall, kwEscape, kwExecute, kwFunction, kwGroups, kwOperator, kwPath, kwProcedure, kwRange, kwRows:
		return false
	case kwContent, kwDocument, kwKey, kwPassing, kwRef, kwValue, kwVersion:
		switch s.top() {
		case parenClauses, parenXMLParse, parenCast:
			return false
		}
	}
	return !s.isSyntax(kw)
}

// call takes in a function call.
func (s *scanner) call(t token, w *word) {
	s.add(&s.functions, t)
	if s.role != roleRead {
		s.relation(t, w)
	}
	v := w.function
	if s.qualifier == inSchema {
		v = vNone
		s.add(&s.qualified, t)
	}
	if v != vHoldable {
		s.judge(v, "calls ", s.spell(t))
	}
}

// typeName takes in the name of a type.
func (s *scanner) typeName(t token, w *word) {
	v := w.typ
	if t.kind == tokWord && s.qualifier == unqualified {
		v = w.grammar
		if w.keyword == kwDouble && s.nextKeyword() == kwPrecision {
			v = vHoldable
		}
	}
	if s.qualifier == inSchema {
		v = vNone
	}
	switch v {
	case vHoldable:
	case vCatalog, vTime:
		s.opaque = s.opaque || v == vCatalog
		if s.sure.rank < rankJoinable {
			s.judge(v, "casts to ", s.spell(t))
		}
	default:
		s.add(&s.types, t)
		s.unknown = s.unknown || s.role != roleDML
		if s.rank < rankPrivate {
			s.limitName(rankPrivate, Private, CauseUnknownType, "uses the type "+s.spell(t)+", which is not built in")
		}
	}
}

// relation takes in an identifier that may name a relation or a column.
func (s *scanner) relation(t token, w *word) {
	text := s.lex.sql[t.start:t.end]
	if t.kind == tokQuoted {
		text = text[1:]
	}
	fold := t.kind == tokWord
	switch {
	case hasPrefix(text, "pg_", fold), s.prev == tokDot && s.qualifier == inCatalog:
		s.taints = s.taints || hasPrefix(text, "pg_temp", fold)
		if s.sure.rank < rankPrivate {
			s.limit(rankPrivate, Private, CauseCatalog, "reads "+s.spell(t)+", a system catalog")
		}
		s.fromChain = false
	case w.name == "information_schema":
		s.limit(rankPrivate, Private, CauseCatalog, "reads information_schema, a system catalog")
	case w.moves:
		if s.sure.rank < rankJoinable {
			s.limit(rankJoinable, Joinable, CauseSystemColumn, "reads "+s.spell(t)+", which changes without a write")
		}
	}
	s.add(&s.tables, t)
	if s.fromChain && (s.next.kind != tokOpen || s.named) {
		if s.prev == tokDot {
			s.add(&s.elsewhere, t)
		} else {
			s.add(&s.relations, t)
		}
	}
}

func hasPrefix(text, lower string, fold bool) bool {
	if len(text) < len(lower) {
		return false
	}
	text = text[:len(lower)]
	return text == lower || fold && equalFold(lower, text)
}

// operator takes in an operator.
func (s *scanner) operator(op string) {
	if s.ops[op] {
		return
	}
	s.unknownOperator(op)
}

func (s *scanner) unknownOperator(op string) {
	start := len(s.names.buf)
	s.names.buf = append(s.names.buf, op...)
	s.operators.add(&s.names, start)
	s.unknown = true
	s.nameTaints = s.nameTaints || s.runsCalls()
	if s.rank < rankPrivate {
		s.limitName(rankPrivate, Private, CauseOperator, "uses the operator "+op+", which is not built in")
	}
}

// ahead returns a copy of the lexer that stands behind the token after tok.
func (s *scanner) ahead() lexer {
	l := s.lex
	l.norm = nil
	return l
}

// operatorAhead reports whether tok starts OPERATOR(schema.+), and takes the
// operator in if it is not pg_catalog's.
func (s *scanner) operatorAhead() bool {
	l := s.ahead()
	catalog, parts := true, 0
	for t := l.next(); ; t = l.next() {
		switch t.kind {
		case tokWord, tokQuoted:
			catalog = catalog && parts == 0 && s.dict.words[t.word].name == "pg_catalog"
			parts++
			if l.next().kind != tokDot {
				return false
			}
		case tokOperator:
			if l.next().kind != tokClose {
				return false
			}
			if !catalog {
				s.unknownOperator(l.sql[t.start:t.end])
			}
			return true
		default:
			return false
		}
	}
}

// columns returns what the parenthesis that follows is, where it may be an
// alias's columns with their types, or a query.
func (s *scanner) columns() paren {
	l := s.ahead()
	if s.tok.kind == tokOpen {
		l = lexer{sql: s.lex.sql, pos: s.tok.end, dict: s.dict}
	}
	t := l.next()
	if t.kind != tokWord {
		return parenColumns
	}
	w := &s.dict.words[t.word]
	if w.category == catReserved || w.keyword == kwValues && l.next().kind == tokOpen {
		return parenPlain
	}
	return parenColumns
}

// columnsInBetween reports whether a parenthesis behind BETWEEN holds a column
// with its type, so that BETWEEN is an alias, and no operator.
func (s *scanner) columnsInBetween() bool {
	l := s.ahead()
	for i := range 2 {
		t := l.next()
		if t.kind == tokQuoted {
			continue
		}
		if t.kind != tokWord {
			return false
		}
		w := &s.dict.words[t.word]
		if w.category == catReserved {
			return false
		}
		if i == 1 && (w.keyword == kwAt || w.category == catFunction || w.category == catColumn && w.grammar == vNone) {
			k := l.next().kind
			return k == tokClose || k == tokComma
		}
	}
	return true
}

// columnsInWindow reports whether a parenthesis behind OVER holds a column
// with its type, so that OVER is an alias, and no window. If it may be either,
// the type is taken in here, and the rest is read as a window.
func (s *scanner) columnsInWindow() bool {
	l := s.ahead()
	var tokens [3]token
	var words [3]keyword
	for i := range tokens {
		tokens[i] = l.next()
		switch {
		case tokens[i].kind == tokWord:
			words[i] = s.dict.words[tokens[i].word].keyword
		case i < 2 && tokens[i].kind != tokQuoted:
			return false // a column's type would stand here
		}
	}
	switch words[0] {
	case kwOrder:
		return false
	case kwPartition, kwRange, kwRows, kwGroups:
	default:
		switch words[1] {
		case kwOrder, kwPartition, kwRange, kwRows, kwGroups:
		default:
			return true
		}
	}
	switch words[1] {
	case kwBetween, kwOrder:
	case kwBy, kwCurrent, kwPartition, kwRange, kwRows, kwGroups, kwUnbounded:
		if k := tokens[2].kind; k == tokClose || k == tokComma || k == tokOpenList {
			return true
		}
	default:
		if tokens[2].kind == tokDot {
			s.limit(rankPrivate, Private, CauseUnknownType, "has a column or a window that is hard to tell apart")
			s.callsAnything(true)
		}
		s.typeName(tokens[1], &s.dict.words[tokens[1].word])
	}
	return false
}

// shout returns the keyword t in capitals.
func (s *scanner) shout(t token) string { return strings.ToUpper(s.lex.sql[t.start:t.end]) }
