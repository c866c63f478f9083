package bench

import (
	"database/sql"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce"
)

// until waits for something to come true; nothing is measured against the
// time that it allows.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func TestBurstIsOneQueryOnOneConnection(t *testing.T) {
	dsn := database(t)
	w := new(wire)
	db := w.coalesce(t, dsn, coalesce.Config{})
	plain := open(t, "pgx", dsn)
	// Nobody knows the catalog before the first burst.
	for burst, query := range []string{
		"SELECT balance FROM account WHERE id = $1",
		"SELECT balance + 1 FROM account WHERE id = $1",
	} {
		tx, err := plain.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("LOCK TABLE account IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		queries, before := w.queries.Load(), coalesce.StatsOf(db)
		c := gather(callers, func() error {
			var balance int64
			return db.QueryRow(query, 1).Scan(&balance)
		})
		close(c.release)
		until(t, "all callers wait", func() bool {
			s := coalesce.StatsOf(db)
			return s.Led+s.Joined == before.Led+before.Joined+callers
		})
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		c.done.Wait()
		close(c.errs)
		if err := <-c.errs; err != nil {
			t.Fatal(err)
		}
		if n := coalesce.StatsOf(db).Led - before.Led; n != 1 {
			t.Errorf("burst %d: %d callers led, want 1", burst, n)
		}
		if n := w.queries.Load() - queries; burst > 0 && n != 1 {
			t.Errorf("burst %d: %d queries, want 1", burst, n)
		}
		if n := w.dials.Load(); n != 1 {
			t.Errorf("burst %d: %d connections so far, want 1", burst, n)
		}
	}
}

func TestHeldReadsDoNotReachTheServer(t *testing.T) {
	w := new(wire)
	read := readSQL(w.coalesce(t, database(t), coalesce.Config{TTL: time.Hour}))
	for i := range 100 {
		queries := w.queries.Load()
		n, err := read(bg, itemsUpTo, 100)
		if err != nil || n != 100 {
			t.Fatal(n, err)
		}
		if sent := w.queries.Load() - queries; i > 0 && sent != 0 {
			t.Fatalf("read %d sent %d queries", i, sent)
		}
	}
}

func TestHeldReadAllocatesThreeTimesMoreThanTheFloorAtMost(t *testing.T) {
	dsn := database(t)
	db := open(t, "coalesce", dsn, held...)
	for _, c := range []struct {
		query string
		rows  int
	}{{itemByID, 1}, {itemsUpTo, 100}, {itemsUpTo, 1000}} {
		allocs := func(read reader) float64 {
			return testing.AllocsPerRun(200, func() {
				if n, err := read(bg, c.query, c.rows); err != nil || n != c.rows {
					t.Fatal(n, err)
				}
			})
		}
		floor, coalesce := allocs(readSQL(openFloor(t, dsn, c.query, c.rows))), allocs(readSQL(db))
		if coalesce > floor+3 {
			t.Errorf("%d rows: %v allocations, the floor has %v", c.rows, coalesce, floor)
		}
	}
}

func TestCallerOfMegabyteAllocatesNoMoreThanItScans(t *testing.T) {
	dsn := database(t)
	shared, plain := open(t, "coalesce", dsn, held...), open(t, "pgx", dsn)
	for _, m := range megabytes {
		floor := openFloor(t, dsn, m.query, 0)
		for _, into := range destinations {
			t.Run(m.typ+"-into-"+into.name, func(t *testing.T) {
				allocated := func(db *sql.DB) float64 {
					read := func() {
						if err := readAll(bg, db, into.scan, m.query, 0); err != nil {
							t.Fatal(err)
						}
					}
					read()
					const reads = 10
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for range reads {
						read()
					}
					runtime.ReadMemStats(&after)
					return float64(after.TotalAlloc-before.TotalAlloc) / reads
				}
				most, got := allocated(floor), allocated(shared)
				if m.typ == "bytea" {
					// Each caller gets bytes of its own, as it does from pgx.
					most = allocated(plain)
				}
				if got > 1.02*most+16<<10 {
					t.Errorf("%.0f bytes for one caller, want at most %.0f", got, most)
				}
			})
		}
	}
}

func TestHeldResultsTakeTheMemoryTheyAreTakenFor(t *testing.T) {
	dsn := database(t)
	for _, s := range shapes {
		for _, rows := range []int{1, 1000} {
			t.Run(fmt.Sprintf("%s-%d", s.name, rows), func(t *testing.T) {
				f := measureHeld(t, dsn, s.columns, rows, 1<<20)
				if most := s.most[rows] * raceMemory; f.heap > most {
					t.Errorf("%.2f bytes of memory for each byte received, want at most %v", f.heap, most)
				}
				if f.heap > 1.1*raceMemory*f.stored || f.stored > 1.25*f.heap {
					t.Errorf("Stats.StoredBytes is %.2f for each byte received, and the memory %.2f", f.stored, f.heap)
				}
			})
		}
	}
}
