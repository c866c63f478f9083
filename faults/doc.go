// Package faults holds no code of its own: its tests let things go wrong
// between the driver and a real server, and require that callers get what
// pgx's driver gives them in the same situation, or better.
//
// The soak runs for a minute by default. For longer:
//
//	go test -race -run Soak -timeout 0 -soak.duration 1h
package faults
