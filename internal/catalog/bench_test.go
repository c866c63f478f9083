package catalog

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// rowsOf is what Query says of a database of so many tables and functions: one
// table in five is a partition, one in ten has a cascade and a view over it,
// one in twenty a trigger.
func rowsOf(tables, functions int) []Row {
	var rows []Row
	add := func(kind, name, a, b, text string) { rows = append(rows, Row{kind, name, a, b, text}) }
	for i := range tables {
		name := fmt.Sprintf("a_table_with_a_name_%d", i)
		flags := ""
		if i%20 == 0 {
			flags = "t"
		}
		add("relation", name, "r", flags, "")
		if i%5 == 0 && i > 0 {
			add("child", fmt.Sprintf("a_table_with_a_name_%d", i-i%50), name, "", "")
		}
		if i%10 == 1 {
			view := "view_of_" + name
			add("cascade", name, fmt.Sprintf("a_table_with_a_name_%d", (i+7)%tables), "", "")
			add("relation", view, "v", "", "")
			add("uses", view, "relation", "", name)
			for _, f := range []string{"int4eq", "upper", "count", "to_char"} {
				add("uses", view, "function", "", f)
			}
			add("uses", view, "function", "u", fmt.Sprintf("a_function_%d", i%max(functions, 1)))
		}
		if i%3 == 0 {
			add("relation", name+"_id_seq", "S", "", "")
		}
	}
	for i := range functions {
		add("function", fmt.Sprintf("a_function_%d", i), "iisv"[i%4:i%4+1], "", "")
	}
	for i := range functions / 50 {
		add("type", fmt.Sprintf("a_type_%d", i), "e", "s", "")
		add("type", fmt.Sprintf("a_domain_%d", i), "d", "s", "CHECK ((VALUE > 0))")
	}
	return rows
}

func BenchmarkParse(b *testing.B) {
	for _, tables := range []int{100, 10_000} {
		rows := rowsOf(tables, tables/2)
		b.Run(fmt.Sprintf("%d-tables", tables), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	s, err := Parse(rowsOf(10_000, 5_000))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, sql string }{
		{"one-table", "SELECT id, name FROM a_table_with_a_name_7 WHERE id = $1"},
		{"view", "SELECT * FROM view_of_a_table_with_a_name_21"},
		{"ten-lines", `SELECT o.id, o.created_at, o.status, c.name, c.email, sum(i.quantity * i.price) AS total, count(*) FILTER (WHERE i.returned) AS returned
FROM a_table_with_a_name_1 o
JOIN a_table_with_a_name_2 c ON c.id = o.customer_id
LEFT JOIN LATERAL (SELECT * FROM a_table_with_a_name_3 items WHERE items.order_id = o.id AND NOT items.deleted ORDER BY items.position LIMIT 100) i ON true
WHERE o.created_at >= $1 AND o.created_at < $2
  AND o.status IN ('open', 'paid', 'shipped') AND c.country = ANY($3)
  AND EXISTS (SELECT 1 FROM view_of_a_table_with_a_name_11 p WHERE p.order_id = o.id AND p.amount > 0)
GROUP BY o.id, o.created_at, o.status, c.name, c.email
HAVING sum(i.quantity * i.price) > $4
ORDER BY total DESC, o.id LIMIT 50 OFFSET $5`},
		{"update", "UPDATE a_table_with_a_name_51 SET name = $1 WHERE id = $2"},
	} {
		a := statement.Analyze(c.sql)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Judge(a)
			}
		})
		b.Run(c.name+"-analyzed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Judge(statement.Analyze(c.sql))
			}
		})
	}
}

// maxSnapshot is what a snapshot of 100,000 tables may take.
const maxSnapshot = 50 << 20

func TestSnapshotOfManyTablesIsSmall(t *testing.T) {
	rows := rowsOf(100_000, 5_000)
	before := heap()
	s, err := Parse(rows)
	if err != nil {
		t.Fatal(err)
	}
	both := heap()
	// The names are copied: the rows, with their larger strings, are not kept.
	n := len(rows)
	clear(rows)
	rows = nil
	size := int64(both) - int64(before)
	t.Logf("%d rows: %.1f MB, %d relations", n, float64(size)/(1<<20), len(s.relations))
	if size > maxSnapshot {
		t.Errorf("the snapshot takes %d bytes, want at most %d", size, maxSnapshot)
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
