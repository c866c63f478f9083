package statement

import "hash/maphash"

// seed keeps those who write texts from choosing names that collide.
var seed = maphash.MakeSeed()

// maxName is the length that PostgreSQL clips identifiers to.
const maxName = 63

// nameBuffer holds the text of all names that were found.
type nameBuffer struct{ buf []byte }

func (b *nameBuffer) reset() { b.buf = b.buf[:0] }

type span struct{ start, end int }

// nameSet is a set of names in order of appearance. It is a hash table once it
// has more than a few names, so that a text full of names takes linear time.
type nameSet struct {
	names  []span
	hashes []uint32
	slots  []uint32 // indexes into names plus one; len is a power of two
}

const fewNames = 8

func (s *nameSet) reset() {
	s.names, s.hashes = s.names[:0], s.hashes[:0]
	if len(s.slots) > 1<<10 {
		s.slots = nil
	}
	clear(s.slots)
}

func (s *nameSet) find(b *nameBuffer, h uint32, name []byte) bool {
	if len(s.names) <= fewNames {
		for i, g := range s.hashes {
			if g == h && string(b.buf[s.names[i].start:s.names[i].end]) == string(name) {
				return true
			}
		}
		return false
	}
	mask := uint32(len(s.slots) - 1)
	for i := h & mask; s.slots[i] != 0; i = (i + 1) & mask {
		n := s.names[s.slots[i]-1]
		if s.hashes[s.slots[i]-1] == h && string(b.buf[n.start:n.end]) == string(name) {
			return true
		}
	}
	return false
}

// add adds the name that buf holds from start on, and takes it out of buf
// again if the set has it.
func (s *nameSet) add(b *nameBuffer, start int) {
	if len(b.buf)-start > maxName {
		b.buf = b.buf[:start+clip(b.buf[start:])]
	}
	name := b.buf[start:]
	h := uint32(maphash.Bytes(seed, name))
	if s.find(b, h, name) {
		b.buf = b.buf[:start]
		return
	}
	s.names = append(s.names, span{start, len(b.buf)})
	s.hashes = append(s.hashes, h)
	switch n := len(s.names); {
	case n <= fewNames:
	case n > len(s.slots)/2 || n == fewNames+1:
		if n > len(s.slots)/2 {
			s.slots = make([]uint32, pad(4*n))
		}
		clear(s.slots)
		for i := range s.names {
			s.place(i)
		}
	default:
		s.place(n - 1)
	}
}

// drop takes out of s what is in other.
func (s *nameSet) drop(b *nameBuffer, other *nameSet) {
	if len(other.names) == 0 {
		return
	}
	kept := s.names[:0]
	for i, n := range s.names {
		if !other.find(b, s.hashes[i], b.buf[n.start:n.end]) {
			kept = append(kept, n)
		}
	}
	s.names = kept // the hashes are not needed any more
}

// pad returns the power of two not below n.
func pad(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func (s *nameSet) place(i int) {
	mask := uint32(len(s.slots) - 1)
	j := s.hashes[i] & mask
	for s.slots[j] != 0 {
		j = (j + 1) & mask
	}
	s.slots[j] = uint32(i + 1)
}

// clip returns the length of the longest prefix of a long name that fits and
// does not cut a character in two. Characters are as long as their first bytes
// say, valid or not.
func clip(name []byte) int {
	n := 0
	for {
		next := n + 1
		switch c := name[n]; {
		case c >= 0xf0 && c < 0xf8:
			next = n + 4
		case c >= 0xe0 && c < 0xf0:
			next = n + 3
		case c >= 0xc0 && c < 0xe0:
			next = n + 2
		}
		if next > maxName {
			return n
		}
		n = next
	}
}

// appendName appends what the identifier t stands for: folded, or without its
// quotes, to the buffer, and returns where.
func (s *scanner) appendName(t token) (start int) {
	b := &s.names
	start = len(b.buf)
	if t.kind == tokQuoted {
		in := s.lex.sql[t.start+1 : t.end-1]
		if !t.escapes {
			b.buf = append(b.buf, in...)
			return start
		}
		for i := 0; i < len(in); i++ {
			b.buf = append(b.buf, in[i])
			if in[i] == '"' {
				i++
			}
		}
		return start
	}
	for i := t.start; i < t.end; i++ {
		b.buf = append(b.buf, toLower(s.lex.sql[i]))
	}
	return start
}

func (s *scanner) add(set *nameSet, t token) { set.add(&s.names, s.appendName(t)) }

// spell returns the identifier for a reason.
func (s *scanner) spell(t token) string {
	start := s.appendName(t)
	name := string(s.names.buf[start:])
	s.names.buf = s.names.buf[:start]
	return name
}
