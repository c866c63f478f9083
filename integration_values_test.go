package coalesce_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/catalog"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// Values, arguments and columns: what plain pgx gives is what every caller
// gets, whether it led, joined or was answered from what is held.

// comparer runs reads on plain pgx and in all these situations.
type comparer struct {
	*fixture
	hold atomic.Pointer[chan struct{}] // what flights wait for before they send
}

// newComparer makes one with a database of its own: the writes of others in
// the process would end its flights.
func newComparer(t testing.TB, options ...string) *comparer {
	t.Helper()
	c := new(comparer)
	c.fixture = newFixtureOn(t, dsnWith(pgtest.Database(t), options...), setup{during: func(query string) {
		if hold := c.hold.Load(); hold != nil && query != catalog.Query {
			<-*hold
		}
	}})
	c.by("CREATE TYPE mood AS ENUM ('sad','happy')", "CREATE TYPE pair AS (a int, b text)", "CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
	return c
}

// situations runs a read alone on plain pgx, then led, joined and held. It
// reports whether the read was shared; if not, it ran three times.
func situations[T any](c *comparer, run func(*sql.DB) T) (plain T, got map[string]T, shared bool) {
	c.Helper()
	plain = run(c.plain)
	hold := make(chan struct{})
	c.hold.Store(&hold)
	release := sync.OnceFunc(func() { c.hold.Store(nil); close(hold) })
	defer release()
	beside := func() <-chan T {
		done := make(chan T, 1)
		go func() { done <- run(c.db) }()
		return done
	}
	before := c.stats()
	leader := beside()
	until(c, func() bool { return c.stats().Reads > before.Reads || len(leader) > 0 }, says("the first read is under way"))
	if c.stats().Led == before.Led {
		release()
		return plain, map[string]T{"first": receive(c, leader), "second": run(c.db), "third": run(c.db)}, false
	}
	joiner := beside()
	until(c, func() bool { return c.stats().Joined > before.Joined }, says("the second read has joined"))
	release()
	return plain, map[string]T{"led": receive(c, leader), "joined": receive(c, joiner), "held": run(c.db)}, true
}

// seen tells everything that a caller can see of a read, value for value.
func seen(db *sql.DB, query string, args ...any) string {
	rows, err := db.Query(query, args...)
	if err != nil {
		return "error: " + err.Error()
	}
	defer rows.Close()
	return seenRows(rows)
}

func seenRows(rows *sql.Rows) string {
	var b strings.Builder
	types, err := rows.ColumnTypes()
	if err != nil {
		return "types: " + err.Error()
	}
	for _, c := range types {
		length, hasLength := c.Length()
		precision, scale, hasPrecision := c.DecimalSize()
		nullable, hasNullable := c.Nullable()
		fmt.Fprintf(&b, "[%s %s %v %d/%v %d,%d/%v %v/%v] ", c.Name(), c.DatabaseTypeName(), c.ScanType(), length, hasLength, precision, scale, hasPrecision, nullable, hasNullable)
	}
	for rows.Next() {
		vals := make([]any, len(types))
		dest := make([]any, len(types))
		for i := range vals {
			dest[i] = &vals[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return b.String() + "scan: " + err.Error()
		}
		b.WriteString("\n ")
		for _, v := range vals {
			fmt.Fprintf(&b, " %T:%s", v, exactly(v))
		}
	}
	if err := rows.Err(); err != nil {
		b.WriteString(" error: " + err.Error())
	}
	if rows.NextResultSet() {
		b.WriteString(" and another result set")
	}
	return b.String()
}

// exactly tells a value from all others of its type.
func exactly(v any) string {
	switch v := v.(type) {
	case []byte:
		if v == nil {
			return "nil"
		}
		return "x" + hex.EncodeToString(v)
	case float64:
		return fmt.Sprintf("%x", math.Float64bits(v))
	case time.Time:
		return v.Format(time.RFC3339Nano) + v.Location().String()
	}
	return fmt.Sprintf("%q", fmt.Sprint(v))
}

// same fails unless a read gives in each situation what plain pgx gives. It
// reports whether the read was shared.
func (c *comparer) same(query string, args ...any) (shared bool) {
	c.Helper()
	plain, got, shared := situations(c, func(db *sql.DB) string { return seen(db, query, args...) })
	for situation, s := range got {
		if s != plain {
			c.Errorf("%s %v, %s:\n got %s\nwant %s", query, args, situation, s, plain)
		}
	}
	return shared
}

var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// valueExprs have a type of their own each; the first are to be shared.
var valueExprs = []string{
	"9007199254740993::int8", "1.10::numeric", "1.5::float4", "0.1::float4", "true", "'x'::text", "''::text", "''::bytea",
	`'\x00ff27'::bytea`, "NULL::bytea", "NULL::int8", "NULL", "'u'", "'11111111-1111-1111-1111-111111111111'::uuid",
	"ARRAY[1,2]::int4[]", "ARRAY[1,NULL,3]::int8[]", "ARRAY[[1,2],[3,4]]", "'{}'::text[]", `ARRAY['a b','c"d',NULL,'{,}']`,
	"'NaN'::float8", "'Infinity'::float8", "'-Infinity'::float8", "'-0'::float8", "'NaN'::numeric", "1e300::numeric", "0.000::numeric(9,3)",
	"5::oid", "32767::int2", "'x'::varchar(7)", "'x'::char(5)", `'x'::"char"`, "'n'::name",
	"'2024-01-02'::date", "'infinity'::date", "'2024-01-02 03:04:05.678901'::timestamp", "'infinity'::timestamp",
	"'2024-01-02 03:04:05.678901+03'::timestamptz", "'-infinity'::timestamptz", "'0044-03-15 BC'::date", "'03:04:05.6'::time", "'03:04:05+02'::timetz", "'24:00:00'::time",
	"'1 year 2 mons 3 days 04:05:06.7'::interval", `'{"a":1}'::jsonb`, `'{"a" : 1}'::json`, "'null'::jsonb", "NULL::jsonb",
	"'10.0.0.1/8'::inet", "'10.0.0.0/8'::cidr", "'08:00:2b:01:02:03'::macaddr", "B'101'", "B'101'::varbit",
	"'(1,2)'::point", "'<(1,2),3>'::circle", "'(1,2),(3,4)'::box", "'[1,5)'::int4range", "'empty'::int4range", "'[2024-01-01,2024-02-01]'::daterange",
	"ROW(1, 'a')", "'{1,2}'::point[]", "3 = 3", "'a' || 'b'", "ARRAY['2024-01-02'::date]", "ARRAY['1.5'::numeric]", "ARRAY[true,false]", `ARRAY['\x01'::bytea]`,
	"'12.34'::money", "'<a/>'::xml", "'a & b'::tsquery", "'a b'::tsvector", "'(0,1)'::tid", "'7'::xid", "'7'::cid", "'0/16'::pg_lsn",
	"'pg_class'::regclass", "'{[1,3),[5,7)}'::int4multirange", "'08:00:2b:01:02:03:04:05'::macaddr8", "'$.a'::jsonpath",
	"'happy'::mood", "ARRAY['happy'::mood,'sad'::mood]", "ROW(1,'x')::pair", "5::positive", "ARRAY[ROW(1,'x')::pair]", "'a=>1'::text",
}

func TestEveryTypeOfValueIsWhatPgxGives(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newComparer(t, "default_query_exec_mode="+mode)
			unshared := 0
			for _, e := range valueExprs {
				if !c.same("SELECT " + e + " AS v") {
					unshared++
				}
			}
			c.same("SELECT " + strings.Join(valueExprs[:40], ", "))
			if unshared > len(valueExprs)/3 {
				t.Errorf("%d of %d reads are private", unshared, len(valueExprs))
			}
		})
	}
}

func TestColumnsAreWhatPgxGives(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newComparer(t, "default_query_exec_mode="+mode)
			for _, query := range []string{
				"SELECT 1::int4 a,'x'::varchar(7) b,1.5::numeric(9,2) c,'2024-01-02'::timestamptz d,'{}'::jsonb e,ARRAY[1,2]::int4[] f,'x'::bytea g",
				"SELECT 1 a, 2 a WHERE false",
				"SELECT 1 a, 'x' a, 3 b",
				`SELECT 1 AS "Mixed Case", 2 AS "", 3 AS "ü"`,
				"SELECT FROM generate_series(1,3)",
				"SELECT WHERE false",
				"SELECT",
				"VALUES (1,'a'),(2,NULL),(NULL,'')",
				"SELECT g, NULL::text FROM generate_series(1,500) g",
				"SELECT 1/(3-g) FROM generate_series(1,5) g",
				"SELECT nothing",
				"SELECT 1 FROM nowhere",
				"SELECT 'x'::int4",
			} {
				c.same(query)
			}
		})
	}
	c := newComparer(t)
	if !c.same("SELECT 1::int4 a,'x'::varchar(7) b,1.5::numeric(9,2) c,'2024-01-02'::timestamptz d,'{}'::jsonb e,ARRAY[1,2]::int4[] f,'x'::bytea g") {
		t.Error("the read is private")
	}
	rows, err := c.db.Query("SELECT FROM generate_series(1,3)")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		n++
	}
	same(t, "rows without columns", n, 3)
	c.by("CREATE TABLE same_name AS SELECT 1 AS n, 2 AS n2")
	c.same("SELECT n, n2 AS n FROM same_name")
}

// A column's description must be that of the rows it comes with, whatever the
// connection did next.
func TestColumnTypesCanBeAskedAtAnyTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.db.SetMaxOpenConns(2)
	const query = "SELECT 1::int4 a, 'x'::varchar(7) b, 1.5::numeric(9,2) c"
	wanted := seen(f.plain, query)
	get[int](t, f.db, "SELECT 1")
	rows, err := f.db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for i := range 5 {
		get[string](t, f.db, fmt.Sprintf("SELECT 'other' || %d, %d::float8, NULL::jsonb", i, i)[:len("SELECT 'other' || 0")])
	}
	same(t, "asked late", seenRows(rows), wanted)
}

// Types that encode themselves in the ways that pgx knows.
type (
	status     string   // a Valuer over a string
	plainText  string   // its own kind only
	celsius    float64  // likewise
	flags      uint16   // likewise
	identifier [16]byte // an array with a Valuer and a Stringer, as google/uuid
	amount     struct{ cents int64 }
	pointed    struct{ n int }
	tags       []string // a slice with a Valuer
	document   struct {
		A int    `json:"a"`
		B string `json:"b,omitempty"`
	}
	marshalled struct{ s string }
)

func (s status) Value() (driver.Value, error)     { return "status-" + string(s), nil }
func (i identifier) Value() (driver.Value, error) { return i.String(), nil }
func (i identifier) String() string {
	h := hex.EncodeToString(i[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
func (a amount) Value() (driver.Value, error) {
	return fmt.Sprintf("%d.%02d", a.cents/100, a.cents%100), nil
}
func (p *pointed) Value() (driver.Value, error) {
	if p == nil {
		return "nil pointer", nil
	}
	return int64(p.n), nil
}
func (t tags) Value() (driver.Value, error) {
	return "{" + strings.Join(t, ",") + "}", nil
}
func (m marshalled) MarshalText() ([]byte, error) { return []byte("text of " + m.s), nil }

func ptr[T any](v T) *T { return &v }

var argumentCases = []struct {
	query string
	args  []any
}{
	{"SELECT $1::int8", []any{int64(1)}}, {"SELECT $1::int8", []any{1}}, {"SELECT $1::int8", []any{int8(1)}}, {"SELECT $1::int8", []any{uint64(1)}},
	{"SELECT $1::int8", []any{"1"}}, {"SELECT $1::int8", []any{1.0}}, {"SELECT $1::int8", []any{1.5}}, {"SELECT $1::int8", []any{true}}, {"SELECT $1::int8", []any{nil}},
	{"SELECT $1::int2", []any{70000}}, {"SELECT $1::int4", []any{uint32(math.MaxUint32)}}, {"SELECT $1::int8", []any{uint64(math.MaxUint64)}},
	{"SELECT $1::text", []any{"x"}}, {"SELECT $1::text", []any{1}}, {"SELECT $1::text", []any{[]byte("raw")}}, {"SELECT $1::text", []any{""}}, {"SELECT $1::text", []any{"a\x00b"}},
	{"SELECT $1::text IS NULL", []any{nil}}, {"SELECT $1::text IS NULL", []any{"<nil>"}}, {"SELECT $1::text IS NULL", []any{(*string)(nil)}},
	{"SELECT $1::float8", []any{math.NaN()}}, {"SELECT $1::float8", []any{math.Inf(-1)}}, {"SELECT $1::float8", []any{float32(0.1)}}, {"SELECT $1::float8", []any{celsius(36.6)}},
	{"SELECT $1::float8", []any{math.Copysign(0, -1)}}, {"SELECT $1::bool", []any{true}}, {"SELECT $1::bool", []any{"t"}},
	{"SELECT encode($1::bytea,'hex')", []any{[]byte("[1 2]")}}, {"SELECT encode($1::bytea,'hex')", []any{[]byte{1, 2}}}, {"SELECT encode($1::bytea,'hex')", []any{[]byte{}}},
	{"SELECT encode($1::bytea,'hex')", []any{[]byte(nil)}}, {"SELECT encode($1::bytea,'hex')", []any{`\x0102`}}, {"SELECT encode($1::bytea,'hex')", []any{sql.RawBytes{1}}},
	{"SELECT $1::timestamptz", []any{time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)}}, {"SELECT $1::timestamptz", []any{time.Date(2024, 1, 2, 3, 4, 5, 6000, time.FixedZone("X", 3600))}},
	{"SELECT $1::timestamp", []any{time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)}}, {"SELECT $1::timestamp", []any{time.Date(2024, 1, 2, 3, 4, 5, 6000, time.FixedZone("X", 3600))}},
	{"SELECT $1::date", []any{time.Date(2024, 1, 2, 23, 0, 0, 0, time.FixedZone("X", -7200))}}, {"SELECT $1::date", []any{"2024-01-02"}},
	{"SELECT $1::int8[]::text", []any{[]int64{1, 3}}}, {"SELECT $1::int8[]::text", []any{[]int64{}}}, {"SELECT $1::int8[]::text", []any{[]int64(nil)}}, {"SELECT $1::int8[]::text", []any{[]int32{1}}},
	{"SELECT $1::int8[] IS NULL", []any{[]int64{}}}, {"SELECT $1::int8[] IS NULL", []any{[]int64(nil)}}, {"SELECT $1::int8[]::text", []any{[3]int64{1, 2, 3}}},
	{"SELECT array_to_string($1::text[],'-')", []any{[]string{"a b", "c"}}}, {"SELECT array_to_string($1::text[],'-')", []any{[]string{"a", "b c"}}},
	{"SELECT $1::text[]::text", []any{[]*string{ptr("x"), nil}}}, {"SELECT $1::int4[]::text", []any{[][]int32{{1, 2}, {3, 4}}}}, {"SELECT $1::text[]::text", []any{[]any{"x", "y"}}},
	{"SELECT $1::text[]::text", []any{"{a,b}"}}, {"SELECT $1::text[]::text", []any{tags{"p", "q"}}}, {"SELECT $1::text[]::text", []any{[]status{"p", "q"}}}, {"SELECT $1::text[]::text", []any{[]plainText{"p", "q"}}},
	{"SELECT count(*) FROM generate_series(1,5) g WHERE g = ANY($1::int8[])", []any{[]int64{1, 3}}}, {"SELECT count(*) FROM generate_series(1,5) g WHERE g = ANY($1::int8[])", []any{[]int64{1}}},
	{"SELECT $1::int4 * 10", []any{ptr(1)}}, {"SELECT $1::int4 * 10", []any{ptr(ptr(2))}}, {"SELECT $1::int4 * 10", []any{(*int)(nil)}}, {"SELECT $1::text", []any{ptr("p")}},
	{"SELECT $1::text", []any{status("new")}}, {"SELECT $1::text", []any{ptr(status("new"))}}, {"SELECT $1::text", []any{(*status)(nil)}}, {"SELECT $1::text", []any{plainText("own")}}, {"SELECT $1::int4", []any{flags(7)}},
	{"SELECT $1::uuid", []any{identifier{1, 2, 3}}}, {"SELECT $1::uuid", []any{ptr(identifier{1, 2, 3})}}, {"SELECT $1::uuid", []any{[16]byte{1, 2}}}, {"SELECT $1::text", []any{identifier{1, 2, 3}}},
	{"SELECT $1::uuid[]::text", []any{[]identifier{{1}, {2}}}},
	{"SELECT $1::numeric", []any{amount{1234}}}, {"SELECT $1::numeric", []any{&amount{5}}}, {"SELECT $1::text", []any{amount{5}}}, {"SELECT $1::int8", []any{&pointed{3}}}, {"SELECT $1::text", []any{(*pointed)(nil)}},
	{"SELECT $1::numeric", []any{"1.50"}}, {"SELECT $1::numeric", []any{big.NewInt(7)}}, {"SELECT $1::numeric", []any{*big.NewInt(7)}}, {"SELECT $1::numeric", []any{1.25}},
	{"SELECT $1::text", []any{marshalled{"m"}}}, {"SELECT $1::jsonb", []any{document{A: 1}}}, {"SELECT $1::jsonb", []any{&document{A: 2, B: "x"}}}, {"SELECT $1::jsonb", []any{map[string]any{"k": 1}}},
	{"SELECT $1::jsonb", []any{json.RawMessage(`{"r":1}`)}}, {"SELECT $1::jsonb", []any{`{"s":1}`}}, {"SELECT $1::jsonb", []any{[]byte(`{"b":1}`)}}, {"SELECT $1::jsonb", []any{[]int{1, 2}}}, {"SELECT $1::json", []any{nil}},
	{"SELECT $1::inet", []any{netip.MustParseAddr("10.0.0.1")}}, {"SELECT $1::cidr", []any{netip.MustParsePrefix("10.0.0.0/8")}}, {"SELECT $1::inet", []any{net.ParseIP("10.0.0.2")}},
	{"SELECT $1::inet", []any{net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}}, {"SELECT $1::macaddr", []any{net.HardwareAddr{8, 0, 43, 1, 2, 3}}},
	{"SELECT $1::interval", []any{90 * time.Second}}, {"SELECT $1::interval", []any{"1 day"}}, {"SELECT $1::time", []any{pgtype.Time{Microseconds: 5e6, Valid: true}}},
	{"SELECT $1::int8", []any{pgtype.Int8{Int64: 8, Valid: true}}}, {"SELECT $1::int8", []any{pgtype.Int8{}}}, {"SELECT $1::text", []any{pgtype.Text{String: "t", Valid: true}}},
	{"SELECT $1::numeric", []any{pgtype.Numeric{Int: big.NewInt(125), Exp: -2, Valid: true}}}, {"SELECT $1::numeric", []any{pgtype.Numeric{NaN: true, Valid: true}}},
	{"SELECT $1::date", []any{pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}}}, {"SELECT $1::interval", []any{pgtype.Interval{Months: 1, Days: 2, Microseconds: 3, Valid: true}}},
	{"SELECT $1::int4range", []any{pgtype.Range[pgtype.Int4]{Lower: pgtype.Int4{Int32: 1, Valid: true}, Upper: pgtype.Int4{Int32: 5, Valid: true}, LowerType: pgtype.Inclusive, UpperType: pgtype.Exclusive, Valid: true}}},
	{"SELECT $1::point", []any{pgtype.Point{P: pgtype.Vec2{X: 1, Y: 2}, Valid: true}}}, {"SELECT $1::uuid", []any{pgtype.UUID{Bytes: [16]byte{9}, Valid: true}}}, {"SELECT $1::varbit", []any{pgtype.Bits{Bytes: []byte{0xa0}, Len: 3, Valid: true}}},
	{"SELECT $1::int4[]::text", []any{pgtype.FlatArray[int32]{1, 2}}}, {"SELECT $1::int4[]::text", []any{pgtype.Array[int32]{Elements: []int32{1, 2}, Dims: []pgtype.ArrayDimension{{Length: 2, LowerBound: 1}}, Valid: true}}},
	{"SELECT $1::text", []any{sql.NullString{String: "n", Valid: true}}}, {"SELECT $1::text", []any{sql.NullString{}}}, {"SELECT $1::int8", []any{sql.Null[int64]{V: 4, Valid: true}}}, {"SELECT $1::timestamptz", []any{sql.NullTime{Time: time.Unix(5, 0), Valid: true}}},
	{"SELECT $1::text", []any{sql.Named("x", "named")}}, {"SELECT $1::text", []any{make(chan int)}}, {"SELECT $1::text", []any{func() {}}}, {"SELECT $1::text", []any{struct{}{}}}, {"SELECT $1::text", []any{sql.Out{}}},
	{"SELECT @a::int8 + @b::int8", []any{pgx.NamedArgs{"a": 1, "b": 2}}}, {"SELECT @a::int8 + @b::int8", []any{pgx.NamedArgs{"a": 1, "b": 3}}}, {"SELECT @a::int8 + @b::int8", []any{pgx.StrictNamedArgs{"a": 1, "b": 2}}},
	{"SELECT @a::int8", []any{pgx.StrictNamedArgs{"a": 1, "b": 2}}}, {"SELECT @a::text", []any{pgx.NamedArgs{"a": status("in map")}}}, {"SELECT @a::int8[]::text", []any{pgx.NamedArgs{"a": []int64{1}}}},
	{"SELECT $1::int8", []any{pgx.QueryExecModeSimpleProtocol, 5}}, {"SELECT $1::int8", []any{pgx.QueryExecModeExec, 5}}, {"SELECT $1::int8", []any{pgx.QueryExecModeDescribeExec, 5}}, {"SELECT $1::int8", []any{pgx.QueryExecModeCacheDescribe, 5}},
	{"SELECT $1::int8, 1.5::numeric", []any{pgx.QueryResultFormats{pgx.TextFormatCode, pgx.TextFormatCode}, 5}}, {"SELECT $1::int8, 5::int8", []any{pgx.QueryResultFormats{pgx.BinaryFormatCode}, 5}},
	{"SELECT $1::int8", []any{}}, {"SELECT $1::int8", []any{1, 2}}, {"SELECT 1", []any{1}}, {"SELECT $1::int8 + $1::int8", []any{2}}, {"SELECT $2::text || $1::text", []any{"a", "b"}},
	{"SELECT $1::text || '/' || $2::text", []any{"a|b", "c"}}, {"SELECT $1::text || '/' || $2::text", []any{"a", "b|c"}},
	{"SELECT $1", []any{"untyped"}}, {"SELECT $1 + 1", []any{3}}, {"SELECT $1::mood", []any{"sad"}}, {"SELECT $1::mood[]::text", []any{[]string{"sad"}}}, {"SELECT $1::pair::text", []any{"(1,x)"}}, {"SELECT $1::pair::text", []any{[]any{1, "x"}}},
}

func TestEveryTypeOfArgumentIsTakenAsByPgx(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newComparer(t, "default_query_exec_mode="+mode)
			shared := 0
			for _, a := range argumentCases {
				if c.same(a.query, a.args...) {
					shared++
				}
			}
			if shared < len(argumentCases)/2 {
				t.Errorf("only %d of %d reads are shared", shared, len(argumentCases))
			}
		})
	}
	t.Run("prepared", func(t *testing.T) {
		t.Parallel()
		c := newComparer(t)
		for _, a := range argumentCases {
			if len(a.args) > 0 {
				switch a.args[0].(type) {
				case pgx.NamedArgs, pgx.StrictNamedArgs, pgx.QueryExecMode, pgx.QueryResultFormats:
					continue
				}
			}
			stmts := map[*sql.DB]*sql.Stmt{}
			for _, db := range []*sql.DB{c.plain, c.db} {
				st, err := db.Prepare(a.query)
				if err != nil {
					t.Fatal(err)
				}
				stmts[db] = st
			}
			plain, got, _ := situations(c, func(db *sql.DB) string {
				rows, err := stmts[db].Query(a.args...)
				if err != nil {
					return "error: " + err.Error()
				}
				defer rows.Close()
				return seenRows(rows)
			})
			for situation, s := range got {
				if s != plain {
					t.Errorf("%s %v, %s:\n got %s\nwant %s", a.query, a.args, situation, s, plain)
				}
			}
			for _, st := range stmts {
				st.Close()
			}
		}
	})
}

func TestArgumentsMayChangeOnceTheCallHasReturned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	v := 1
	const times10 = "SELECT $1::int4 * 10"
	same(t, "pointer", get[int](t, f.db, times10, &v), 10)
	v = 2
	same(t, "pointer to another value", get[int](t, f.db, times10, &v), 20)
	b := []byte("k1")
	const escape = "SELECT encode($1::bytea,'escape')"
	same(t, "bytes", get[string](t, f.db, escape, b), "k1")
	copy(b, "k2")
	same(t, "bytes changed", get[string](t, f.db, escape, b), "k2")
	copy(b, "k1")
	same(t, "bytes changed back", get[string](t, f.db, escape, b), "k1")
}

// The leader leaves a flight that has not been sent yet, and goes on using
// what it gave: the race detector tells if the flight does too.
func TestLeaderWhoLeftMayChangeItsArguments(t *testing.T) {
	t.Parallel()
	var held atomic.Bool
	hold := make(chan struct{})
	f := newFixture(t, setup{pgx: func(c *pgx.ConnConfig) {
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if held.Load() {
				<-hold
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}})
	bytes, slice, pointed := []byte("bytes"), []string{"slice"}, ptr("pointed")
	if _, err := coalesce.Explain(bg, f.db, "SELECT 1 + 1"); err != nil { // loads the catalog
		t.Fatal(err)
	}
	held.Store(true)
	f.db.SetMaxIdleConns(-1)
	const query = "SELECT $1::bytea::text || $2::text[]::text || $3::text"
	ctx, cancel := context.WithCancel(bg)
	leader := askFor[string](ctx, f.db, query, bytes, slice, pointed)
	f.sharing(1)
	waiter := askFor[string](bg, f.db, query, []byte("bytes"), []string{"slice"}, ptr("pointed"))
	f.sharing(2)
	cancel()
	receive(t, leader)
	copy(bytes, "XXXXX")
	slice[0], *pointed = "XXXXX", "XXXXX"
	close(hold)
	sameAnswer(t, "waiter", waiter, `\x6279746573{slice}pointed`)
	same(t, "queries", f.seen.queries(query), 1)
}

type countingValuer struct{ n *atomic.Int64 }

func (c countingValuer) Value() (driver.Value, error) { c.n.Add(1); return "v", nil }

func TestValuerIsAskedOnceForEachCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	v := countingValuer{new(atomic.Int64)}
	calls := int64(0)
	for range 2 { // led, then held
		same(t, "shared", get[string](t, f.db, "SELECT $1::text", v), "v")
		calls++
		same(t, "calls of Value", v.n.Load(), calls)
	}
	same(t, "fresh", getIn[string](t, coalesce.Fresh(bg), f.db, "SELECT $1::text", v), "v")
	calls++
	same(t, "calls of Value", v.n.Load(), calls)
	same(t, "beside one that cannot be compared", get[string](t, f.db, "SELECT $1::text || $2::jsonb::text", v, map[string]int{"a": 1}), `v{"a": 1}`)
	calls++
	same(t, "calls of Value, beside one that cannot be compared", v.n.Load(), calls)
}

type keeper struct{ b []byte }

func (k *keeper) Scan(v any) error {
	k.b, _ = v.([]byte)
	return nil
}

func TestNobodySeesTheBytesOfAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE bytes AS SELECT '{\"a\":1}'::jsonb AS j, 'abc'::bytea AS b")
	const query = "SELECT j, b FROM bytes"
	fill := func(b []byte) {
		for i := range b {
			b[i] = 'Z'
		}
	}
	spoil := func() error {
		rows, err := f.db.Query(query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var j, b sql.RawBytes
			if err := rows.Scan(&j, &b); err != nil {
				return err
			}
			if string(j) != `{"a": 1}` || string(b) != "abc" {
				return fmt.Errorf("RawBytes are %q, %q", j, b)
			}
			fill(j)
			fill(b)
		}
		return rows.Err()
	}
	keep := func() error {
		var j, b keeper
		if err := f.db.QueryRow(query).Scan(&j, &b); err != nil {
			return err
		}
		if string(j.b) != `{"a": 1}` || string(b.b) != "abc" {
			return fmt.Errorf("a Scanner was given %q, %q", j.b, b.b)
		}
		fill(j.b)
		fill(b.b)
		return nil
	}
	read := func() error {
		var j json.RawMessage
		var b []byte
		if err := f.db.QueryRow(query).Scan(&j, &b); err != nil {
			return err
		}
		if string(j) != `{"a": 1}` || string(b) != "abc" {
			return fmt.Errorf("read %q, %q", j, b)
		}
		return nil
	}
	release := f.lock("bytes")
	errs := together(30, func(i int) error { return []func() error{spoil, keep, read}[i%3]() })
	f.sharing(30)
	release()
	noErrors(t, receive(t, errs))
	for range 3 {
		noErrors(t, []error{spoil(), keep(), read()})
	}
	same(t, "queries", f.seen.queries(query), 1)
}

// database/sql closes rows whose context ends while their reader may still
// look at RawBytes.
func TestRawBytesOutliveTheEndOfTheirContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.by("CREATE TABLE raw AS SELECT 'abc'::bytea AS b FROM generate_series(1, 50)")
	for range 20 {
		ctx, cancel := context.WithCancel(bg)
		rows, err := f.db.QueryContext(ctx, "SELECT b FROM raw")
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		var b sql.RawBytes
		if err := rows.Scan(&b); err != nil {
			t.Fatal(err)
		}
		go cancel()
		for range 100 {
			if string(b) != "abc" {
				t.Fatalf("RawBytes are %q", b)
			}
		}
		rows.Close()
	}
	f.quiet()
}

type typeRecorder struct{ got string }

func (r *typeRecorder) Scan(v any) error { r.got = fmt.Sprintf("%T", v); return nil }

func TestScannersAndRawMessagesAreGivenBytesOfJSON(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		f := newFixtureOn(t, dsnWith(pgtest.DSN(t), "default_query_exec_mode="+mode), setup{})
		for range 2 {
			var r typeRecorder
			var m json.RawMessage
			if err := f.db.QueryRow(`SELECT '{"a":1}'::jsonb, '{"a":1}'::jsonb`).Scan(&r, &m); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			same(t, mode, r.got, "[]uint8")
			same(t, mode, string(m), `{"a": 1}`)
		}
		f.db.Close()
		f.plain.Close()
	}
}

// Destinations that pgx itself scans under Go 1.27, and database/sql refuses
// before: whichever it is, replayed rows do the same.
func TestScanningIntoGoTypesIsWhatPgxDoes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		expr string
		dest func() any
	}{
		{"'{1,2,3}'::int8[]", func() any { return new([]int64) }},
		{"'{1,2,3}'::int4[]", func() any { return new([]int) }},
		{"'{1,2,3}'::int4[]", func() any { return new([]int16) }},
		{"NULL::int8[]", func() any { return new([]int64) }},
		{"'{}'::int8[]", func() any { return new([]int64) }},
		{"'{1,NULL,3}'::int8[]", func() any { return new([]int64) }},
		{"'{1,NULL,3}'::int8[]", func() any { return new([]*int64) }},
		{"ARRAY['a',NULL,'c d']", func() any { return new([]*string) }},
		{"ARRAY['a','b']", func() any { return new([]string) }},
		{"ARRAY['a','b']", func() any { return new(*[]string) }},
		{"ARRAY['a','b']", func() any { return new([2]string) }},
		{"ARRAY[[1,2],[3,4]]", func() any { return new([][]int32) }},
		{"ARRAY[1.5,2.25]::float8[]", func() any { return new([]float64) }},
		{"ARRAY[1.5,2.25]::numeric[]", func() any { return new([]float64) }},
		{"ARRAY[true,false]", func() any { return new([]bool) }},
		{"ARRAY['2024-01-02'::date]", func() any { return new([]time.Time) }},
		{"ARRAY['2024-01-02 03:04:05Z'::timestamptz]", func() any { return new([]time.Time) }},
		{"ARRAY['\\x0102'::bytea]", func() any { return new([][]byte) }},
		{"ARRAY['11111111-1111-1111-1111-111111111111'::uuid]", func() any { return new([][16]byte) }},
		{"'11111111-1111-1111-1111-111111111111'::uuid", func() any { return new([16]byte) }},
		{"'[1,5)'::int4range", func() any { return new(pgtype.Range[pgtype.Int4]) }},
		{"'empty'::int4range", func() any { return new(pgtype.Range[pgtype.Int4]) }},
		{"'10.0.0.1'::inet", func() any { return new(netip.Addr) }},
		{"'10.0.0.0/8'::cidr", func() any { return new(netip.Prefix) }},
		{"'1 day 00:00:01'::interval", func() any { return new(pgtype.Interval) }},
		{"'90 seconds'::interval", func() any { return new(time.Duration) }},
		{`'{"a":1,"b":"x"}'::jsonb`, func() any { return new(document) }},
		{`'{"a":1}'::json`, func() any { return new(map[string]any) }},
		{`'[1,2]'::jsonb`, func() any { return new([]int) }},
		{"'(1,2)'::point", func() any { return new(pgtype.Point) }},
		{"1.25::numeric", func() any { return new(pgtype.Numeric) }},
		{"1.25::numeric", func() any { return new(float64) }},
		{"5::int8", func() any { return new(pgtype.Int8) }},
		{"5::int8", func() any { return new(*int64) }},
		{"5::int8", func() any { return new(int8) }},
		{"500::int8", func() any { return new(int8) }},
		{"5::int8", func() any { return new(string) }},
		{"5::int8", func() any { return new(big.Int) }},
		{"NULL::int8", func() any { return new(int64) }},
		{"NULL::int8", func() any { return new(*int64) }},
		{"'x'::text", func() any { return new([]string) }},
		{"'x'::text", func() any { return new(plainText) }},
		{"'x'::text", func() any { return new(any) }},
		{"'2024-01-02'::date", func() any { return new(time.Time) }},
		{"'2024-01-02'::date", func() any { return new(pgtype.Date) }},
		{"'2024-01-02 03:04:05'::timestamp", func() any { return new(pgtype.Timestamp) }},
		{"'infinity'::timestamptz", func() any { return new(pgtype.Timestamptz) }},
		{"1.5::float4", func() any { return new(float32) }},
		{"ARRAY[0.1]::float4[]", func() any { return new([]float32) }},
		{"'happy'::mood", func() any { return new(plainText) }},
		{"ARRAY['happy'::mood]", func() any { return new([]string) }},
		{"ARRAY['happy'::mood]::text[]", func() any { return new([]string) }},
		{"5::oid", func() any { return new(uint32) }},
		{"B'101'", func() any { return new(pgtype.Bits) }},
		{"'abc'::bytea", func() any { return new([]byte) }},
		{"'\\x010203'::bytea", func() any { return new([3]byte) }},
		{"true", func() any { return new(bool) }},
		{"true", func() any { return new(pgtype.Bool) }},
	}
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := newComparer(t, "default_query_exec_mode="+mode)
			for _, k := range cases {
				query := "SELECT " + k.expr
				scan := func(q queryer) string {
					d := k.dest()
					if err := q.QueryRowContext(bg, query).Scan(d); err != nil {
						return "error: " + err.Error()
					}
					return described(reflect.ValueOf(d).Elem())
				}
				plain, got, _ := situations(c, func(db *sql.DB) string { return scan(db) })
				tx, err := c.db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				got["in a transaction"] = scan(tx)
				tx.Rollback()
				plain = anyFormat.Replace(plain)
				for situation, s := range got {
					if s = anyFormat.Replace(s); s != plain {
						t.Errorf("%s into %T, %s:\n got %s\nwant %s", k.expr, k.dest(), situation, s, plain)
					}
				}
			}
		})
	}
	// A result too large to share: its first part is replayed to its leader,
	// the rest is live.
	t.Run("streamed", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, setup{config: coalesce.Config{MaxResultBytes: 4096}})
		read := func(db *sql.DB) (got []string) {
			rows, err := db.Query("SELECT ARRAY[g, g + 1]::int8[] FROM generate_series(1, 500) g")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var a []int64
				if err := rows.Scan(&a); err != nil {
					got = append(got, err.Error())
				} else {
					got = append(got, fmt.Sprint(a))
				}
			}
			return got
		}
		if got, wanted := read(f.db), read(f.plain); !slices.Equal(got, wanted) {
			t.Errorf("got %v, want %v", got, wanted)
		}
		same(t, "Stats.TooBig", f.stats().TooBig, 1)
	})
}

// anyFormat makes pgx's messages alike: which format a value travelled in is
// not told of those that are replayed.
var anyFormat = strings.NewReplacer("binary format", "its format", "text format", "its format")

// described tells a scanned value, pointers followed.
func described(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return "&" + described(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return "nil slice"
		}
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = described(v.Index(i))
		}
		return fmt.Sprintf("%v{%s}", v.Type(), strings.Join(parts, " "))
	}
	if t, ok := v.Interface().(time.Time); ok {
		return exactly(t)
	}
	return fmt.Sprintf("%v:%#v", v.Type(), v.Interface())
}

func TestSlicesAreTakenHoweverTheDatabaseWasOpened(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	for name, db := range map[string]*sql.DB{"by connector": f.db, "by name": openCoalesce(t, f.dsn)} {
		const count = "SELECT count(*) FROM generate_series(1,5) g WHERE g = ANY($1::int8[])"
		for range 2 {
			same(t, name, get[int](t, db, count, []int64{1, 3}), 2)
			same(t, name, get[int](t, db, count, []int64{1}), 1)
		}
		st, err := db.Prepare(count)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := st.QueryRow([]int64{1, 3}).Scan(&n); err != nil || n != 2 {
			t.Errorf("%s, prepared: %d, %v", name, n, err)
		}
		st.Close()
	}
}

// pgbouncer in transaction mode gives a program these settings; here they
// must share and clean up as any other.
func TestPoolerSettings(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol",
		"default_query_exec_mode=cache_describe", "statement_cache_capacity=0&description_cache_capacity=0&default_query_exec_mode=describe_exec",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			f := newFixtureOn(t, dsnWith(pgtest.Database(t), options), setup{})
			f.by("CREATE TABLE pooler AS SELECT 1 AS n, 'x' AS s")
			release := f.lock("pooler")
			errs := together(100, func(int) error {
				var n int
				return f.db.QueryRow("SELECT n FROM pooler WHERE s = $1 AND n < $2", "x", 5).Scan(&n)
			})
			f.sharing(100)
			release()
			noErrors(t, receive(t, errs))
			same(t, "queries", f.seen.queries("pooler"), 1)
			f.do("UPDATE pooler SET n = 2")
			same(t, "after a write", get[int](t, f.db, "SELECT n FROM pooler WHERE s = $1 AND n < $2", "x", 5), 2)
			same(t, "statements prepared on the server", getIn[int](t, coalesce.Fresh(bg), f.db, "SELECT count(*) FROM pg_prepared_statements"), 0)
			f.quiet()
		})
	}
}

func TestChangedTableNeverMixesOldColumnsWithNewRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, setup{})
	f.db.SetMaxOpenConns(1)
	f.by("CREATE TABLE al(a int)", "INSERT INTO al VALUES (1)")
	columns := func(ctx context.Context) (n int, err error) {
		rows, err := f.db.QueryContext(ctx, "SELECT * FROM al")
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			return 0, err
		}
		for rows.Next() {
			vals := make([]any, len(names))
			for i := range vals {
				vals[i] = new(any)
			}
			if err := rows.Scan(vals...); err != nil {
				t.Errorf("%d columns, but %v", len(names), err)
			}
		}
		return len(names), rows.Err()
	}
	fresh := coalesce.Fresh(bg)
	wantColumns := func(when string, ctx context.Context, wanted int) {
		t.Helper()
		if n, err := columns(ctx); err != nil || n != wanted {
			t.Errorf("%s: %d columns, %v; want %d", when, n, err, wanted)
		}
	}
	wantColumns("first", bg, 1)
	wantColumns("fresh", fresh, 1)
	f.by("ALTER TABLE al ADD b int DEFAULT 7")
	wantColumns("held", bg, 1)
	if n, err := columns(fresh); sqlState(err) != "0A000" && n != 2 {
		t.Errorf("fresh, after ALTER: %d columns, %v; want SQLSTATE 0A000 or 2", n, err)
	}
	wantColumns("fresh, the second time", fresh, 2)
	f.do("ALTER TABLE al ADD c int DEFAULT 8")
	if n, err := columns(bg); sqlState(err) != "0A000" && n != 3 {
		t.Errorf("after own ALTER: %d columns, %v", n, err)
	}
	wantColumns("after own ALTER, the second time", bg, 3)
}
