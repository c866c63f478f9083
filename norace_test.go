//go:build !race

package coalesce_test

const underRace = false
