// Package coalesce is a database/sql driver for PostgreSQL, over pgx's, that
// lets identical reads share one query.
//
//	db, err := sql.Open("coalesce-pgx", "postgres://user@localhost/shop")
//
// Concurrent identical SELECTs run once, on one connection; each caller gets
// its own copy of the rows, and the result is held for 30 seconds. Everything
// that is not provably a plain read goes straight to the server: writes,
// transactions, row locks, volatile functions, sessions that were changed with
// SET, and reads under a [Fresh] context.
//
// Options go into the DSN (coalesce_ttl, coalesce_max_bytes,
// coalesce_max_result_bytes, coalesce_max_conns, coalesce), or into the [Config]
// of a [Connector].
//
// It is not a cache of a database that others write to: what other processes
// write is seen when the hold ends. What this process writes, through any
// database opened by this driver, is seen at once.
package coalesce

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// The defaults of Config and of the DSN options.
const (
	DefaultTTL            = 30 * time.Second
	DefaultMaxBytes       = 64 << 20
	DefaultMaxResultBytes = 4 << 20
)

func init() { sql.Register("coalesce-pgx", &Driver{}) }

// Driver is the driver registered as "coalesce-pgx". It is safe for
// concurrent use.
type Driver struct {
	connector *Connector // nil in the registered one
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.DriverContext = (*Driver)(nil)
	_ driver.Connector     = (*Connector)(nil)
	_ io.Closer            = (*Connector)(nil)
)

// Open implements [driver.Driver], for wrappers that know no connectors. The
// connection shares with no other: every read goes to the server.
func (d *Driver) Open(dsn string) (driver.Conn, error) {
	k, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	// By itself it would save little, and read the catalog for that.
	k.(*Connector).off = true
	return k.Connect(context.Background())
}

// OpenConnector implements [driver.DriverContext]. The DSN is a URL, keywords
// and values, or a name that stdlib.RegisterConnConfig returned; the options
// that begin with coalesce are taken out before pgx sees it. Its errors name
// the option and the values allowed, and never show the DSN.
func (d *Driver) OpenConnector(dsn string) (driver.Connector, error) {
	rest, cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	var database string
	if !isRegistered(rest) {
		pc, err := parsePgx(rest)
		if err != nil {
			return nil, err
		}
		database = or(pc.Database, pc.User)
	}
	inner, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(rest)
	if err != nil {
		return nil, err
	}
	k := NewConnector(inner, cfg)
	k.opened = true
	if database != "" {
		k.leadsTo(database)
	}
	return k, nil
}

// Config holds the settings of a [Connector]. Its zero value is the default.
type Config struct {
	// TTL is how long a result is held after it resolved. 0 means DefaultTTL;
	// negative: reads are joined in flight, and nothing is held.
	TTL time.Duration
	// MaxBytes bounds the memory of held results, their keys, the rows of
	// flights under way, and results over 64 KiB until the last caller has read
	// or closed them. A read that finds no room is not shared; an eighth is left to small
	// ones. 0 means DefaultMaxBytes; negative: nothing is shared.
	MaxBytes int64
	// MaxResultBytes bounds one result in memory. A larger one is not shared,
	// nor one over seven eighths of MaxBytes.
	// 0 means DefaultMaxResultBytes; negative: nothing is shared.
	MaxResultBytes int64
	// MaxConns bounds the server connections of the connector; callers that
	// need one wait for it. 0 or negative: no bound but that of sql.DB.
	MaxConns int
	// Off turns sharing off: every read goes to the server.
	Off bool
}

// Connector makes virtual connections for one sql.DB, whose reads share with
// each other. It is safe for concurrent use. [sql.DB.Close] closes it.
type Connector struct {
	inner  driver.Connector
	ttl    time.Duration
	off    bool
	opened bool // by a DSN or a registered name: inner has no hooks of its own

	memo     *memo
	places   *places
	texts    *texts
	prepared *preparedTexts

	closing    chan struct{} // closed by Close, which waits for flights
	closeOnce  sync.Once
	snapshot   atomic.Pointer[snapshot] // nil until the catalog was needed
	refreshed  atomic.Int64             // when refresh last led the loading, on the memo's clock
	version    atomic.Pointer[reckoning]
	identified sync.Once // done: version is the database's
	// catalogLosses are the connections lost one after another while the
	// catalog was read.
	catalogLosses atomic.Int64

	conns    atomic.Int64 // server connections open
	lendable atomic.Int64 // virtual connections in use that may lend theirs
	idlers   atomic.Int64 // how many of these were waited for in vain
	// standardStrings is whether a session is known to begin with
	// standard_conforming_strings on.
	standardStrings atomic.Bool
	// foreignEncoding is whether texts reach the server in an encoding in which
	// a byte of a longer character can look like a backslash.
	foreignEncoding atomic.Bool
	// tempPath is whether sessions begin with a search_path by which a table may
	// be made a temporary one though its text does not say so.
	tempPath atomic.Bool
	scans    atomic.Pointer[scanMaps] // nil until a pgx connection was seen
}

// NewConnector returns a connector that dials through inner: pgx's, from
// stdlib.GetConnector or stdlib.GetPoolConnector, or that of another driver.
// Hooks of inner that make sessions differ by caller need [Scope], or
// Config.Off.
func NewConnector(inner driver.Connector, cfg Config) *Connector {
	k := &Connector{
		inner:    inner,
		closing:  make(chan struct{}),
		ttl:      max(or(cfg.TTL, DefaultTTL), 0),
		off:      cfg.Off || cfg.MaxBytes < 0 || cfg.MaxResultBytes < 0,
		texts:    newTexts(),
		prepared: newPreparedTexts(),
	}
	k.refreshed.Store(int64(-catalogGap))
	k.places = newPlaces(max(cfg.MaxConns, 0), &k.conns)
	// Until it is known which database this is, nobody shares its versions.
	k.version.Store(&reckoning{version: new(version)})
	k.memo = newMemo(or(cfg.MaxBytes, DefaultMaxBytes), or(cfg.MaxResultBytes, DefaultMaxResultBytes))
	return k
}

func or[T comparable](v, ifZero T) T {
	var zero T
	if v == zero {
		return ifZero
	}
	return v
}

// Connect returns a virtual connection at once; the server is dialled when
// the connection must talk to it.
func (k *Connector) Connect(context.Context) (driver.Conn, error) {
	if k.inner == nil {
		return nil, errors.New("coalesce: NewConnector was given no connector to dial with")
	}
	k.places.add()
	return &conn{k: k}, nil
}

// Driver implements [driver.Connector].
func (k *Connector) Driver() driver.Driver { return &Driver{k} }

// Close ends the flights under way, whose callers get [ErrClosed], and drops
// what is held. It returns when no goroutine of the connector is left.
func (k *Connector) Close() error {
	k.closeOnce.Do(func() { close(k.closing) })
	k.memo.close()
	if l := k.places.close(); l != nil {
		l.close()
	}
	if c, ok := k.inner.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// learn takes from a new connection what holds for every one of this
// connector: pg is nil if the driver is not pgx.
func (k *Connector) learn(pg *pgx.Conn) {
	if pg == nil {
		return
	}
	k.standardStrings.Store(pg.PgConn().ParameterStatus("standard_conforming_strings") == "on")
	switch pg.PgConn().ParameterStatus("client_encoding") {
	case "BIG5", "GB18030", "GBK", "JOHAB", "SHIFT_JIS_2004", "SJIS", "UHC":
		k.foreignEncoding.Store(true)
	}
	cfg := pg.Config()
	if strings.Contains(strings.ToLower(cfg.RuntimeParams["search_path"]+" "+cfg.RuntimeParams["options"]), "pg_temp") {
		k.tempPath.Store(true)
	}
	k.leadsTo(or(cfg.Database, cfg.User))
	if k.scans.Load() == nil {
		k.scans.Store(newScanMaps(pg.TypeMap()))
	}
}

var errNotOurs = errors.New("coalesce: the database was not opened with the coalesce-pgx driver, or is wrapped: use one that is not")

// connectorOf finds the connector behind db.
func connectorOf(db *sql.DB) (*Connector, error) {
	if d, ok := db.Driver().(*Driver); ok && d.connector != nil {
		return d.connector, nil
	}
	return nil, errNotOurs
}

// StatsOf returns the counters of db. They are zero if db was not opened with
// this driver.
func StatsOf(db *sql.DB) Stats {
	k, err := connectorOf(db)
	if err != nil {
		return Stats{}
	}
	s := k.memo.stats()
	s.Conns = int(k.conns.Load())
	return s
}

// Invalidate tells db that tables were written by others, so that reads that
// begin from now on see it. A table is named without its schema, and stands
// for all of that name, for its partitions, and for what foreign keys make
// follow. Without a table, everything was written.
func Invalidate(db *sql.DB, tables ...string) error {
	k, err := connectorOf(db)
	if err != nil {
		return err
	}
	s := k.snapshot.Load()
	if len(tables) == 0 || s == nil || s.Snapshot == nil {
		k.raiseAll(mayHideDDL)
		return nil
	}
	t := &text{Analysis: &statement.Analysis{Sure: statement.Effect{Writes: true}, Tables: tables}}
	k.raise(t, k.judgeUnder(t, s))
	return nil
}

// Explanation says what the driver would do with a text.
type Explanation struct {
	Verdict string // "private", "joinable" or "holdable"
	Reason  string // in plain words; empty for what is holdable
	// Tables are those that the answer depends on, views resolved, and that a
	// write may change. What a function reads inside is not among them.
	Tables []string
}

// Explain returns the verdict on a text, without running it. It asks the
// server's catalog where that is needed and was not done lately. What a call
// adds (a transaction, an argument that cannot be compared) is not in it, nor
// are the options of db (its TTL, or that sharing is off).
func Explain(ctx context.Context, db *sql.DB, query string) (Explanation, error) {
	if _, err := connectorOf(db); err != nil {
		return Explanation{}, err
	}
	sc, err := db.Conn(ctx)
	if err != nil {
		return Explanation{}, err
	}
	defer sc.Close()
	var e Explanation
	err = sc.Raw(func(dc any) (err error) {
		c, ok := dc.(*conn)
		if !ok { // a wrapper that has taken over our driver.Driver
			return errNotOurs
		}
		e, err = c.explain(ctx, query)
		return err
	})
	return e, err
}
