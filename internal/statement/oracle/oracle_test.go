package oracle

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coalesce-pgx/coalesce/internal/statement"
	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// corpus returns the statements of PostgreSQL's regression suite, or the
// project's own if the suite is not there.
func corpus(t testing.TB) []string {
	t.Helper()
	f, err := os.Open("../../../../shared/corpus/pg-regress.jsonl.gz")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("PostgreSQL's regression suite is not there; taking the project's own corpus")
		text, err := os.ReadFile("../testdata/corpus.sql")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for sc := bufio.NewScanner(z); sc.Scan(); {
		var line struct{ SQL string }
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line.SQL)
	}
	return out
}

// facts are what a parse tree says.
type facts struct {
	tables, functions, operators, types []string // as they are written, unqualified
	qualified                           bool     // a function, type or operator of some other schema than pg_catalog
	names                               []string // schemas of tables
	ctes                                []string
	alien                               bool   // not PostgreSQL's: libpg_query takes parameters where literals belong
	taints                              bool   // makes or uses something temporary
	not                                 string // why the statement cannot be shared, "" if the tree has no objection
}

func read(tree *pg_query.ParseResult) *facts {
	f := &facts{}
	if len(tree.Stmts) != 1 {
		f.not = fmt.Sprint(len(tree.Stmts), " statements")
	}
	for _, s := range tree.Stmts {
		if s.Stmt.GetSelectStmt() == nil {
			f.not = fmt.Sprintf("%T", s.Stmt.Node)
		}
	}
	f.walk(tree.ProtoReflect())
	return f
}

func parts(nodes []*pg_query.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.GetString_().GetSval())
	}
	return out
}

func (f *facts) name(set *[]string, nodes []*pg_query.Node) {
	p := parts(nodes)
	if len(p) == 0 {
		return
	}
	last := p[len(p)-1]
	if len(p) > 1 && p[0] != "pg_catalog" || len(p) > 2 {
		f.qualified = true
	}
	if !slices.Contains(*set, last) {
		*set = append(*set, last)
	}
}

func (f *facts) walk(m protoreflect.Message) {
	switch n := m.Interface().(type) {
	case *pg_query.RangeVar:
		f.tables = append(f.tables, n.Relname)
		f.names = append(f.names, n.Schemaname)
		f.taints = f.taints || n.Relpersistence == "t" || strings.HasPrefix(n.Schemaname, "pg_temp")
	case *pg_query.CommonTableExpr:
		f.ctes = append(f.ctes, n.Ctename)
	case *pg_query.FuncCall:
		p := parts(n.Funcname)
		byGrammar := n.Funcformat == pg_query.CoercionForm_COERCE_SQL_SYNTAX ||
			len(p) == 2 && p[0] == "pg_catalog" && (p[1] == "like_escape" || p[1] == "similar_to_escape")
		if !byGrammar {
			f.name(&f.functions, n.Funcname)
		}
	case *pg_query.TypeCast:
		if p := n.Arg.GetParamRef(); p != nil && n.TypeName.Location < p.Location {
			f.alien = true
		}
	case *pg_query.TypeName:
		// The grammar's own types are qualified by the parser.
		p := parts(n.Names)
		if len(p) == 2 && p[0] == "pg_catalog" {
			break
		}
		f.name(&f.types, n.Names)
	case *pg_query.A_Expr:
		f.name(&f.operators, n.Name)
	case *pg_query.SortBy:
		f.name(&f.operators, n.UseOp)
	case *pg_query.SubLink:
		f.name(&f.operators, n.OperName)
	case *pg_query.InsertStmt, *pg_query.UpdateStmt, *pg_query.DeleteStmt, *pg_query.MergeStmt:
		f.not = fmt.Sprintf("%T", n)
	case *pg_query.LockingClause:
		f.not = "row lock"
	case *pg_query.IntoClause:
		f.not = "INTO"
	case *pg_query.RangeTableSample:
		f.not = "TABLESAMPLE"
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind:
		case fd.IsList():
			for i := range v.List().Len() {
				f.walk(v.List().Get(i).Message())
			}
		default:
			f.walk(v.Message())
		}
		return true
	})
}

var _ proto.Message = (*pg_query.Node)(nil)

func shareable(sql string) bool { return statement.Analyze(sql).Class != statement.Private }

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// builtin says whether all that the tree names is known to be harmless, one by one.
func (f *facts) harmless() bool {
	if f.not != "" || f.qualified {
		return false
	}
	for _, n := range f.functions {
		if !shareable("SELECT " + quote(n) + "()") {
			return false
		}
	}
	for _, n := range f.types {
		if !shareable("SELECT NULL::" + quote(n)) {
			return false
		}
	}
	for _, n := range f.operators {
		if !shareable("SELECT 1 " + n + " 2") {
			return false
		}
	}
	for i, n := range f.tables {
		if strings.HasPrefix(n, "pg_") || strings.HasPrefix(f.names[i], "pg_") || f.names[i] == "information_schema" {
			return false
		}
	}
	return true
}

// relations returns the tables that are no common table expressions.
func (f *facts) relations() []string {
	return slices.DeleteFunc(slices.Clone(f.tables), func(n string) bool { return slices.Contains(f.ctes, n) })
}

func opaque(a *statement.Analysis) bool {
	return a.Cause == statement.CauseUnparsed || a.Cause == statement.CauseTooLong
}

func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 220 {
		s = s[:220] + "…"
	}
	return s
}

func contains(t *testing.T, sql, what string, have, want []string) {
	t.Helper()
	for _, n := range want {
		if !slices.Contains(have, n) {
			t.Errorf("%s: %s lacks %q, has %q", clip(sql), what, n, have)
		}
	}
}

// check holds what the scanner says of sql against its parse tree.
func check(t *testing.T, sql string, tree *pg_query.ParseResult) (*facts, *statement.Analysis) {
	t.Helper()
	f, a := read(tree), statement.Analyze(sql)
	if f.not != "" && a.Class != statement.Private {
		t.Errorf("%s: is %v, but has %s", clip(sql), a.Class, f.not)
	}
	if opaque(a) || f.alien {
		return f, a
	}
	contains(t, sql, "Tables", a.Tables, f.tables)
	if f.not == "" {
		contains(t, sql, "Functions", a.Functions, f.functions)
		if a.Class != statement.Private {
			contains(t, sql, "Relations", a.Relations, f.relations())
		}
		if a.Class != statement.Private && !f.harmless() {
			t.Errorf("%s: is %v, but the tree has functions %q, types %q, operators %q, tables %q", clip(sql), a.Class, f.functions, f.types, f.operators, f.tables)
		}
	}
	return f, a
}

func TestScannerSeesWhatTheParserSees(t *testing.T) {
	reasons := map[string]int{}
	examples := map[string][]string{}
	plain, needless, parsed, agreed := 0, 0, 0, 0
	for _, sql := range corpus(t) {
		tree, err := pg_query.Parse(sql)
		if err != nil {
			continue
		}
		parsed++
		f, a := check(t, sql, tree)
		if !f.harmless() {
			continue
		}
		plain++
		if a.Class == statement.Private {
			needless++
			reasons[a.Cause+": "+a.Reason]++
			examples[a.Cause+": "+a.Reason] = append(examples[a.Cause+": "+a.Reason], clip(sql))
		} else {
			agreed++
		}
	}
	t.Logf("%d statements parsed; of %d reads that the tree calls harmless %d are private without need (%.1f %%)",
		parsed, plain, needless, 100*float64(needless)/float64(max(plain, 1)))
	var order []string
	for r := range reasons {
		order = append(order, r)
	}
	slices.SortFunc(order, func(a, b string) int { return reasons[b] - reasons[a] })
	for _, r := range order[:min(40, len(order))] {
		t.Logf("%4d  %s\n          %s", reasons[r], r, examples[r][rand.IntN(len(examples[r]))])
	}
}

// What a write calls decides whether its session is still like a fresh one.
func TestWritesTaintOnlyIfTheyCallUnknownFunctions(t *testing.T) {
	needless := map[string][]string{}
	n, clean := 0, 0
	for _, sql := range corpus(t) {
		tree, err := pg_query.Parse(sql)
		if err != nil || len(tree.Stmts) != 1 {
			continue
		}
		f, a := read(tree), statement.Analyze(sql)
		if opaque(a) {
			continue
		}
		stmt := tree.Stmts[0].Stmt
		unknown := false
		for _, fn := range f.functions {
			unknown = unknown || !builtin(fn)
		}
		var kind string
		runs := true
		switch s := stmt.Node.(type) {
		case *pg_query.Node_InsertStmt, *pg_query.Node_UpdateStmt, *pg_query.Node_DeleteStmt, *pg_query.Node_MergeStmt,
			*pg_query.Node_SelectStmt, *pg_query.Node_TruncateStmt:
		case *pg_query.Node_CopyStmt, *pg_query.Node_IndexStmt, *pg_query.Node_AlterTableStmt:
		case *pg_query.Node_CreateTableAsStmt:
			runs = s.CreateTableAsStmt.Query.GetExecuteStmt() == nil
		case *pg_query.Node_CreateStmt, *pg_query.Node_ViewStmt, *pg_query.Node_DropStmt, *pg_query.Node_RenameStmt,
			*pg_query.Node_CreateFunctionStmt, *pg_query.Node_GrantStmt, *pg_query.Node_CommentStmt, *pg_query.Node_VacuumStmt,
			*pg_query.Node_CreateTrigStmt, *pg_query.Node_TransactionStmt, *pg_query.Node_CreateSeqStmt:
			runs = false
		default:
			continue
		}
		kind = strings.TrimPrefix(fmt.Sprintf("%T", stmt.Node), "*pg_query.Node_")
		if runs && (unknown || f.qualified && len(f.functions) > 0) && !a.Taints {
			if unknown {
				t.Errorf("%s: calls %q and does not taint", clip(sql), f.functions)
			}
		}
		if unknown || f.qualified || f.taints {
			continue
		}
		n++
		if a.Taints {
			needless[kind] = append(needless[kind], clip(sql))
		} else {
			clean++
		}
	}
	t.Logf("%d of %d statements without unknown functions do not taint", clean, n)
	for k, s := range needless {
		t.Logf("%4d  %s", len(s), k)
		for range min(6, len(s)) {
			t.Logf("          %s", s[rand.IntN(len(s))])
		}
	}
}

// builtin says whether a function is built in and leaves its session alone.
func builtin(name string) bool { return !statement.Analyze("SELECT " + quote(name) + "()").Taints }
