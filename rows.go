package coalesce

import (
	"bytes"
	"context"
	"database/sql/driver"
	"io"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// column is what a driver tells of one column, copied while its connection
// is still at this query: pgx reuses the memory with the next one.
type column struct {
	typeName         string
	scanType         reflect.Type
	length           int64
	hasLength        bool
	nullable         bool
	hasNullable      bool
	precision, scale int64
	hasPrecision     bool
}

// result is a read drained once. It is immutable after drain and may be
// replayed by any number of callers at a time.
type result struct {
	*description
	vals []driver.Value // row after row
	n    int            // rows; not len(vals)/len(cols), which fails without columns
	err  error          // what came after the last row, if not its end
	// charge is nil if it is not large. It is set before the result is given to
	// anyone, and what is in it is not immutable.
	charge *charge
	bytes  int64     // estimate of the memory held
	scans  *scanMaps // nil: the driver leaves scanning to database/sql
}

// The sizes that values have in memory beside the two words of the interface.
const (
	wordBytes   = 8
	stringBytes = 16
	sliceBytes  = 24
	ifaceBytes  = 16
)

func sizeOf(v driver.Value) int64 {
	switch v := v.(type) {
	case nil, bool:
		return ifaceBytes
	case string:
		return ifaceBytes + stringBytes + allocated(len(v))
	case []byte:
		return ifaceBytes + sliceBytes + allocated(len(v))
	case time.Time:
		return ifaceBytes + sliceBytes
	}
	return ifaceBytes + wordBytes
}

// allocated is about what Go's allocator takes for n bytes.
func allocated(n int) int64 {
	switch {
	case n <= 32:
		return int64(n+7) &^ 7
	case n <= 256:
		return int64(n+15) &^ 15
	}
	return int64(n + n/16)
}

// description is the columns of a result. It is immutable but for known: the
// results of one text have it in common.
type description struct {
	names []string
	cols  []column
	bytes int64                    // estimate of the memory held
	known atomic.Pointer[scanMaps] // these know its types
}

// teller is what rows implement of the optional interfaces for columns; nil
// where they do not.
type teller struct {
	typeName  driver.RowsColumnTypeDatabaseTypeName
	scanType  driver.RowsColumnTypeScanType
	length    driver.RowsColumnTypeLength
	nullable  driver.RowsColumnTypeNullable
	precision driver.RowsColumnTypePrecisionScale
}

func tellerOf(rows driver.Rows) (t teller) {
	t.typeName, _ = rows.(driver.RowsColumnTypeDatabaseTypeName)
	t.scanType, _ = rows.(driver.RowsColumnTypeScanType)
	t.length, _ = rows.(driver.RowsColumnTypeLength)
	t.nullable, _ = rows.(driver.RowsColumnTypeNullable)
	t.precision, _ = rows.(driver.RowsColumnTypePrecisionScale)
	return t
}

func (t *teller) column(i int) column {
	c := column{scanType: reflect.TypeFor[any]()}
	if t.typeName != nil {
		c.typeName = t.typeName.ColumnTypeDatabaseTypeName(i)
	}
	if t.scanType != nil {
		c.scanType = t.scanType.ColumnTypeScanType(i)
	}
	if t.length != nil {
		c.length, c.hasLength = t.length.ColumnTypeLength(i)
	}
	if t.nullable != nil {
		c.nullable, c.hasNullable = t.nullable.ColumnTypeNullable(i)
	}
	if t.precision != nil {
		c.precision, c.scale, c.hasPrecision = t.precision.ColumnTypePrecisionScale(i)
	}
	return c
}

// describe returns the description of rows: last, if it says the same.
func describe(rows driver.Rows, last *description) *description {
	names, told := rows.Columns(), tellerOf(rows)
	if last.is(names, &told) {
		return last
	}
	d := &description{names: slices.Clone(names), cols: make([]column, len(names))}
	for i, name := range names {
		d.cols[i] = told.column(i)
		d.bytes += int64(reflect.TypeFor[column]().Size()) + stringBytes + int64(len(name)+len(d.cols[i].typeName))
	}
	return d
}

// is reports whether d, which may be nil, describes columns of these names of
// which this is told.
func (d *description) is(names []string, told *teller) bool {
	if d == nil || !slices.Equal(names, d.names) {
		return false
	}
	for i := range d.cols {
		if d.cols[i] != told.column(i) {
			return false
		}
	}
	return true
}

// valueBuffers are for rows on their way into a result.
var valueBuffers = sync.Pool{New: func() any { return new([]driver.Value) }}

// maxBufferedValues bounds what one of them keeps.
const maxBufferedValues = 1 << 12

// drain reads rows to their end or error, asking grow for the memory. It
// reports false, with rows still open, when grow refused. The memory of d, which
// describes the rows, is the result's unless it was that of an earlier one.
func drain(rows driver.Rows, d *description, earlier bool, grow func(int64) bool) (*result, bool) {
	r := &result{description: d}
	if !earlier {
		r.bytes = d.bytes
	}
	if !grow(r.bytes) {
		return r, false
	}
	buf := valueBuffers.Get().(*[]driver.Value)
	vals := (*buf)[:0]
	all := true
	for all {
		vals = slices.Grow(vals, len(r.cols))
		row := vals[len(vals) : len(vals)+len(r.cols)]
		if err := rows.Next(row); err != nil {
			if err != io.EOF {
				r.err = err
			}
			break
		}
		vals = vals[:len(vals)+len(row)]
		r.n++
		var size int64
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				// The driver may use the memory again for its next row.
				row[i] = bytes.Clone(b)
			}
			size += sizeOf(v)
		}
		r.bytes += size
		all = grow(size)
	}
	r.vals = make([]driver.Value, len(vals))
	copy(r.vals, vals)
	if cap(vals) <= maxBufferedValues {
		clear(vals[:min(len(vals)+len(r.cols), cap(vals))])
		*buf = vals
		valueBuffers.Put(buf)
	}
	return r, all
}

// replay delivers a result to one caller: driver.Rows, one goroutine.
type replay struct {
	res   *result
	i     int // rows delivered
	names []string
	few   [4]string // room for names
}

// Columns returns a slice of its own: database/sql hands it to the caller.
func (r *replay) Columns() []string {
	if r.names == nil {
		r.names = append(r.few[:0], r.res.names...)
	}
	return r.names
}

// Close returns the error of the result even if the caller has not come to it,
// as pgx does, which reads on to the end.
func (r *replay) Close() error {
	r.i = math.MaxInt
	if r.res.charge != nil {
		r.letGo()
	}
	return ownError(r.res.err)
}

// letGo ends the charge. The caller may keep its rows, and close them again.
func (r *replay) letGo() {
	c := r.res.charge
	r.res = &result{description: r.res.description, err: r.res.err}
	c.end()
}

func (r *replay) next() error {
	if r.i < r.res.n {
		r.i++
		return nil
	}
	if r.i == r.res.n && r.res.err != nil {
		return ownError(r.res.err)
	}
	return io.EOF
}

// row is the row that next moved to.
func (r *replay) row() []driver.Value {
	width := len(r.res.cols)
	return r.res.vals[(r.i-1)*width : r.i*width]
}

func (r *replay) Next(dest []driver.Value) error {
	if err := r.next(); err != nil {
		return err
	}
	for i, v := range r.row() {
		dest[i] = deliver(v)
	}
	return nil
}

// deliver returns v for one caller. RawBytes and every Scanner are handed
// the driver's own slice, so each delivery needs one of its own.
func deliver(v driver.Value) driver.Value {
	if b, ok := v.([]byte); ok {
		return bytes.Clone(b)
	}
	return v
}

func (r *replay) ColumnTypeDatabaseTypeName(i int) string { return r.res.cols[i].typeName }
func (r *replay) ColumnTypeScanType(i int) reflect.Type   { return r.res.cols[i].scanType }
func (r *replay) ColumnTypeLength(i int) (int64, bool) {
	c := &r.res.cols[i]
	return c.length, c.hasLength
}
func (r *replay) ColumnTypeNullable(i int) (bool, bool) {
	c := &r.res.cols[i]
	return c.nullable, c.hasNullable
}
func (r *replay) ColumnTypePrecisionScale(i int) (int64, int64, bool) {
	c := &r.res.cols[i]
	return c.precision, c.scale, c.hasPrecision
}

// stream is a result that outgrew its limit, for the one caller that led it:
// first what was drained, then the rest as the server sends it.
type stream struct {
	replay
	live   driver.Rows
	link   *link // runs the query; the leader's from when it gets the stream
	cancel context.CancelCauseFunc

	onLive bool  // the buffer is used up
	passed int64 // bytes of rows let go and not yet given back to the budget
	close  sync.Once
	end    bool // the server has nothing more to send
	stop   func() bool
	// discard ends the stream where its leader has left.
	discard func()
}

func newStream(f *flight, res *result, live driver.Rows, l *link) *stream {
	s := &stream{replay: replay{res: res}, live: live, link: l, cancel: f.cancel}
	s.discard = func() {
		s.Close()
		f.crew.release(l)
	}
	return s
}

// follow returns the rows for the leader; the query ends when ctx, its own
// context, does.
func (s *stream) follow(ctx context.Context) driver.Rows {
	s.stop = context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	if sets, ok := s.live.(driver.RowsNextResultSet); ok && sets.HasNextResultSet() {
		s.end = true // the driver's own Close ends all of them
		return streamSets{s, sets}
	}
	return streamed(s)
}

// streamSets is a stream of several results.
type streamSets struct {
	*stream
	sets driver.RowsNextResultSet // the stream's live rows
}

func (s streamSets) HasNextResultSet() bool { return s.sets.HasNextResultSet() }

func (s streamSets) NextResultSet() error {
	s.letGoBuffer()
	if err := s.sets.NextResultSet(); err != nil {
		return err
	}
	s.res, s.names = &result{description: describe(s.live, nil)}, nil
	return nil
}

// advance moves to the next row and reports whether it is a live one, which
// the caller must then ask of live.
func (s *stream) advance() (live bool) {
	if s.onLive {
		return true
	}
	if s.i > 0 {
		s.pass()
	}
	if s.replay.next() == nil {
		return false
	}
	s.letGoBuffer()
	return true
}

// pass lets go of the buffered row that was delivered last.
func (s *stream) pass() {
	row := s.row()
	for i, v := range row {
		s.passed += sizeOf(v) - ifaceBytes // which stay in vals
		row[i] = nil
	}
	if s.passed >= largeBytes {
		s.res.charge.giveBack(s.passed)
		s.passed = 0
	}
}

// letGoBuffer lets go of all that is left of the buffer.
func (s *stream) letGoBuffer() {
	s.onLive = true
	s.res.vals = nil
	s.res.charge.end()
	s.res.charge = nil
}

func (s *stream) Next(dest []driver.Value) error {
	if s.advance() {
		return s.noteEnd(s.live.Next(dest))
	}
	for i, v := range s.row() {
		dest[i] = v
	}
	return nil
}

func (s *stream) noteEnd(err error) error {
	if err != nil {
		s.end = true
	}
	return err
}

// Close stops the query on the server if the caller has not read it to its
// end: what was left may have no end.
func (s *stream) Close() (err error) {
	s.close.Do(func() {
		s.letGoBuffer()
		if s.stop != nil {
			s.stop()
		}
		if s.end {
			err = s.live.Close()
		} else {
			s.interrupt()
		}
		s.cancel(nil)
	})
	return err
}

// interruptTime is how long a server may take to stop before the connection
// is given up.
const interruptTime = 2 * time.Second

// interrupt stops the query and keeps the connection if the server obeys in
// time: its session may be worth something to the caller.
func (s *stream) interrupt() {
	ctx, done := context.WithTimeout(context.Background(), interruptTime)
	defer done()
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Canceled) })
	defer stop()
	if !s.link.cancelQuery(ctx) {
		s.cancel(context.Canceled)
	}
	s.live.Close() // its error is of our own making
}

// watchedRows are the rows of a statement that may write. It has every
// optional interface that pgx's rows have under the Go in use, by embedding.
type watchedRows struct {
	*stdlib.Rows
	done func() // called once, when the rows are closed: the statement has finished
}

func (w *watchedRows) Close() error {
	if done := w.done; done != nil {
		w.done = nil
		defer done() // also if a tracer of the user's panics
	}
	return w.Rows.Close()
}
