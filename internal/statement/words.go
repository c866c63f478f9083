package statement

import (
	"strings"
	"sync"
)

// The tables of built-in names come from fresh servers of every version that
// they cover: see ./gen.

// category is a keyword's class in PostgreSQL's grammar.
type category uint8

const (
	catNone       category = iota // not a keyword
	catUnreserved                 // can name anything
	catColumn                     // can name a column or table, not a function or type
	catFunction                   // can name a function or type, not a column or table
	catReserved                   // can name nothing
)

// keyword is a word that the analysis has a rule for.
type keyword uint8

const (
	kwNone keyword = iota // no keyword, or quoted
	kwOther
	kwAll
	kwAbort
	kwAlter
	kwAnalyse
	kwAnalyze
	kwAs
	kwAsc
	kwAt
	kwBegin
	kwBetween
	kwBy
	kwCall
	kwCast
	kwChain
	kwCheckpoint
	kwClose
	kwCluster
	kwComment
	kwCommit
	kwConflict
	kwConstraints
	kwContent
	kwCopy
	kwCreate
	kwCross
	kwCube
	kwCurrent
	kwCurrentCatalog
	kwCurrentDate
	kwCurrentRole
	kwCurrentSchema
	kwCurrentTime
	kwCurrentTimestamp
	kwCurrentUser
	kwDeallocate
	kwDeclare
	kwDefault
	kwDelete
	kwDesc
	kwDiscard
	kwDistinct
	kwDo
	kwDocument
	kwDouble
	kwDrop
	kwEnd
	kwEscape
	kwExecute
	kwExists
	kwExclude
	kwExplain
	kwExtension
	kwFalse
	kwFetch
	kwFirst
	kwFor
	kwFrom
	kwFull
	kwFunction
	kwGrant
	kwGroup
	kwGrouping
	kwGroups
	kwHash
	kwHold
	kwImport
	kwInclude
	kwIndex
	kwInherits
	kwInner
	kwInsert
	kwInto
	kwIs
	kwIsnull
	kwJSON // each function that only the grammar knows
	kwJoin
	kwKey
	kwLeft
	kwList
	kwListen
	kwLoad
	kwLocal
	kwLocaltime
	kwLocaltimestamp
	kwLock
	kwMaterialized
	kwMerge
	kwMove
	kwNational
	kwNatural
	kwNext
	kwNo
	kwNot
	kwNotify
	kwNotnull
	kwNull
	kwOn
	kwOnly
	kwOperator
	kwOptions
	kwOrder
	kwOrdinality
	kwOuter
	kwOver
	kwPartition
	kwPassing
	kwPath
	kwPrecision
	kwPrepare
	kwPrepared
	kwProcedure
	kwRange
	kwReassign
	kwRecursive
	kwRef
	kwReferences
	kwRefresh
	kwReindex
	kwRelease
	kwReset
	kwReturning
	kwRevoke
	kwRight
	kwRollback
	kwRollup
	kwRoutine
	kwRows
	kwSavepoint
	kwSecond
	kwSecurity
	kwSelect
	kwSessionUser
	kwSet
	kwSetof
	kwSets
	kwShare
	kwShow
	kwStart
	kwSystemUser
	kwTable
	kwTablesample
	kwTemp
	kwTemporary
	kwTies
	kwTime
	kwTo
	kwTransaction
	kwTreat
	kwTrue
	kwTruncate
	kwUnbounded
	kwUnlisten
	kwUpdate
	kwUser
	kwUsing
	kwVacuum
	kwValue
	kwValues
	kwVersion
	kwView
	kwWhere
	kwHaving
	kwLimit
	kwOffset
	kwUnion
	kwExcept
	kwIntersect
	kwWindow
	kwCascade
	kwLateral
	kwWith
	kwWork
	kwXMLExists
	kwXMLParse
	kwXMLRoot
	kwXMLSerialize
	kwXMLTable
	kwZone
)

var keywords = map[string]keyword{
	"all": kwAll, "abort": kwAbort, "alter": kwAlter, "analyse": kwAnalyse, "analyze": kwAnalyze, "as": kwAs, "asc": kwAsc, "at": kwAt,
	"begin": kwBegin, "between": kwBetween, "by": kwBy, "call": kwCall, "cast": kwCast, "chain": kwChain,
	"checkpoint": kwCheckpoint, "close": kwClose, "cluster": kwCluster, "comment": kwComment, "commit": kwCommit,
	"conflict": kwConflict, "constraints": kwConstraints, "content": kwContent, "copy": kwCopy, "create": kwCreate, "cross": kwCross,
	"cube": kwCube, "current": kwCurrent, "current_catalog": kwCurrentCatalog, "current_date": kwCurrentDate, "current_role": kwCurrentRole,
	"current_schema": kwCurrentSchema, "current_time": kwCurrentTime, "current_timestamp": kwCurrentTimestamp,
	"current_user": kwCurrentUser, "deallocate": kwDeallocate, "declare": kwDeclare, "default": kwDefault,
	"delete": kwDelete, "desc": kwDesc, "discard": kwDiscard, "distinct": kwDistinct, "do": kwDo, "document": kwDocument,
	"double": kwDouble, "drop": kwDrop, "end": kwEnd, "escape": kwEscape, "execute": kwExecute, "exists": kwExists,
	"exclude": kwExclude, "explain": kwExplain, "extension": kwExtension, "false": kwFalse, "fetch": kwFetch, "first": kwFirst, "for": kwFor, "from": kwFrom, "full": kwFull,
	"function": kwFunction, "grant": kwGrant, "group": kwGroup, "grouping": kwGrouping, "groups": kwGroups,
	"hash": kwHash, "hold": kwHold, "import": kwImport, "include": kwInclude, "index": kwIndex, "inherits": kwInherits, "inner": kwInner, "insert": kwInsert, "into": kwInto, "is": kwIs,
	"isnull": kwIsnull, "join": kwJoin, "key": kwKey, "left": kwLeft, "list": kwList, "listen": kwListen, "load": kwLoad, "local": kwLocal,
	"localtime": kwLocaltime, "localtimestamp": kwLocaltimestamp, "lock": kwLock, "materialized": kwMaterialized,
	"merge": kwMerge, "move": kwMove, "national": kwNational, "natural": kwNatural, "next": kwNext, "no": kwNo, "not": kwNot,
	"notify": kwNotify, "notnull": kwNotnull, "null": kwNull, "on": kwOn, "only": kwOnly, "operator": kwOperator,
	"options": kwOptions, "order": kwOrder, "ordinality": kwOrdinality, "outer": kwOuter, "over": kwOver, "partition": kwPartition, "passing": kwPassing,
	"path": kwPath, "precision": kwPrecision, "prepare": kwPrepare, "prepared": kwPrepared, "procedure": kwProcedure,
	"range": kwRange, "reassign": kwReassign, "recursive": kwRecursive, "ref": kwRef, "references": kwReferences,
	"refresh": kwRefresh, "reindex": kwReindex, "release": kwRelease, "reset": kwReset, "returning": kwReturning,
	"revoke": kwRevoke, "right": kwRight, "rollback": kwRollback, "rollup": kwRollup, "routine": kwRoutine, "rows": kwRows,
	"savepoint": kwSavepoint, "second": kwSecond, "security": kwSecurity, "select": kwSelect,
	"session_user": kwSessionUser, "set": kwSet, "setof": kwSetof, "sets": kwSets, "share": kwShare, "show": kwShow,
	"start": kwStart, "system_user": kwSystemUser, "table": kwTable, "tablesample": kwTablesample, "temp": kwTemp,
	"temporary": kwTemporary, "ties": kwTies, "time": kwTime, "to": kwTo, "transaction": kwTransaction,
	"treat": kwTreat, "true": kwTrue, "truncate": kwTruncate, "unbounded": kwUnbounded, "unlisten": kwUnlisten, "update": kwUpdate,
	"user": kwUser, "using": kwUsing, "vacuum": kwVacuum, "value": kwValue, "values": kwValues, "version": kwVersion,
	"where": kwWhere, "having": kwHaving, "limit": kwLimit, "offset": kwOffset, "union": kwUnion, "except": kwExcept,
	"intersect": kwIntersect, "window": kwWindow, "cascade": kwCascade, "lateral": kwLateral,
	"view": kwView, "with": kwWith, "work": kwWork, "xmlexists": kwXMLExists, "xmlparse": kwXMLParse,
	"xmlroot": kwXMLRoot, "xmlserialize": kwXMLSerialize, "xmltable": kwXMLTable, "zone": kwZone,
}

// isQuery reports whether a query begins with k.
func (k keyword) isQuery() bool {
	return k == kwSelect || k == kwWith || k == kwValues || k == kwTable
}

// isFunction reports whether k is a function without parentheses.
func (k keyword) isFunction() bool {
	switch k {
	case kwCurrentDate, kwCurrentTime, kwCurrentTimestamp, kwLocaltime, kwLocaltimestamp,
		kwCurrentCatalog, kwCurrentRole, kwCurrentSchema, kwCurrentUser, kwSessionUser, kwSystemUser, kwUser:
		return true
	}
	return false
}

// word is what is known of a name or keyword. The zero word is an unknown name.
type word struct {
	name     string
	keyword  keyword
	category category
	function verdict // as a function
	typ      verdict // as a type that may be quoted
	grammar  verdict // as an unquoted type name
	moves    bool    // a system column that changes without a write
}

// dictionary is an open-addressing table: the lexer has the hash at hand when
// it reaches the end of a word, so looking a word up costs one probe or two.
type dictionary struct {
	slots [1 << 13]uint16 // index into words; 0 is free
	words []word          // words[0] is the unknown word
}

const (
	hashStart = 2166136261
	hashPrime = 16777619
)

func hash(s string) uint32 {
	h := uint32(hashStart)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * hashPrime
	}
	return h
}

func slot(h uint32) uint32 { return (h ^ h>>15) & (1<<13 - 1) }

// lookup returns the index of the word that text spells, 0 if none does. With
// fold, ASCII letters of text are compared in lower case, and h is the hash
// of the lower-case text.
func (d *dictionary) lookup(h uint32, text string, fold bool) uint16 {
	for i := slot(h); ; i = (i + 1) & (1<<13 - 1) {
		w := d.slots[i]
		if w == 0 {
			return 0
		}
		name := d.words[w].name
		if len(name) == len(text) && (name == text || fold && equalFold(name, text)) {
			return w
		}
	}
}

func equalFold(lower, text string) bool {
	for i := 0; i < len(lower); i++ {
		if lower[i] != toLower(text[i]) {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func (d *dictionary) at(name string) *word {
	h := hash(name)
	if w := d.lookup(h, name, false); w != 0 {
		return &d.words[w]
	}
	i := slot(h)
	for d.slots[i] != 0 {
		i = (i + 1) & (1<<13 - 1)
	}
	d.slots[i] = uint16(len(d.words))
	d.words = append(d.words, word{name: name})
	return &d.words[len(d.words)-1]
}

// dict is built when the first text is analysed, not when the program starts.
var dict = sync.OnceValue(func() *dictionary {
	d := &dictionary{words: make([]word, 1, 5000)}
	for _, l := range []struct {
		names string
		v     verdict
	}{{immutableFunctions, vHoldable}, {stableFunctions, vAnything}, {volatileFunctions, vAnything}} {
		for name := range strings.FieldsSeq(l.names) {
			d.at(name).function = l.v
		}
	}
	for _, l := range lists {
		for name := range strings.FieldsSeq(l.names) {
			d.at(name).function = l.v
		}
	}
	for name := range strings.FieldsSeq(builtinTypes) {
		d.at(name).typ = vHoldable
	}
	for name := range strings.FieldsSeq(catalogTypes) {
		d.at(name).typ = vCatalog
	}
	for name := range strings.FieldsSeq(timeTypes) {
		d.at(name).typ = vTime
	}
	for name := range strings.FieldsSeq(systemColumns) {
		d.at(name).moves = true
	}
	d.at("pg_catalog")
	d.at("information_schema")
	for i := range d.words {
		d.words[i].grammar = d.words[i].typ
	}
	for name := range strings.FieldsSeq(grammarTypes) {
		d.at(name).grammar = vHoldable
	}
	for _, l := range []struct {
		names string
		c     category
	}{{unreservedKeywords, catUnreserved}, {columnKeywords, catColumn}, {functionKeywords, catFunction}, {reservedKeywords, catReserved}} {
		for name := range strings.FieldsSeq(l.names) {
			w := d.at(name)
			w.category, w.keyword = l.c, kwOther
		}
	}
	for name := range strings.FieldsSeq(jsonFunctions) {
		w := d.at(name)
		w.function, w.keyword = vHoldable, kwJSON
	}
	for name, k := range keywords {
		d.at(name).keyword = k
	}
	return d
})

// operators holds the built-in operators of two characters and more, and the
// two tokens of the grammar that look like operators.
var operators = sync.OnceValue(func() map[string]bool {
	m := map[string]bool{"=>": true, "!=": true}
	for name := range strings.FieldsSeq(builtinOperators) {
		m[name] = true
	}
	return m
})
