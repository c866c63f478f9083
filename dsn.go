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
		return true, fmt.Errorf("coalesce: unknown DSN option %q; there are coalesce, coalesce_ttl, coalesce_max_bytes, coalesce_max_result_bytes and coalesce_max_conns", name)
	}
	if !opt.set(c, value) {
		return true, fmt.Errorf("coalesce: DSN option %s=%q is not valid; it takes %s", name, value, opt.allowed)
	}
	return true, nil
}

// parseDSN returns the DSN without the options of this driver, and those.
func parseDSN(dsn string) (rest string, cfg Config, err error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		rest, err = cfg.cutFromURL(dsn)
	} else {
		rest, err = cfg.cutFromKeywords(dsn)
	}
	return rest, cfg, err
}

// The text of a malformed DSN may show any part of its password, so these
// say what to do and quote nothing.
var (
	errURL      = errors.New("coalesce: malformed DSN: not a valid URL; in the user and the password, characters such as % # / ? : @ must be percent-encoded")
	errKeywords = errors.New(`coalesce: malformed DSN: not a URL (postgres://…), not keywords and values (host=… user=…), where values with blanks are put between ' ' and a ' or \ in them after a \`)
)

func (c *Config) cutFromURL(dsn string) (string, error) {
	if _, err := url.Parse(dsn); err != nil {
		return "", errURL
	}
	base, query, found := strings.Cut(dsn, "?")
	if !found {
		return dsn, nil
	}
	query, fragment, hasFragment := strings.Cut(query, "#")
	var kept []string
	for _, pair := range strings.Split(query, "&") {
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(rawName)
		value, err2 := url.QueryUnescape(rawValue)
		if err1 != nil || err2 != nil {
			return "", errURL
		}
		ours, err := c.setOption(name, value)
		if err != nil {
			return "", err
		}
		if !ours {
			kept = append(kept, pair)
		}
	}
	if len(kept) > 0 {
		base += "?" + strings.Join(kept, "&")
	}
	if hasFragment {
		base += "#" + fragment
	}
	return base, nil
}

const blanks = " \t\n\r\v\f"

// cutFromKeywords reads keywords and values as libpq does.
func (c *Config) cutFromKeywords(dsn string) (string, error) {
	if isRegistered(dsn) {
		return dsn, nil
	}
	var kept strings.Builder
	for s := strings.TrimLeft(dsn, blanks); s != ""; s = strings.TrimLeft(s, blanks) {
		name, after, found := strings.Cut(s, "=")
		name = strings.TrimRight(name, blanks)
		if !found || name == "" || strings.ContainsAny(name, blanks) {
			return "", errKeywords
		}
		after = strings.TrimLeft(after, blanks)
		n, value, ok := keywordValue(after)
		if !ok {
			return "", errKeywords
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
	return nil, fmt.Errorf("coalesce: malformed DSN: %s", redact(msg, rest))
}

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
