package main

import (
	"testing"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
)

func TestReadersShareOneQueryAndSeeTheWrite(t *testing.T) { demo.Test(t, "sqlc", program) }
