// Package compat holds no code of its own: its tests run the same program on
// pgx's driver and on coalesce-pgx, and compare all that the program can see.
package compat
