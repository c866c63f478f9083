package statement

// head takes in the first token of a statement, behind opening parentheses:
// which statement it is, and what that alone decides.
func (s *scanner) head() {
	s.first, s.empty, s.headWord = false, false, true
	kw := kwNone
	if s.tok.kind == tokWord {
		kw = s.dict.words[s.tok.word].keyword
	}
	s.verb = kw
	switch kw {
	case kwSelect, kwWith, kwValues, kwTable:
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
		s.ddl()
	case kwDrop, kwComment, kwGrant, kwRevoke, kwReassign, kwRefresh, kwImport, kwSecurity,
		kwCluster, kwReindex, kwVacuum:
		cause = CauseWrite
	case kwAnalyze, kwAnalyse, kwCheckpoint:
	case kwCall, kwDo, kwExecute, kwLoad:
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
	case kwReset, kwListen, kwUnlisten:
		s.role, s.taints = roleQuiet, true
	case kwDiscard:
		s.role = roleQuiet
		s.discard()
	case kwSavepoint, kwRelease, kwShow, kwNotify, kwFetch, kwMove, kwClose, kwDeallocate, kwLock:
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
	materialized := false
	for t, words := s.next, 0; t.kind == tokWord && words < 4; t, words = l.next(), words+1 {
		switch s.dict.words[t.word].keyword {
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
			return
		}
	}
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
