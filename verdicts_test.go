package coalesce

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// tenLines is a query such as a web page runs, of the tables below.
const tenLines = `
SELECT o.id, o.created_at, o.status, c.name, c.email, sum(i.quantity * i.price) AS total, count(*) FILTER (WHERE i.returned) AS returned
FROM orders o
JOIN customers c ON c.id = o.customer_id
LEFT JOIN LATERAL (SELECT * FROM items WHERE items.order_id = o.id AND NOT items.deleted ORDER BY items.position LIMIT 100) i ON true
WHERE o.created_at >= $1 AND o.created_at < $2
  AND o.status IN ('open', 'paid', 'shipped') AND c.country = ANY($3)
GROUP BY o.id, o.created_at, o.status, c.name, c.email
HAVING sum(i.quantity * i.price) > $4
ORDER BY total DESC, o.id LIMIT 50 OFFSET $5`

// judging returns a connector that knows those tables, and what a read does for
// its verdict.
func judging(tb testing.TB) (k *Connector, verdict func(*text) statement.Class) {
	tables, err := catalog.Parse([]catalog.Row{
		{Kind: "relation", Name: "orders", A: "p"}, {Kind: "relation", Name: "customers", A: "r"}, {Kind: "relation", Name: "items", A: "r"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	k = NewConnector(nil, Config{})
	c := &conn{k: k}
	k.snapshot.Store(&snapshot{Snapshot: tables})
	ctx := context.Background()
	return k, func(t *text) statement.Class {
		if c.private(t, callOf(ctx)) != "" {
			return statement.Private
		}
		j, err := c.judge(ctx, t, 0)
		if err != nil {
			tb.Fatal(err)
		}
		j.version()
		return j.Class
	}
}

func TestTheVerdictOnAKnownTextAllocatesNothing(t *testing.T) {
	k, verdict := judging(t)
	if n := testing.AllocsPerRun(100, func() {
		if v := verdict(k.texts.get(tenLines)); v != statement.Holdable {
			t.Fatal(v)
		}
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}

// BenchmarkVerdict is what a read pays for its verdict: of a text seen before,
// and of a new one.
func BenchmarkVerdict(b *testing.B) {
	k, verdict := judging(b)
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v := verdict(k.texts.get(tenLines)); v != statement.Holdable {
				b.Fatal(v)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v := verdict(newText(tenLines)); v != statement.Holdable {
				b.Fatal(v)
			}
		}
	})
}

func TestAStandbyIsTrustedAgainWhenNothingWasWrittenForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewConnector(nil, Config{})
		j := &judged{k: k}
		check := func(when string, want bool) {
			if got := j.settled(true); got != want || !j.settled(false) {
				t.Errorf("%s: %t, want %t", when, got, want)
			}
		}
		check("before any write", true)
		k.raiseAll(rowsOnly)
		check("after a write", false)
		time.Sleep(lagTime)
		check("long after it", true)
	})
}
