package statement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

var tenLines = strings.TrimSpace(`
SELECT o.id, o.created_at, o.status, c.name, c.email, sum(i.quantity * i.price) AS total, count(*) FILTER (WHERE i.returned) AS returned
FROM orders o
JOIN customers c ON c.id = o.customer_id
LEFT JOIN LATERAL (SELECT * FROM items WHERE items.order_id = o.id AND NOT items.deleted ORDER BY items.position LIMIT 100) i ON true
WHERE o.created_at >= $1 AND o.created_at < $2
  AND o.status IN ('open', 'paid', 'shipped') AND c.country = ANY($3)
  AND EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.amount > 0)
GROUP BY o.id, o.created_at, o.status, c.name, c.email
HAVING sum(i.quantity * i.price) > $4 /* the big ones */
ORDER BY total DESC, o.id LIMIT 50 OFFSET $5`)

// bulk returns the rows after the first of an INSERT with that many parameters.
func bulk(parameters int) string {
	var b strings.Builder
	for i := 5; i < parameters; i += 4 {
		fmt.Fprintf(&b, ", ($%d, $%d, $%d, $%d)", i, i+1, i+2, i+3)
	}
	return b.String()
}

func BenchmarkAnalyze(b *testing.B) {
	for _, c := range []struct{ name, sql string }{
		{"one-line", "SELECT id, name, email FROM users WHERE id = $1"},
		{"one-line-tagged", "SELECT id, name, email FROM users WHERE id = $1 /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00'*/"},
		{"insert", "INSERT INTO users (name, email) VALUES ($1, $2) RETURNING id"},
		{"ten-lines", tenLines},
		{"bulk-insert-330-kB", "INSERT INTO t (a, b, c, d) VALUES ($1, $2, $3, $4)" + bulk(40_000)},
		{"200-kB", "SELECT " + strings.Repeat("a_column_with_a_name, 'a literal', ", 6000) + "1"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.sql)))
			b.ReportAllocs()
			for b.Loop() {
				Analyze(c.sql)
			}
		})
	}
}

// hostile are texts made of one thing again and again, by what that is.
var hostile = map[string]string{
	"comments-open":    "/*",
	"comments":         "/**/",
	"hints":            "/*+*/",
	"line-comments":    "--\n",
	"parentheses-open": "(",
	"parentheses":      "()",
	"brackets":         "a[1]",
	"brackets-open":    "[",
	"dollar-tags":      "$a$b$c$d",
	"dollar-quotes":    "$a$b$a$,",
	"dollars":          "$a",
	"quotes":           "''",
	"quotes-apart":     "'' \n--\n ",
	"quotes-joined":    "'a'\n",
	"escapes":          `E'\'',`,
	"identifiers":      `""""`,
	"names":            `"a".`,
	"dots":             ".a",
	"casts":            "::a",
	"operators":        "@-",
	"signs":            "+-",
	"almost-comments":  "- -/ *",
	"named-operators":  "OPERATOR(a.+)",
	"exponents":        "1e+",
	"semicolons":       ";",
	"statements":       "DO ;ROLLBACK WORK;",
	"windows":          "over(a order ",
	"between":          "between(a b ",
	"aliases":          " as (a b",
	"CTEs":             "with a as (",
}

// hostileText is n bytes of a statement with such a text in it.
func hostileText(unit string, n int) string {
	const head = "SELECT 1 "
	return head + strings.Repeat(unit, (n-len(head))/len(unit))
}

// BenchmarkHostile shows whether time grows in line with length. Texts of 1 MB
// are private, and looked at for what they may change.
func BenchmarkHostile(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dkB", name, size>>10), func(b *testing.B) {
				sql := hostileText(hostile[name], size)
				b.ReportAllocs()
				for b.Loop() {
					Analyze(sql)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(sql)), "ns/byte")
			})
		}
	}
}
