// Package oracle holds package statement against PostgreSQL's own parser. It
// has nothing but tests, and is a module of its own because the parser is C
// and takes minutes to compile.
package oracle
