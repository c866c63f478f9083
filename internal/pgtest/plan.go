package pgtest

import (
	"encoding/json"
	"maps"
	"slices"
)

// ParentsQuery gives pairs of names: a partition or child, and what it is one of.
const ParentsQuery = `SELECT c.relname::text, p.relname::text
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent`

// Unnamed returns the relations that a plan reads, but for those that are named
// and their partitions and children. The plan is what EXPLAIN (VERBOSE, FORMAT
// JSON) gave, parents what ParentsQuery did.
func Unnamed(plan []byte, named []string, parents map[string][]string) ([]string, error) {
	var p any
	if err := json.Unmarshal(plan, &p); err != nil {
		return nil, err
	}
	read := make(map[string]bool)
	relations(p, read)
	maps.DeleteFunc(read, func(name string, _ bool) bool { return covered(name, named, parents, 0) })
	return slices.Sorted(maps.Keys(read)), nil
}

func relations(plan any, into map[string]bool) {
	switch p := plan.(type) {
	case []any:
		for _, x := range p {
			relations(x, into)
		}
	case map[string]any:
		if name, ok := p["Relation Name"].(string); ok {
			into[name] = true
		}
		for _, x := range p {
			relations(x, into)
		}
	}
}

func covered(name string, named []string, parents map[string][]string, depth int) bool {
	return slices.Contains(named, name) || depth < 20 &&
		slices.ContainsFunc(parents[name], func(p string) bool { return covered(p, named, parents, depth+1) })
}
