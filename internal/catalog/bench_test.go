package catalog

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
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
	for _, tables := range []int{100, 10_000, 100_000} {
		rows := rowsOf(tables, min(tables/2, 5_000))
		b.Run(fmt.Sprintf("%d-tables", tables), func(b *testing.B) {
			b.ReportAllocs()
			var s *Snapshot
			for b.Loop() {
				var err error
				if s, err = Parse(rows); err != nil {
					b.Fatal(err)
				}
			}
			with := heap()
			runtime.KeepAlive(s)
			s = nil
			b.ReportMetric(float64(with-heap())/(1<<20), "MB")
		})
		runtime.KeepAlive(rows)
	}
}

// BenchmarkQuery asks a server with large catalogs.
func BenchmarkQuery(b *testing.B) {
	ctx := b.Context()
	conn, err := pgx.Connect(ctx, pgtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	run := func(sql string) (rows int) {
		results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil {
			b.Fatal(err)
		}
		return len(results[len(results)-1].Rows)
	}
	for _, c := range []struct {
		name, create string
		times        int
	}{
		{"empty", "SELECT", 1},
		{"10000-tables-5000-functions", `CREATE TABLE a_table_%1$s (id int PRIMARY KEY, name text NOT NULL DEFAULT lower('A'), at timestamptz DEFAULT now(), n int CHECK (n > 0));
			CREATE TABLE another_%1$s (id int PRIMARY KEY, a int REFERENCES a_table_%1$s ON DELETE CASCADE);
			CREATE FUNCTION a_function_%1$s(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + %1$s'`, 5000},
		{"and-2000-views", "CREATE VIEW a_view_%1$s AS SELECT x.id, upper(x.name) AS name, count(*), a_function_%1$s(x.n) FROM a_table_%1$s x JOIN another_%1$s y ON y.a = x.id WHERE x.at > now() - interval '1 day' GROUP BY x.id", 2000},
		{"and-100-domains", "CREATE DOMAIN a_domain_%1$s AS int CHECK (VALUE > 0); ALTER TABLE a_table_%1$s ADD d a_domain_%1$s", 100},
	} {
		// One transaction would need too many locks.
		run(fmt.Sprintf("DO $do$ BEGIN FOR i IN 1..%d LOOP EXECUTE format($create$%s$create$, i); COMMIT; END LOOP; END $do$", c.times, c.create))
		run("ANALYZE")
		b.Run(c.name, func(b *testing.B) {
			rows := 0
			for b.Loop() {
				rows = run(Prelude + ";" + Query)
			}
			b.ReportMetric(float64(rows), "rows")
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
