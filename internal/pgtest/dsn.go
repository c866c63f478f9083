package pgtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// attach gives the server that dsn names, once it has answered. name says in
// errors where the DSN came from; the DSN itself, which may hold a password,
// appears in none.
func attach(ctx context.Context, name, dsn string) (*Server, error) {
	u, err := toURL(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %s: %w", name, err)
	}
	// The options of coalesce-pgx are not the server's, nor those of a test.
	for _, option := range []string{"coalesce", "coalesce_ttl", "coalesce_max_bytes", "coalesce_max_result_bytes", "coalesce_max_conns"} {
		u = withOption(u, option, "")
	}
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		var bad *pgconn.ParseConfigError
		if errors.As(err, &bad) {
			// Its text may quote the DSN.
			err = errNotADSN
		}
		return nil, fmt.Errorf("pgtest: %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, secure := conn.PgConn().Conn().(*tls.Conn); !secure {
		// With the default, "prefer", one dial may be two, and tests count them.
		u = withOption(u, "sslmode", "disable")
	}
	return &Server{dsn: u}, nil
}

var errNotADSN = errors.New("not a PostgreSQL connection string (postgres://user@host:port/database or host=… dbname=…)")

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// toURL gives dsn as a URL, so that callers can add options in one way. A
// keyword/value string becomes a URL whose settings are all in its query.
func toURL(dsn string) (string, error) {
	if isURL(dsn) {
		if _, err := url.Parse(dsn); err != nil {
			return "", errNotADSN
		}
		return dsn, nil
	}
	q, err := parseKeywords(dsn)
	if err != nil {
		return "", err
	}
	return "postgres:///?" + q.Encode(), nil
}

// parseKeywords reads libpq's keyword = 'value' form: quotes are optional, a
// backslash escapes.
func parseKeywords(s string) (url.Values, error) {
	q := url.Values{}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" || strings.ContainsAny(key, " \t\r\n'/") {
			return nil, errNotADSN
		}
		s = strings.TrimLeft(rest, " \t\r\n")
		quoted := strings.HasPrefix(s, "'")
		if quoted {
			s = s[1:]
		}
		var value strings.Builder
		i, closed := 0, false
		for ; i < len(s) && !closed; i++ {
			switch c := s[i]; {
			case c == '\\' && i+1 < len(s):
				i++
				value.WriteByte(s[i])
			case quoted && c == '\'', !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
				closed = true
			default:
				value.WriteByte(c)
			}
		}
		if quoted && !closed {
			return nil, errNotADSN
		}
		q.Set(key, value.String())
		s = s[i:]
	}
	if len(q) == 0 {
		return nil, errNotADSN
	}
	return q, nil
}

// WithDatabase gives the URL dsn with another database.
func WithDatabase(dsn, database string) string {
	u := parsed(withOption(withOption(dsn, "dbname", ""), "database", ""))
	u.Path = "/" + database
	return u.String()
}

// withOption gives the URL dsn with another value of an option, or without it.
func withOption(dsn, name, value string) string {
	u := parsed(dsn)
	q := u.Query()
	q.Del(name)
	if value != "" {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func parsed(dsn string) *url.URL {
	u, err := url.Parse(dsn)
	if err != nil {
		panic("bug: pgtest: DSN of a server is not a URL")
	}
	return u
}
