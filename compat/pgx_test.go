package compat

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
)

// What programs use of pgx through database/sql: values, arguments, options,
// errors, contexts, transactions, sessions, prepared statements, connectors
// and pools.

// until waits until a query, seen by neither driver, answers true.
func until(r *run, query string, args ...any) {
	r.Helper()
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.dsn)
	r.must(err)
	defer conn.Close(bg)
	for ok := false; !ok; {
		if err := conn.QueryRow(ctx, query, args...).Scan(&ok); err != nil {
			r.Fatalf("%s: %v", query, err)
		}
		time.Sleep(time.Millisecond) // between one look and the next
	}
}

const (
	someoneWaits = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
	nobodyWaits  = `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
)

// readsWait waits until so many sessions wait for a reader's lock on a table.
func readsWait(r *run, table string, n int) {
	r.Helper()
	until(r, `SELECT count(*) = $2 FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted AND mode = 'AccessShareLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, table, n)
}

// readJoins waits until a read, of a pool that has had so many join, has joined
// the one that waits for a table. On pgx it waits for that too.
func readJoins(r *run, db *sql.DB, joined uint64, table string) {
	r.Helper()
	if !r.shares() {
		readsWait(r, table, 2)
		return
	}
	for end := time.Now().Add(20 * time.Second); coalesce.StatsOf(db).Joined == joined; {
		if time.Now().After(end) {
			r.Fatal("the read has not joined the other")
		}
		time.Sleep(time.Millisecond) // between one look and the next
	}
}

// lockedBy has somebody else lock a table, until the function is called.
func lockedBy(r *run, table string) (release func()) {
	r.Helper()
	conn, err := pgx.Connect(bg, r.dsn)
	r.must(err)
	_, err = conn.Exec(bg, `BEGIN; LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`)
	r.must(err)
	release = sync.OnceFunc(func() { conn.Close(bg) })
	r.Cleanup(release)
	return release
}

// tooOld reports whether the server does not know yet what a text says.
func tooOld(r *run, text string) bool {
	r.Helper()
	conn, err := pgx.Connect(bg, r.dsn) // the pools have their sessions to themselves
	r.must(err)
	defer conn.Close(bg)
	var version int
	r.must(conn.QueryRow(bg, `SELECT current_setting('server_version_num')::int`).Scan(&version))
	return version < 140000 && strings.Contains(text, "multirange") || version < 150000 && strings.Contains(text, "MERGE")
}

// valueColumns are the common types, each with two values as SQL has them.
var valueColumns = []struct{ name, typ, one, two string }{
	{"int2", "int2", "-32768", "7"},
	{"int4", "int4", "2147483647", "0"},
	{"int8", "int8", "9007199254740993", "-1"},
	{"float4", "float4", "1.5", "'NaN'"},
	{"float8", "float8", "'-Infinity'", "0.1"},
	{"numeric", "numeric", "12345678901234567890.123456789", "'NaN'"},
	{"numeric92", "numeric(9,2)", "1.1", "-0.05"},
	{"bool", "bool", "true", "false"},
	{"text", "text", "'grün'", "''"},
	{"digits", "text", "'42'", "' 42 '"},
	{"varchar", "varchar(7)", "'abc'", "'abcdefg'"},
	{"bpchar", "char(4)", "'ab'", "'abcd'"},
	{"name", "name", "'x'", "'y'"},
	{"bytea", "bytea", `'\x00ff'`, "''"},
	{"uuid", "uuid", "'6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01'", "'00000000-0000-0000-0000-000000000000'"},
	{"json", "json", `'{"b": 1,  "a": [true, null]}'`, "'null'"},
	{"jsonb", "jsonb", `'{"b": 1,  "a": [true, null]}'`, `'"s"'`},
	{"date", "date", "'2001-02-03'", "'infinity'"},
	{"time", "time", "'13:14:15.5'", "'24:00'"},
	{"timetz", "timetz", "'13:14:15+02'", "'00:00Z'"},
	{"timestamp", "timestamp", "'2001-02-03 04:05:06.789'", "'-infinity'"},
	{"timestamptz", "timestamptz", "'2001-02-03 04:05:06.789+02'", "'infinity'"},
	{"interval", "interval", "'1 year 2 mons 3 days 04:05:06.5'", "'-1 day'"},
	{"inet", "inet", "'10.1.2.3/8'", "'::1'"},
	{"cidr", "cidr", "'10.0.0.0/8'", "'2001:db8::/32'"},
	{"macaddr", "macaddr", "'08:00:2b:01:02:03'", "'ff:ff:ff:ff:ff:ff'"},
	{"money", "money", "12.34", "0"},
	{"oid", "oid", "4294967295", "1"},
	{"bit", "bit(3)", "B'101'", "B'000'"},
	{"varbit", "varbit(5)", "B'1'", "B''"},
	{"xml", "xml", "'<a/>'", "'<b>x</b>'"},
	{"point", "point", "'(1,2.5)'", "'(0,0)'"},
	{"tsvector", "tsvector", "'fat cat'", "''"},
	{"int8s", "int8[]", "'{1,-2,3}'", "'{}'"},
	{"int4s", "int4[]", "'{1,NULL,3}'", "'{{1,2},{3,4}}'"},
	{"texts", "text[]", `'{a,"b c",NULL,""}'`, "'{}'"},
	{"bools", "bool[]", "'{t,f}'", "'{NULL}'"},
	{"float8s", "float8[]", "'{1.5,NaN}'", "'{0}'"},
	{"numerics", "numeric[]", "'{1.10,2}'", "'{}'"},
	{"uuids", "uuid[]", "'{6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01}'", "'{}'"},
	{"dates", "date[]", "'{2001-02-03,NULL}'", "'{}'"},
	{"stamps", "timestamptz[]", "'{2001-02-03 04:05:06Z}'", "'{infinity}'"},
	{"byteas", "bytea[]", `'{"\\x01","\\x"}'`, "'{}'"},
	{"jsonbs", "jsonb[]", `ARRAY['{"a": 1}'::jsonb, NULL]`, "'{}'"},
	{"inets", "inet[]", "'{10.1.2.3/8,::1}'", "'{}'"},
	{"span", "int4range", "'[1,5]'", "'empty'"},
	{"numspan", "numrange", "'(1.5,)'", "'(,)'"},
	{"dayspan", "daterange", "'[2001-02-03,2001-03-01)'", "'empty'"},
	{"tstzspan", "tstzrange", "'[2001-02-03 04:05:06Z,)'", "'(,)'"},
	{"spans", "int4multirange", "'{[1,3),[5,7)}'", "'{}'"},
	{"mood", "mood", "'happy'", "'sad'"},
	{"moods", "mood[]", "'{happy,sad}'", "'{}'"},
	{"pair", "pair", `'(1,"b c")'`, "'(,)'"},
	{"pairs", "pair[]", `ARRAY['(1,x)'::pair, NULL]`, "'{}'"},
	{"positive", "positive", "3", "4"},
	{"label", "label", "'x'", "'longer'"},
}

const valueTypes = `CREATE TYPE mood AS ENUM ('sad', 'happy');
	CREATE TYPE pair AS (a int, b text);
	CREATE DOMAIN positive AS int CHECK (VALUE > 0);
	CREATE DOMAIN label AS text NOT NULL DEFAULT 'none'`

// createValues makes the table of the values: row one, row two, and a row of
// NULLs where the type has them.
func createValues(r *run) {
	r.exec(valueTypes)
	var columns, one, two []string
	for _, c := range valueColumns {
		if tooOld(r, c.typ) {
			c.typ = "text" // of the same look
		}
		columns = append(columns, fmt.Sprintf("c_%s %s", c.name, c.typ))
		one = append(one, c.one)
		two = append(two, c.two)
	}
	r.exec(`CREATE TABLE v (k text PRIMARY KEY, `+strings.Join(columns, ", ")+`)`,
		`INSERT INTO v VALUES ('one', `+strings.Join(one, ", ")+`)`,
		`INSERT INTO v VALUES ('two', `+strings.Join(two, ", ")+`)`,
		`INSERT INTO v (k, c_label) VALUES ('null', 'l')`)
}

// A witness records what a Scanner is given.
type witness struct{ got string }

func (w *witness) Scan(v any) error {
	if b, ok := v.([]byte); ok {
		w.got = fmt.Sprintf("%T %q", v, b)
		clear(b) // nobody else may see this
		return nil
	}
	w.got = fmt.Sprintf("%T %v", v, v)
	return nil
}

// A refuser is a Scanner that fails.
type refuser struct{}

var errRefused = errors.New("refused")

func (*refuser) Scan(any) error { return errRefused }

type (
	ownString string
	ownInt    int32
	ownBytes  []byte
	ownTime   time.Time
	ownPair   struct {
		A int
		B string
	}
)

// destinations are what values are scanned into: pointers to one of each type.
var destinations = []any{
	new(any), new(string), new([]byte), new(json.RawMessage), new(bool),
	new(int), new(int8), new(int16), new(int32), new(int64), new(uint), new(uint8), new(uint64),
	new(float32), new(float64), new(time.Time), new(time.Duration),
	new(*string), new(*int64), new(*bool), new(*float64), new(*time.Time), new(**string), new(*[]byte),
	new(ownString), new(ownInt), new(ownBytes), new(ownTime), new(*ownString),
	new(sql.NullString), new(sql.NullInt16), new(sql.NullInt32), new(sql.NullInt64), new(sql.NullByte),
	new(sql.NullFloat64), new(sql.NullBool), new(sql.NullTime),
	new(sql.Null[string]), new(sql.Null[int64]), new(sql.Null[time.Time]), new(sql.Null[[]byte]), new(sql.Null[bool]),
	new(pgtype.Text), new(pgtype.Int2), new(pgtype.Int4), new(pgtype.Int8), new(pgtype.Uint32), new(pgtype.Float4), new(pgtype.Float8),
	new(pgtype.Numeric), new(pgtype.Bool), new(pgtype.Date), new(pgtype.Time), new(pgtype.Timestamp), new(pgtype.Timestamptz),
	new(pgtype.Interval), new(pgtype.UUID), new(pgtype.Bits), new(pgtype.Point), new(*pgtype.Text),
	new(witness), new(*witness), new(refuser),
}

// nativeDestinations are those that only pgx itself can scan into: through
// Map.SQLScanner, or from Go 1.27 on directly.
var nativeDestinations = []any{
	new([]int64), new([]int32), new([]string), new([]*string), new([]bool), new([]float64), new([]time.Time), new([][]int32), new([][]byte),
	new([]any), new([]uint8), new([2]int64), new(*[]int64), new([]ownString), new([]pgtype.Text), new([]pgtype.Numeric), new([]uint32),
	new(pgtype.FlatArray[int64]), new(pgtype.FlatArray[*string]), new(pgtype.Array[int64]), new(pgtype.Array[*int32]), new(pgtype.Array[string]),
	new(pgtype.Range[pgtype.Int4]), new(pgtype.Range[pgtype.Numeric]), new(pgtype.Range[pgtype.Date]), new(pgtype.Range[time.Time]),
	new(pgtype.Range[pgtype.Timestamptz]), new(*pgtype.Range[pgtype.Int4]), new(pgtype.Multirange[pgtype.Range[pgtype.Int4]]),
	new([]pgtype.Range[pgtype.Int4]), new(map[string]any), new([16]byte), new([][16]byte), new(netip.Addr), new(netip.Prefix), new([]netip.Prefix),
	new(net.IP), new(net.IPNet), new(net.HardwareAddr), new(big.Int), new(pgtype.PreallocBytes), new(pgtype.TSVector), new(ownPair), new([]ownPair), new(chan int),
}

// scanAll scans the one value of a query into every destination.
func scanAll(r *run, what string, rows *sql.Rows, err error, destinations []any, wrap func(any) any) {
	r.Helper()
	r.must(err)
	defer rows.Close()
	for rows.Next() {
		for _, d := range destinations {
			into := reflect.New(reflect.TypeOf(d).Elem())
			dest := into.Interface()
			if wrap != nil {
				dest = wrap(dest)
			}
			if err := rows.Scan(dest); err != nil {
				r.see(fmt.Sprintf("%s into %T", what, d), err)
				continue
			}
			r.see(what+" into", into.Elem().Interface())
		}
		// Last: it forbids a further Scan before the next row.
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			r.see(what+" raw", err)
			continue
		}
		r.see(what+" raw", raw)
		clear(raw)
	}
	r.see(what+" end", rows.Err())
}

func TestPgxValues(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		createValues(r)
		scan := func(what, query string, args ...any) {
			rows, err := r.db.QueryContext(bg, query, args...)
			scanAll(r, what, rows, err, destinations, nil)
		}
		for _, c := range valueColumns {
			query := `SELECT c_` + c.name + ` FROM v WHERE k = $1`
			for _, k := range []string{"one", "one", "two", "null", "null"} {
				scan(c.name+" "+k, query, k)
			}
			r.query(query, "one")
			r.exec(`UPDATE v SET c_` + c.name + ` = (SELECT c_` + c.name + ` FROM v WHERE k = 'two') WHERE k = 'one'`)
			for range 2 {
				scan(c.name+" after the update", query, "one")
			}
		}
		for range 2 {
			r.query(`SELECT * FROM v ORDER BY k`)
			r.query(`SELECT v FROM v ORDER BY k`)
			r.query(`SELECT to_jsonb(v) - 'c_money' FROM v ORDER BY k`)
		}
	})
}

func TestPgxScanMapScanners(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		createValues(r)
		m := pgtype.NewMap()
		for _, c := range valueColumns {
			query := `SELECT c_` + c.name + ` FROM v WHERE k = $1`
			scan := func(what, k string) {
				rows, err := r.db.QueryContext(bg, query, k)
				scanAll(r, what, rows, err, nativeDestinations, func(d any) any { return m.SQLScanner(d) })
			}
			for range 2 {
				scan(c.name, "one")
			}
			scan(c.name+" null", "null")
			r.exec(`UPDATE v SET c_` + c.name + ` = (SELECT c_` + c.name + ` FROM v WHERE k = 'two') WHERE k = 'one'`)
			for range 2 {
				scan(c.name+" after the update", "one")
			}
		}
	})
}

// A giver is a Valuer that counts how often it is asked.
type giver struct {
	v     any
	err   error
	asked *int
}

func (g giver) Value() (driver.Value, error) {
	if g.asked != nil {
		*g.asked++
	}
	return g.v, g.err
}

// pointerGiver has its Valuer on the pointer only.
type pointerGiver struct{ v string }

func (g *pointerGiver) Value() (driver.Value, error) {
	if g == nil {
		return "nobody", nil
	}
	return g.v, nil
}

func to[T any](v T) *T { return &v }

func TestPgxArguments(t *testing.T) {
	t.Parallel()
	day := time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.FixedZone("here", 2*3600))
	id := [16]byte{0x6f, 0x2d, 0x41, 0xc8, 15: 1}
	cases := []struct {
		typ  string
		args []any
	}{
		{"int4", []any{1, int8(-1), int16(2), int32(3), int64(4), uint8(5), uint32(6), uint64(7), math.MaxInt64, "8", " 9 ", "x", 1.0, 1.5, true, nil,
			to(10), (*int)(nil), to(to(11)), ownInt(12), sql.NullInt32{Int32: 13, Valid: true}, sql.NullInt32{}, sql.Null[int]{V: 14, Valid: true}, sql.Null[int]{},
			pgtype.Int4{Int32: 15, Valid: true}, pgtype.Int4{}, pgtype.Int8{Int64: 16, Valid: true}, giver{v: int64(17)}, giver{}, giver{err: errRefused},
			&pointerGiver{"18"}, (*pointerGiver)(nil), pointerGiver{"19"}, []byte("20"), json.Number("21"), sql.Named("n", 22), sql.Out{Dest: to(1)}, struct{}{}, []int{1}, func() {}, make(chan int)}},
		{"int8", []any{int64(math.MinInt64), uint64(math.MaxUint64), uint64(math.MaxInt64), time.Second, time.March, "9007199254740993", big.NewInt(5)}},
		{"int2", []any{40000, int64(-5)}},
		{"float8", []any{1, 1.5, float32(0.1), math.NaN(), math.Inf(-1), math.Copysign(0, -1), "1e10", sql.NullFloat64{Float64: 2.5, Valid: true}, pgtype.Float8{Float64: 3.5, Valid: true}, pgtype.Float4{}}},
		{"float4", []any{0.1, float32(0.1), 1e300, 16777217}},
		{"numeric", []any{1, 1.10, "1.10", "NaN", "1e-20", uint64(math.MaxUint64), pgtype.Numeric{Int: big.NewInt(12345), Exp: -2, Valid: true}, pgtype.Numeric{NaN: true, Valid: true}, pgtype.Numeric{}, big.NewInt(7), *big.NewInt(8), big.NewFloat(1.5), nil}},
		{"bool", []any{true, false, "t", "yes", "maybe", 1, to(true), sql.NullBool{Bool: true, Valid: true}, pgtype.Bool{}, nil}},
		{"text", []any{"a", "", "nul\x00byte", "\xff", "O'Neil \\ ; -- $1", []byte("bytes"), 1, 1.5, true, day, id, nil, to("p"), (*string)(nil), ownString("own"), to(ownString("ownp")), fmt.Stringer(time.March),
			sql.NullString{String: "n", Valid: true}, sql.NullString{}, pgtype.Text{String: "t", Valid: true}, pgtype.Text{}, giver{v: "given"}, giver{v: []byte("raw")}, to(giver{v: "ptr"}), json.RawMessage(`{"a":1}`), []string{"a"}, map[string]any{"a": 1}, ownPair{1, "b"}, errRefused, strings.Repeat("long ", 100)}},
		{"varchar(3)", []any{"abc", "abcd"}},
		{"bytea", []any{[]byte{0, 255}, []byte{}, []byte(nil), "text", `\x01`, ownBytes("own"), json.RawMessage("raw"), giver{v: []byte{1}}, nil, to([]byte{2}), []uint8{3}, [2]byte{1, 2}}},
		{"uuid", []any{"6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01", "{6F2D41C8-97D4-4C5A-9B0D-3D1A4C8F6A01}", "6f2d", id, id[:], pgtype.UUID{Bytes: id, Valid: true}, pgtype.UUID{}, nil}},
		{"json", []any{`{"a":  1}`, "not json", []byte(`[1,  2]`), json.RawMessage(`{}`), map[string]any{"b": 1, "a": nil}, ownPair{1, "b"}, []int{1, 2}, 5, true, nil, to(`"p"`), giver{v: `{"v":1}`}, day, "null"}},
		{"jsonb", []any{`{"a":  1}`, []byte(`[1,  2]`), map[string]int{"b": 1, "a": 2}, &ownPair{1, "b"}, []string(nil), (*ownPair)(nil), math.NaN(), 1.5, "null", json.RawMessage(nil)}},
		{"date", []any{day, "2001-02-03", "infinity", "today is not one", to(day), pgtype.Date{Time: day, Valid: true}, pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}, sql.NullTime{Time: day, Valid: true}, sql.NullTime{}, nil}},
		{"time", []any{"13:14:15.5", day, pgtype.Time{Microseconds: 1500000, Valid: true}, time.Hour, nil}},
		{"timestamp", []any{day, "2001-02-03 04:05:06", day.UTC(), pgtype.Timestamp{Time: day, Valid: true}, time.Time{}, nil}},
		{"timestamptz", []any{day, day.UTC(), "2001-02-03 04:05:06+02", pgtype.Timestamptz{Time: day, Valid: true}, pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, sql.Null[time.Time]{V: day, Valid: true}, ownTime(day), time.Unix(0, 999), nil}},
		{"interval", []any{time.Hour + time.Microsecond, "1 day", pgtype.Interval{Months: 1, Days: 2, Microseconds: 3, Valid: true}, 5, nil}},
		{"inet", []any{"10.1.2.3/8", netip.MustParseAddr("::1"), netip.MustParsePrefix("10.0.0.0/8"), net.ParseIP("10.1.2.3"), &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}, netip.Addr{}, "x", nil}},
		{"macaddr", []any{net.HardwareAddr{1, 2, 3, 4, 5, 6}, "08:00:2b:01:02:03"}},
		{"int8[]", []any{[]int64{1, 2}, []int64{}, []int64(nil), []int{3}, []*int64{to(int64(1)), nil}, [2]int32{4, 5}, [][]int64{{1}, {2}}, "{6,NULL}", pgtype.FlatArray[int64]{7}, pgtype.FlatArray[int64](nil),
			pgtype.Array[int64]{Elements: []int64{8, 9}, Dims: []pgtype.ArrayDimension{{Length: 2, LowerBound: 1}}, Valid: true}, pgtype.Array[int64]{}, []any{1, nil}, []string{"10"}, []sql.NullInt64{{}, {Int64: 11, Valid: true}}, []pgtype.Int8{{}, {Int64: 12, Valid: true}}, 13, nil}},
		{"text[]", []any{[]string{"a b", "c,d", `e"f`, "", "NULL"}, []string{"a", "b c,d"}, []*string{nil, to("x")}, []ownString{"own"}, []any{"x", nil}, "{a,b}", []byte("{c}"), []string(nil), []pgtype.Text{{}, {String: "t", Valid: true}}}},
		{"bytea[]", []any{[][]byte{{1}, {}, nil}, []string{"x"}}},
		{"uuid[]", []any{[][16]byte{id}, []string{"6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01"}, []pgtype.UUID{{Bytes: id, Valid: true}, {}}}},
		{"timestamptz[]", []any{[]time.Time{day}, []string{"2001-02-03Z"}}},
		{"jsonb[]", []any{[]string{`{"a":1}`}, []json.RawMessage{[]byte(`{"a":1}`)}, []map[string]any{{"a": 1}}}},
		{"int4range", []any{"[1,5)", pgtype.Range[pgtype.Int4]{Lower: pgtype.Int4{Int32: 1, Valid: true}, Upper: pgtype.Int4{Int32: 5, Valid: true}, LowerType: pgtype.Inclusive, UpperType: pgtype.Inclusive, Valid: true}, pgtype.Range[int32]{Upper: 5, LowerType: pgtype.Unbounded, UpperType: pgtype.Exclusive, Valid: true}, pgtype.Range[int32]{LowerType: pgtype.Empty, UpperType: pgtype.Empty, Valid: true}, pgtype.Range[int32]{}}},
		{"int4multirange", []any{"{[1,2)}", pgtype.Multirange[pgtype.Range[int32]]{{Lower: 1, Upper: 5, LowerType: pgtype.Inclusive, UpperType: pgtype.Exclusive, Valid: true}}}},
		{"mood", []any{"happy", "angry", ownString("sad"), []byte("sad"), to("happy"), (*string)(nil), giver{v: "sad"}, 1, nil}},
		{"mood[]", []any{"{happy,sad}", []string{"happy"}, []ownString{"sad"}}},
		{"pair", []any{`(1,"b c")`, "(1)", ownPair{1, "b"}, pgtype.CompositeFields{1, "b"}, nil}},
		{"positive", []any{1, -1, "2", nil}},
		{"bit(3)", []any{"101", pgtype.Bits{Bytes: []byte{0xA0}, Len: 3, Valid: true}, "10"}},
		{"point", []any{"(1,2)", pgtype.Point{P: pgtype.Vec2{X: 1, Y: 2}, Valid: true}}},
		{"oid", []any{1, uint32(4294967295), "2", pgtype.Uint32{Uint32: 3, Valid: true}}},
		{"money", []any{"12.34", 1}},
		{"xml", []any{"<a/>", []byte("<b/>"), "<"}},
	}
	same(t, func(r *run) {
		r.exec(valueTypes)
		// Whether it speaks of the Valuer or of its value, it fails.
		_, err := r.db.QueryContext(bg, `SELECT $1::text`, giver{v: int64(7)})
		r.see("no text", err != nil)
		for i, c := range cases {
			if tooOld(r, c.typ) {
				continue
			}
			// Each has a name of its own, lest pgx meet a plan for another.
			kept := fmt.Sprint("kept", i)
			r.exec(`CREATE TABLE ` + kept + ` (n serial, v ` + c.typ + `)`)
			for _, arg := range c.args {
				r.see(c.typ, fmt.Sprintf("%T", arg))
				r.query(`SELECT $1::`+c.typ+` AS v`, arg)
				var id int
				err := r.db.QueryRowContext(bg, `INSERT INTO `+kept+` (v) VALUES ($1) RETURNING n`, arg).Scan(&id)
				r.see("inserted", err)
				r.query(`SELECT v::text FROM `+kept+` WHERE n = $1`, id)
				r.query(`SELECT v::text FROM `+kept+` WHERE n = $1`, id)
				r.query(`SELECT $1::`+c.typ+` AS v`, arg)
			}
			if c.typ != "json" && c.typ != "xml" && c.typ != "point" {
				for _, arg := range c.args {
					r.query(`SELECT n, v::text FROM `+kept+` WHERE v = $1 OR v IS NULL AND $1 IS NULL ORDER BY n`, arg)
				}
			}
			r.exec(`UPDATE ` + kept + ` SET n = n + 100`)
			r.query(`SELECT n, v::text FROM ` + kept + ` ORDER BY n`)
			r.query(`SELECT n, v::text FROM ` + kept + ` ORDER BY n`)
			r.exec(`DROP TABLE ` + kept)
		}
	})
}

// Arguments belong to their caller again when the call has returned.
func TestPgxArgumentsChangedBetweenCalls(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, b bytea, a int[])`, `INSERT INTO t SELECT g, 'x'::bytea, ARRAY[g, g] FROM generate_series(1, 4) g`)
		n, bytes, ids, asked := 1, []byte("k1"), []int32{1, 2}, 0
		named := pgx.NamedArgs{"id": 1}
		valuer := &pointerGiver{"1"}
		for i := range 4 {
			r.query(`SELECT id FROM t WHERE id = $1`, &n)
			r.query(`SELECT encode($1::bytea, 'escape')`, bytes)
			r.query(`SELECT id FROM t WHERE id = ANY ($1::int[]) ORDER BY id`, ids)
			r.query(`SELECT id, b FROM t WHERE id = @id`, named)
			r.query(`SELECT id FROM t WHERE id::text = $1`, valuer)
			r.query(`SELECT id FROM t WHERE id = $1`, giver{v: int64(i), asked: &asked})
			r.see("asked", asked)
			n++
			bytes[1]++
			ids[0], ids[1] = ids[1], ids[0]+2
			named["id"] = i + 2
			valuer.v = fmt.Sprint(i + 2)
			r.exec(`UPDATE t SET b = b || 'y'`)
		}
	})
}

var execModes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

func TestPgxOptionsAmongTheArguments(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE TABLE t (id int PRIMARY KEY, v text, n numeric, at timestamptz, ids int8[], b bytea, f float8, j jsonb, m mood, u uuid)`,
			`INSERT INTO t VALUES (1, 'a', 1.10, '2001-02-03Z', '{1,2}', 'x', 1.5, '{"a": 1}', 'sad', '6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
		for i, mode := range execModes {
			r.see("mode", mode.String())
			for range 2 {
				r.query(`SELECT * FROM t WHERE id = $1`, mode, 1)
				r.query(`SELECT * FROM t WHERE id = $1`, mode, "2")
				r.query(`SELECT v FROM t WHERE id = @id AND v = @v`, mode, pgx.NamedArgs{"id": 1, "v": "a", "more": 1})
				r.query(`SELECT $1::text, $2::bytea, $3::float8, $4::timestamptz, $5::bool`, mode, "O'Neil\\", []byte{0, 255}, math.Inf(1), time.Unix(0, 0), nil)
				r.query(`SELECT id FROM t WHERE id = ANY ($1) ORDER BY id`, mode, []int32{1, 2})
				r.query(`SELECT id FROM t WHERE u = $1 AND m = $2 AND n = $3`, mode, "6f2d41c8-97d4-4c5a-9b0d-3d1a4c8f6a01", "sad", "1.1")
				r.query(`SELECT id FROM t WHERE id = $1`, mode, "x")
				r.query(`SELECT id FROM t WHERE id = $1`, mode)
				r.query(`SELECT id FROM t WHERE id = $1`, mode, 1, 2)
				r.query(`SELECT 1; SELECT 2`, mode)
				r.query(`SELECT nope FROM t`, mode)
				r.query(`SELECT v FROM t WHERE id = $1`, 1, mode)
			}
			result, err := r.db.ExecContext(bg, `UPDATE t SET v = $1 WHERE id = $2`, mode, fmt.Sprint("v", i), 1)
			r.must(err)
			affected, err := result.RowsAffected()
			r.see("updated", affected, err)
			for range 2 {
				r.query(`SELECT * FROM t WHERE id = $1`, mode, 1)
			}
		}
		for range 2 {
			r.query(`SELECT * FROM t WHERE id = $1`, pgx.QueryResultFormats{pgx.TextFormatCode}, 1)
			r.query(`SELECT id, at, b, f FROM t WHERE id = $1`, pgx.QueryResultFormats{pgx.TextFormatCode, pgx.TextFormatCode, pgx.TextFormatCode, pgx.TextFormatCode}, 1)
			r.query(`SELECT id, at, b, f, j FROM t WHERE id = $1`, pgx.QueryResultFormats{pgx.BinaryFormatCode}, 1)
			r.query(`SELECT ids FROM t WHERE id = $1`, pgx.QueryResultFormats{pgx.BinaryFormatCode}, 1)
			r.query(`SELECT n FROM t WHERE id = $1`, pgx.QueryResultFormats{pgx.BinaryFormatCode}, 1)
			r.query(`SELECT id, f FROM t WHERE id = $1`, pgx.QueryResultFormatsByOID{pgtype.Int4OID: pgx.TextFormatCode, pgtype.Float8OID: pgx.TextFormatCode}, 1)
			r.query(`SELECT id, f FROM t WHERE id = $1`, pgx.QueryExecModeExec, pgx.QueryResultFormats{pgx.TextFormatCode}, 1)
			r.query(`SELECT id, v FROM t WHERE id = @id`, pgx.StrictNamedArgs{"id": 1})
			r.query(`SELECT id, v FROM t WHERE id = @id`, pgx.StrictNamedArgs{"id": 1, "more": 2})
			r.query(`SELECT id, v FROM t WHERE id = @id`, pgx.StrictNamedArgs{})
			r.query(`SELECT id, v FROM t WHERE id = @id`, pgx.NamedArgs{})
			r.query(`SELECT id, '@id', "v" AS "@id" FROM t WHERE id = @id -- @id`, pgx.NamedArgs{"id": 1})
			r.query(`SELECT id, v FROM t WHERE id = @ID`, pgx.StructArgs(struct{ ID int }{1}))
			r.query(`SELECT id, v FROM t WHERE id = @id`, pgx.StrictStructArgs(&struct {
				ID int `db:"id"`
			}{1}))
			// It may send anything, and its session is private from then on.
			r.inChangedSession(r.db, func() {
				r.query(`SELECT id, v FROM t`, rewriter("SELECT id + $1 FROM t ORDER BY id"))
				r.query(`SELECT id, v FROM t`, rewriter(""))
			})
			renew(r.db)
			r.query(`SELECT id FROM t WHERE id = $1`, pgx.NamedArgs{"id": 1}, 2)
			r.exec(`UPDATE t SET v = v || '!'`)
		}
		_, err := r.db.ExecContext(bg, `INSERT INTO t (id, v, j) VALUES (@id, @v, @j)`, pgx.NamedArgs{"id": 3, "v": "c", "j": map[string]int{"x": 1}})
		r.see("inserted", err)
		r.query(`SELECT id, v, j FROM t WHERE id = @id`, pgx.NamedArgs{"id": 3})
		r.query(`SELECT id, v, j FROM t WHERE id = @id`, pgx.NamedArgs{"id": 3})
	})
}

// A rewriter is a QueryRewriter of the program's own.
type rewriter string

func (w rewriter) RewriteQuery(_ context.Context, _ *pgx.Conn, _ string, args []any) (string, []any, error) {
	if w == "" {
		return "", nil, errRefused
	}
	return string(w), append(args, 10), nil
}

func TestPgxOptionsOfTheDSN(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE SCHEMA other`, `CREATE TABLE other.t (id int, v text)`, `INSERT INTO other.t VALUES (1, 'other')`,
			`CREATE TABLE t (id int PRIMARY KEY, v text, at timestamptz, n numeric, ids int4[], m mood)`)
		var options []string
		for _, mode := range execModes {
			options = append(options, "default_query_exec_mode="+strings.ReplaceAll(mode.String(), " ", "_"))
		}
		options = append(options, "statement_cache_capacity=0", "statement_cache_capacity=1", "description_cache_capacity=0", "search_path=other,public", "TimeZone=Asia%2FTokyo",
			"application_name=mine", "options=-c%20extra_float_digits%3D0%20-c%20bytea_output%3Descape", "standard_conforming_strings=off",
			"DateStyle=German", "IntervalStyle=iso_8601", "client_encoding=LATIN1", "default_transaction_read_only=on", "default_transaction_isolation=serializable",
			"statement_timeout=30000", "sslmode=disable", "connect_timeout=10", "plan_cache_mode=force_generic_plan", "default_query_exec_mode=exec&statement_cache_capacity=0")
		for _, option := range options {
			r.see("option", option)
			db := r.open(option)
			if option == "standard_conforming_strings=off" {
				r.changesSessions(db, "what a text with a backslash says is not known then")
			}
			query := func(query string, args ...any) {
				r.Helper()
				rows, err := db.QueryContext(bg, query, args...)
				r.rows(query, rows, err)
			}
			exec := func(query string, args ...any) {
				r.Helper()
				result, err := db.ExecContext(bg, query, args...)
				if err != nil {
					r.see(query, err)
					return
				}
				n, err := result.RowsAffected()
				r.see(query, n, err)
			}
			exec(`DELETE FROM public.t`)
			exec(`INSERT INTO public.t VALUES ($1, $2, $3, $4, $5, $6)`, 1, "grün \\", time.Unix(1e9, 0), "1.10", []int32{1, 2}, "sad")
			for range 2 {
				query(`SELECT * FROM t WHERE id = $1`, 1)
				query(`SELECT * FROM public.t WHERE id = $1 AND m = $2`, 1, "sad")
				query(`SELECT v, at::text, n::float8::text, '\x01'::bytea::text, interval '1 day 2 hours'::text, date '2001-02-03'::text FROM public.t`)
				query(`SELECT 1.0::float8/3, 'a\b', U&'\0061'`)
				query(`SELECT current_setting('application_name'), current_setting('TimeZone'), current_setting('search_path')`)
				query(`SELECT $1::text, $2::float8`, "O'Neil \\' x", 0.1)
				exec(`UPDATE public.t SET v = v || $1, n = n + 1 WHERE id = $2`, "!", 1)
			}
			stmt, err := db.PrepareContext(bg, `SELECT v FROM public.t WHERE id = $1`)
			if err != nil {
				r.see("prepare", err)
			} else {
				for range 2 {
					rows, err := stmt.QueryContext(bg, 1)
					r.rows("prepared", rows, err)
				}
				r.must(stmt.Close())
			}
			r.see("ping", db.PingContext(bg))
			r.must(db.Close())
		}
	})
}

func TestPgxFormsOfTheDSN(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		config.RuntimeParams["application_name"] = "registered"
		name := stdlib.RegisterConnConfig(config)
		defer stdlib.UnregisterConnConfig(name)
		words := fmt.Sprintf(`host='%s' port = %d user=%s password='%s' dbname=%s application_name='two words'`,
			config.Host, config.Port, config.User, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(config.Password), config.Database)
		for _, dsn := range []string{words, name, r.dsn} {
			db, err := sql.Open(r.driver, dsn)
			r.must(err)
			defer db.Close()
			r.watch(db)
			for range 2 {
				for range 2 {
					rows, err := db.QueryContext(bg, `SELECT v, current_setting('application_name') FROM t WHERE id = $1`, 1)
					r.rows("read", rows, err)
					r.query(`SELECT v FROM t WHERE id = 1`)
				}
				_, err := db.ExecContext(bg, `UPDATE t SET v = v || '!'`)
				r.see("update", err)
			}
		}
	})
}

func TestPgxServersThatRefuse(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		for _, option := range []string{"database=nowhere_at_all", "user=nobody_at_all", "search_path=a,", "DateStyle=none", "no_such_setting=1", "statement_timeout=soon"} {
			db := r.open(option)
			r.see(option+" ping", db.PingContext(bg))
			rows, err := db.QueryContext(bg, `SELECT 1`)
			r.rows(option+" query", rows, err)
			_, err = db.ExecContext(bg, `SELECT 1`)
			r.see(option+" exec", err)
			_, err = db.PrepareContext(bg, `SELECT 1`)
			r.see(option+" prepare", err)
			_, err = db.BeginTx(bg, nil)
			r.see(option+" begin", err)
		}
		// Where the program meets a malformed DSN is not the same: sql.Open
		// here, the first use on pgx.
		for _, dsn := range []string{"postgres://h:port/", "nonsense", "host=/tmp port=x", "postgres://h/?sslmode=perhaps"} {
			db, err := sql.Open(r.driver, dsn)
			if err == nil {
				err = db.PingContext(bg)
				db.Close()
			}
			r.see(dsn, err != nil)
		}
	})
}

// failingStatements is a schema and the statements that fail on it, one for
// each kind of failure.
var (
	failingSchema = []string{
		`CREATE TABLE p (id int PRIMARY KEY, name text NOT NULL CONSTRAINT p_name UNIQUE, age int CONSTRAINT grown CHECK (age > 0), d date)`,
		`CREATE TABLE c (id int PRIMARY KEY, p int NOT NULL REFERENCES p)`,
		`CREATE FUNCTION complains(code text) RETURNS int STABLE LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'no % here', code USING ERRCODE = code, DETAIL = 'some detail', HINT = 'some hint', TABLE = 'p', COLUMN = 'name'; END $$`,
		`INSERT INTO p VALUES (1, 'one', 1, '2001-02-03'), (2, 'two', 2, NULL)`,
		`INSERT INTO c VALUES (1, 1)`,
	}
	failingStatements = []struct {
		text string
		args []any
	}{
		{`INSERT INTO p (id, name) VALUES (1, 'again')`, nil},
		{`INSERT INTO p (id, name) VALUES ($1, $2)`, []any{3, "one"}},
		{`INSERT INTO p (id) VALUES (3)`, nil},
		{`INSERT INTO p (id, name, age) VALUES (3, 'x', 0)`, nil},
		{`INSERT INTO c VALUES (2, 9)`, nil},
		{`DELETE FROM p WHERE id = 1`, nil},
		{`UPDATE p SET id = id + 1`, nil},
		{`UPDATE p SET d = 'no date' WHERE id = $1`, []any{1}},
		{`SELECT * FROM nowhere`, nil},
		{`SELECT nothing FROM p`, nil},
		{`SELECT nothing(id) FROM p`, nil},
		{`SELECT id FROM p WHERE name = 1`, nil},
		{`SELEC 1`, nil},
		{`SELECT 1 FROM`, nil},
		{`SELECT 'open`, nil},
		{`SELECT 1 1 /* /* */`, nil},
		{`SELECT id FROM p WHERE id = $1`, nil},
		{`SELECT id FROM p WHERE id = $1`, []any{1, 2}},
		{`SELECT id FROM p WHERE id = $2`, []any{1, 2}},
		{`SELECT id FROM p`, []any{1}},
		{`SELECT id FROM p WHERE id = $1`, []any{"one"}},
		{`SELECT id FROM p WHERE id = $1`, []any{struct{}{}}},
		{`SELECT id FROM p WHERE id = $1`, []any{int64(math.MaxInt64)}},
		{`SELECT id FROM p WHERE d = $1`, []any{1}},
		{`SELECT $1`, []any{1}},
		{`SELECT $1 + $2`, []any{1, 2}},
		{`SELECT id/0 FROM p`, nil},
		{`SELECT id/(id - 2) FROM p ORDER BY id`, nil},
		{`SELECT name::int FROM p`, nil},
		{`SELECT 2147483647 + id FROM p`, nil},
		{`SELECT (SELECT id FROM p)`, nil},
		{`SELECT complains('P0001')`, nil},
		{`SELECT complains($1)`, []any{"55P03"}},
		{`SELECT complains('57014')`, nil},
		{`SELECT complains('40001')`, nil},
		{`SELECT id, count(*) FROM p`, nil},
		{`SELECT id FROM p FOR UPDATE OF c`, nil},
		{`SELECT 1 UNION SELECT 'x'`, nil},
		{`SELECT currval('none')`, nil},
		{`COMMIT PREPARED 'none'`, nil},
		{`EXECUTE none`, nil},
		{`SAVEPOINT s`, nil},
		{`SET no_such_setting = 1`, nil},
		{`SET work_mem = 'much'`, nil},
		{`CREATE TABLE p ()`, nil},
		{`DROP TABLE nowhere`, nil},
		{`DROP TABLE p`, nil},
		{`ALTER TABLE p ADD id int`, nil},
		{"SELECT 1\x00", nil},
		{"SELECT '\xff'", nil},
	}
)

func TestPgxErrors(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(failingSchema...)
		other := r.open()
		r.changesSessions(r.db, "a text that cannot be parsed may change the session")
		n := 0
		for _, f := range failingStatements {
			for range 2 {
				r.query(f.text, f.args...)
			}
			_, err := r.db.ExecContext(bg, f.text, f.args...)
			r.see("exec", err)
			var one int
			r.see("row", r.db.QueryRowContext(bg, f.text, f.args...).Scan(&one))
			stmt, err := r.db.PrepareContext(bg, f.text)
			r.see("prepare", err)
			if err == nil {
				for range 2 {
					rows, err := stmt.QueryContext(bg, f.args...)
					r.rows("prepared", rows, err)
				}
				_, err = stmt.ExecContext(bg, f.args...)
				r.see("prepared exec", err)
				r.must(stmt.Close())
			}
			tx, err := r.db.BeginTx(bg, nil)
			r.must(err)
			rows, err := tx.QueryContext(bg, f.text, f.args...)
			r.rows("tx", rows, err)
			rows, err = tx.QueryContext(bg, `SELECT id FROM p ORDER BY id`)
			r.rows("tx after", rows, err)
			r.see("commit", tx.Commit())
			n++
			result, err := r.db.ExecContext(bg, `UPDATE p SET age = $1 WHERE id = 2`, n)
			r.must(err)
			affected, err := result.RowsAffected()
			r.see("updated", affected, err)
			for _, text := range []string{`SELECT * FROM p ORDER BY id`, `SELECT * FROM c ORDER BY id`} {
				// A read of a changed session may count as a write: the other is
				// asked before it, and holds what it is asked after it.
				for i, db := range []*sql.DB{other, r.db, r.db, other} {
					rows, err := db.QueryContext(bg, text)
					r.rows(fmt.Sprint(text, " ", i), rows, err)
				}
			}
		}
	})
}

// An error that comes in the middle of a result, or at its end.
func TestPgxErrorsInMidResult(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, n int)`, `INSERT INTO t SELECT g, g FROM generate_series(1, 300) g`)
		queries := []string{
			`SELECT id, 10/(n - 3) FROM t ORDER BY id`,
			`SELECT id, 10/(n - 300) FROM t ORDER BY id`,
			`SELECT id, (CASE WHEN n = 4 THEN 'x' ELSE '1' END)::int FROM t ORDER BY id`,
			`SELECT 1/(3 - g) FROM generate_series(1, 5) g`,
		}
		check := func() {
			for _, query := range queries {
				for range 2 {
					r.query(query)
					rows, err := r.db.QueryContext(bg, query)
					if err != nil {
						r.see(query, err)
						continue
					}
					r.see("next", rows.Next(), rows.Err())
					r.see("close", rows.Close(), rows.Err(), rows.Close())
					var a, b sql.NullInt64
					dest := []any{&a, &b}
					columns, err := rows.Columns()
					r.see("columns", columns, err)
					if strings.Contains(query, "generate_series") {
						dest = dest[:1]
					}
					err = r.db.QueryRowContext(bg, query).Scan(dest...)
					r.see("row", err, a, b)
				}
			}
		}
		check()
		r.exec(`UPDATE t SET n = n + 10000 WHERE n IN (3, 4, 300)`)
		check()
		r.exec(`UPDATE t SET n = n - 10000 WHERE n = 10003`)
		check()
	})
}

func TestPgxScanErrors(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a'), (2, NULL)`)
		for i := range 3 {
			var n int
			var s, u string
			row := func(dest ...any) {
				r.Helper()
				r.see("row", r.db.QueryRowContext(bg, `SELECT id, v FROM t WHERE id <> $1 ORDER BY id`, 9).Scan(dest...), n, s, u)
			}
			row(&n, &s)
			row(&n)
			row(&n, &s, &u)
			row(n, &s)
			row(&n, nil)
			row(&s, &n)
			row((*int)(nil), &s)
			row(&n, &refuser{})
			r.see("none", r.db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, 9).Scan(&s))
			r.see("null", r.db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, 2).Scan(&s))
			r.see("row error", r.db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, 9).Err())

			rows, err := r.db.QueryContext(bg, `SELECT id, v FROM t ORDER BY id`)
			r.must(err)
			r.see("before next", rows.Scan(&n, &s))
			r.see("next", rows.Next(), rows.Next())
			r.see("null into string", rows.Scan(&n, &s), n)
			r.see("done", rows.Next(), rows.Err())
			r.see("after the end", rows.Scan(&n, &s))
			_, err = rows.Columns()
			r.see("columns after the end", err)
			_, err = rows.ColumnTypes()
			r.see("types after the end", err)
			r.see("result sets", rows.NextResultSet(), rows.Next(), rows.Err(), rows.Close())
			result, err := r.db.ExecContext(bg, `UPDATE t SET v = $1 WHERE id = 1`, fmt.Sprint(i))
			r.must(err)
			id, err := result.LastInsertId()
			r.see("last insert id", id, err)
		}
	})
}

func TestPgxColumnTypes(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		createValues(r)
		texts := []string{
			`SELECT * FROM v WHERE false`,
			`SELECT FROM v`,
			`SELECT 1 AS a, 2 AS a, 3`,
			`SELECT NULL, 'x', 1, 1.5, true, now() - now()`,
			`SELECT 'x'::varchar(7), 'x'::varchar, 'x'::char, 'x'::"char", 'x'::text, 'x'::name`,
			`SELECT 1::numeric(9,2), 1::numeric(9), 1::numeric, 1::numeric(12,4), 1::money`,
			`SELECT now()::time(3) - now()::time(3), '1s'::interval(2), '1y'::interval year, '2001-02-03'::timestamp(1), '2001-02-03Z'::timestamptz(0), '1:00'::timetz(4) WHERE false`,
			`SELECT B'1'::bit(3), B'1'::varbit(5), B'1'::varbit, ''::bytea`,
			`SELECT k AS "K", count(*) OVER () AS "Number of rows", c_int4 AS "c.d" FROM v ORDER BY 1`,
			`VALUES (1, 'a'), (2, 'b')`,
			`SELECT v, ROW(1, 'x'), ARRAY[1], ARRAY[ROW(1)] FROM v WHERE k = 'null'`,
		}
		for _, change := range []string{
			`ALTER TABLE v ALTER c_varchar TYPE varchar(99), ALTER c_int4 TYPE int8, DROP c_bytea, ADD more numeric(5,1) DEFAULT 7`,
			`ALTER TABLE v RENAME c_text TO other`,
		} {
			for _, text := range texts {
				for range 2 {
					r.query(text)
				}
				stmt, err := r.db.PrepareContext(bg, text)
				r.must(err)
				for range 2 {
					rows, err := stmt.QueryContext(bg)
					r.rows("prepared", rows, err)
				}
				r.must(stmt.Close())
			}
			// What a caller does with its columns is no business of others.
			for range 2 {
				rows, err := r.db.QueryContext(bg, `SELECT k, c_int8 FROM v ORDER BY k`)
				r.must(err)
				columns, err := rows.Columns()
				r.see("columns", columns, err)
				columns[0] = "spoilt"
				for rows.Next() {
					columns, err := rows.Columns()
					r.see("columns", columns, err)
				}
				r.see("end", rows.Err(), rows.Close())
			}
			r.exec(change)
			// pgx has plans that are outdated now, and says so once for each;
			// the other driver need not have them.
			for _, text := range texts {
				if rows, err := r.db.QueryContext(bg, text); err == nil {
					rows.Close()
				}
			}
			for _, text := range texts {
				r.query(text)
				r.query(text)
			}
		}
	})
}

func TestPgxTextsOfOtherKinds(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id serial PRIMARY KEY, v text)`, `INSERT INTO t (v) VALUES ('a'), ('b')`,
			`CREATE PROCEDURE pr(INOUT x int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t (v) VALUES ('pr'); x := x + 1; END $$`,
			`CREATE FUNCTION two() RETURNS SETOF t LANGUAGE sql VOLATILE AS $$ INSERT INTO t (v) VALUES ('two') RETURNING * $$`)
		other := r.open()
		r.changesSessions(r.db, "DO, CALL, RESET and others may change the session")
		texts := []string{
			``, `;`, `-- nothing`, `/* nothing */`, ` ; ; `,
			`SELECT 1; SELECT 2`, `SELECT 1;`, `SELECT 1; -- more`, `;SELECT 1`,
			`INSERT INTO t (v) VALUES ('x'); INSERT INTO t (v) VALUES ('y')`,
			`INSERT INTO t (v) VALUES ('x'); SELECT 1/0`,
			`BEGIN; INSERT INTO t (v) VALUES ('in'); COMMIT`,
			`BEGIN; INSERT INTO t (v) VALUES ('out'); ROLLBACK`,
			`SELECT v FROM t; DELETE FROM t WHERE v = 'x'`,
			`CREATE TABLE u (id int); DROP TABLE u`,
			`SHOW server_version_num`, `SHOW TimeZone`, `EXPLAIN (COSTS OFF) SELECT * FROM t`, `VALUES (1), (2)`, `TABLE t`, `(SELECT count(*) FROM t)`,
			`WITH d AS (DELETE FROM t WHERE id = (SELECT max(id) FROM t) RETURNING *) SELECT * FROM d`,
			`WITH s AS (SELECT count(*) AS n FROM t) SELECT n FROM s`,
			`SELECT * FROM two()`, `SELECT two()`, `CALL pr(1)`, `DO $$ BEGIN INSERT INTO t (v) VALUES ('do'); END $$`,
			`SELECT id, v INTO made FROM t WHERE id < 3`, `SELECT * FROM made`, `DROP TABLE made`,
			`CREATE TABLE made AS SELECT 1 AS n`, `SELECT * FROM made`, `DROP TABLE made`,
			`VACUUM t`, `ANALYZE t`, `LOCK TABLE t`, `CHECKPOINT`, `RESET ALL`, `NOTIFY n`, `UNLISTEN *`, `DISCARD PLANS`,
			`EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) INSERT INTO t (v) VALUES ('explained')`,
			`TRUNCATE t RESTART IDENTITY`,
		}
		for _, text := range texts {
			for range 2 {
				r.query(text)
				r.query(text, pgx.QueryExecModeSimpleProtocol)
				result, err := r.db.ExecContext(bg, text)
				if err != nil {
					r.see("exec", err)
				} else {
					n, err := result.RowsAffected()
					r.see("exec", n, err)
				}
				// A read of a changed session may count as a write: the other is
				// asked before it, and holds what it is asked after it.
				for i, db := range []*sql.DB{other, r.db, r.db, other} {
					rows, err := db.QueryContext(bg, `SELECT v, count(*) FROM t GROUP BY v ORDER BY v`)
					r.rows(fmt.Sprint("count ", i), rows, err)
				}
			}
		}
	})
}

func TestPgxWritesThatReturnRows(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text UNIQUE, n int NOT NULL DEFAULT 0)`)
		check := func() {
			r.Helper()
			for range 2 {
				r.query(`SELECT * FROM t ORDER BY id`)
				r.query(`SELECT count(*), sum(n) FROM t`)
				r.query(`SELECT n FROM t WHERE v = $1`, "a")
			}
		}
		check()
		for _, text := range []string{
			`INSERT INTO t (v) VALUES ('a'), ('b'), ('c') RETURNING id, v`,
			`INSERT INTO t (v, n) VALUES ('a', 5) ON CONFLICT (v) DO UPDATE SET n = t.n + excluded.n RETURNING *, xmax = 0 AS inserted`,
			`INSERT INTO t (v) VALUES ('a') ON CONFLICT DO NOTHING RETURNING id`,
			`INSERT INTO t (v) SELECT v || '2' FROM t RETURNING v`,
			`UPDATE t SET n = n + 1 WHERE v LIKE 'a%' RETURNING n`,
			`UPDATE t SET n = n + 1 WHERE false RETURNING n`,
			`UPDATE t SET n = o.n + 1 FROM t o WHERE o.id = t.id + 1 RETURNING t.*`,
			`DELETE FROM t WHERE v = 'b' RETURNING id`,
			`WITH u AS (UPDATE t SET n = n * 2 RETURNING id, n) SELECT sum(n) FROM u`,
			`WITH u AS (SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) UPDATE t SET n = -1 FROM u WHERE t.id = u.id RETURNING t.id`,
			`MERGE INTO t USING (VALUES ('a', 9), ('z', 9)) s(v, n) ON t.v = s.v WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (v, n) VALUES (s.v, s.n)`,
		} {
			r.query(text)
			check()
			// Only the first row is asked for; all of it is done.
			var id any
			r.see("row", r.db.QueryRowContext(bg, text).Scan(&id), id)
			check()
			rows, err := r.db.QueryContext(bg, text)
			if err == nil {
				r.see("unread", rows.Close())
			} else {
				r.see("unread", err)
			}
			check()
			result, err := r.db.ExecContext(bg, text)
			if err == nil {
				n, err := result.RowsAffected()
				r.see("exec", n, err)
			} else {
				r.see("exec", err)
			}
			check()
			r.exec(`DELETE FROM t WHERE v LIKE '%2'`)
			check()
		}
	})
}

// A deadline is a context whose time is up when the program says so.
type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// waiting starts a call that meets a table which somebody else has locked,
// does what ends it once the server waits, and returns its error.
func waiting(r *run, end func(), call func() error) error {
	r.Helper()
	// What was read before is outdated: the call must go to the server.
	r.exec(`UPDATE t SET v = v || '.'`)
	release := lockedBy(r, "t")
	done := make(chan error, 1)
	go func() { done <- call() }()
	until(r, someoneWaits)
	end()
	err := <-done
	// The server lets go of it, before it could go on.
	until(r, nobodyWaits)
	release()
	return err
}

func TestPgxContexts(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		ended, cancel := context.WithCancel(bg)
		cancel()
		cause := errors.New("the cause")
		caused, cancelCause := context.WithCancelCause(bg)
		cancelCause(cause)
		late, cancel := context.WithDeadline(bg, time.Unix(0, 0))
		defer cancel()
		read := func(ctx context.Context) error {
			var v string
			return r.db.QueryRowContext(ctx, `SELECT v FROM t WHERE id = $1`, 1).Scan(&v)
		}
		write := func(ctx context.Context) error {
			_, err := r.db.ExecContext(ctx, `UPDATE t SET v = v || 'w' WHERE id = $1`, 1)
			return err
		}
		writeReturning := func(ctx context.Context) error {
			var v string
			return r.db.QueryRowContext(ctx, `UPDATE t SET v = v || 'r' WHERE id = $1 RETURNING v`, 1).Scan(&v)
		}
		inTx := func(ctx context.Context) error {
			tx, err := r.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = tx.ExecContext(ctx, `UPDATE t SET v = v || 't'`)
			if err != nil {
				return err
			}
			return tx.Commit()
		}
		prepare := func(ctx context.Context) error {
			stmt, err := r.db.PrepareContext(ctx, `SELECT v FROM t WHERE id = $1 OR id = $1`)
			if err != nil {
				return err
			}
			defer stmt.Close()
			var v string
			return stmt.QueryRowContext(ctx, 1).Scan(&v)
		}
		calls := map[string]func(context.Context) error{"read": read, "write": write, "write returning": writeReturning, "in tx": inTx, "prepare": prepare, "ping": r.db.PingContext}
		names := []string{"read", "write", "write returning", "in tx", "prepare", "ping"}
		check := func() {
			r.Helper()
			for range 2 {
				r.query(`SELECT v FROM t WHERE id = $1`, 1)
			}
		}
		for _, name := range names {
			for range 2 {
				r.see(name+" cancelled before", calls[name](ended))
				r.see(name+" cancelled with a cause", calls[name](caused), context.Cause(caused))
				r.see(name+" too late", calls[name](late))
				r.see(name, calls[name](bg))
				check()
			}
		}
		for _, name := range names[:5] {
			ctx, cancel := context.WithCancel(bg)
			err := waiting(r, cancel, func() error { return calls[name](ctx) })
			r.see(name+" cancelled", err)
			if name == "read" && r.shares() && err != ctx.Err() {
				r.Errorf("a cancelled read returned %#v, not %#v itself", err, ctx.Err())
			}
			check()
			r.see(name+" again", calls[name](bg))
			check()
			ctx = deadline{bg, make(chan struct{})}
			err = waiting(r, func() { close(ctx.(deadline).passed) }, func() error { return calls[name](ctx) })
			if name == "read" {
				// A shared read gives the context's error itself, not pgx's wrapper of it.
				r.see(name+" past its deadline", errors.Is(err, context.DeadlineExceeded))
				if r.shares() && err != context.DeadlineExceeded {
					r.Errorf("a read past its deadline returned %#v, not the error of its context itself", err)
				}
			} else {
				r.see(name+" past its deadline", err)
			}
			check()
			// Somebody else cancels the query.
			stop := func() {
				until(r, `SELECT bool_and(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			}
			r.see(name+" stopped", waiting(r, stop, func() error { return calls[name](bg) }))
			check()
		}
		timed := r.open("statement_timeout=300")
		for range 2 {
			_, err := timed.ExecContext(bg, `SELECT pg_sleep(20)`)
			r.see("statement timeout", err)
			rows, err := timed.QueryContext(bg, `SELECT count(*) FROM generate_series(1, 1000000000)`)
			r.rows("statement timeout", rows, err)
		}
		check()
	})
}

// The context of one who waits for the read of another ends that wait only.
func TestPgxContextsOfAWaiter(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		read := func(ctx context.Context) error {
			var v string
			return r.db.QueryRowContext(ctx, `SELECT v FROM t WHERE id = $1`, 1).Scan(&v)
		}
		cancelled, cancel := context.WithCancel(bg)
		late := deadline{bg, make(chan struct{})}
		for _, waiter := range []struct {
			name string
			ctx  context.Context
			end  func()
		}{
			{"cancelled", cancelled, cancel},
			{"past its deadline", late, func() { close(late.passed) }},
		} {
			release := lockedBy(r, "t")
			first, second := make(chan error, 1), make(chan error, 1)
			joined := coalesce.StatsOf(r.db).Joined
			go func() { first <- read(bg) }()
			readsWait(r, "t", 1)
			go func() { second <- read(waiter.ctx) }()
			readJoins(r, r.db, joined, "t")
			waiter.end()
			err := <-second
			r.see(waiter.name, errors.Is(err, waiter.ctx.Err()))
			if r.shares() && err != waiter.ctx.Err() {
				r.Errorf("a waiter %s got %#v, not %#v itself", waiter.name, err, waiter.ctx.Err())
			}
			release()
			r.see("first", <-first)
			r.exec(`UPDATE t SET v = v || '.'`)
		}
	})
}

// database/sql leaves it to the driver to look at the context of a call on a
// connection.
func TestPgxContextsOnAConnection(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		const query = `SELECT v FROM t WHERE id = $1`
		ended, cancel := context.WithCancel(bg)
		cancel()
		late, cancel := context.WithDeadline(bg, time.Unix(0, 0))
		defer cancel()
		stmt, err := r.db.PrepareContext(bg, query)
		r.must(err)
		defer stmt.Close()
		calls := []struct {
			name string
			do   func(ctx context.Context, c *sql.Conn) error
		}{
			{"query", func(ctx context.Context, c *sql.Conn) error {
				return c.QueryRowContext(ctx, query, 1).Scan(new(string))
			}},
			{"query not made before", func(ctx context.Context, c *sql.Conn) error {
				return c.QueryRowContext(ctx, query, 2).Scan(new(string))
			}},
			{"private query", func(ctx context.Context, c *sql.Conn) error {
				return c.QueryRowContext(ctx, query+` FOR UPDATE`, 1).Scan(new(string))
			}},
			{"statement of its own", func(ctx context.Context, c *sql.Conn) error {
				own, err := c.PrepareContext(bg, query)
				r.must(err)
				defer own.Close()
				return own.QueryRowContext(ctx, 1).Scan(new(string))
			}},
			{"exec", func(ctx context.Context, c *sql.Conn) error {
				_, err := c.ExecContext(ctx, `UPDATE t SET v = 'never'`)
				return err
			}},
			{"prepare", func(ctx context.Context, c *sql.Conn) error {
				s, err := c.PrepareContext(ctx, query)
				if err == nil {
					s.Close()
				}
				return err
			}},
			{"begin", func(ctx context.Context, c *sql.Conn) error {
				_, err := c.BeginTx(ctx, nil)
				return err
			}},
			{"ping", func(ctx context.Context, c *sql.Conn) error { return c.PingContext(ctx) }},
			{"in a transaction", func(ctx context.Context, c *sql.Conn) error {
				tx, err := c.BeginTx(bg, nil)
				r.must(err)
				defer tx.Rollback()
				return tx.QueryRowContext(ctx, query, 1).Scan(new(string))
			}},
			{"statement in a transaction", func(ctx context.Context, c *sql.Conn) error {
				tx, err := c.BeginTx(bg, nil)
				r.must(err)
				defer tx.Rollback()
				return tx.StmtContext(bg, stmt).QueryRowContext(ctx, 1).Scan(new(string))
			}},
		}
		for _, call := range calls {
			for _, ctx := range []context.Context{ended, late} {
				for _, used := range []bool{true, false} {
					c := pinned(r)
					if used {
						exchange(r, "before", c, query+` AND $1 = $1`, 1)
					} else {
						r.query(query, 1)
					}
					err := call.do(ctx, c)
					r.see(call.name, err != nil)
					if err != nil {
						// It may say more than the context does.
						r.see(call.name, errors.Is(err, ctx.Err()), errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone))
					}
					// A lock is asked of the server itself.
					exchange(r, "after", c, query+` FOR SHARE`, 1)
					c.Close()
					r.exec(`UPDATE t SET v = v || '!'`)
					r.query(query, 1)
					r.query(query, 1)
				}
			}
		}
	})
}

// A context that ends while rows are being read.
func TestPgxContextsAndRows(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t SELECT g, 'a' FROM generate_series(1, 10) g`)
		const endless = `SELECT generate_series(1, 2000000000), 'x'`
		for _, query := range []string{`SELECT id, v FROM t ORDER BY id`, `UPDATE t SET v = v || 'u' RETURNING id, v`, endless} {
			for range 2 {
				ctx, cancel := context.WithCancel(bg)
				rows, err := r.db.QueryContext(ctx, query)
				r.must(err)
				r.see("next", rows.Next())
				cancel()
				// database/sql closes the rows some time after that: a short
				// result may be read to its end before.
				for rows.Next() {
				}
				err = rows.Err()
				r.see("cancelled", errors.Is(err, context.Canceled) || err == nil && query != endless)
				rows.Close()
				for range 2 {
					r.query(`SELECT id, v FROM t ORDER BY id`)
				}
			}
		}
		// A transaction ends with its context.
		ctx, cancel := context.WithCancel(bg)
		tx, err := r.db.BeginTx(ctx, nil)
		r.must(err)
		_, err = tx.ExecContext(bg, `UPDATE t SET v = 'lost'`)
		r.must(err)
		cancel()
		err = tx.Commit()
		r.see("commit", errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone))
		until(r, `SELECT NOT EXISTS (SELECT FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE relname = 't')`)
		for range 2 {
			r.query(`SELECT id, v FROM t ORDER BY id`)
		}
	})
}

func TestPgxTransactions(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)`, `INSERT INTO t VALUES (1, 0), (2, 0)`,
			`CREATE TABLE c (id int, t int REFERENCES t DEFERRABLE INITIALLY DEFERRED)`)
		const read = `SELECT n FROM t WHERE id = $1`
		inside := func(tx *sql.Tx, query string, args ...any) {
			r.Helper()
			rows, err := tx.QueryContext(bg, query, args...)
			r.rows("inside "+query, rows, err)
		}
		exec := func(tx *sql.Tx, query string, args ...any) {
			r.Helper()
			result, err := tx.ExecContext(bg, query, args...)
			if err != nil {
				r.see("inside "+query, err)
				return
			}
			n, err := result.RowsAffected()
			r.see("inside "+query, n, err)
		}
		outside := func() {
			r.Helper()
			for range 2 {
				r.query(read, 1)
				r.query(`SELECT sum(n) FROM t`)
			}
		}
		begin := func(opts *sql.TxOptions) *sql.Tx {
			r.Helper()
			tx, err := r.db.BeginTx(bg, opts)
			r.see("begin", err)
			return tx
		}

		for level := range sql.LevelLinearizable + 3 {
			for _, readOnly := range []bool{false, true} {
				r.see("level", level.String(), readOnly)
				tx := begin(&sql.TxOptions{Isolation: level, ReadOnly: readOnly})
				if tx == nil {
					continue
				}
				inside(tx, `SHOW transaction_isolation`)
				inside(tx, `SHOW transaction_read_only`)
				inside(tx, read, 1)
				outside()
				if !readOnly {
					exec(tx, `UPDATE t SET n = n + 1 WHERE id = 1`)
				}
				inside(tx, read, 1)
				inside(tx, read, 1)
				outside()
				r.see("commit", tx.Commit())
				outside()
				r.see("done", tx.Commit(), tx.Rollback())
				_, err := tx.ExecContext(bg, `SELECT 1`)
				r.see("done", err)
				_, err = tx.QueryContext(bg, read, 1)
				r.see("done", err)
				_, err = tx.PrepareContext(bg, read)
				r.see("done", err)

				if tx = begin(&sql.TxOptions{Isolation: level, ReadOnly: readOnly}); readOnly {
					exec(tx, `UPDATE t SET n = -1`)
				} else {
					exec(tx, `UPDATE t SET n = -1 WHERE id = 1`)
					inside(tx, read, 1)
				}
				r.see("rollback", tx.Rollback(), tx.Rollback())
				outside()
			}
		}

		// A failed transaction.
		tx := begin(nil)
		exec(tx, `UPDATE t SET n = 100`)
		exec(tx, `SELECT 1/0`)
		inside(tx, read, 1)
		inside(tx, `SELECT 1`)
		outside()
		r.see("commit of a failed one", tx.Commit())
		outside()

		// Savepoints.
		tx = begin(nil)
		exec(tx, `SAVEPOINT a`)
		exec(tx, `UPDATE t SET n = n + 10`)
		exec(tx, `SAVEPOINT b`)
		exec(tx, `UPDATE t SET n = n + 100`)
		exec(tx, `INSERT INTO t VALUES (1, 1)`)
		inside(tx, read, 1)
		exec(tx, `ROLLBACK TO b`)
		inside(tx, read, 1)
		exec(tx, `RELEASE SAVEPOINT a`)
		inside(tx, read, 1)
		exec(tx, `ROLLBACK TO a`)
		r.see("commit", tx.Commit())
		outside()
		tx = begin(nil)
		exec(tx, `SAVEPOINT a`)
		exec(tx, `UPDATE t SET n = n + 10`)
		exec(tx, `SELECT 1/0`)
		exec(tx, `ROLLBACK TO SAVEPOINT a`)
		exec(tx, `UPDATE t SET n = n + 1`)
		inside(tx, read, 1)
		r.see("commit", tx.Commit())
		outside()

		// What fails at the commit only.
		tx = begin(nil)
		exec(tx, `INSERT INTO c VALUES (1, 99)`)
		exec(tx, `UPDATE t SET n = 77`)
		inside(tx, `SELECT * FROM c`)
		r.see("commit", tx.Commit())
		outside()
		r.query(`SELECT * FROM c`)

		// Two that are in each other's way.
		one, two := begin(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}), begin(&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		inside(one, read, 1)
		inside(two, read, 1)
		exec(one, `UPDATE t SET n = n + 1 WHERE id = 1`)
		r.see("commit", one.Commit())
		outside()
		inside(two, read, 1)
		exec(two, `UPDATE t SET n = n + 1 WHERE id = 1`)
		r.see("rollback", two.Rollback())
		outside()
		one, two = begin(nil), begin(nil)
		inside(one, `SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`)
		inside(two, `SELECT id FROM t ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`)
		inside(two, `SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT`)
		r.query(`SELECT id FROM t ORDER BY id FOR SHARE SKIP LOCKED`)
		r.see("rollback", one.Rollback(), two.Rollback())
		r.query(`SELECT id FROM t ORDER BY id FOR SHARE SKIP LOCKED`)

		// DDL in a transaction, and away again.
		tx = begin(nil)
		exec(tx, `ALTER TABLE t ADD extra text DEFAULT 'e'`)
		exec(tx, `CREATE TABLE u AS SELECT 1 AS one`)
		inside(tx, `SELECT * FROM t ORDER BY id`)
		inside(tx, `SELECT * FROM u`)
		r.see("rollback", tx.Rollback())
		for range 2 {
			r.query(`SELECT * FROM t ORDER BY id`)
			r.query(`SELECT * FROM u`)
		}

		// Statements of the transaction, of the database, and with rows open.
		stmt, err := r.db.PrepareContext(bg, read)
		r.must(err)
		tx = begin(nil)
		own, err := tx.PrepareContext(bg, `UPDATE t SET n = n + $1 RETURNING id`)
		r.must(err)
		for i := range 2 {
			rows, err := own.QueryContext(bg, i+1)
			r.rows("own", rows, err)
			rows, err = tx.StmtContext(bg, stmt).QueryContext(bg, 1)
			r.rows("stmt inside", rows, err)
			rows, err = stmt.QueryContext(bg, 1)
			r.rows("stmt outside", rows, err)
		}
		rows, err := tx.QueryContext(bg, `SELECT id FROM t ORDER BY id`)
		r.must(err)
		r.see("next", rows.Next())
		exec(tx, `UPDATE t SET n = 0`)
		r.see("rest", rows.Next(), rows.Next(), rows.Err(), rows.Close())
		r.see("commit", tx.Commit())
		_, err = own.ExecContext(bg, 1)
		r.see("own afterwards", err)
		for range 2 {
			rows, err = stmt.QueryContext(bg, 1)
			r.rows("stmt outside", rows, err)
		}
		outside()
		r.must(stmt.Close())
	})
}

// exchange runs a text on a connection and records what it gives.
func exchange(r *run, name string, c *sql.Conn, text string, args ...any) {
	r.Helper()
	rows, err := c.QueryContext(bg, text, args...)
	r.rows(name+" "+text, rows, err)
}

func pinned(r *run) *sql.Conn {
	r.Helper()
	c, err := r.db.Conn(bg)
	r.must(err)
	r.Cleanup(func() { c.Close() })
	return c
}

func TestPgxTransactionsByHand(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)`, `INSERT INTO t VALUES (1, 0)`)
		outside := func() {
			r.Helper()
			for range 2 {
				r.query(`SELECT n FROM t WHERE id = 1`)
			}
		}
		outside()
		for _, texts := range [][]string{
			{`BEGIN`, `UPDATE t SET n = n + 1`, `COMMIT`},
			{`START TRANSACTION ISOLATION LEVEL SERIALIZABLE`, `UPDATE t SET n = n + 1`, `END`},
			{`begin work`, `UPDATE t SET n = n + 1`, `abort`},
			{`BEGIN`, `UPDATE t SET n = n + 1`, `SELECT 1/0`, `SELECT 1`, `COMMIT`},
			{`BEGIN`, `UPDATE t SET n = n + 1`, `COMMIT AND CHAIN`, `UPDATE t SET n = n + 1`, `ROLLBACK AND CHAIN`, `UPDATE t SET n = n + 1`, `COMMIT`},
			{`BEGIN READ ONLY`, `UPDATE t SET n = n + 1`, `ROLLBACK`},
			{`BEGIN`, `UPDATE t SET n = n + 1`, `SAVEPOINT s`, `UPDATE t SET n = n + 1`, `ROLLBACK TO s`, `COMMIT`},
			{`BEGIN`, `BEGIN`, `UPDATE t SET n = n + 1`, `COMMIT`, `COMMIT`},
			{`/* hello */ BEGIN -- there`, `UPDATE t SET n = n + 1`, `COMMIT;`},
		} {
			c := pinned(r)
			for _, text := range texts {
				exchange(r, "inside", c, text)
				exchange(r, "inside", c, `SELECT n FROM t WHERE id = 1`)
				outside()
			}
			r.must(c.Close())
			outside()
		}
		// Begun and forgotten: it is as if it had not been.
		c := pinned(r)
		exchange(r, "inside", c, `BEGIN`)
		exchange(r, "inside", c, `UPDATE t SET n = 1000`)
		exchange(r, "inside", c, `SELECT n FROM t WHERE id = 1`)
		r.must(c.Close())
		outside()
		r.exec(`UPDATE t SET n = n + 1`)
		outside()
		// A transaction and a cursor in it, on the way through a second Tx.
		c = pinned(r)
		tx, err := c.BeginTx(bg, nil)
		r.must(err)
		exchange(r, "inside", c, `DECLARE cu CURSOR FOR SELECT g FROM generate_series(1, 3) g`)
		for range 4 {
			exchange(r, "inside", c, `FETCH 1 FROM cu`)
		}
		exchange(r, "inside", c, `SELECT name FROM pg_cursors`)
		r.must(tx.Rollback())
		exchange(r, "inside", c, `SELECT name FROM pg_cursors`)
	})
}

func TestPgxSessions(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.changesSessions(r.db, "the test is about them")
		r.exec(`CREATE SCHEMA s1`, `CREATE SCHEMA s2`, `CREATE TABLE s1.t AS SELECT 'one' AS v`, `CREATE TABLE s2.t AS SELECT 'two' AS v`, `CREATE TABLE t AS SELECT 'public' AS v`,
			`CREATE SEQUENCE seq`, `CREATE VIEW mine AS SELECT v FROM t WHERE v = current_setting('my.v', true)`,
			`CREATE TABLE at (v timestamptz)`, `INSERT INTO at VALUES ('2001-02-03 04:05:06Z')`)
		a, b := pinned(r), pinned(r)
		both := func(text string, args ...any) {
			r.Helper()
			for range 2 {
				exchange(r, "a", a, text, args...)
				exchange(r, "b", b, text, args...)
				r.query(text, args...)
			}
		}
		both(`SELECT v FROM t`)
		exchange(r, "a", a, `SET search_path = s1`)
		exchange(r, "b", b, `SELECT set_config('search_path', 's2', false)`)
		both(`SELECT v FROM t`)
		both(`SELECT current_schema()`)
		r.exec(`UPDATE s1.t SET v = v || '!'`)
		both(`SELECT v FROM t`)
		exchange(r, "a", a, `RESET search_path`)
		both(`SELECT v FROM t`)
		exchange(r, "b", b, `DISCARD ALL`)
		// pgx has not heard that its statements are gone, once for each.
		if rows, err := b.QueryContext(bg, `SELECT v FROM t`); err == nil {
			rows.Close()
		}
		both(`SELECT v FROM t`)
		r.exec(`UPDATE t SET v = 'changed'`)
		both(`SELECT v FROM t`)

		exchange(r, "a", a, `SET my.v = 'changed'`)
		both(`SELECT v FROM mine`)
		exchange(r, "b", b, `SET my.v = 'else'`)
		both(`SELECT v FROM mine`)
		exchange(r, "a", a, `SET TimeZone = 'Asia/Tokyo'`)
		exchange(r, "b", b, `SET DateStyle = 'German'`)
		both(`SELECT v::text, to_char(v, 'HH24:MI TZH') FROM at`)
		both(`SHOW TimeZone`)
		exchange(r, "a", a, `BEGIN`)
		exchange(r, "a", a, `SET LOCAL TimeZone = 'UTC'`)
		both(`SELECT v::text FROM at`)
		exchange(r, "a", a, `COMMIT`)
		both(`SELECT v::text FROM at`)

		exchange(r, "a", a, `CREATE TEMP TABLE t (v text)`)
		exchange(r, "a", a, `INSERT INTO t VALUES ('temporary')`)
		both(`SELECT v FROM t`)
		exchange(r, "b", b, `CREATE TEMP VIEW mine AS SELECT 'view' AS v`)
		both(`SELECT v FROM mine`)
		exchange(r, "a", a, `DISCARD TEMP`)
		both(`SELECT v FROM t`)
		exchange(r, "a", a, `SELECT 'into' AS v INTO TEMP t`)
		both(`SELECT v FROM t`)
		exchange(r, "a", a, `DROP TABLE t`)
		both(`SELECT v FROM t`)

		both(`SELECT pg_try_advisory_lock(42)`)
		both(`SELECT pg_advisory_unlock(42)`)
		exchange(r, "a", a, `SELECT pg_advisory_lock($1)`, 7)
		exchange(r, "b", b, `SELECT pg_try_advisory_lock($1)`, 7)
		exchange(r, "b", b, `SELECT pg_advisory_unlock_all()`)
		exchange(r, "a", a, `SELECT pg_advisory_unlock($1)`, 7)
		exchange(r, "b", b, `SELECT pg_try_advisory_lock($1)`, 7)
		exchange(r, "b", b, `SELECT pg_advisory_unlock_all()`)
		r.exec(`SELECT pg_advisory_unlock_all()`)

		exchange(r, "a", a, `SELECT lastval()`)
		both(`SELECT nextval('seq')`)
		exchange(r, "a", a, `SELECT currval('seq'), lastval()`)
		exchange(r, "b", b, `SELECT currval('seq'), lastval()`)
		both(`SELECT last_value FROM seq`)
		exchange(r, "b", b, `SELECT setval('seq', 100)`)
		both(`SELECT last_value FROM seq`)

		exchange(r, "a", a, `PREPARE p (text) AS SELECT v FROM t WHERE v = $1`)
		both(`EXECUTE p ('changed')`)
		exchange(r, "a", a, `SELECT name FROM pg_prepared_statements WHERE NOT from_sql = from_sql OR name = 'p'`)
		exchange(r, "b", b, `SELECT name FROM pg_prepared_statements WHERE NOT from_sql = from_sql OR name = 'p'`)
		exchange(r, "a", a, `DEALLOCATE p`)
		both(`EXECUTE p ('changed')`)

		exchange(r, "a", a, `DECLARE held CURSOR WITH HOLD FOR SELECT g FROM generate_series(1, 9) g`)
		both(`FETCH 2 FROM held`)
		exchange(r, "a", a, `MOVE 1 FROM held`)
		exchange(r, "a", a, `FETCH 1 FROM held`)
		exchange(r, "a", a, `CLOSE held`)

		exchange(r, "a", a, `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`)
		both(`INSERT INTO s2.t VALUES ('written')`)
		both(`SELECT v FROM s2.t ORDER BY v`)
		exchange(r, "a", a, `SET ROLE pg_monitor`)
		both(`SELECT current_user = session_user`)
		both(`SELECT v FROM t`)
		exchange(r, "a", a, `RESET ROLE`)
		exchange(r, "b", b, `SET standard_conforming_strings = off`)
		both(`SELECT 'a\\b'`)
		r.see("closed", a.Close(), b.Close(), a.Close())
		_, err := a.QueryContext(bg, `SELECT 1`)
		r.see("closed", err, a.PingContext(bg), a.Raw(func(any) error { return nil }))
		r.query(`SELECT v FROM s2.t ORDER BY v`)
	})
}

// underlying does something with the pgx connection of a *sql.Conn: as every
// program did on pgx, and as it does on either.
func underlying(r *run, c *sql.Conn, way string, f func(*pgx.Conn) error) error {
	r.Helper()
	switch {
	case way == "interface":
		return c.Raw(func(dc any) error { return f(dc.(interface{ Conn() *pgx.Conn }).Conn()) })
	case r.shares():
		return coalesce.Raw(c, f)
	}
	return c.Raw(func(dc any) error { return f(dc.(*stdlib.Conn).Conn()) })
}

func TestPgxRaw(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE TABLE t (id int PRIMARY KEY, v text, at timestamptz, ids int8[])`, `INSERT INTO t VALUES (0, 'zero')`, `CREATE TABLE m (m mood, ms mood[], p pair)`)
		check := func() {
			r.Helper()
			for range 2 {
				r.query(`SELECT * FROM t ORDER BY id`)
				r.query(`SELECT count(*), max(v) FROM t`)
			}
		}
		inside := func(c *sql.Conn, text string, args ...any) {
			r.Helper()
			r.inChangedSession(r.db, func() { exchange(r, "inside", c, text, args...) })
		}
		for i, way := range []string{"interface", "function"} {
			base := 10 * (i + 1)
			check()
			c := pinned(r)
			r.see("copied", underlying(r, c, way, func(conn *pgx.Conn) error {
				n, err := conn.CopyFrom(bg, pgx.Identifier{"t"}, []string{"id", "v", "at", "ids"}, pgx.CopyFromSlice(3, func(i int) ([]any, error) {
					return []any{base + i, fmt.Sprint("copied ", i), time.Unix(int64(i), 0), []int64{int64(i)}}, nil
				}))
				r.see("rows", n)
				check() // seen before the callback is over
				return err
			}))
			check()
			r.see("copied twice", underlying(r, c, way, func(conn *pgx.Conn) error {
				_, err := conn.CopyFrom(bg, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{base + 5}, {base}}))
				return err
			}))
			check()
			r.see("batch", underlying(r, c, way, func(conn *pgx.Conn) error {
				var b pgx.Batch
				b.Queue(`UPDATE t SET v = v || $1`, "+")
				b.Queue(`SELECT count(*) FROM t`)
				b.Queue(`INSERT INTO t (id, v) VALUES ($1, 'batched') RETURNING id`, base+6)
				results := conn.SendBatch(bg, &b)
				tag, err := results.Exec()
				r.see("first", tag.String(), err)
				var n int
				r.see("second", results.QueryRow().Scan(&n), n)
				r.see("third", results.QueryRow().Scan(&n), n)
				_, err = results.Exec()
				r.see("no fourth", err)
				return results.Close()
			}))
			check()
			r.see("bad batch", underlying(r, c, way, func(conn *pgx.Conn) error {
				var b pgx.Batch
				b.Queue(`UPDATE t SET v = 'never'`)
				b.Queue(`SELECT 1/0`)
				return conn.SendBatch(bg, &b).Close()
			}))
			check()
			r.see("transaction", underlying(r, c, way, func(conn *pgx.Conn) error {
				return pgx.BeginFunc(bg, conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(bg, `UPDATE t SET v = 'tx' WHERE id = 0`); err != nil {
						return err
					}
					check()
					return pgx.BeginFunc(bg, tx, func(tx pgx.Tx) error {
						_, err := tx.Exec(bg, `DELETE FROM t WHERE id = $1`, base)
						return err
					})
				})
			}))
			check()
			r.see("open transaction", underlying(r, c, way, func(conn *pgx.Conn) error {
				_, err := conn.Exec(bg, `BEGIN; DELETE FROM t WHERE id = 0`)
				return err
			}))
			inside(c, `SELECT id FROM t ORDER BY id`)
			check()
			inside(c, `COMMIT`)
			check()
			r.exec(`INSERT INTO t (id, v) VALUES (0, 'back')`)
			check()

			r.see("listen", underlying(r, c, way, func(conn *pgx.Conn) error {
				_, err := conn.Exec(bg, `LISTEN news`)
				return err
			}))
			r.exec(`NOTIFY news, 'first'`)
			r.query(`SELECT pg_notify('news', $1)`, "second")
			r.query(`SELECT pg_notify('news', $1)`, "second")
			r.see("wait", underlying(r, c, way, func(conn *pgx.Conn) error {
				for range 3 {
					ctx, cancel := context.WithTimeout(bg, 20*time.Second)
					defer cancel()
					n, err := conn.WaitForNotification(ctx)
					if err != nil {
						return err
					}
					r.see("notified", n.Channel, n.Payload)
				}
				ended, cancel := context.WithCancel(bg)
				cancel()
				_, err := conn.WaitForNotification(ended)
				return err
			}))
			r.see("error", underlying(r, c, way, func(*pgx.Conn) error { return errRefused }))
			r.see("statement", underlying(r, c, way, func(conn *pgx.Conn) error {
				if _, err := conn.Prepare(bg, "mine", `UPDATE t SET v = $1 WHERE id = 0`); err != nil {
					return err
				}
				_, err := conn.Exec(bg, "mine", "prepared")
				return err
			}))
			check()
			inside(c, "mine", "by name")
			check()
			r.see("rows", underlying(r, c, way, func(conn *pgx.Conn) error {
				rows, err := conn.Query(bg, `SELECT id, v FROM t ORDER BY id`)
				if err != nil {
					return err
				}
				all, err := pgx.CollectRows(rows, pgx.RowToMap)
				r.see("all", all)
				return err
			}))
			// Types that one connection has been told of.
			r.see("types", underlying(r, c, way, func(conn *pgx.Conn) error {
				types, err := conn.LoadTypes(bg, []string{"mood", "_mood", "pair"})
				if err != nil {
					return err
				}
				conn.TypeMap().RegisterTypes(types)
				_, err = conn.Exec(bg, `INSERT INTO m VALUES ($1, $2, $3)`, "sad", []string{"sad", "happy"}, ownPair{i, "p"})
				return err
			}))
			inside(c, `SELECT * FROM m`)
			inside(c, `INSERT INTO m VALUES ($1, $2, $3) RETURNING *`, "happy", []ownString{"sad"}, pgtype.CompositeFields{7, "x"})
			for range 2 {
				r.query(`SELECT m::text, ms::text, p::text FROM m ORDER BY 3`)
			}
			r.must(c.Close())
			// The pool has the connection again, and prefers it.
			r.inChangedSession(r.db, check)
			renew(r.db)
			check()
		}
		c := pinned(r)
		r.see("bad", c.Raw(func(any) error { return driver.ErrBadConn }))
		_, err := c.ExecContext(bg, `SELECT 1`)
		r.see("bad afterwards", err, c.Close())
		check()
		c = pinned(r)
		r.see("closed inside", underlying(r, c, "interface", func(conn *pgx.Conn) error { return conn.Close(bg) }))
		_, err = c.ExecContext(bg, `SELECT 1`)
		r.see("closed afterwards", err, c.Close())
		check()
	})
}

// On pgx it is db.Conn that fails.
func TestPgxRawOfAServerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		db := r.open("host=%2Fnowhere")
		c, err := db.Conn(bg)
		if !r.shares() {
			r.see("dialling", err)
			return
		}
		r.must(err)
		defer c.Close()
		r.must(c.Raw(func(dc any) error {
			if pg := dc.(interface{ Conn() *pgx.Conn }).Conn(); pg != nil {
				r.Errorf("Conn() returned %v", pg)
			}
			return nil
		}))
		r.see("dialling", coalesce.Raw(c, func(*pgx.Conn) error {
			r.Error("Raw called its function")
			return nil
		}))
	})
}

func TestPgxDriver(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		for _, db := range []*sql.DB{r.db, opened(r, stdlib.GetConnector(*config))} {
			d := db.Driver()
			var ok bool
			if r.shares() {
				_, ok = d.(*coalesce.Driver)
			} else {
				_, ok = d.(*stdlib.Driver)
			}
			if !ok {
				r.Errorf("the driver is a %T", d)
			}
			// It opens connections, also for who has no sql.DB.
			c, err := d.Open(r.dsn)
			r.must(err)
			r.see("close", c.Close())
		}
	})
}

func TestPgxNoticesAndTracers(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { r.see("notice", *n) }
		config.Tracer = writesTracer{r}
		name := stdlib.RegisterConnConfig(config)
		db, err := sql.Open(r.driver, name)
		r.must(err)
		defer db.Close()
		r.watch(db)
		exec := func(texts ...string) {
			r.Helper()
			for _, text := range texts {
				_, err := db.ExecContext(bg, text)
				r.see(text, err)
			}
		}
		query := func(text string, args ...any) {
			r.Helper()
			rows, err := db.QueryContext(bg, text, args...)
			r.rows(text, rows, err)
		}
		exec(`DROP TABLE IF EXISTS nowhere`, `CREATE TABLE t (id serial PRIMARY KEY, v text)`,
			`CREATE FUNCTION loud(v text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'loud %', v USING HINT = 'hush', DETAIL = 'd'; RAISE WARNING 'w'; RAISE INFO 'i'; RETURN v; END $$`,
			`CREATE FUNCTION louder() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'louder %', NEW.v; RETURN NEW; END $$`,
			`CREATE TRIGGER tr BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION louder()`,
			`DO $$ BEGIN RAISE NOTICE 'done'; END $$`, `CREATE TABLE IF NOT EXISTS t ()`, `ROLLBACK`)
		for range 2 {
			// A DO block and a VOLATILE function may have changed the session.
			renew(db)
			query(`SELECT loud('x')`)
			renew(db)
			query(`INSERT INTO t (v) VALUES ($1) RETURNING v`, "a")
			query(`SELECT v FROM t ORDER BY id`)
			query(`SELECT v FROM t ORDER BY id`)
			exec(`UPDATE t SET v = v || '!'`)
			query(`SELECT v FROM t ORDER BY id`)
			query(`SELECT v FROM t ORDER BY id`)
			query(`SELECT loud(v) FROM t ORDER BY id`)
		}
		exec(`SET client_min_messages = error`, `DROP TABLE IF EXISTS nowhere`, `RESET client_min_messages`)
		stdlib.UnregisterConnConfig(name)
		r.see("still known to its connections", db.PingContext(bg))
		gone, err := sql.Open(r.driver, name)
		r.must(err)
		defer gone.Close()
		r.see("unknown from now on", gone.PingContext(bg) != nil)
	})
}

// The notices of a shared read come once.
func TestPgxNoticesOfReads(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		var notices atomic.Int32
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.Message == "loud" {
				notices.Add(1)
			}
		}
		db := opened(r, stdlib.GetConnector(*config))
		const body = ` LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'loud'; RETURN v; END $$`
		r.exec(`CREATE FUNCTION stable(v text) RETURNS text STABLE`+body, `CREATE FUNCTION fixed(v text) RETURNS text IMMUTABLE`+body,
			`CREATE TABLE t (v text)`, `INSERT INTO t VALUES ('a')`)
		raised := func(what string) {
			r.Helper()
			want := int32(2)
			if r.shares() {
				want = 1
			}
			if n := notices.Swap(0); n != want {
				r.Errorf("%s raised %d notices, want %d", what, n, want)
			}
		}
		read := func(query string) error {
			var v string
			return db.QueryRowContext(bg, query).Scan(&v)
		}
		for range 2 {
			r.see("held", read(`SELECT fixed(v) FROM t`))
		}
		raised("a held read")
		// What calls a STABLE function is joined, and not held.
		release := lockedBy(r, "t")
		done := make(chan error, 2)
		go func() { done <- read(`SELECT stable(v) FROM t`) }()
		readsWait(r, "t", 1)
		go func() { done <- read(`SELECT stable(v) FROM t`) }()
		readJoins(r, db, 0, "t")
		release()
		r.see("joined", <-done, <-done)
		raised("a joined read")
	})
}

// A writesTracer records what a tracer sees of statements that are not reads,
// which need not be sent.
type writesTracer struct{ r *run }

func (w writesTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(q.SQL, "INSERT") && !strings.HasPrefix(q.SQL, "UPDATE") {
		return ctx
	}
	w.r.see("traced", q.SQL)
	return context.WithValue(ctx, w, q.SQL)
}

func (w writesTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if text := ctx.Value(w); text != nil {
		w.r.see("traced", text, q.CommandTag.String(), q.Err)
	}
}

// opened opens a connector as a program would: on coalesce-pgx by wrapping it.
func opened(r *run, k driver.Connector) *sql.DB {
	r.Helper()
	if r.shares() {
		k = coalesce.NewConnector(k, coalesce.Config{})
	}
	db := sql.OpenDB(k)
	r.Cleanup(func() { db.Close() })
	return r.watch(db)
}

type tenantKey struct{}

func TestPgxConnectorsWithHooks(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE TABLE doc (tenant text, body text)`, `INSERT INTO doc VALUES ('a', 'A1'), ('b', 'B1')`,
			`CREATE VIEW mine AS SELECT body FROM doc WHERE tenant = current_setting('app.tenant')`,
			`CREATE SCHEMA other`, `CREATE TABLE other.t AS SELECT 'other' AS v`, `CREATE TABLE m (m mood, ms mood[], p pair)`)
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		tenant := func(ctx context.Context, conn *pgx.Conn) error {
			name, _ := ctx.Value(tenantKey{}).(string)
			_, err := conn.Exec(ctx, `SELECT set_config('app.tenant', $1, false)`, name)
			return err
		}
		db := opened(r, stdlib.GetConnector(*config,
			stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
				c.RuntimeParams = map[string]string{"search_path": "other,public", "application_name": "hooked"}
				return nil
			}),
			stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
				types, err := conn.LoadTypes(ctx, []string{"mood", "_mood", "pair"})
				if err != nil {
					return err
				}
				conn.TypeMap().RegisterTypes(types)
				return tenant(ctx, conn)
			}),
			stdlib.OptionResetSession(tenant)))
		query := func(tenant, text string, args ...any) {
			r.Helper()
			ctx := coalesce.Scope(context.WithValue(bg, tenantKey{}, tenant), tenant)
			rows, err := db.QueryContext(ctx, text, args...)
			r.rows(tenant+" "+text, rows, err)
		}
		for i := range 2 {
			for range 2 {
				for _, tenant := range []string{"a", "b"} {
					query(tenant, `SELECT body FROM mine`)
					query(tenant, `SELECT current_setting('app.tenant')`)
					query(tenant, `SELECT v FROM t`)
					query(tenant, `SHOW application_name`)
				}
			}
			query("a", `UPDATE doc SET body = tenant || $1::text WHERE tenant = current_setting('app.tenant') RETURNING body`, fmt.Sprint(i+2))
			query("a", `INSERT INTO m VALUES ($1, $2, $3) RETURNING *`, ownString("sad"), []string{"happy", "sad"}, ownPair{i, "x"})
			for range 2 {
				query("a", `SELECT * FROM m ORDER BY p::text`)
				query("a", `SELECT * FROM m WHERE m = $1 AND ms @> $2 ORDER BY p::text`, "sad", []ownString{"happy"})
			}
		}

		calls := 0
		refusing := opened(r, stdlib.GetConnector(*config, stdlib.OptionBeforeConnect(func(context.Context, *pgx.ConnConfig) error {
			if calls++; calls < 5 {
				return errRefused
			}
			return nil
		})))
		r.see("before connect", refusing.PingContext(bg))
		rows, err := refusing.QueryContext(bg, `SELECT 1`)
		r.rows("before connect", rows, err)
		_, err = refusing.ExecContext(bg, `SELECT 1`)
		r.see("before connect", err)
		_, err = refusing.BeginTx(bg, nil)
		r.see("before connect", err)
		r.see("before connect", refusing.PingContext(bg))
		refusing = opened(r, stdlib.GetConnector(*config, stdlib.OptionAfterConnect(func(context.Context, *pgx.Conn) error { return errRefused })))
		rows, err = refusing.QueryContext(bg, `SELECT body FROM doc`)
		r.rows("after connect", rows, err)
		r.see("after connect", refusing.PingContext(bg))

		// A connection that is not wanted any more is replaced.
		resets := 0
		fussy := opened(r, stdlib.GetConnector(*config, stdlib.OptionResetSession(func(context.Context, *pgx.Conn) error {
			if resets++; resets%2 == 0 {
				return driver.ErrBadConn
			}
			return nil
		}), stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return true })))
		for i := range 6 {
			_, err := fussy.ExecContext(bg, `UPDATE doc SET body = $1`, fmt.Sprint(i))
			r.see("fussy", err)
			for range 2 {
				rows, err := fussy.QueryContext(bg, `SELECT body FROM doc`)
				r.rows("fussy", rows, err)
			}
		}
	})
}

func TestPgxPools(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		config, err := pgxpool.ParseConfig(r.dsn)
		r.must(err)
		config.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(bg, config)
		r.must(err)
		defer pool.Close()
		var db *sql.DB
		if r.shares() {
			db = opened(r, stdlib.GetPoolConnector(pool))
			db.SetMaxIdleConns(0)
		} else {
			db = stdlib.OpenDBFromPool(pool)
			defer db.Close()
		}
		check := func() {
			r.Helper()
			for range 2 {
				rows, err := db.QueryContext(bg, `SELECT * FROM t WHERE id < $1 ORDER BY id`, 100)
				r.rows("db", rows, err)
				r.see("acquired", pool.Stat().AcquiredConns())
			}
		}
		check()
		for i := range 3 {
			_, err := db.ExecContext(bg, `INSERT INTO t VALUES ($1, $2)`, i+2, "db")
			r.see("insert", err, pool.Stat().AcquiredConns())
			check()
			tx, err := db.BeginTx(bg, nil)
			r.must(err)
			_, err = tx.ExecContext(bg, `UPDATE t SET v = v || 'x'`)
			r.see("update", err, pool.Stat().AcquiredConns())
			check()
			r.see("commit", tx.Commit(), pool.Stat().AcquiredConns())
			check()
			// What goes past the driver, it must be told.
			_, err = pool.Exec(bg, `UPDATE t SET v = v || 'p'`)
			r.must(err)
			if r.shares() {
				r.must(coalesce.Invalidate(db, "t"))
			}
			check()
			stmt, err := db.PrepareContext(bg, `SELECT v FROM t WHERE id = $1`)
			r.must(err)
			for range 2 {
				var v string
				r.see("prepared", stmt.QueryRowContext(bg, i+1).Scan(&v), v)
			}
			r.must(stmt.Close())
		}
		// Both connections of the pool are taken.
		one, err := pool.Acquire(bg)
		r.must(err)
		two, err := pool.Acquire(bg)
		r.must(err)
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		_, err = db.ExecContext(ctx, `SELECT 1`)
		r.see("none left", errors.Is(err, context.DeadlineExceeded))
		cancel()
		one.Release()
		two.Release()
		check()
		c, err := db.Conn(bg)
		r.must(err)
		r.see("raw", underlying(r, c, "function", func(conn *pgx.Conn) error {
			_, err := conn.CopyFrom(bg, pgx.Identifier{"t"}, []string{"id", "v"}, pgx.CopyFromRows([][]any{{50, "copied"}}))
			return err
		}), c.Close())
		check()
		r.see("closed", db.Close(), db.PingContext(bg), pool.Ping(bg))
		r.see("acquired", pool.Stat().AcquiredConns())
	})
}

// As README has it: a read leaves no connection of the pool taken.
func TestPgxPoolOfOne(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		config, err := pgxpool.ParseConfig(r.dsn)
		r.must(err)
		config.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(bg, config)
		r.must(err)
		defer pool.Close()
		var db *sql.DB
		if r.shares() {
			db = sql.OpenDB(coalesce.NewConnector(stdlib.GetPoolConnector(pool), coalesce.Config{}))
			db.SetMaxIdleConns(0)
		} else {
			db = stdlib.OpenDBFromPool(pool)
		}
		defer db.Close()
		r.watch(db)
		for range 2 {
			for range 2 {
				var v string
				r.see("read", db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, 1).Scan(&v), v)
				ctx, cancel := context.WithTimeout(bg, 20*time.Second)
				c, err := pool.Acquire(ctx)
				cancel()
				r.must(err)
				r.must(c.Ping(bg))
				c.Release()
			}
			_, err = db.ExecContext(bg, `UPDATE t SET v = v || 'u'`)
			r.see("update", err, pool.Stat().AcquiredConns())
		}
	})
}

func TestPgxPreparedStatements(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a'), (2, 'b')`)
		stmt := func(text string) *sql.Stmt {
			r.Helper()
			s, err := r.db.PrepareContext(bg, text)
			r.must(err)
			r.Cleanup(func() { s.Close() })
			return s
		}
		twice := func(what string, s *sql.Stmt, args ...any) {
			r.Helper()
			for range 2 {
				rows, err := s.QueryContext(bg, args...)
				r.rows(what, rows, err)
			}
		}
		read, all := stmt(`SELECT v FROM t WHERE id = $1`), stmt(`SELECT * FROM t ORDER BY id`)
		write := stmt(`INSERT INTO t VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING v`)
		for i := range 3 {
			twice("read", read, 1)
			twice("read", read, "2")
			twice("read", read, 99)
			twice("all", all)
			twice("write", write, 1, fmt.Sprint(i))
			twice("read", read, 1)
			twice("all", all)
			result, err := write.ExecContext(bg, i+10, "more")
			r.must(err)
			n, err := result.RowsAffected()
			r.see("write", n, err)
			twice("all", all)
		}
		twice("none", read)
		twice("two", read, 1, 2)
		twice("not a number", read, "x")
		twice("mode", read, pgx.QueryExecModeExec, 1)
		twice("unneeded", all, 1)
		var v any
		r.see("row", read.QueryRowContext(bg, 1).Scan(&v), v, read.QueryRowContext(bg, 99).Scan(&v))
		r.see("exec of a read", func() error { _, err := read.ExecContext(bg, 1); return err }())

		for _, bad := range []string{`SELEC`, `SELECT nope FROM t`, `SELECT * FROM nope`, `SELECT $1`, `SELECT 1; SELECT 2`, ``, `SELECT $1::nope`} {
			for range 2 {
				s, err := r.db.PrepareContext(bg, bad)
				r.see("prepare "+bad, err)
				if err == nil {
					twice("prepared", s)
					r.must(s.Close())
				}
			}
		}
		// What was bad becomes good, and the other way round.
		r.exec(`CREATE TABLE nope (v text)`, `INSERT INTO nope VALUES ('now')`)
		late := stmt(`SELECT * FROM nope`)
		twice("late", late)
		r.exec(`DROP TABLE nope`)
		for range 2 {
			twice("dropped", late)
			_, err := r.db.PrepareContext(bg, `SELECT * FROM nope`)
			r.see("dropped", err)
		}
		r.exec(`CREATE TABLE nope (n int)`)
		twice("another", late)
		twice("another", late)

		// On other connections than the one it was prepared on, and in
		// transactions.
		a, b := pinned(r), pinned(r)
		twice("elsewhere", read, 1)
		onA, err := a.PrepareContext(bg, `SELECT v FROM t WHERE id = $1`)
		r.must(err)
		twice("on a", onA, 1)
		exchange(r, "b", b, `UPDATE t SET v = 'by b' WHERE id = 1`)
		twice("on a", onA, 1)
		twice("elsewhere", read, 1)
		tx, err := b.BeginTx(bg, nil)
		r.must(err)
		inTx := tx.StmtContext(bg, read)
		_, err = tx.StmtContext(bg, write).ExecContext(bg, 1, "in the transaction")
		r.must(err)
		for range 2 {
			r.see("in the transaction", inTx.QueryRowContext(bg, 1).Scan(&v), v)
		}
		twice("outside", read, 1)
		r.must(tx.Commit())
		twice("outside", read, 1)
		_, err = inTx.QueryContext(bg, 1)
		r.see("after the transaction", err)
		r.see("closed", onA.Close(), onA.Close(), read.Close())
		_, err = onA.QueryContext(bg, 1)
		r.see("closed", err)
		_, err = read.QueryContext(bg, 1)
		r.see("closed", err)
		r.must(a.Close())
		r.must(b.Close())

		// Many of one text, closed in another order.
		var many []*sql.Stmt
		for range 5 {
			many = append(many, stmt(`SELECT v FROM t WHERE id = $1`))
		}
		for i, s := range many {
			twice("many", s, 1)
			if i%2 == 0 {
				r.must(s.Close())
			}
			r.exec(`UPDATE t SET v = v || '.' WHERE id = 1`)
		}
		twice("many", many[1], 1)
		r.query(`SELECT v FROM t WHERE id = $1`, 1)
		r.exec(`DISCARD ALL`)
		r.exec(`DEALLOCATE ALL`)
	})
}

// What follows a change of the schema: a plan that the server refuses, once,
// on the connection that has it.
func TestPgxSchemaChanges(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			same(t, func(r *run) {
				db := r.open("default_query_exec_mode=" + mode)
				db.SetMaxOpenConns(1)
				exec := func(text string) {
					r.Helper()
					_, err := db.ExecContext(bg, text)
					r.must(err)
				}
				exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`)
				exec(`INSERT INTO t VALUES (1, '1')`)
				exec(`CREATE VIEW w AS SELECT v FROM t`)
				stmt, err := db.PrepareContext(bg, `SELECT * FROM t WHERE id = $1`)
				r.must(err)
				defer stmt.Close()
				// The first read after a change may meet an outdated plan, if
				// there is one: that it does not last is what counts.
				settle := func() {
					for _, text := range []string{`SELECT * FROM t WHERE id = $1`, `SELECT v FROM t WHERE id = $1`} {
						for range 2 {
							if rows, err := db.QueryContext(bg, text, 1); err == nil {
								rows.Close()
							}
						}
					}
					if rows, err := db.QueryContext(bg, `SELECT * FROM w`); err == nil {
						rows.Close()
					}
				}
				check := func() {
					r.Helper()
					settle()
					for range 2 {
						rows, err := db.QueryContext(bg, `SELECT * FROM t WHERE id = $1`, 1)
						r.rows("all", rows, err)
						rows, err = db.QueryContext(bg, `SELECT v FROM t WHERE id = $1`, 1)
						r.rows("v", rows, err)
						rows, err = db.QueryContext(bg, `SELECT * FROM w`)
						r.rows("view", rows, err)
						rows, err = stmt.QueryContext(bg, 1)
						r.rows("statement", rows, err)
					}
				}
				check()
				for _, change := range []string{
					`ALTER TABLE t ADD n int DEFAULT 7`,
					`ALTER TABLE t DROP n`,
					`DROP VIEW w`,
					`ALTER TABLE t ALTER v TYPE int USING v::int`,
					`CREATE VIEW w AS SELECT id FROM t`,
					`CREATE OR REPLACE VIEW w AS SELECT id, v FROM t`,
					`ALTER TABLE t RENAME v TO old`,
					`ALTER TABLE t ADD v text DEFAULT 'new'`,
					`ALTER TABLE t RENAME TO gone`,
					`CREATE TABLE t (v bytea, id int8)`,
					`INSERT INTO t VALUES ('x', 1)`,
					`DROP TABLE t`,
					`CREATE VIEW t AS SELECT 1 AS id, 'view' AS v`,
				} {
					r.see(change)
					exec(change)
					check()
				}
			})
		})
	}
}

// Whatever has written, the next read sees it, and so does the one after that.
func TestPgxWriteThenRead(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE a (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 0)`,
			`CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE ON UPDATE CASCADE)`,
			`ALTER TABLE a ADD unused int DEFAULT 1`,
			`CREATE TABLE log (id serial, what text)`,
			`CREATE FUNCTION logged() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (what) VALUES (TG_OP); RETURN NULL; END $$`,
			`CREATE TRIGGER l AFTER INSERT OR UPDATE OR DELETE ON a FOR EACH ROW EXECUTE FUNCTION logged()`,
			`CREATE VIEW w AS SELECT id, v FROM a WHERE n >= 0`,
			`CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM a`,
			`CREATE FUNCTION total() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT sum(n) FROM a'`,
			`CREATE FUNCTION scaled(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 10 * i'`,
			`CREATE FUNCTION bump(i int) RETURNS int LANGUAGE sql AS 'UPDATE a SET n = n + 1 WHERE id = i RETURNING n'`,
			`CREATE PROCEDURE bumps(n int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..n LOOP UPDATE a SET n = a.n + 1; COMMIT; END LOOP; END $$`,
			`CREATE TABLE part (k int, v text) PARTITION BY LIST (k)`, `CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1)`, `CREATE TABLE part2 PARTITION OF part FOR VALUES IN (2)`,
			`CREATE TABLE kid () INHERITS (a)`,
			`CREATE RULE also AS ON INSERT TO w DO INSTEAD INSERT INTO a (id, v) VALUES (NEW.id, NEW.v)`,
			`CREATE SEQUENCE sq`)
		other := r.open()
		check := func() {
			r.Helper()
			// The statement may have changed its session, which would read for
			// itself alone.
			renew(r.db)
			for range 2 {
				for _, text := range []string{
					`SELECT * FROM a ORDER BY id`,
					`SELECT v FROM a WHERE id = 1`,
					`SELECT count(*) FROM b`,
					`SELECT what, count(*) FROM log GROUP BY what ORDER BY what`,
					`SELECT * FROM w ORDER BY id`,
					`SELECT * FROM mv`,
					`SELECT total()`,
					`SELECT * FROM part ORDER BY k, v`,
					`SELECT scaled(k) FROM part ORDER BY 1`,
					`SELECT * FROM ONLY a ORDER BY id`,
					`SELECT a.v, b.id FROM a LEFT JOIN b ON b.a = a.id ORDER BY a.id, b.id`,
					`SELECT last_value, is_called FROM sq`,
				} {
					r.query(text)
					rows, err := other.QueryContext(bg, text)
					r.rows("other "+text, rows, err)
				}
				r.query(`SELECT v FROM a WHERE id = $1`, 1)
			}
		}
		check()
		for _, text := range []string{
			`INSERT INTO a (id, v) VALUES (1, 'one'), (2, 'two')`,
			`INSERT INTO b SELECT id * 10, id FROM a`,
			`UPDATE a SET v = upper(v)`,
			`UPDATE ONLY public.a AS x SET v = v || '!' FROM b WHERE b.a = x.id`,
			`UPDATE "a" SET id = 3 WHERE id = 2`,
			`INSERT INTO w (id, v) VALUES (4, 'by rule')`,
			`UPDATE w SET v = 'by view' WHERE id = 4`,
			`DELETE FROM a USING b WHERE a.id = b.a AND a.id = 3`,
			`REFRESH MATERIALIZED VIEW mv`,
			`SELECT bump(1)`,
			`WITH u AS (UPDATE a SET n = n + 1 RETURNING *) SELECT count(*) FROM u`,
			`DO $$ BEGIN PERFORM bump(4); END $$`,
			`CALL bumps(2)`,
			`MERGE INTO a USING (VALUES (1), (5)) s(id) ON a.id = s.id WHEN MATCHED THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'merged')`,
			`INSERT INTO a (id, v) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET v = 'conflict'`,
			`INSERT INTO part VALUES (1, 'p'), (2, 'p')`,
			`UPDATE part SET k = 3 - k WHERE k = 1`,
			`INSERT INTO part1 VALUES (1, 'direct')`,
			`ALTER TABLE part DETACH PARTITION part2`,
			`INSERT INTO kid (id, v) VALUES (100, 'kid')`,
			`UPDATE kid SET v = 'grown'`,
			`PREPARE p AS UPDATE a SET v = v || 'p'`, // on a connection that is not pinned
			`BEGIN; UPDATE a SET v = 'several'; COMMIT`,
			`ALTER TABLE a ALTER unused TYPE text`,
			`CREATE OR REPLACE FUNCTION total() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT 1000 + sum(n) FROM a'`,
			`CREATE OR REPLACE FUNCTION scaled(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 100 * i'`,
			`CREATE OR REPLACE VIEW w AS SELECT id, v FROM a WHERE n < 0`,
			`ALTER TABLE a DISABLE TRIGGER l`,
			`UPDATE a SET n = -n`,
			`SELECT setval('sq', 5)`, `SELECT nextval('sq')`, `ALTER SEQUENCE sq RESTART`,
			`TRUNCATE a CASCADE`,
			`EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) INSERT INTO a (id, v) VALUES (9, 'explained')`,
			`CREATE TABLE swap (LIKE a INCLUDING ALL)`, `INSERT INTO swap VALUES (77, 'swapped')`,
			`ALTER TABLE b DROP CONSTRAINT b_a_fkey`, `DROP VIEW w`, `DROP MATERIALIZED VIEW mv`,
			`BEGIN; ALTER TABLE a RENAME TO a_old; ALTER TABLE swap RENAME TO a; COMMIT`,
			`DROP TABLE a`, `CREATE VIEW a AS SELECT 1 AS id, 'view' AS v, 0 AS n`,
		} {
			if tooOld(r, text) {
				continue
			}
			r.see(text)
			r.exec(text)
			check()
		}
	})
}

// The same through every way to send a write.
func TestPgxWaysToWrite(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)`, `INSERT INTO t VALUES (1, 0)`)
		const text = `UPDATE t SET n = n + $1 WHERE id = 1`
		const returning = text + ` RETURNING n`
		other := r.open()
		stmt, err := r.db.PrepareContext(bg, text)
		r.must(err)
		defer stmt.Close()
		c := pinned(r)
		check := func(what string) {
			r.Helper()
			for _, db := range []*sql.DB{other, r.db, other, r.db} {
				var n int
				r.see(what, db.QueryRowContext(bg, `SELECT n FROM t WHERE id = 1`).Scan(&n), n)
			}
			exchange(r, what, c, `SELECT n FROM t WHERE id = 1`)
			exchange(r, what, c, `SELECT n FROM t WHERE id = 1`)
		}
		check("at first")
		inTx := func(f func(tx *sql.Tx) error) error {
			tx, err := r.db.BeginTx(bg, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := f(tx); err != nil {
				return err
			}
			check("before the commit")
			return tx.Commit()
		}
		for range 2 {
			for _, way := range []struct {
				name string
				do   func() error
			}{
				{"exec", func() error { _, err := r.db.ExecContext(bg, text, 1); return err }},
				{"exec without a context", func() error { _, err := r.db.Exec(text, 1); return err }},
				{"exec by another", func() error { _, err := other.ExecContext(bg, text, 1); return err }},
				{"exec on a connection", func() error { _, err := c.ExecContext(bg, text, 1); return err }},
				{"exec of a statement", func() error { _, err := stmt.ExecContext(bg, 1); return err }},
				{"row", func() error { var n int; return r.db.QueryRowContext(bg, returning, 1).Scan(&n) }},
				{"row on a connection", func() error { var n int; return c.QueryRowContext(bg, returning, 1).Scan(&n) }},
				{"rows, closed at once", func() error {
					rows, err := r.db.QueryContext(bg, returning, 1)
					if err != nil {
						return err
					}
					return rows.Close()
				}},
				{"rows, open while read", func() error {
					rows, err := r.db.QueryContext(bg, returning, 1)
					if err != nil {
						return err
					}
					defer rows.Close()
					for rows.Next() {
					}
					check("rows open")
					return rows.Err()
				}},
				{"named arguments", func() error {
					_, err := r.db.ExecContext(bg, `UPDATE t SET n = n + @n WHERE id = 1`, pgx.NamedArgs{"n": 1})
					return err
				}},
				{"simple protocol", func() error { _, err := r.db.ExecContext(bg, text, pgx.QueryExecModeSimpleProtocol, 1); return err }},
				{"transaction", func() error {
					return inTx(func(tx *sql.Tx) error { _, err := tx.ExecContext(bg, text, 1); return err })
				}},
				{"statement in a transaction", func() error {
					return inTx(func(tx *sql.Tx) error { _, err := tx.StmtContext(bg, stmt).ExecContext(bg, 1); return err })
				}},
				{"returning in a transaction", func() error {
					return inTx(func(tx *sql.Tx) error { var n int; return tx.QueryRowContext(bg, returning, 1).Scan(&n) })
				}},
				{"transaction on a connection", func() error {
					tx, err := c.BeginTx(bg, &sql.TxOptions{Isolation: sql.LevelSerializable})
					if err != nil {
						return err
					}
					if _, err := tx.ExecContext(bg, text, 1); err != nil {
						return err
					}
					return tx.Commit()
				}},
				{"rolled back", func() error {
					return inTx(func(tx *sql.Tx) error {
						if _, err := tx.ExecContext(bg, text, 1); err != nil {
							return err
						}
						return errRefused
					})
				}},
				{"copy", func() error {
					return underlying(r, c, "interface", func(conn *pgx.Conn) error {
						if _, err := conn.Exec(bg, `CREATE TEMP TABLE IF NOT EXISTS staged (n int)`); err != nil {
							return err
						}
						if _, err := conn.CopyFrom(bg, pgx.Identifier{"staged"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}})); err != nil {
							return err
						}
						_, err := conn.Exec(bg, `WITH s AS (DELETE FROM staged RETURNING n) UPDATE t SET n = t.n + s.n FROM s`)
						return err
					})
				}},
				{"failing", func() error { _, err := r.db.ExecContext(bg, `UPDATE t SET n = n/0`); return err }},
				{"failing late", func() error { _, err := r.db.ExecContext(bg, `UPDATE t SET n = n + 1; SELECT 1/0`); return err }},
				{"committed before a long one fails", func() error {
					_, err := r.db.ExecContext(bg, `/* `+strings.Repeat("long ", 60_000)+`*/ UPDATE t SET n = n + 1; COMMIT; SELECT nothing`)
					return err
				}},
				{"committed before it fails", func() error {
					_, err := r.db.ExecContext(bg, `BEGIN; UPDATE t SET n = n + 1; COMMIT; SELECT 1/0`)
					return err
				}},
			} {
				r.see(way.name, way.do())
				r.inChangedSession(r.db, func() { check(way.name) })
				// Some ways change the session, and it would read for itself alone.
				r.must(c.Close())
				renew(r.db)
				c = pinned(r)
				check(way.name + ", seen anew")
			}
		}
	})
}

func TestPgxPoolSettings(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t SELECT g, 'a' FROM generate_series(1, 3) g`)
		stats := func(what string, db *sql.DB) {
			r.Helper()
			s := db.Stats()
			s.WaitDuration = 0
			r.see(what, s)
		}
		check := func(db *sql.DB) {
			r.Helper()
			for range 2 {
				rows, err := db.QueryContext(bg, `SELECT * FROM t ORDER BY id`)
				r.rows("read", rows, err)
			}
			_, err := db.ExecContext(bg, `UPDATE t SET v = v || 'u'`)
			r.see("update", err)
			for range 2 {
				rows, err := db.QueryContext(bg, `SELECT * FROM t ORDER BY id`)
				r.rows("read", rows, err)
			}
		}
		for _, settings := range []struct {
			name string
			set  func(*sql.DB)
		}{
			{"default", func(*sql.DB) {}},
			{"one connection", func(db *sql.DB) { db.SetMaxOpenConns(1) }},
			{"no idle ones", func(db *sql.DB) { db.SetMaxIdleConns(0) }},
			{"short lives", func(db *sql.DB) { db.SetConnMaxLifetime(time.Nanosecond) }},
			{"short rests", func(db *sql.DB) { db.SetConnMaxIdleTime(time.Nanosecond) }},
			{"one that is never idle", func(db *sql.DB) { db.SetMaxOpenConns(1); db.SetMaxIdleConns(-1) }},
		} {
			r.see(settings.name)
			db := r.open()
			settings.set(db)
			check(db)
			r.see("ping", db.PingContext(bg))
			if !strings.HasPrefix(settings.name, "short") { // those are closed in the background
				stats(settings.name, db)
			}
			stmt, err := db.PrepareContext(bg, `SELECT v FROM t WHERE id = $1`)
			r.must(err)
			for i := range 3 {
				var v string
				r.see("prepared", stmt.QueryRowContext(bg, i).Scan(&v), v)
				r.see("prepared", stmt.QueryRowContext(bg, i).Scan(&v), v)
				_, err := db.ExecContext(bg, `UPDATE t SET v = v || 's'`)
				r.must(err)
			}
			r.must(stmt.Close())
			tx, err := db.BeginTx(bg, nil)
			r.must(err)
			_, err = tx.ExecContext(bg, `UPDATE t SET v = 'x'`)
			r.must(err)
			if !strings.HasPrefix(settings.name, "short") {
				stats(settings.name, db)
			}
			r.must(tx.Commit())
			check(db)
			r.must(db.Close())
		}

		// Nested queries, and no connection for the inner one.
		db := r.open()
		db.SetMaxOpenConns(1)
		for _, outer := range []string{`SELECT id FROM t ORDER BY id`, `UPDATE t SET v = v || 'o' RETURNING id`} {
			rows, err := db.QueryContext(bg, outer)
			r.must(err)
			r.see("outer", rows.Next())
			stats("rows open", db)
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			_, err = db.ExecContext(ctx, `UPDATE t SET v = v || 'n'`)
			r.see("inner", err)
			inner, err := db.QueryContext(ctx, `SELECT id FROM t ORDER BY id`)
			r.rows("inner", inner, err)
			r.see("inner", db.PingContext(ctx))
			_, err = db.Conn(ctx)
			r.see("inner", err)
			cancel()
			r.see("outer", rows.Next(), rows.Close())
			stats("rows closed", db)
			check(db)
		}
		db.SetMaxOpenConns(2)
		rows, err := db.QueryContext(bg, `SELECT id FROM t ORDER BY id`)
		r.must(err)
		for rows.Next() {
			var id int
			r.must(rows.Scan(&id))
			_, err := db.ExecContext(bg, `UPDATE t SET v = v || 'i' WHERE id = $1`, id)
			r.see("inner", err)
			var v string
			r.see("inner", db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, id).Scan(&v), v)
			r.see("inner", db.QueryRowContext(bg, `SELECT v FROM t WHERE id = $1`, id).Scan(&v), v)
		}
		r.see("outer", rows.Err())
		stats("in the end", db)
	})
}

func TestPgxClosing(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g`)
		for _, query := range []string{
			`SELECT id FROM t WHERE id < 10 ORDER BY id`,
			`SELECT id, v FROM t ORDER BY id`, // more than is shared
			`UPDATE t SET v = v WHERE id < 10 RETURNING id`,
		} {
			db := r.open()
			stmt, err := db.PrepareContext(bg, `SELECT 1`)
			r.must(err)
			c, err := db.Conn(bg)
			r.must(err)
			rows, err := db.QueryContext(bg, query)
			r.must(err)
			r.see("next", rows.Next())
			r.see("close", db.Close())
			n := 1
			for rows.Next() {
				n++
			}
			r.see("rows", n, rows.Err(), rows.Close())
			_, err = db.QueryContext(bg, query)
			r.see("query", err)
			_, err = db.ExecContext(bg, query)
			r.see("exec", err)
			_, err = db.BeginTx(bg, nil)
			r.see("begin", err)
			_, err = db.PrepareContext(bg, query)
			r.see("prepare", err)
			_, err = db.Conn(bg)
			r.see("conn", err)
			_, err = stmt.QueryContext(bg)
			r.see("stmt", err, stmt.Close())
			r.see("ping", db.PingContext(bg), db.Close())
			rows, err = c.QueryContext(bg, `SELECT count(*) FROM t`)
			r.rows("pinned", rows, err)
			r.see("pinned", c.Close())
			s := db.Stats()
			r.see("stats", s.OpenConnections, s.InUse, s.Idle)
		}
		db := r.open()
		tx, err := db.BeginTx(bg, nil)
		r.must(err)
		_, err = tx.ExecContext(bg, `UPDATE t SET v = 'closed' WHERE id = 1`)
		r.must(err)
		r.see("close", db.Close())
		r.see("commit", tx.Commit())
		for range 2 {
			r.query(`SELECT v FROM t WHERE id = 1`)
		}
		unused := r.open()
		r.see("unused", unused.Close())
	})
}

// Results of which not everything is read, and large ones.
func TestPgxLargeResults(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g`)
		for i := range 2 {
			for range 2 {
				rows, err := r.db.QueryContext(bg, `SELECT id, v FROM t ORDER BY id`)
				r.must(err)
				var n, length int
				var raw sql.RawBytes
				for rows.Next() {
					var id int
					r.must(rows.Scan(&id, &raw))
					n++
					length += len(raw)
					if id == 1 || id == 5000 {
						r.see("value", id, string(raw[:5]))
					}
				}
				r.see("all", n, length, rows.Err(), rows.Close())
				for _, limit := range []int{0, 10, 4500} {
					rows, err := r.db.QueryContext(bg, `SELECT id, v FROM t ORDER BY id`)
					r.must(err)
					for range limit {
						if !rows.Next() {
							r.Fatal(rows.Err())
						}
					}
					r.see("some", limit, rows.Close(), rows.Err())
				}
				r.query(`SELECT id FROM t WHERE id <= 3 ORDER BY id`)
			}
			r.exec(fmt.Sprintf(`UPDATE t SET v = '%d' || v WHERE id IN (1, 5000)`, i))
		}
		// A result without an end.
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		rows, err := r.db.QueryContext(ctx, `SELECT generate_series(1, 2000000000) AS g`)
		r.must(err)
		for range 10 {
			r.see("next", rows.Next())
		}
		// pgx would read on to its end, but for this.
		cancel()
		rows.Close()
		_, err = r.db.ExecContext(bg, `UPDATE t SET v = 'end' WHERE id = 1`)
		r.see("update", err)
		for range 2 {
			r.query(`SELECT v FROM t WHERE id = 1`)
		}
	})
}

// The same reads by many at once: each has all of the answer to itself, the
// errors too.
func TestPgxReadsAtOnce(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE TABLE t (id int PRIMARY KEY, v text, b bytea, j jsonb, at timestamptz, ids int8[], m mood)`,
			`INSERT INTO t SELECT g, 'v' || g, decode(to_hex(g), 'escape'), jsonb_build_object('g', g), '2001-02-03Z', ARRAY[g, g], 'sad' FROM generate_series(1, 50) g`)
		const readers = 10
		atOnce := func(read func(own *run)) {
			r.Helper()
			r.exec(`UPDATE t SET v = v || '-' WHERE id = 5`) // what was read is outdated
			release := lockedBy(r, "t")
			own := make([]*run, readers)
			var wg sync.WaitGroup
			for i := range own {
				own[i] = &run{T: r.T, driver: r.driver, dsn: r.dsn, db: r.db, start: r.start}
				wg.Go(func() { read(own[i]) })
			}
			until(r, someoneWaits)
			release()
			wg.Wait()
			for i := range own {
				r.see("reader", i, strings.Join(own[i].seen, "\n"))
			}
		}
		stmt, err := r.db.PrepareContext(bg, `SELECT * FROM t WHERE id < $1 ORDER BY id`)
		r.must(err)
		defer stmt.Close()
		for i := range 3 {
			for _, query := range []string{
				`SELECT * FROM t ORDER BY id`,
				`SELECT v FROM t WHERE id = 1`,
				`SELECT v FROM t WHERE id = -1`,
				`SELECT id, 10/(id - 20) FROM t ORDER BY id`,
				`SELECT id/0 FROM t`,
				`SELECT nope FROM t`,
				`SELECT v FROM t WHERE id = 2 FOR SHARE`,
				`SELECT v, now() IS NOT NULL FROM t WHERE id = 3`,
			} {
				atOnce(func(own *run) { own.query(query) })
				r.query(`SELECT v FROM t WHERE id = 1`)
				r.exec(`UPDATE t SET v = v || '.' WHERE id = 1`)
				r.query(`SELECT v FROM t WHERE id = 1`)
				r.query(`SELECT v FROM t WHERE id = 1`)
			}
			atOnce(func(own *run) {
				rows, err := stmt.QueryContext(bg, 4)
				own.rows("stmt", rows, err)
			})
			// More than is shared.
			atOnce(func(own *run) {
				rows, err := r.db.QueryContext(bg, `SELECT a.id, repeat(a.v, 10000) FROM t a, t b WHERE a.id < 5 ORDER BY a.id`)
				if err != nil {
					own.see("large", err)
					return
				}
				defer rows.Close()
				n, length := 0, 0
				for rows.Next() {
					var id int
					var v sql.RawBytes
					if err := rows.Scan(&id, &v); err != nil {
						own.see("large", err)
						return
					}
					n += id
					length += len(v)
				}
				own.see("large", n, length, rows.Err())
			})
			r.exec(fmt.Sprintf(`UPDATE t SET v = v || '%d'`, i))
			atOnce(func(own *run) {
				// What one does with its bytes is no business of others.
				var b []byte
				var raw json.RawMessage
				var w witness
				own.see("row", r.db.QueryRowContext(bg, `SELECT b, j, b FROM t WHERE id = $1`, 7).Scan(&b, &raw, &w), b, raw, w)
				clear(b)
				clear(raw)
				rows, err := r.db.QueryContext(bg, `SELECT b, j FROM t WHERE id < 5 ORDER BY id`)
				if err != nil {
					own.see("rows", err)
					return
				}
				defer rows.Close()
				for rows.Next() {
					var x, y sql.RawBytes
					own.see("raw", rows.Scan(&x, &y), x, y)
					clear(x)
					clear(y)
				}
				own.see("end", rows.Err())
			})
		}
	})
}

// Goroutines that read what they have written, in each other's way.
func TestPgxConcurrently(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id serial PRIMARY KEY, owner int NOT NULL, v int NOT NULL)`, `CREATE TABLE sum (n int)`, `INSERT INTO sum VALUES (0)`)
		r.db.SetMaxOpenConns(6)
		const workers, rounds = 8, 15
		wrong := make(chan string, workers*rounds*4)
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				fail := func(format string, args ...any) {
					select {
					case wrong <- fmt.Sprintf(format, args...):
					default:
					}
				}
				for i := range rounds {
					if _, err := r.db.ExecContext(bg, `INSERT INTO t (owner, v) VALUES ($1, $2)`, w, i); err != nil {
						fail("insert: %v", err)
					}
					for range 2 {
						var n, last int
						if err := r.db.QueryRowContext(bg, `SELECT count(*), max(v) FROM t WHERE owner = $1`, w).Scan(&n, &last); err != nil || n != i+1 || last != i {
							fail("worker %d read %d, %d in round %d: %v", w, n, last, i, err)
						}
					}
					tx, err := r.db.BeginTx(bg, nil)
					if err != nil {
						fail("begin: %v", err)
						continue
					}
					var n int
					if err := tx.QueryRowContext(bg, `SELECT n FROM sum FOR UPDATE`).Scan(&n); err != nil {
						fail("for update: %v", err)
					}
					if _, err := tx.ExecContext(bg, `UPDATE sum SET n = $1`, n+1); err != nil {
						fail("update: %v", err)
					}
					if err := tx.Commit(); err != nil {
						fail("commit: %v", err)
					}
					var after int
					if err := r.db.QueryRowContext(bg, `SELECT n FROM sum`).Scan(&after); err != nil || after <= n {
						fail("read %d after writing %d: %v", after, n+1, err)
					}
				}
			})
		}
		wg.Wait()
		close(wrong)
		for w := range wrong {
			r.Error(w)
		}
		for range 2 {
			r.query(`SELECT owner, count(*), sum(v) FROM t GROUP BY owner ORDER BY owner`)
			r.query(`SELECT n FROM sum`)
		}
		r.exec(`ALTER SEQUENCE t_id_seq RESTART`, `DELETE FROM t`, `ALTER TABLE t DROP id`)
	})
}

// A server connection that dies is noticed, and replaced.
func TestPgxLostConnections(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'a')`)
		const sessions = `FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
		kill := func() {
			r.Helper()
			until(r, `SELECT count(pg_terminate_backend(pid)) >= 0 `+sessions)
			until(r, `SELECT NOT EXISTS (SELECT `+sessions+`)`)
		}
		check := func() {
			r.Helper()
			for range 2 {
				r.query(`SELECT v FROM t WHERE id = 1`)
			}
		}
		check()
		c := pinned(r)
		exchange(r, "pinned", c, `SET my.v = 'set'`)
		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		_, err = tx.ExecContext(bg, `UPDATE t SET v = 'lost'`)
		r.must(err)
		stmt, err := r.db.PrepareContext(bg, `SELECT v FROM t WHERE id = $1`)
		r.must(err)
		defer stmt.Close()
		kill()
		// Which words an error has depends on how far the server's farewell
		// has come.
		_, err = c.ExecContext(bg, `SELECT current_setting('my.v')`)
		r.see("pinned", err != nil)
		_, err = c.ExecContext(bg, `SELECT 1`)
		r.see("pinned again", errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone), err != nil)
		c.Close()
		_, err = tx.ExecContext(bg, `UPDATE t SET v = 'lost'`)
		r.see("transaction", err != nil, tx.Commit() != nil)
		// An idle connection is found out when it is used, and on pgx only
		// if it has rested for a second.
		r.db.PingContext(bg)
		until(r, `SELECT true`)
		for r.db.PingContext(bg) != nil {
		}
		check()
		_, err = r.db.ExecContext(bg, `UPDATE t SET v = 'b'`)
		r.see("update", err)
		check()
		var v string
		r.see("stmt", stmt.QueryRowContext(bg, 1).Scan(&v), v)
	})
}
