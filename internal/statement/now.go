package statement

// SaysNow reports whether s contains, as a word of its own, a string that
// PostgreSQL's date and time types read as a moment relative to now.
func SaysNow[T ~string | ~[]byte](s T) bool {
	for i := 0; i < len(s); {
		if !isLetter(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && isLetter(s[i]) {
			i++
		}
		if isNowWord(s[start:i]) {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { c |= 0x20; return 'a' <= c && c <= 'z' }

func isNowWord[T ~string | ~[]byte](w T) bool {
	switch len(w) {
	case 3:
		return foldEqual(w, "now")
	case 5:
		return foldEqual(w, "today")
	case 8:
		return foldEqual(w, "tomorrow")
	case 9:
		return foldEqual(w, "yesterday")
	}
	return false
}

func foldEqual[T ~string | ~[]byte](w T, lower string) bool {
	for i := range len(lower) {
		if w[i]|0x20 != lower[i] {
			return false
		}
	}
	return true
}
