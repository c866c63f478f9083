package coalesce

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// maxPlainKey is the longest key kept as it is; a longer one is replaced by
// its SHA-256.
const maxPlainKey = 192

// Tags begin each encoded value. Two encodings are equal only if their tags,
// lengths and contents are: what is of variable length is preceded by it.
const (
	tagNil byte = iota
	tagBool
	tagInt64
	tagInt
	tagFloat64
	tagString
	tagBytes
	tagNilBytes
	tagTime
	tagTyped   // a type's number, then the value as its kind has it
	tagValuer  // a type's number, then what Value returned
	tagNilOf   // a type's number: a nil slice
	tagSlice   // length, elements
	tagStruct  // exported fields
	tagNamed   // pgx.NamedArgs: length, then names and values, in order of names
	tagStrict  // pgx.StrictNamedArgs likewise
	tagMode    // pgx.QueryExecMode
	tagFormats // pgx.QueryResultFormats
	tagPlainKey
	tagHashedKey
)

// keyer builds the key of one read at a time.
type keyer struct {
	buf []byte
	// saysNow is whether an argument contains a word that PostgreSQL reads as
	// a time of day: the answer then changes by itself.
	saysNow bool
	// args are the arguments to send: those given, but a Valuer is replaced by
	// what it said, so that it is asked only once.
	args   []driver.NamedValue
	copied bool
	depth  int
}

// maxDepth ends arguments that contain themselves.
const maxDepth = 16

// release ends the use of the key.
func (k *keyer) release() {
	k.args = nil
	if cap(k.buf) > 64<<10 {
		k.buf = nil
	}
}

// errUnkeyed tells why an argument has no certain encoding.
type errUnkeyed struct{ t reflect.Type }

func (e *errUnkeyed) Error() string {
	return fmt.Sprintf("an argument of type %v cannot be compared with certainty", e.t)
}

// build encodes all that can change the answer of a read of this text, and
// returns the arguments to send in place of args, also with an error, which is
// an errUnkeyed. A panic of an argument's Value method passes through.
func (k *keyer) build(a *statement.Analysis, scope string, prepared bool, args []driver.NamedValue) ([]driver.NamedValue, error) {
	k.buf = append(k.buf[:0], tagPlainKey)
	k.buf = append(k.buf, a.Key[:]...)
	k.buf = appendBool(k.buf, prepared)
	k.string(scope)
	k.args, k.copied, k.saysNow, k.depth = args, false, false, 0
	for i := range args {
		if err := k.arg(i); err != nil {
			// Those whose Valuer was asked are not asked again.
			args := k.args
			k.release()
			return args, err
		}
	}
	return k.args, nil
}

// key is valid until release.
func (k *keyer) key() []byte {
	if len(k.buf) > maxPlainKey {
		sum := sha256.Sum256(k.buf)
		k.buf = append(append(k.buf[:0], tagHashedKey), sum[:]...)
	}
	return k.buf
}

func (k *keyer) arg(i int) error {
	v := k.args[i].Value
	switch v := v.(type) {
	case pgx.QueryExecMode:
		k.buf = appendUint(append(k.buf, tagMode), uint64(v))
		return nil
	case pgx.QueryResultFormats:
		k.buf = appendUint(append(k.buf, tagFormats), uint64(len(v)))
		for _, f := range v {
			k.buf = appendUint(k.buf, uint64(f))
		}
		return nil
	case pgx.NamedArgs:
		return k.named(tagNamed, v)
	case pgx.StrictNamedArgs:
		return k.named(tagStrict, v)
	case pgx.QueryRewriter:
		return &errUnkeyed{reflect.TypeOf(v)}
	}
	if k.builtin(v) {
		return nil
	}
	if valuer, ok := v.(driver.Valuer); ok && !ownEncoding(reflect.TypeOf(v)) {
		val, err := value(valuer)
		k.typed(tagValuer, reflect.TypeOf(v))
		keyed := err == nil && k.builtin(val)
		a := asked{value: val, err: err, valuer: valuer, shared: keyed}
		if !k.copied {
			k.args, k.copied = slices.Clone(k.args), true
		}
		k.args[i].Value = a
		if !keyed {
			return &errUnkeyed{reflect.TypeOf(v)}
		}
		return nil
	}
	return k.reflected(reflect.ValueOf(v))
}

// asked is a Valuer that has been asked: pgx asks this one instead, takes the
// same way with it, and says the same if it cannot use the answer.
type asked struct {
	value driver.Value
	err   error
	// valuer is the Valuer itself. Its caller may change what it points to
	// meanwhile, unless it waits for the error: a value that cannot be keyed is
	// not shared.
	valuer driver.Valuer
	shared bool
}

func (a asked) Value() (driver.Value, error) { return a.value, a.err }

// GoString implements [fmt.GoStringer], for pgx's errors.
func (a asked) GoString() string {
	if !a.shared || isPlain(reflect.TypeOf(a.valuer)) {
		return fmt.Sprintf("%#v", a.valuer)
	}
	return fmt.Sprintf("%#v", a.value)
}

// value asks a Valuer, or takes a nil pointer whose method cannot be called
// for NULL, as pgx does.
func value(v driver.Valuer) (driver.Value, error) {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() &&
		rv.Type().Elem().Implements(reflect.TypeFor[driver.Valuer]()) {
		return nil, nil
	}
	return v.Value()
}

const pgtypePath = "github.com/jackc/pgx/v5/pgtype"

// ownEncoding reports whether pgx may encode a t without asking its Value
// method: its own types, and those with methods that pgtype looks for.
func ownEncoding(t reflect.Type) bool {
	if own, ok := ownEncodings.Load(t); ok {
		return own.(bool)
	}
	own := t.PkgPath() == pgtypePath || slices.ContainsFunc(encoders, t.Implements)
	for i := 0; i < t.NumMethod() && !own; i++ {
		m := t.Method(i).Type
		for j := 0; j < m.NumOut() && !own; j++ {
			own = m.Out(j).PkgPath() == pgtypePath
		}
	}
	ownEncodings.Store(t, own)
	return own
}

// encoders are the interfaces of pgtype whose methods return no type of it.
var encoders = []reflect.Type{
	reflect.TypeFor[pgtype.ArrayGetter](),
	reflect.TypeFor[pgtype.BytesValuer](),
	reflect.TypeFor[pgtype.CompositeIndexGetter](),
	reflect.TypeFor[pgtype.MultirangeGetter](),
	reflect.TypeFor[pgtype.NetipPrefixValuer](),
}

var ownEncodings sync.Map // reflect.Type → bool

// builtin encodes the types that most arguments have, without reflection.
func (k *keyer) builtin(v any) bool {
	switch v := v.(type) {
	case nil:
		k.buf = append(k.buf, tagNil)
	case bool:
		k.buf = appendBool(append(k.buf, tagBool), v)
	case int64:
		k.buf = appendUint(append(k.buf, tagInt64), uint64(v))
	case int:
		k.buf = appendUint(append(k.buf, tagInt), uint64(v))
	case float64:
		k.buf = appendUint(append(k.buf, tagFloat64), math.Float64bits(v))
	case string:
		k.buf = append(k.buf, tagString)
		k.string(v)
		k.saysNow = k.saysNow || statement.SaysNow(v)
	case []byte:
		if v == nil {
			k.buf = append(k.buf, tagNilBytes)
			return true
		}
		k.buf = appendUint(append(k.buf, tagBytes), uint64(len(v)))
		k.buf = append(k.buf, v...)
		k.saysNow = k.saysNow || statement.SaysNow(v)
	case time.Time:
		k.buf = append(k.buf, tagTime)
		k.time(v)
	default:
		return false
	}
	return true
}

// time keeps the zone beside the instant: a timestamp column without a zone
// is compared with the wall clock.
func (k *keyer) time(t time.Time) {
	zone, offset := t.Zone()
	k.buf = appendUint(k.buf, uint64(t.Unix()))
	k.buf = appendUint(k.buf, uint64(t.Nanosecond()))
	k.buf = appendUint(k.buf, uint64(offset))
	k.string(zone)
}

func (k *keyer) named(tag byte, args map[string]any) error {
	k.buf = appendUint(append(k.buf, tag), uint64(len(args)))
	for _, name := range slices.Sorted(maps.Keys(args)) {
		k.string(name)
		v := args[name]
		if k.builtin(v) {
			continue
		}
		if _, ok := v.(driver.Valuer); ok && !ownEncoding(reflect.TypeOf(v)) {
			return &errUnkeyed{reflect.TypeOf(v)}
		}
		if err := k.reflected(reflect.ValueOf(v)); err != nil {
			return err
		}
	}
	return nil
}

// reflected encodes v by its kind, with its type.
func (k *keyer) reflected(v reflect.Value) error {
	k.depth++
	defer func() { k.depth-- }()
	for n := k.depth; v.Kind() == reflect.Pointer; n++ {
		if n > maxDepth {
			return &errUnkeyed{v.Type()}
		}
		if v.IsNil() {
			if v.Type().Implements(reflect.TypeFor[driver.Valuer]()) {
				return &errUnkeyed{v.Type()}
			}
			k.buf = append(k.buf, tagNil)
			return nil
		}
		if v.Type().Implements(reflect.TypeFor[driver.Valuer]()) && v.Type().PkgPath() == "" && v.Elem().Type().PkgPath() != pgtypePath {
			return &errUnkeyed{v.Type()}
		}
		if i, ok := v.Interface().(*big.Int); ok {
			k.typed(tagTyped, v.Type())
			k.string(i.String())
			return nil
		}
		v = v.Elem()
	}
	if k.depth > maxDepth {
		return &errUnkeyed{v.Type()}
	}
	if v.CanInterface() && k.builtin(v.Interface()) {
		return nil
	}
	t := v.Type()
	switch v.Kind() {
	case reflect.Bool:
		k.typed(tagTyped, t)
		k.buf = appendBool(k.buf, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		k.typed(tagTyped, t)
		k.buf = appendUint(k.buf, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		k.typed(tagTyped, t)
		k.buf = appendUint(k.buf, v.Uint())
	case reflect.Float32, reflect.Float64:
		k.typed(tagTyped, t)
		k.buf = appendUint(k.buf, math.Float64bits(v.Float()))
	case reflect.String:
		k.typed(tagTyped, t)
		k.string(v.String())
		k.saysNow = k.saysNow || statement.SaysNow(v.String())
	case reflect.Slice, reflect.Array:
		return k.list(v)
	case reflect.Struct:
		return k.fields(v)
	default:
		return &errUnkeyed{t}
	}
	return nil
}

func (k *keyer) list(v reflect.Value) error {
	t := v.Type()
	if v.Kind() == reflect.Slice && v.IsNil() {
		k.typed(tagNilOf, t)
		return nil
	}
	k.typed(tagSlice, t)
	k.buf = appendUint(k.buf, uint64(v.Len()))
	if t.Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
		k.buf = append(k.buf, v.Bytes()...)
		k.saysNow = k.saysNow || statement.SaysNow(v.Bytes())
		return nil
	}
	for i := range v.Len() {
		e := v.Index(i)
		if e.Kind() == reflect.Interface {
			if e = e.Elem(); !e.IsValid() {
				k.buf = append(k.buf, tagNil)
				continue
			}
		}
		if err := k.reflected(e); err != nil {
			return err
		}
	}
	return nil
}

// fields encodes the structs that are known to be no more than their fields.
func (k *keyer) fields(v reflect.Value) error {
	t := v.Type()
	switch v.Interface().(type) {
	case netip.Addr, netip.Prefix:
		k.typed(tagTyped, t)
		k.string(fmt.Sprint(v.Interface()))
		return nil
	}
	if t.PkgPath() != pgtypePath {
		return &errUnkeyed{t}
	}
	k.typed(tagStruct, t)
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			return &errUnkeyed{t}
		}
		if err := k.reflected(v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func (k *keyer) typed(tag byte, t reflect.Type) {
	k.buf = appendUint(append(k.buf, tag), typeNumber(t))
}

func (k *keyer) string(s string) {
	k.buf = append(appendUint(k.buf, uint64(len(s))), s...)
}

var (
	typeNumbers    sync.Map // reflect.Type → uint64; names may be shared, types are not
	lastTypeNumber atomic.Uint64
)

func typeNumber(t reflect.Type) uint64 {
	if n, ok := typeNumbers.Load(t); ok {
		return n.(uint64)
	}
	n, _ := typeNumbers.LoadOrStore(t, lastTypeNumber.Add(1))
	return n.(uint64)
}

func appendUint(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// copyArgs returns args with a copy of everything the caller could change
// once its call has returned. It holds only what a keyer has accepted.
func copyArgs(args []driver.NamedValue) []driver.NamedValue {
	args = slices.Clone(args)
	for i, a := range args {
		args[i].Value = copyOf(a.Value)
	}
	return args
}

func copyOf(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, int, float64, string, time.Time, pgx.QueryExecMode, netip.Addr, netip.Prefix:
		return v
	case []byte:
		return slices.Clone(v)
	case asked:
		v.value = copyOf(v.value)
		return v
	case pgx.NamedArgs:
		return pgx.NamedArgs(copyOfMap(v))
	case pgx.StrictNamedArgs:
		return pgx.StrictNamedArgs(copyOfMap(v))
	}
	return deepCopy(reflect.ValueOf(v)).Interface()
}

func copyOfMap(m map[string]any) map[string]any {
	c := make(map[string]any, len(m))
	for name, v := range m {
		c[name] = copyOf(v)
	}
	return c
}

func deepCopy(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		if i, ok := v.Interface().(*big.Int); ok {
			return reflect.ValueOf(new(big.Int).Set(i))
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(deepCopy(v.Elem()))
		return c.Convert(v.Type())
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return deepCopy(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		if isPlain(v.Type().Elem()) {
			reflect.Copy(c, v)
			return c
		}
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i)))
		}
		return c
	case reflect.Array:
		c := reflect.New(v.Type()).Elem()
		for i := range v.Len() {
			c.Index(i).Set(deepCopy(v.Index(i)))
		}
		return c
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() && !isPlain(f.Type()) {
				c.Field(i).Set(deepCopy(f))
			}
		}
		return c
	}
	return v
}

// isPlain reports whether a copy of a value of this type shares no memory that
// can change.
func isPlain(t reflect.Type) bool {
	switch k := t.Kind(); {
	case k >= reflect.Bool && k <= reflect.Complex128, k == reflect.String, t == reflect.TypeFor[time.Time]():
		return true
	case k == reflect.Array:
		return isPlain(t.Elem())
	case k == reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return false
}
