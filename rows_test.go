package coalesce

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"
)

// script is rows made up from bytes: any shape, any values, and an error
// perhaps. Like pgx, it uses the memory of a []byte again for its next row.
type script struct {
	in    []byte
	width int
	rows  int
	fails bool

	at     int
	bufs   [5][]byte
	closed bool
}

var errScript = errors.New("failed in mid-result")

func newScript(in []byte) *script {
	s := &script{in: in}
	s.width, s.rows = int(s.byte()%5), int(s.byte()%40)
	s.fails = s.byte()%3 == 0
	return s
}

func (s *script) byte() byte {
	if len(s.in) == 0 {
		return 0
	}
	b := s.in[0]
	s.in = s.in[1:]
	return b
}

func (s *script) Columns() []string {
	names := make([]string, s.width)
	for i := range names {
		names[i] = fmt.Sprint("c", i%3) // names may repeat
	}
	return names
}

func (s *script) ColumnTypeDatabaseTypeName(i int) string { return fmt.Sprint("T", i) }
func (s *script) Close() error                            { s.closed = true; return nil }

func (s *script) Next(dest []driver.Value) error {
	if s.at == s.rows {
		if s.fails {
			return errScript
		}
		return io.EOF
	}
	s.at++
	for i := range dest {
		n := int(s.byte())
		text := bytes.Repeat([]byte{s.byte()}, n)
		switch s.byte() % 8 {
		case 0:
			dest[i] = nil
		case 1:
			dest[i] = int64(n) << 20
		case 2:
			dest[i] = float64(n) / 3
		case 3:
			dest[i] = n%2 == 0
		case 4:
			dest[i] = string(text)
		case 5:
			s.bufs[i] = append(s.bufs[i][:0], text...)
			dest[i] = s.bufs[i]
		case 6:
			dest[i] = []byte(nil)
		case 7:
			dest[i] = time.Unix(int64(n), 0).In(time.FixedZone("", n))
		}
	}
	return nil
}

// readAll reads rows as database/sql does, and spoils each []byte it was
// given, as a Scanner may.
func readAll(rows driver.Rows) (all []driver.Value, err error) {
	row := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(row); err != nil {
			return all, err
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = bytes.Clone(b)
				clear(b)
			}
		}
		all = append(all, row...)
	}
}

// FuzzReplay checks that every caller of a result reads what its first reader
// would have read from the driver, also where it outgrew its limit on the way.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{2, 3, 1, 9, 'x', 4, 9, 'y', 5, 0, 0, 6, 1, 1, 7}, uint16(1000))
	f.Add([]byte{0, 7, 0}, uint16(0))
	f.Add([]byte{4, 39, 3, 200, 'a', 5, 200, 'b', 5, 200, 'c', 4}, uint16(2000))
	f.Fuzz(func(t *testing.T, in []byte, limit uint16) {
		want, wantErr := readAll(newScript(in))
		rows := newScript(in)
		var size int64
		res, all := drain(rows, describe(rows, nil), false, func(n int64) bool { size += n; return size <= int64(limit) })
		if !all {
			s := &stream{live: rows, cancel: func(error) {}}
			s.replay.res = res
			got, err := readAll(s)
			if !reflect.DeepEqual(got, want) || err != wantErr {
				t.Errorf("the stream has %v, %v; want %v, %v", got, err, want, wantErr)
			}
			if s.Close(); !rows.closed {
				t.Error("the rows were left open")
			}
			return
		}
		if res.bytes < size || res.bytes > size+size/8 {
			t.Errorf("%d bytes were asked for, the result says %d", size, res.bytes)
		}
		for range 2 {
			got, err := readAll(&replay{res: res})
			if !reflect.DeepEqual(got, want) || err != wantErr {
				t.Errorf("a replay has %v, %v; want %v, %v", got, err, want, wantErr)
			}
		}
		early := &replay{res: res}
		early.Close()
		if err := early.Next(make([]driver.Value, rows.width)); err != io.EOF {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestAReaderEndsOnce(t *testing.T) {
	m := newMemo(1<<20, 1<<20)
	res := &result{bytes: largeBytes + 1}
	m.chargeLocked(res, 2)
	a, b := &replay{res: res}, &replay{res: res}
	for _, r := range []*replay{a, a, a} {
		r.Close()
		if m.used != res.bytes {
			t.Errorf("%d bytes are used; want %d", m.used, res.bytes)
		}
	}
	if b.Close(); m.used != 0 {
		t.Errorf("%d bytes are used; want none", m.used)
	}
}
