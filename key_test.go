package coalesce

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

func keyOf(t testing.TB, scope string, args ...any) string {
	t.Helper()
	var k keyer
	if _, err := k.build(&statement.Analysis{}, scope, false, namedArgs(args)); err != nil {
		t.Fatalf("build(%#v): %v", args, err)
	}
	return string(k.key())
}

func namedArgs(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

type (
	status  string
	shout   string // a Valuer
	private struct{ a int }
)

func (s shout) Value() (driver.Value, error) { return string(s) + "!", nil }

func TestReadsThatDifferHaveDifferentKeys(t *testing.T) {
	one, two := 1, 2
	utc := time.Date(2024, 1, 2, 3, 4, 5, 6, time.UTC)
	reads := [][]any{
		{}, {nil}, {nil, nil}, {""}, {"", ""}, {"a|b", "c"}, {"a", "b|c"}, {"<nil>"}, {"1"},
		{int64(1)}, {1}, {int32(1)}, {uint64(1)}, {1.0}, {float32(1)}, {true}, {false}, {&two},
		{[]byte(nil)}, {[]byte{}}, {[]byte{1, 2}}, {[]byte("[1 2]")}, {[2]byte{1, 2}},
		{[]int64(nil)}, {[]int64{}}, {[]int64{1}}, {[]int64{1, 0}}, {[]int32{1}}, {[]int{1}}, {[]any{1}}, {[]any{int64(1)}}, {[]any{nil}},
		{[]string{"a b", "c"}}, {[]string{"a", "b c"}}, {[][]string{{"a"}, {"b"}}}, {[][]string{{"a", "b"}}},
		{[]*int{&one}}, {[]*int{nil}}, {[]*int{&two}},
		{math.NaN()}, {math.Inf(1)}, {0.0}, {math.Copysign(0, -1)},
		{status("1")}, {shout("1")}, {sql.NullString{String: "1", Valid: true}},
		{utc}, {utc.Add(1)}, {utc.In(time.FixedZone("CET", 3600))}, {utc.In(time.FixedZone("", 3600))},
		{time.Duration(1)}, {netip.MustParseAddr("::1")}, {netip.MustParsePrefix("::1/128")},
		{pgtype.Int4{Int32: 1, Valid: true}}, {pgtype.Int8{Int64: 1, Valid: true}}, {pgtype.Int4{}},
		{pgtype.Text{String: "1", Valid: true}}, {pgtype.Numeric{Int: big.NewInt(15), Exp: -1, Valid: true}}, {pgtype.Numeric{Int: big.NewInt(15), Valid: true}},
		{pgtype.Range[pgtype.Int4]{Lower: pgtype.Int4{Int32: 1, Valid: true}, Valid: true}},
		{pgx.QueryExecModeExec}, {pgx.QueryExecModeSimpleProtocol}, {pgx.QueryExecModeExec, 1}, {pgx.QueryResultFormats{1}}, {pgx.QueryResultFormats{0}},
		{pgx.NamedArgs{"a": 1}}, {pgx.NamedArgs{"b": 1}}, {pgx.NamedArgs{"a": 2}}, {pgx.StrictNamedArgs{"a": 1}},
		{string(make([]byte, 1000))}, {string(make([]byte, 1001))},
	}
	seen := make(map[string]string)
	for _, scope := range []string{"", "tenant"} {
		for _, args := range reads {
			key, name := keyOf(t, scope, args...), fmt.Sprintf("%q %#v", scope, args)
			if other, dup := seen[key]; dup {
				t.Errorf("%s and %s have one key", name, other)
			}
			seen[key] = name
		}
	}
}

func TestReadsThatAreTheSameHaveOneKey(t *testing.T) {
	a, b := 5, 5
	for _, pair := range [][2]any{
		{&a, &b}, {&a, 5}, {[]byte("x"), []byte("x")}, {math.NaN(), math.NaN()},
		{(*int)(nil), nil}, {shout("x"), shout("x")}, {[]string{"a"}, []string{"a"}},
		{pgx.NamedArgs{"a": 1, "b": 2}, pgx.NamedArgs{"b": 2, "a": 1}},
		{pgtype.Numeric{Int: big.NewInt(7), Valid: true}, pgtype.Numeric{Int: big.NewInt(7), Valid: true}},
	} {
		if keyOf(t, "", pair[0]) != keyOf(t, "", pair[1]) {
			t.Errorf("%#v and %#v have different keys", pair[0], pair[1])
		}
	}
}

type rewriter struct{}

func (rewriter) RewriteQuery(_ context.Context, _ *pgx.Conn, s string, a []any) (string, []any, error) {
	return s, a, nil
}

type looped []any

func TestArgumentsThatCannotBeComparedAreSaidSo(t *testing.T) {
	loop := looped{nil}
	loop[0] = loop
	type ring *ring
	var r ring
	r = &r
	for _, arg := range []any{
		map[string]int{"a": 1}, func() {}, make(chan int), private{1}, &private{1}, []private{{1}}, struct{ A int }{1},
		loop, r, complex(1, 2), pgx.NamedArgs{"a": map[string]int{}}, []map[string]int{{"a": 1}},
		rewriter{}, sql.Out{}, &sql.NullString{}, (*shout)(nil),
	} {
		_, err := new(keyer).build(&statement.Analysis{}, "", false, namedArgs([]any{arg}))
		var unkeyed *errUnkeyed
		if !errors.As(err, &unkeyed) {
			if _, ok := arg.(driver.Valuer); ok && err == nil {
				continue // its value stands for it
			}
			t.Errorf("%T: got %v; want it refused", arg, err)
		}
	}
}

func TestAValuersErrorIsForPgxToTell(t *testing.T) {
	want := errors.New("no value")
	args, err := new(keyer).build(&statement.Analysis{}, "", false, namedArgs([]any{failing{want}}))
	if err == nil {
		t.Fatal("it was keyed")
	}
	if _, err := args[0].Value.(driver.Valuer).Value(); err != want {
		t.Errorf("got %v; want %v", err, want)
	}
	if got, want := fmt.Sprintf("%#v", args[0].Value), fmt.Sprintf("%#v", failing{want}); got != want {
		t.Errorf("shown as %s; want %s", got, want)
	}
}

// Nobody can change these while the read is under way, so pgx's errors name them.
func TestAValuerThatSharesNoMemoryIsShown(t *testing.T) {
	at := time.Unix(1, 0).UTC()
	for _, v := range []driver.Valuer{
		sql.NullInt64{Int64: 3, Valid: true},
		sql.NullString{},
		sql.NullTime{Time: at, Valid: true},
		sql.Null[[2]int]{},
	} {
		args, _ := new(keyer).build(&statement.Analysis{}, "", false, namedArgs([]any{v}))
		if got, want := fmt.Sprintf("%#v", args[0].Value), fmt.Sprintf("%#v", v); got != want {
			t.Errorf("shown as %s; want %s", got, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Value() (driver.Value, error) { return nil, f.err }

func TestArgumentsThatSayNowAreNoticed(t *testing.T) {
	for arg, want := range map[any]bool{
		"now": true, " Today 10:00": true, "{yesterday,2024-01-01}": true, "[tomorrow,)": true, status("NOW"): true,
		"nowhere": false, "know": false, "renow": false, "": false, "2024-01-01": false, 5: false,
	} {
		var k keyer
		_, err := k.build(&statement.Analysis{}, "", false, namedArgs([]any{arg}))
		if err != nil || k.saysNow != want {
			t.Errorf("%q: saysNow = %v, %v; want %v", arg, k.saysNow, err, want)
		}
	}
	var k keyer
	k.build(&statement.Analysis{}, "", false, namedArgs([]any{[]string{"a", "today"}}))
	if !k.saysNow {
		t.Error("[]string{a, today}: saysNow is false")
	}
}

func TestCopiedArgumentsShareNoMemory(t *testing.T) {
	n := 1
	args := []any{
		[]byte("ab"), []int64{1}, [][]int{{1}, {2}}, []*int{&n}, &n, []any{[]byte("x")}, [1][]byte{[]byte("x")},
		pgtype.Numeric{Int: big.NewInt(15), Valid: true}, pgtype.Bits{Bytes: []byte{1}, Len: 8, Valid: true},
		pgx.NamedArgs{"a": []byte("x")}, pgx.QueryResultFormats{1}, []byte(nil), []int64{},
	}
	want := fmt.Sprintf("%#v", deref(args))
	sent := copyArgs(namedArgs(args))
	args[0].([]byte)[0] = 'Z'
	args[1].([]int64)[0] = 9
	args[2].([][]int)[1][0] = 9
	n = 9
	args[5].([]any)[0].([]byte)[0] = 'Z'
	args[6].([1][]byte)[0][0] = 'Z'
	args[7].(pgtype.Numeric).Int.SetInt64(9)
	args[8].(pgtype.Bits).Bytes[0] = 9
	args[9].(pgx.NamedArgs)["a"].([]byte)[0] = 'Z'
	args[9].(pgx.NamedArgs)["b"] = 1
	args[10].(pgx.QueryResultFormats)[0] = 0
	var got []any
	for i, a := range sent {
		if reflect.TypeOf(a.Value) != reflect.TypeOf(args[i]) {
			t.Errorf("argument %d became a %T; want %T", i, a.Value, args[i])
		}
		got = append(got, a.Value)
	}
	if s := fmt.Sprintf("%#v", deref(got)); s != want {
		t.Errorf("the copy is\n%s; want\n%s", s, want)
	}
}

// deref makes what pointers point to visible to %#v.
func deref(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case *int:
			out[i] = *a
		case []*int:
			out[i] = *a[0]
		case pgtype.Numeric:
			out[i] = a.Int.String()
		default:
			out[i] = a
		}
	}
	return out
}

func TestTextScopeAndWayOfAskingAreInTheKey(t *testing.T) {
	type read struct {
		text, scope string
		prepared    bool
		args        []any
	}
	key := func(r read) string {
		var k keyer
		if _, err := k.build(statement.Analyze(r.text), r.scope, r.prepared, namedArgs(r.args)); err != nil {
			t.Fatal(err)
		}
		return string(k.key())
	}
	short, long := key(read{text: "SELECT 1", scope: "a"}), key(read{text: "SELECT 1", scope: "a", args: []any{"b"}})
	argument := strings.TrimPrefix(long, short) // as it is written
	seen := make(map[string]read)
	for _, text := range []string{"SELECT 1", "SELECT 2"} {
		for _, scope := range []string{"", "a", "b", "ab", "a" + argument} {
			for _, prepared := range []bool{false, true} {
				for _, args := range [][]any{nil, {"a"}, {"b"}, {"b", "b"}} {
					r := read{text, scope, prepared, args}
					if other, ok := seen[key(r)]; ok {
						t.Errorf("%+v and %+v have one key", r, other)
					}
					seen[key(r)] = r
				}
			}
		}
	}
}

// FuzzKeyIsInjective builds two reads from the input and checks that they have
// one key only if they are the same.
func FuzzKeyIsInjective(f *testing.F) {
	one, long := "SELECT $1", bytes.Repeat([]byte("a"), 256)
	for _, s := range []struct {
		texts, scopes, args [2]string
		how                 [2]uint8 // lowest bit: prepared
	}{
		{args: [2]string{"a|b,c", "a,b|c"}, how: [2]uint8{2, 2}},
		{args: [2]string{"\x00\x00\x00", "\x00\x00"}, how: [2]uint8{0, 6}},
		{args: [2]string{"a", "a"}, how: [2]uint8{0, 1}},
		{args: [2]string{string(long), ""}, how: [2]uint8{12, 12}},
		{args: [2]string{"a", "a"}, how: [2]uint8{12, 14}},
		{args: [2]string{"a,b", "a"}, how: [2]uint8{16, 16}},
		{args: [2]string{"c", "bc"}, scopes: [2]string{"ab", "a"}},
		{args: [2]string{"", ""}, scopes: [2]string{"a", "b"}},
		{texts: [2]string{"/*a*/ " + one, one + ";"}},
		{texts: [2]string{"SELECT 'a'", "SELECT 'A'"}},
		{texts: [2]string{"SELECT 'a' 'b'", "SELECT 'a'\n'b'"}},
	} {
		for i := range s.texts {
			s.texts[i] = cmp.Or(s.texts[i], one)
		}
		f.Add(s.texts[0], s.texts[1], s.scopes[0], s.scopes[1], []byte(s.args[0]), []byte(s.args[1]), s.how[0], s.how[1])
	}
	f.Fuzz(func(t *testing.T, textX, textY, scopeX, scopeY string, x, y []byte, shapeX, shapeY uint8) {
		type read struct {
			text     [32]byte // what the text means
			scope    string
			prepared bool
			args     []any
		}
		ofRead := func(text, scope string, arg []byte, how uint8) (read, string) {
			a := statement.Analyze(text)
			r := read{a.Key, scope, how&1 != 0, shape(arg, how>>1)}
			var k keyer
			if _, err := k.build(a, scope, r.prepared, namedArgs(r.args)); err != nil {
				t.Fatalf("build(%#v): %v", r.args, err)
			}
			return r, string(k.key())
		}
		rx, keyX := ofRead(textX, scopeX, x, shapeX)
		ry, keyY := ofRead(textY, scopeY, y, shapeY)
		if one := keyX == keyY; one != reflect.DeepEqual(rx, ry) {
			t.Errorf("%q, %q, %v, %#v and\n%q, %q, %v, %#v: one key is %v", textX, scopeX, rx.prepared, rx.args, textY, scopeY, ry.prepared, ry.args, one)
		}
	})
}

func shape(b []byte, shape uint8) (args []any) {
	for _, part := range bytes.Split(b, []byte(",")) {
		switch shape % 9 {
		case 0:
			args = append(args, string(part))
		case 1:
			args = append(args, append([]byte{}, part...))
		case 2:
			args = append(args, int64(len(part)))
		case 3:
			args = append(args, []string{string(part), string(part)})
		case 4:
			args = append(args, status(part))
		case 5:
			args = append(args, nil)
		case 6:
			args = append(args, pgx.QueryExecMode(len(part)))
		case 7:
			args = append(args, pgx.QueryResultFormats{int16(len(part)), 1})
		case 8:
			args = append(args, pgx.NamedArgs{string(part): string(part)})
		}
		shape = shape/9 + shape*5
	}
	return args
}
