//go:build race

package bench

// The race detector has the allocator give values of 8 bytes 16, and allows
// 8000 goroutines.
const (
	raceMemory = 1.4
	callers    = 2000
)
