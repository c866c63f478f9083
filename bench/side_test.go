package bench

import (
	"slices"
	"testing"
	"time"
)

// op is what one driver does, time and again.
type op struct {
	driver string
	do     func() error
}

// side runs the op of each driver, and then coalesce against those named in
// pairs.
func side(b *testing.B, ops []op, pairs ...string) {
	for _, o := range ops {
		b.Run("driver="+o.driver, func(b *testing.B) { alone(b, o.do) })
	}
	find := func(driver string) op {
		return ops[slices.IndexFunc(ops, func(o op) bool { return o.driver == driver })]
	}
	for _, base := range pairs {
		b.Run("driver=coalesce÷"+base, func(b *testing.B) { paired(b, find(base), find("coalesce")) })
	}
}

// alone reports, beside the time of do, what this process used of the
// processor, which others on the machine disturb less.
func alone(b *testing.B, do func() error) {
	if err := do(); err != nil { // which dials, and where it can leaves something to hold
		b.Fatal(err)
	}
	b.ReportAllocs()
	cpu := cpuTime()
	for b.Loop() {
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
}

// turn is how long each of a pair works before it is the other's turn: several
// cycles of the garbage collector, so that each pays for its own.
const turn = 20 * time.Millisecond

// leastPairs is how many there are where one turn takes a good part of the
// time given.
const leastPairs = 9

// paired reports the median ratio of the turns of under to those of base next
// to them, by the clock and by the processor.
func paired(b *testing.B, base, under op) {
	work := func(o op, n int) (wall, cpu time.Duration) {
		start, used := time.Now(), cpuTime()
		for range n {
			if err := o.do(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start), cpuTime() - used
	}
	work(under, 1)
	n := 1
	for {
		if wall, _ := work(base, n); wall >= turn/2 {
			break
		}
		n *= 2
	}
	var walls, cpus []float64
	for i, more := 0, true; more || i < leastPairs; i++ {
		more = more && b.Loop()
		// Who begins takes turns too.
		var wall, cpu [2]time.Duration
		pair := [2]op{base, under}
		for j := range 2 {
			k := (i + j) % 2
			wall[k], cpu[k] = work(pair[k], n)
		}
		walls = append(walls, float64(wall[1])/float64(wall[0]))
		cpus = append(cpus, float64(cpu[1])/float64(max(cpu[0], 1)))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(walls), "x-"+base.driver)
	b.ReportMetric(median(cpus), "cpu-x-"+base.driver)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
