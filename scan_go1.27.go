//go:build go1.27

package coalesce

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// replayed returns r as the rows of one caller. pgx scans into Go slices and
// the like itself; a replay of its rows does so too.
func replayed(r *replay) driver.Rows {
	if r.res.scans == nil {
		return r
	}
	return scanReplay{r}
}

type scanReplay struct{ *replay }

var _ driver.RowsColumnScanner = scanReplay{}

func (r scanReplay) NextRow() error { return r.next() }

func (r scanReplay) ScanColumn(ctx driver.ScanContext, i int, dest any) error {
	v := r.row()[i]
	switch dest.(type) {
	case *[]byte, *string, *any: // database/sql copies
	default:
		v = deliver(v)
	}
	return r.res.scan(ctx, i, v, dest)
}

func streamed(s *stream) driver.Rows {
	if live, ok := s.live.(driver.RowsColumnScanner); ok && s.res.scans != nil {
		return scanStream{s, live}
	}
	return s
}

type scanStream struct {
	*stream
	scanner driver.RowsColumnScanner // the stream's live rows
}

var _ driver.RowsColumnScanner = scanStream{}

func (s scanStream) NextRow() error {
	if s.advance() {
		return s.noteEnd(s.scanner.NextRow())
	}
	return nil
}

func (s scanStream) ScanColumn(ctx driver.ScanContext, i int, dest any) error {
	if s.onLive {
		return s.scanner.ScanColumn(ctx, i, dest)
	}
	return s.res.scan(ctx, i, s.row()[i], dest)
}

// scan stores v, of column i, in dest: as database/sql does where dest is of
// a kind it knows, as pgx's type map does otherwise.
func (r *result) scan(ctx driver.ScanContext, i int, v driver.Value, dest any) error {
	if common(dest) {
		return sql.ConvertAssign(ctx, dest, v)
	}
	if dest == nil {
		return errors.New("destination not a pointer")
	}
	rv := reflect.ValueOf(dest)
	if rv.Kind() == reflect.Pointer && rv.IsNil() {
		return errors.New("destination pointer is nil")
	}
	if sqlDestination(rv.Type()) {
		return sql.ConvertAssign(ctx, dest, v)
	}
	m := r.scans.pool.Get().(*pgtype.Map)
	defer r.scans.pool.Put(m)
	oid := oidOf(m, r.cols[i].typeName)
	format, src, err := wire(m, oid, v)
	if err != nil {
		return err
	}
	return m.Scan(oid, format, src, dest)
}

// know reports whether the types of cols can be told by their names. pgx gives
// these in capitals, in which one with capitals of its own is lost.
func (s *scanMaps) know(cols []column) bool {
	m := s.pool.Get().(*pgtype.Map)
	defer s.pool.Put(m)
	for i := range cols {
		if oidOf(m, cols[i].typeName) == 0 {
			return false
		}
	}
	return true
}

func oidOf(m *pgtype.Map, typeName string) uint32 {
	if n, err := strconv.ParseUint(typeName, 10, 32); err == nil {
		return uint32(n) // pgx names a type it does not know by its number
	}
	if t, ok := m.TypeForName(strings.ToLower(typeName)); ok {
		return t.OID
	}
	return 0
}

// wire is what the server may have sent for v. pgx's database/sql driver asks
// for text but for a few scalar types, and hands text on as it came.
func wire(m *pgtype.Map, oid uint32, v driver.Value) (format int16, src []byte, err error) {
	switch v := v.(type) {
	case nil:
		return pgtype.TextFormatCode, nil, nil
	case string:
		return pgtype.TextFormatCode, []byte(v), nil
	case []byte:
		if oid == pgtype.ByteaOID {
			return pgtype.BinaryFormatCode, v, nil
		}
		return pgtype.TextFormatCode, v, nil
	}
	src, err = m.Encode(oid, pgtype.BinaryFormatCode, v, nil)
	return pgtype.BinaryFormatCode, src, err
}

var sqlDestinations sync.Map // reflect.Type → bool

// sqlDestination reports whether pgx leaves a destination of type t to
// database/sql: Scanners, scalars, bytes, times, and pointers to these.
func sqlDestination(t reflect.Type) bool {
	if is, ok := sqlDestinations.Load(t); ok {
		return is.(bool)
	}
	is := findSQLDestination(t)
	sqlDestinations.Store(t, is)
	return is
}

func findSQLDestination(t reflect.Type) bool {
	// A defined pointer type may point to itself.
	for seen := map[reflect.Type]bool{}; ; t = t.Elem() {
		switch {
		case t.Implements(reflect.TypeFor[sql.Scanner]()):
			return true
		case t.Implements(reflect.TypeFor[pgtype.ArraySetter]()), t.Implements(reflect.TypeFor[pgtype.BytesScanner]()):
			return false
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		if seen[t] {
			return false
		}
		seen[t] = true
	}
	switch k := t.Kind(); k {
	case reflect.String, reflect.Interface:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	case reflect.Struct:
		return t.ConvertibleTo(reflect.TypeFor[time.Time]())
	default:
		return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr
	}
}

// common reports whether dest is what most programs scan into, which database/sql
// scans: it need not be looked up.
func common(dest any) bool {
	switch d := dest.(type) {
	case *string, *[]byte, *sql.RawBytes, *any, *bool, *int, *int32, *int64, *float64, *time.Time:
		return true
	case *sql.NullString:
		return d != nil
	case *sql.NullInt64:
		return d != nil
	case *sql.NullBool:
		return d != nil
	case *sql.NullFloat64:
		return d != nil
	case *sql.NullTime:
		return d != nil
	}
	return false
}
