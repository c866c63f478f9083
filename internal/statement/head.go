package statement

import "strings"

// head takes in the first token of a statement, behind opening parentheses:
// which statement it is, and what that alone decides.
func (s *scanner) head() {
	s.first, s.empty, s.headWord = false, false, true
	kw := kwNone
	if s.tok.kind == tokWord {
		kw = s.dict.words[s.tok.word].keyword
	}
	s.verb = kw
	if kw.isQuery() {
		s.role = roleRead
		return
	}
	if s.prev == tokOpen {
		kw = kwNone // no other statement starts with a parenthesis
	}

	cause := CauseNotRead
	s.role = roleOther
	switch kw {
	case kwInsert, kwUpdate, kwDelete, kwMerge, kwTruncate, kwCopy:
		s.role, cause = roleDML, CauseWrite
	case kwExplain, kwDeclare:
		s.role = roleExplain
	case kwCreate, kwAlter:
		s.role, cause, s.alters = roleDDL, CauseWrite, kw == kwAlter
		s.defaults = s.defaults || s.alters && hasSettings(s.lex.sql[s.next.start:s.next.end])
		s.ddl()
	case kwDrop, kwComment, kwGrant, kwRevoke, kwReassign, kwRefresh, kwImport, kwSecurity:
		cause = CauseWrite
	case kwCluster, kwVacuum:
		s.role, cause = roleUpkeep, CauseWrite
	case kwReindex:
		// Event triggers see it, and an index that is mended changes answers.
		s.role, cause = roleUpkeep, CauseWrite
		s.hidesCode()
	case kwAnalyze, kwAnalyse, kwCheckpoint:
		s.role = roleUpkeep
	case kwCall:
		s.role, s.taints = roleUpkeep, true
		s.hidesCode()
	case kwDo:
		s.taints = true
		if !s.bodyMayBeDDL() {
			s.role = roleUpkeep
			s.hidesCode()
		} else if !s.looked {
			s.looked = true // to the end of the text
			code := s.lex.sql[s.next.start:]
			s.defaults = s.defaults || hasSettings(code) && strings.Contains(strings.ToLower(code), "alter")
		}
	case kwExecute, kwLoad:
		s.taints = true
	case kwBegin:
		s.role, s.tx = roleQuiet, TxBegin
	case kwStart:
		if s.nextKeyword() == kwTransaction {
			s.role, s.tx = roleQuiet, TxBegin
		} else {
			s.taints = true
		}
	case kwCommit, kwEnd:
		// COMMIT PREPARED commits another transaction, what it wrote included.
		if s.nextKeyword() != kwPrepared {
			s.role, s.tx = roleQuiet, TxCommit
		}
	case kwRollback, kwAbort:
		s.role = roleQuiet
		if !s.rollsBackPart() {
			s.tx = TxRollback
		}
	case kwPrepare:
		s.role = roleQuiet
		if l := s.ahead(); s.nextKeyword() == kwTransaction && l.next().kind == tokString {
			s.tx = TxCommit
		} else {
			s.taints = true
		}
	case kwSet:
		s.role = roleQuiet
		s.taints = s.taints || !s.setsLocally()
	case kwReset, kwListen, kwUnlisten, kwDeallocate:
		// What DEALLOCATE drops, a shared read may be about to use.
		s.role, s.taints = roleQuiet, true
	case kwDiscard:
		s.role = roleQuiet
		s.discard()
	case kwSavepoint, kwRelease, kwShow, kwNotify, kwFetch, kwMove, kwClose, kwLock:
		s.role = roleQuiet
	default:
		s.taints = true
		s.limit(rankNotRead, Private, CauseNotRead, "is not a statement that is known")
		return
	}
	s.limit(rankNotRead, Private, cause, "is not a read ("+s.shout(s.tok)+")")
}

// ddl looks at what CREATE or ALTER makes.
func (s *scanner) ddl() {
	l := s.ahead()
	materialized, temp := false, false
	for t, words := s.next, 0; t.kind == tokWord && words < 4; t, words = l.next(), words+1 {
		kw := s.dict.words[t.word].keyword
		switch kw {
		case kwIndex:
			s.createIndex = true
			return
		case kwExtension:
			// Its script may do anything, and so may the library that it loads.
			s.taints = true
			return
		case kwMaterialized:
			materialized = true
		case kwView:
			s.stores = !materialized
			return
		case kwFunction, kwProcedure:
			s.stores = true
			return
		case kwTable:
			if s.tempTable = temp; temp {
				s.hidesCode() // event triggers
			}
			return
		}
		temp = kw == kwTemp || kw == kwTemporary
	}
}

// bodyMayBeDDL reports whether the body of a DO may have DDL of its own, beside
// what the functions that it calls may hide. Only PL/pgSQL in dollar quotes is
// looked at.
func (s *scanner) bodyMayBeDDL() bool {
	l := s.ahead()
	for t := s.next; t.kind != tokEOF; t = l.next() {
		text := l.sql[t.start:t.end]
		switch {
		case t.kind == tokSemicolon:
		case strings.EqualFold(text, "language"), strings.EqualFold(text, "plpgsql"):
		case t.kind == tokString && text[0] == '$':
			if hasDDLWord(text) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// hasDDLWord reports whether a PL/pgSQL block has a word without which it
// cannot change the schema by itself, or a backslash, which can hide one.
func hasDDLWord(block string) bool {
	for i := 0; i < len(block); {
		if block[i] == '\\' {
			return true
		}
		if class[block[i]]&isStart == 0 {
			i++
			continue
		}
		start := i
		for i < len(block) && class[block[i]]&isPart != 0 {
			i++
		}
		switch strings.ToLower(block[start:i]) {
		case "alter", "comment", "create", "do", "drop", "execute", "grant", "import", "reassign", "refresh", "revoke", "security":
			return true
		}
	}
	return false
}

// hasSettings reports whether a text names a kind of object that has settings for
// the sessions to come: ALTER ROLE … SET and the like.
func hasSettings(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "database") || strings.Contains(text, "role") || strings.Contains(text, "user")
}

// rollsBackPart reports whether a ROLLBACK is one to a savepoint, or of a
// prepared transaction.
func (s *scanner) rollsBackPart() bool {
	l := s.ahead()
	t := s.next
	for t.kind == tokWord {
		switch s.dict.words[t.word].keyword {
		case kwWork, kwTransaction:
			t = l.next()
		case kwTo, kwPrepared:
			return true
		default:
			return false
		}
	}
	return false
}

// setsLocally reports whether a SET ends with the transaction, or says
// something of the transaction alone. LOCAL and the like can name a parameter
// as well.
func (s *scanner) setsLocally() bool {
	switch s.nextKeyword() {
	case kwLocal, kwTransaction, kwConstraints:
	default:
		return false
	}
	l := s.ahead()
	t := l.next()
	return t.kind == tokQuoted || t.kind == tokWord && s.dict.words[t.word].keyword != kwTo
}

func (s *scanner) discard() {
	l := s.ahead()
	rest := l.next()
	if rest.kind == tokSemicolon {
		rest = l.next()
	}
	if s.nextKeyword() == kwAll && rest.kind == tokEOF {
		s.cleans = true
		return
	}
	s.taints = true
}
