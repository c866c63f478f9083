package statement

// normalizer collects the normal form of a text: most comments count as white
// space, a run of white space becomes a blank, or a line break if it has one
// (literals are joined over a line break and nowhere else), and quoted text
// stays as it is.
type normalizer struct {
	buf []byte
	gap byte // white space due before the next token, 0 for none
	// before and after are the lengths of buf around the last semicolon.
	before, after int
}

func (n *normalizer) reset() { n.buf, n.gap, n.before, n.after = n.buf[:0], 0, 0, 0 }

func (n *normalizer) space(newline bool, from, to int) {
	switch {
	case newline:
		n.gap = '\n'
	case to > from && n.gap == 0:
		n.gap = ' '
	}
}

// comment keeps one that decides what the answer is: a hint for pg_hint_plan, or
// characters that the server may refuse for their encoding.
func (n *normalizer) comment(sql string, newline bool, from, to int) {
	n.space(newline, from, to)
	n.flush()
	n.buf = append(n.buf, sql[from:to]...)
	n.gap = ' '
}

func (n *normalizer) flush() {
	if n.gap != 0 && len(n.buf) > 0 {
		n.buf = append(n.buf, n.gap)
	}
	n.gap = 0
}

func (n *normalizer) token(sql string, t token) {
	before := len(n.buf)
	n.flush()
	n.buf = append(n.buf, sql[t.start:t.end]...)
	if t.kind == tokSemicolon {
		n.before, n.after = before, len(n.buf)
	}
}

// form returns the normal form, which is valid until the next reset.
func (n *normalizer) form() []byte {
	if n.after > 0 && len(n.buf) == n.after {
		return n.buf[:n.before]
	}
	return n.buf
}
