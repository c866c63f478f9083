//go:build !race

package bench

const (
	raceMemory = 1
	callers    = 10_000
)
