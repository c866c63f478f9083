package coalesce

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var plain = regexp.MustCompile(`^[\w.+-]*$`)

// shown quotes a name or value for an error, unless something of another
// option, a password say, may have got into it.
func shown(s string) string {
	if plain.MatchString(s) {
		return strconv.Quote(s)
	}
	return `"…"`
}

// The DSN options, each with what it allows. They are documented in README.md.
var dsnOptions = map[string]struct {
	allowed string
	set     func(*Config, string) bool
}{
	"coalesce": {`"on" or "off"`, func(c *Config, v string) bool {
		c.Off = v == "off"
		return v == "on" || v == "off"
	}},
	"coalesce_ttl": {`a duration such as "30s", or "0" to join reads and hold nothing`, func(c *Config, v string) bool {
		d, err := time.ParseDuration(v)
		c.TTL = d
		if d == 0 {
			c.TTL = -1
		}
		return err == nil && d >= 0
	}},
	"coalesce_max_bytes": {sizes, func(c *Config, v string) bool {
		return parseSize(v, &c.MaxBytes)
	}},
	"coalesce_max_result_bytes": {sizes, func(c *Config, v string) bool {
		return parseSize(v, &c.MaxResultBytes)
	}},
	"coalesce_max_conns": {`a number of connections, or "0" for no limit`, func(c *Config, v string) bool {
		n, err := strconv.ParseUint(v, 10, 31)
		c.MaxConns = int(n)
		return err == nil
	}},
}

const sizes = `a size in bytes greater than 0, such as "1048576", "512KiB", "64MiB" or "1GiB"`

func parseSize(s string, n *int64) bool {
	digits := strings.TrimRight(s, "KMGiB")
	unit, ok := map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[s[len(digits):]]
	v, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || v <= 0 || v > (1<<62)/unit {
		return false
	}
	*n = v * unit
	return true
}

// setOption applies one option of a DSN. It reports false if the option is
// not one of ours.
func (c *Config) setOption(name, value string) (ours bool, err error) {
	if !strings.HasPrefix(strings.ToLower(name), "coalesce") {
		return false, nil
	}
	opt, known := dsnOptions[name]
	if !known {
		return true, fmt.Errorf("coalesce: unknown DSN option %s; there are coalesce, coalesce_ttl, coalesce_max_bytes, coalesce_max_result_bytes and coalesce_max_conns", shown(name))
	}
	if !opt.set(c, value) {
		return true, fmt.Errorf("coalesce: DSN option %s=%s is not valid; it takes %s", name, shown(value), opt.allowed)
	}
	return true, nil
}

// parseDSN returns the DSN without the options of this driver, and those.
func parseDSN(dsn string) (rest string, cfg Config, err error) {
	if isURL(dsn) {
		rest, err = cfg.cutFromURL(dsn)
	} else {
		rest, err = cfg.cutFromKeywords(dsn)
	}
	return rest, cfg, err
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// These say what to do and quote nothing: any part of a malformed DSN may be of
// its password.
var (
	errKeywords = errors.New(`coalesce: malformed DSN: neither a URL (postgres://…) nor keywords and values (host=… user=…); there, put a value with blanks between ' ', and a \ before ' and \ in it`)
	errQuote    = errors.New(`coalesce: malformed DSN: a ' that begins a value is not closed; a ' or \ in a value is put after a \`)
)

// cutFromURL takes the options out of a URL as text. What the rest means, and
// whether it is one, pgx decides: it takes more than net/url does, passwords
// with a question mark in them for example.
func (c *Config) cutFromURL(dsn string) (string, error) {
	var kept strings.Builder
	base := strings.IndexByte(dsn, '?')
	if base < 0 {
		return dsn, nil
	}
	kept.WriteString(dsn[:base])
	sep := byte('?')
	for rest := dsn[base+1:]; ; {
		end := strings.IndexAny(rest, "?&#")
		if end < 0 {
			end = len(rest)
		}
		rawName, rawValue, _ := strings.Cut(rest[:end], "=")
		name, err1 := url.QueryUnescape(rawName)
		value, err2 := url.QueryUnescape(rawValue)
		ours := false
		if err1 == nil {
			if err2 != nil {
				value = rawValue
			}
			var err error
			if ours, err = c.setOption(name, value); err != nil {
				return "", err
			}
		}
		if !ours {
			kept.WriteByte(sep)
			kept.WriteString(rest[:end])
		}
		if end == len(rest) {
			return kept.String(), nil
		}
		if !ours || rest[end] == '#' {
			sep = rest[end]
		}
		rest = rest[end+1:]
	}
}

const blanks = " \t\n\r\v\f"

// cutFromKeywords reads keywords and values as libpq does.
func (c *Config) cutFromKeywords(dsn string) (string, error) {
	if isRegistered(dsn) {
		return dsn, nil
	}
	if strings.HasPrefix(dsn, "registeredConnConfig") {
		return "", errRegistered
	}
	var kept strings.Builder
	for s := strings.TrimLeft(dsn, blanks); s != ""; s = strings.TrimLeft(s, blanks) {
		name, after, found := strings.Cut(s, "=")
		name = strings.TrimRight(name, blanks)
		// A URL of another scheme would be sent as the name of a parameter, and
		// the server's error would show it.
		if !found || name == "" || strings.ContainsAny(name, blanks+":/@") {
			return "", errKeywords
		}
		after = strings.TrimLeft(after, blanks)
		n, value, ok := keywordValue(after)
		if !ok {
			return "", errQuote
		}
		ours, err := c.setOption(name, value)
		if err != nil {
			return "", err
		}
		if !ours {
			fmt.Fprintf(&kept, " %s=%s", name, after[:n])
		}
		s = after[n:]
	}
	return strings.TrimPrefix(kept.String(), " "), nil
}

// keywordValue returns the value at the start of s, and the length of its
// text with quotes and escapes.
func keywordValue(s string) (n int, value string, ok bool) {
	var b strings.Builder
	quoted := strings.HasPrefix(s, "'")
	if quoted {
		n = 1
	}
	for ; n < len(s); n++ {
		switch ch := s[n]; {
		case quoted && ch == '\'':
			return n + 1, b.String(), true
		case !quoted && strings.IndexByte(blanks, ch) >= 0:
			return n, b.String(), true
		case ch == '\\' && n+1 < len(s):
			n++
			b.WriteByte(s[n])
		case ch == '\\':
		default:
			b.WriteByte(ch)
		}
	}
	return n, b.String(), !quoted
}

var registered = regexp.MustCompile(`^registeredConnConfig\d+$`)

var errRegistered = errors.New("coalesce: a name of stdlib.RegisterConnConfig takes no options: wrap a connector with NewConnector instead")

// isRegistered reports whether a DSN is a name that stdlib.RegisterConnConfig
// gave. Whether it still is one, only the connecting tells.
func isRegistered(dsn string) bool { return registered.MatchString(dsn) }

// parsePgx has pgx check the rest of a DSN.
func parsePgx(rest string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(rest)
	if err == nil {
		return cfg, nil
	}
	// pgx's message quotes the DSN, its password replaced as well as that can
	// be done by pattern; what follows the quotation says what is wrong.
	msg := err.Error()
	if i := strings.LastIndex(msg, "`: "); i >= 0 {
		msg = msg[i+len("`: "):]
	}
	hint := ""
	if strings.HasPrefix(msg, "failed to parse as") || strings.HasPrefix(msg, "invalid port") {
		// A password that is not escaped may have been taken for a port, say.
		msg = parentheses.ReplaceAllString(msg, "")
		if isURL(rest) {
			hint = " (characters such as / ? # @ of a password must be percent-encoded)"
		}
	}
	msg = quotations.ReplaceAllStringFunc(msg, func(q string) string { return shown(q[1 : len(q)-1]) })
	msg = assignments.ReplaceAllString(msg, "$1…")
	return nil, fmt.Errorf("coalesce: malformed DSN: %s%s", redact(msg, rest), hint)
}

var (
	parentheses = regexp.MustCompile(` \(.*\)`)
	quotations  = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
	// assignments are of options that a missing quote or separator has made
	// part of another one's value.
	assignments = regexp.MustCompile(`(?i)(password\s*=\s*)\S+`)
)

// redact removes the password of a DSN from a message.
func redact(msg, dsn string) string {
	for _, secret := range secrets(dsn) {
		msg = strings.ReplaceAll(msg, secret, "xxxxx")
	}
	return msg
}

func secrets(dsn string) []string {
	var found []string
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		pw, _ := u.User.Password()
		found = append(found, pw, u.Query().Get("password"), u.Query().Get("sslpassword"))
	} else {
		for s := strings.TrimLeft(dsn, blanks); s != ""; s = strings.TrimLeft(s, blanks) {
			name, after, _ := strings.Cut(s, "=")
			after = strings.TrimLeft(after, blanks)
			n, value, _ := keywordValue(after)
			if name = strings.TrimRight(name, blanks); name == "password" || name == "sslpassword" {
				found = append(found, value)
			}
			s = after[n:]
		}
	}
	kept := found[:0]
	for _, s := range found {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return kept
}
