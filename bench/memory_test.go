package bench

import (
	"database/sql"
	"fmt"
	"runtime"
	"testing"

	"github.com/coalesce-pgx/coalesce"
)

// shapes are results by the columns of their rows, of which n is the number.
// most is how much memory for each byte received they may take to hold, by
// their number of rows: 2, or what has been reached so far.
var shapes = []struct {
	name, columns string
	most          map[int]float64
}{
	{"ints", "n::int8 + 1000000, n::int8 + 2000000, n::int8 + 3000000, n::int8 + 4000000", map[int]float64{1: 11.5, 1000: 2}},
	{"word", "n::int8 + 1000000, 'word ' || n", map[int]float64{1: 12.5, 1000: 2.3}},
	{"text", "n::int8 + 1000000, repeat('some text. ', 20) || n", map[int]float64{1: 3.5, 1000: 2}},
	{"bytea", "n::int8 + 1000000, decode(repeat('00ff', 16), 'hex')", map[int]float64{1: 9, 1000: 2}},
	{"times", "timestamptz '2024-01-01' + n * interval '1 minute', timestamp '2024-01-01' + n * interval '1 minute'", map[int]float64{1: 12.5, 1000: 2.8}},
	{"wide", wideColumns(), map[int]float64{1: 10.5, 1000: 2.6}},
}

// wideColumns are the thirty columns of a table that has grown.
func wideColumns() string {
	columns := "n::int8 + 1000000"
	for i := range 29 {
		columns += ", "
		switch i % 4 {
		case 0:
			columns += fmt.Sprintf("'some text of column %d in ' || n AS text_column_%[1]d", i)
		case 1:
			columns += fmt.Sprintf("n::int4 + %d AS int_column_%[1]d", 1000+i)
		case 2:
			columns += fmt.Sprintf("n %% 2 = 0 AS bool_column_%d", i)
		case 3:
			columns += fmt.Sprintf("timestamptz '2024-01-01' + n * interval '%d minutes' AS time_column_%[1]d", i)
		}
	}
	return columns
}

// footprint is what holding many results of one shape takes.
type footprint struct {
	heap   float64 // bytes by which the heap has grown, per byte received
	stored float64 // Stats.StoredBytes, per byte received
	result float64 // bytes by which the heap has grown, per result
}

// measureHeld holds results of one shape until the server has sent enough for
// the rest of the process to be noise.
func measureHeld(tb testing.TB, dsn, columns string, rows int, enough int64) footprint {
	tb.Helper()
	w := new(wire)
	db := w.coalesce(tb, dsn, coalesce.Config{MaxBytes: 1 << 30, MaxResultBytes: 1 << 30})
	query := fmt.Sprintf("SELECT %s FROM generate_series(1, %d) AS g(n) WHERE n <> $1", columns, rows)
	discard := func(*sql.Rows) error { return nil }
	arg := 0
	read := func() {
		arg--
		if err := readAll(bg, db, discard, query, arg); err != nil {
			tb.Fatal(err)
		}
	}
	read() // which also dials, reads the catalog and prepares
	heap, received, stored := heapBytes(), w.received.Load(), coalesce.StatsOf(db).StoredBytes
	most := 5000
	for w.received.Load()-received < enough && -arg <= most {
		read()
	}
	bytes := float64(w.received.Load() - received)
	f := footprint{stored: float64(coalesce.StatsOf(db).StoredBytes-stored) / bytes}
	grown := float64(heapBytes() - heap)
	f.heap, f.result = grown/bytes, grown/float64(-arg-1)
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	return f
}

// heapBytes is the memory of what is reachable.
func heapBytes() int64 {
	// What finalizers and pools keep alive goes with the second.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkHeldMemory is the memory of held results beside what the server
// sent for them, and what the driver takes it to be.
func BenchmarkHeldMemory(b *testing.B) {
	dsn := database(b)
	for _, s := range shapes {
		for _, rows := range []int{1, 10, 1000} {
			b.Run(fmt.Sprintf("shape=%s,rows=%d/driver=coalesce", s.name, rows), func(b *testing.B) {
				var sum footprint
				n := 0.0
				for b.Loop() {
					f := measureHeld(b, dsn, s.columns, rows, 4<<20)
					sum.heap += f.heap
					sum.stored += f.stored
					sum.result += f.result
					n++
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(sum.heap/n, "heap-B/wire-B")
				b.ReportMetric(sum.stored/n, "stored-B/wire-B")
				b.ReportMetric(sum.result/n, "heap-B/result")
			})
		}
	}
}
