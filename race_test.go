//go:build race

package coalesce_test

// underRace: the race detector makes small values larger.
const underRace = true
