package statement

import (
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	tokEOF kind = iota
	tokBad
	tokWord      // identifier or keyword without quotes
	tokQuoted    // "identifier"
	tokString    // literal of any kind of quotes
	tokBits      // bit string
	tokNumber    // number
	tokParam     // $1
	tokOperator  // operator, in one token what PostgreSQL makes one token
	tokOpen      // (
	tokClose     // )
	tokOpenList  // [
	tokCloseList // ]
	tokComma     // ,
	tokDot       // .
	tokSemicolon // ;
	tokColon     // : or :=
	tokCast      // ::
)

type token struct {
	kind       kind
	escapes    bool   // a quoted identifier with "" in it
	word       uint16 // index into dictionary.words, 0 if it is none of them
	start, end int    // of the token in the text, quotes included
}

// lexer follows PostgreSQL's scan.l. Where versions 14 to 18 differ, it takes
// the reading in which more of the text is code.
type lexer struct {
	sql  string
	pos  int
	dict *dictionary

	norm *normalizer // nil in a look-ahead copy

	backslash bool // an ordinary literal has a backslash
	timeWord  bool // a literal has a word like now, or a text that was not looked at
	problem   string
	signs     signs
}

// Byte classes.
const (
	isSpace    = 1 << iota // white space in every version
	isStart                // starts an identifier
	isPart                 // continues an identifier
	isDigit                // decimal digit
	isOperator             // operator character
	isAlpha                // ASCII letter
)

var class = func() (t [256]uint8) {
	for c := range t {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			t[c] = isStart | isPart | isAlpha
		case c == '_' || c >= 0x80:
			t[c] = isStart | isPart
		case '0' <= c && c <= '9':
			t[c] = isPart | isDigit
		case c == '$':
			t[c] = isPart
		}
	}
	for _, c := range " \t\n\r\f" {
		t[c] |= isSpace
	}
	for _, c := range "~!@#^&|`?+-*/%<>=" {
		t[c] |= isOperator
	}
	return t
}()

func (l *lexer) bad(start int, problem string) token {
	l.problem = problem
	return token{kind: tokBad, start: start, end: start}
}

// next returns the next token. After tokBad it must not be called again.
func (l *lexer) next() token {
	if !l.space() {
		return l.bad(l.pos, "unterminated comment")
	}
	if l.pos >= len(l.sql) {
		return token{kind: tokEOF, start: l.pos, end: l.pos}
	}
	t := l.token()
	l.pos = t.end
	if l.norm != nil && t.kind != tokBad {
		l.norm.token(l.sql, t)
	}
	return t
}

func (l *lexer) at(i int) byte {
	if i < len(l.sql) {
		return l.sql[i]
	}
	return 0
}

// space skips white space and comments. It reports false for a comment
// without an end.
func (l *lexer) space() bool {
	sql, i := l.sql, l.pos
	newline := false
	for i < len(sql) {
		c := sql[i]
		switch {
		case class[c]&isSpace != 0:
			newline = newline || c == '\n' || c == '\r'
			i++
			continue
		case c == '-' && l.at(i+1) == '-':
			end := lineEnd(sql, i)
			if l.norm != nil && !isASCII(sql[i:end]) {
				l.norm.comment(sql, newline, i, end)
				newline = false
			}
			i = end
			continue
		case c == '/' && l.at(i+1) == '*':
			end := CommentEnd(sql, i)
			if end < 0 {
				l.pos = i
				return false
			}
			if l.norm != nil && (sql[i+2] == '+' || !isASCII(sql[i:end])) {
				l.norm.comment(sql, newline, i, end)
				newline = false
			}
			i = end
			continue
		}
		break
	}
	if l.norm != nil {
		l.norm.space(newline, l.pos, i)
	}
	l.pos = i
	return true
}

// isASCII reports whether s is the same text in every encoding.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func lineEnd(sql string, i int) int {
	for i < len(sql) && sql[i] != '\n' && sql[i] != '\r' {
		i++
	}
	return i
}

// CommentEnd returns where the comment that starts at i ends, comments in it
// included, or -1.
func CommentEnd(sql string, i int) int {
	for depth := 0; i+1 < len(sql); {
		switch {
		case sql[i] == '/' && sql[i+1] == '*':
			depth++
			i += 2
		case sql[i] == '*' && sql[i+1] == '/':
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return -1
}

func (l *lexer) token() token {
	sql, i := l.sql, l.pos
	c := sql[i]
	switch cl := class[c]; {
	case cl&isStart != 0:
		return l.identifier(i)
	case cl&isDigit != 0:
		return token{kind: tokNumber, start: i, end: numberEnd(sql, i)}
	case cl&isOperator != 0:
		return token{kind: tokOperator, start: i, end: l.operatorEnd(i)}
	}
	one := func(k kind) token { return token{kind: k, start: i, end: i + 1} }
	switch c {
	case '\'':
		return l.literal(i, i+1, 'N')
	case '"':
		return l.quoted(i)
	case '$':
		return l.dollar(i)
	case '(':
		return one(tokOpen)
	case ')':
		return one(tokClose)
	case '[':
		return one(tokOpenList)
	case ']':
		return one(tokCloseList)
	case ',':
		return one(tokComma)
	case ';':
		return one(tokSemicolon)
	case '.':
		if class[l.at(i+1)]&isDigit != 0 {
			return token{kind: tokNumber, start: i, end: numberEnd(sql, i)}
		}
		if l.at(i+1) != '.' {
			return one(tokDot)
		}
	case ':':
		switch l.at(i + 1) {
		case ':':
			return token{kind: tokCast, start: i, end: i + 2}
		case '=':
			return token{kind: tokColon, start: i, end: i + 2}
		}
		return one(tokColon)
	}
	return l.bad(i, "character outside PostgreSQL's grammar")
}

func (l *lexer) identifier(i int) token {
	sql := l.sql
	switch c := sql[i] | 0x20; {
	case l.at(i+1) == '\'' && (c == 'e' || c == 'n'):
		return l.literal(i, i+2, sql[i]&^0x20)
	case l.at(i+1) == '\'' && (c == 'b' || c == 'x'):
		t := l.literal(i, i+2, sql[i]&^0x20)
		if t.kind == tokString {
			t.kind = tokBits
		}
		return t
	case c == 'u' && l.at(i+1) == '&' && l.at(i+2) == '\'':
		return l.literal(i, i+3, 'U')
	case c == 'u' && l.at(i+1) == '&' && l.at(i+2) == '"':
		return l.bad(i, `identifier in U&"…"`)
	}
	h := uint32(hashStart)
	j := i
	for ; j < len(sql) && class[sql[j]]&isPart != 0; j++ {
		h = (h ^ uint32(toLower(sql[j]))) * hashPrime
	}
	return token{kind: tokWord, start: i, end: j, word: l.dict.lookup(h, sql[i:j], true)}
}

func (l *lexer) quoted(i int) token {
	sql := l.sql
	t := token{kind: tokQuoted, start: i}
	h := uint32(hashStart)
	for j := i + 1; j < len(sql); j++ {
		switch {
		case sql[j] != '"':
		case l.at(j+1) == '"':
			t.escapes = true
			j++
		case j == i+1:
			return l.bad(i, "empty identifier")
		default:
			t.end = j + 1
			if !t.escapes {
				t.word = l.dict.lookup(h, sql[i+1:j], false)
			}
			return t
		}
		h = (h ^ uint32(sql[j])) * hashPrime
	}
	return l.bad(i, "unterminated identifier")
}

// literal scans a quoted literal from its first quote's successor i on.
// prefix is its letter; 'N' stands for none too. Literals on several lines
// that PostgreSQL joins to one are one token: the first one's rules hold for
// all of them.
func (l *lexer) literal(start, i int, prefix byte) token {
	sql := l.sql
	run, letters := i, prefix != 'B' && prefix != 'X'
	for i < len(sql) {
		c := sql[i]
		switch {
		case class[c]&isAlpha != 0:
			i++
			continue
		case letters && i > run:
			l.timeWord = l.timeWord || isNowWord(sql[run:i])
		}
		switch {
		case c == '\\' && prefix == 'E':
			l.timeWord = true
			i += 2
		case c == '\\' && prefix == 'N':
			l.backslash = true
			i++
		case c != '\'':
			i++
		case l.at(i+1) == '\'':
			i += 2
		default:
			i++
			next, ok := continuation(sql, i)
			if !ok {
				if prefix == 'U' {
					l.timeWord = true
				}
				return token{kind: tokString, start: start, end: i}
			}
			l.timeWord = true
			i = next
		}
		run = i
	}
	return l.bad(start, "unterminated literal")
}

// continuation finds out whether the literal that ends at i goes on behind
// white space with a line break in it, and where.
func continuation(sql string, i int) (next int, ok bool) {
	newline := false
	for i < len(sql) {
		switch c := sql[i]; {
		case class[c]&isSpace != 0:
			newline = newline || c == '\n' || c == '\r'
			i++
		case c == '-' && i+1 < len(sql) && sql[i+1] == '-':
			i = lineEnd(sql, i)
		default:
			return i + 1, newline && c == '\''
		}
	}
	return 0, false
}

// dollar scans what starts with a dollar sign: a parameter or a literal.
func (l *lexer) dollar(i int) token {
	sql := l.sql
	j := i + 1
	if class[l.at(j)]&isDigit != 0 {
		for class[l.at(j)]&isDigit != 0 {
			j++
		}
		return token{kind: tokParam, start: i, end: j}
	}
	if class[l.at(j)]&isStart != 0 {
		for j++; j < len(sql) && class[sql[j]]&isPart != 0 && sql[j] != '$'; j++ {
		}
	}
	if l.at(j) != '$' {
		return l.bad(i, "stray dollar sign")
	}
	tag := sql[i : j+1]
	body := j + 1
	n := strings.Index(sql[body:], tag)
	if n < 0 {
		return l.bad(i, "unterminated literal")
	}
	l.timeWord = l.timeWord || SaysNow(sql[body:body+n])
	return token{kind: tokString, start: i, end: body + n + len(tag)}
}

// numberEnd takes digits, a fraction and an exponent. Underscores between
// digits start an identifier in older versions, but one that only names a
// column of the result. What else newer versions take as a number (0x1F) leaves
// an identifier behind, as in older ones.
func numberEnd(sql string, i int) int {
	digits := func(i int) int {
		first := i
		for i < len(sql) && (class[sql[i]]&isDigit != 0 || i > first && sql[i] == '_' && i+1 < len(sql) && class[sql[i+1]]&isDigit != 0) {
			i++
		}
		return i
	}
	i = digits(i)
	if i < len(sql) && sql[i] == '.' && !(i+1 < len(sql) && sql[i+1] == '.') {
		i = digits(i + 1)
	}
	if i < len(sql) && sql[i]|0x20 == 'e' {
		j := i + 1
		if j < len(sql) && (sql[j] == '+' || sql[j] == '-') {
			j++
		}
		if k := digits(j); k > j {
			i = k
		}
	}
	return i
}

// signs is a run of operator characters up to the next comment. It is kept
// from token to token: a run of signs is one operator each.
type signs struct {
	end      int // 0 if there is none
	free     int // the last character that is not one of standard SQL's, -1 for none
	unsigned int // the last character but + and -, -1 for none
}

// operatorEnd returns where the operator that starts at i ends: before a
// comment, and before trailing signs unless a character in it is not one of
// standard SQL's.
func (l *lexer) operatorEnd(i int) int {
	sql, run := l.sql, &l.signs
	if i >= run.end {
		run.free, run.unsigned = -1, -1
		j := i
		for ; j < len(sql) && class[sql[j]]&isOperator != 0; j++ {
			if j > i && (sql[j] == '/' && l.at(j+1) == '*' || sql[j] == '-' && l.at(j+1) == '-') {
				break
			}
			switch sql[j] {
			case '+', '-':
			case '*', '/', '<', '>', '=':
				run.unsigned = j
			default:
				run.free, run.unsigned = j, j
			}
		}
		run.end = j
	}
	if run.free >= i {
		return run.end
	}
	return max(run.unsigned, i) + 1
}
