package demo

import (
	"strings"
	"testing"
)

// Test runs an example as its user would, on the server that the environment
// names or one started for it, and fails if it does not keep its promise.
func Test(t *testing.T, name string, p Program) {
	t.Helper()
	var out strings.Builder
	// Few enough for any server, with its other users.
	err := compare(t.Context(), p, Options{Name: name, Queries: reads}, 20, &out)
	t.Logf("printed:\n%s", out.String())
	if err != nil {
		t.Error(err)
	}
}
