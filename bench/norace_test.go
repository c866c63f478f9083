//go:build !race

package bench

const raceMemory = 1
