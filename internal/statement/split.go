package statement

import "strings"

// Split cuts sql into its statements, at semicolons outside quotes, comments,
// parentheses and the BEGIN ATOMIC of a function. Each keeps its comments and
// its semicolon; what has no token in it is left out.
func Split(sql string) (statements []string) {
	l := lexer{sql: sql, dict: dict()}
	var start, parens, blocks int
	var last string
	empty := true
	cut := func(end int) {
		if !empty {
			statements = append(statements, strings.TrimSpace(sql[start:end]))
		}
		start, parens, blocks, last, empty = end, 0, 0, "", true
	}
	for {
		t := l.next()
		switch t.kind {
		case tokEOF:
			cut(len(sql))
			return statements
		case tokBad:
			empty = false
			if strings.HasPrefix(l.problem, "unterminated") {
				cut(len(sql))
				return statements
			}
			l.pos++
			if strings.HasPrefix(sql[t.start:], `""`) {
				l.pos++
			}
			continue
		case tokOpen:
			parens++
		case tokClose:
			parens = max(parens-1, 0)
		case tokSemicolon:
			if parens == 0 && blocks == 0 {
				cut(t.end)
				continue
			}
		case tokWord:
			word := strings.ToLower(sql[t.start:t.end])
			switch {
			case word == "atomic" && last == "begin", word == "case" && blocks > 0:
				blocks++
			case word == "end":
				blocks = max(blocks-1, 0)
			}
			last = word
		}
		empty = false
	}
}
