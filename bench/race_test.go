//go:build race

package bench

// The race detector has the allocator give values of 8 bytes 16.
const raceMemory = 1.4
