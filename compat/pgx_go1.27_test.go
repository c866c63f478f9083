//go:build go1.27

package compat

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
)

// From Go 1.27 on pgx scans by itself what database/sql does not know.

func TestPgxNativeValues(t *testing.T) {
	t.Parallel()
	// A NULL goes into these. Into what does not fit its column pgx scans it
	// by the rules of a type that it happens to find first.
	nulls := map[string][]any{
		"int8s":  {new([]int64), new(*[]int64), new(pgtype.FlatArray[int64]), new(pgtype.Array[int64]), new([]*int64)},
		"texts":  {new([]string), new([]*string), new(pgtype.Array[string]), new([]pgtype.Text)},
		"stamps": {new([]time.Time), new([]pgtype.Timestamptz)},
		"uuids":  {new([][16]byte), new([]pgtype.UUID)},
		"uuid":   {new([16]byte), new(*[16]byte)},
		"jsonb":  {new(map[string]any), new(*map[string]any), new([]string)},
		"inet":   {new(netip.Addr), new(netip.Prefix), new(*netip.Prefix)},
		"span":   {new(pgtype.Range[pgtype.Int4]), new(*pgtype.Range[pgtype.Int4])},
		"spans":  {new(pgtype.Multirange[pgtype.Range[pgtype.Int4]])},
	}
	same(t, func(r *run) {
		createValues(r)
		for _, c := range valueColumns {
			query := `SELECT c_` + c.name + ` FROM v WHERE k = $1`
			scan := func(what, k string, destinations []any) {
				r.Helper()
				rows, err := r.db.QueryContext(bg, query, k)
				if k == "one" && strings.Contains(c.one+c.two, "infinity'") && !strings.HasSuffix(c.typ, "[]") {
					// These are strings in database/sql if they are infinite:
					// where pgx says binary, whoever replays them says text.
					destinations = []any{new(pgtype.Date), new(pgtype.Timestamp), new(pgtype.Timestamptz)}
				}
				scanAll(r, what, rows, err, destinations, nil)
			}
			for range 2 {
				scan(c.name+" one", "one", nativeDestinations)
				scan(c.name+" null", "null", nulls[c.name])
			}
			r.exec(`UPDATE v SET c_` + c.name + ` = (SELECT c_` + c.name + ` FROM v WHERE k = 'two') WHERE k = 'one'`)
			for range 2 {
				scan(c.name+" after the update", "one", nativeDestinations)
			}
		}
	})
}

// The same destinations on every way to ask.
// A read that is not shared is scanned by pgx from what the server has sent.
func TestPgxNativeScanningOfFreshInfinity(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		for range 2 {
			r.query(`SELECT 1`)
			rows, err := r.db.QueryContext(coalesce.Fresh(bg), `SELECT 'infinity'::timestamptz`)
			scanAll(r, "infinity", rows, err, []any{new(pgtype.PreallocBytes), new(pgtype.DriverBytes), new([]int64), new(pgtype.Timestamptz)}, nil)
		}
	})
}

func TestPgxNativeScanningEverywhere(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, ids int8[], names text[], span int4range, at timestamptz[], n numeric[], j jsonb, b bytea[])`,
			`INSERT INTO t VALUES (1, '{1,2,3}', '{a,NULL,"b c"}', '[1,5)', '{2001-02-03Z}', '{1.10}', '{"a": [1]}', '{"\\x01"}'), (2, '{}', '{}', 'empty', '{}', '{}', '[]', '{}'), (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
		const query = `SELECT ids, names, span, at, n, j, b, id FROM t WHERE id >= $1 ORDER BY id`
		scan := func(what string, rows *sql.Rows, err error) {
			r.Helper()
			if err != nil {
				r.see(what, err)
				return
			}
			defer rows.Close()
			for rows.Next() {
				var (
					ids   []int64
					names []*string
					span  pgtype.Range[pgtype.Int4]
					at    []time.Time
					n     []pgtype.Numeric
					j     map[string]any
					b     [][]byte
					id    int
				)
				r.see(what, rows.Scan(&ids, &names, &span, &at, &n, &j, &b, &id), ids, names, span, at, n, j, b, id)
				r.see(what, rows.Scan(&ids, &names, &span, &at, &n, new([]any), &b, &id))
				var strings []string
				var array pgtype.Array[string]
				var elements []pgtype.Text
				r.see(what, rows.Scan(&array, &elements, new(any), new(string), new([]string), new([]byte), new([]string), &id), array, elements)
				r.see(what, rows.Scan(&strings, &strings, new(any), new(any), new(any), new(any), new(any), &id), strings)
				r.see(what, rows.Scan(new(any), &strings, new(any), new(any), new(any), new(any), new(any), &id), strings)
				// What a caller does with its slices is no business of others.
				for i := range ids {
					ids[i] = -1
				}
				for _, bytes := range b {
					clear(bytes)
				}
			}
			r.see(what+" end", rows.Err())
		}
		stmt, err := r.db.PrepareContext(bg, query)
		r.must(err)
		defer stmt.Close()
		for i := range 2 {
			for range 2 {
				rows, err := r.db.QueryContext(bg, query, 0)
				scan("db", rows, err)
				rows, err = stmt.QueryContext(bg, 0)
				scan("stmt", rows, err)
				for _, mode := range execModes {
					rows, err = r.db.QueryContext(bg, query, mode, 0)
					scan(mode.String(), rows, err)
				}
				for _, formats := range []pgx.QueryResultFormats{{pgx.TextFormatCode}, {pgx.BinaryFormatCode}, {1, 0, 1, 0, 1, 0, 1, 0}} {
					rows, err = r.db.QueryContext(bg, query, formats, 0)
					scan(fmt.Sprint(formats), rows, err)
				}
				rows, err = r.db.QueryContext(bg, query, pgx.QueryResultFormatsByOID{pgtype.Int8ArrayOID: pgx.BinaryFormatCode, pgtype.Int4rangeOID: pgx.BinaryFormatCode}, 0)
				scan("formats by OID", rows, err)
				rows, err = r.db.QueryContext(bg, `SELECT ids, names, span, at, n, j, b, id FROM t WHERE id >= @id ORDER BY id`, pgx.NamedArgs{"id": 0})
				scan("named", rows, err)
			}
			tx, err := r.db.BeginTx(bg, nil)
			r.must(err)
			_, err = tx.ExecContext(bg, `UPDATE t SET ids = ids || $1::int8[], names = names || $2::text, j = jsonb_build_object('i', $3::int)`, []int64{int64(10 + i)}, fmt.Sprint(i), i)
			r.must(err)
			rows, err := tx.QueryContext(bg, query, 0)
			scan("tx", rows, err)
			rows, err = r.db.QueryContext(bg, query, 0)
			scan("outside", rows, err)
			r.must(tx.Commit())
			rows, err = r.db.QueryContext(bg, `UPDATE t SET names = names || 'returned'::text RETURNING ids, names, span, at, n, j, b, id`)
			scan("returning", rows, err)
			var ids []int64
			var names []sql.NullString
			for range 2 {
				r.see("row", r.db.QueryRowContext(bg, `SELECT ids, names FROM t WHERE id = $1`, 1).Scan(&ids, &names), ids, names)
				r.see("row", r.db.QueryRowContext(bg, `SELECT ids FROM t WHERE id = $1`, 3).Scan(&ids), ids)
				r.see("row", r.db.QueryRowContext(bg, `SELECT ids FROM t WHERE id = $1`, 9).Scan(&ids))
				r.see("wrong", r.db.QueryRowContext(bg, `SELECT names FROM t WHERE id = $1`, 1).Scan(&ids))
				r.see("null element", r.db.QueryRowContext(bg, `SELECT names FROM t WHERE id = $1`, 1).Scan(new([]string)))
				var null sql.Null[[]int64]
				r.see("generic", r.db.QueryRowContext(bg, `SELECT ids FROM t WHERE id = $1`, 1).Scan(&null), null)
				r.see("generic", r.db.QueryRowContext(bg, `SELECT ids FROM t WHERE id = $1`, 3).Scan(&null), null)
			}
		}
	})
}

// A result that is too large to be shared is scanned as it comes.
func TestPgxNativeScanningOfLargeResults(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(`CREATE TABLE t (id int PRIMARY KEY, ids int8[], pad text)`, `INSERT INTO t SELECT g, ARRAY[g, g * 2], repeat('x', 1000) FROM generate_series(1, 6000) g`)
		for i := range 2 {
			for range 2 {
				rows, err := r.db.QueryContext(bg, `SELECT id, ids, pad FROM t ORDER BY id`)
				r.must(err)
				n, sum := 0, int64(0)
				for rows.Next() {
					var id int
					var ids []int64
					var pad pgtype.PreallocBytes
					r.must(rows.Scan(&id, &ids, &pad))
					for _, v := range ids {
						sum += v
					}
					n += len(ids) + len(pad)
				}
				r.see("all", n, sum, rows.Err(), rows.Close())
			}
			r.exec(fmt.Sprintf(`UPDATE t SET ids = ids || %d::int8 WHERE id %% 100 = 0`, 1000+i))
		}
	})
}

// Types of the program's own, told to each connection.
func TestPgxNativeScanningOfOwnTypes(t *testing.T) {
	t.Parallel()
	same(t, func(r *run) {
		r.exec(valueTypes, `CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], p pair, ps pair[], d positive)`,
			`INSERT INTO t VALUES (1, 'sad', '{sad,happy}', '(1,"x y")', ARRAY['(1,x)'::pair, NULL], 3), (2, NULL, NULL, NULL, NULL, NULL), (3, 'happy', '{}', '(,)', '{}', 1)`)
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		db := opened(r, stdlib.GetConnector(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			types, err := conn.LoadTypes(ctx, []string{"mood", "_mood", "pair", "_pair", "positive"})
			conn.TypeMap().RegisterTypes(types)
			return err
		})))
		for i := range 2 {
			for range 2 {
				rows, err := db.QueryContext(bg, `SELECT id, m, ms, p, ps, d FROM t ORDER BY id`)
				r.must(err)
				for rows.Next() {
					var (
						id int
						m  *ownString
						ms []ownString
						p  *ownPair
						ps []*ownPair
						d  *int
					)
					r.see("row", rows.Scan(&id, &m, &ms, &p, &ps, &d), id, m, ms, p, ps, d)
					r.see("any", rows.Scan(new(any), new(any), new(any), new(any), new(any), new(any)))
					var a *int
					var b *string
					fields := pgtype.CompositeFields{&a, &b}
					var text string
					var list []string
					r.see("fields", rows.Scan(&id, new(sql.NullString), &list, &text, new(any), new(any)), list, text)
					r.see("fields", rows.Scan(&id, new(any), new(any), &fields, new(any), new(any)), a, b)
				}
				r.see("end", rows.Err(), rows.Close())
				rows, err = db.QueryContext(bg, `SELECT * FROM t WHERE m = ANY ($1) OR p = $2::pair ORDER BY id`, []ownString{"sad"}, ownPair{i, "new"})
				r.rows("by own types", rows, err)
			}
			_, err := db.ExecContext(bg, `UPDATE t SET p = $1, ms = $2 WHERE id = 1`, ownPair{i, "new"}, slices.Repeat([]string{"sad"}, i+1))
			r.see("update", err)
			var p ownPair
			for range 2 {
				r.see("row", db.QueryRowContext(bg, `SELECT p FROM t WHERE id = $1`, 1).Scan(&p), p)
			}
		}
		// Not on a connection that was not told.
		var p ownPair
		var ms []string
		for range 2 {
			r.see("unknown", r.db.QueryRowContext(bg, `SELECT p FROM t WHERE id = $1`, 1).Scan(&p))
			err := r.db.QueryRowContext(bg, `SELECT ms FROM t WHERE id = $1`, 1).Scan(&ms)
			r.see("unknown", err != nil && strings.Contains(err.Error(), "unknown type"), err)
		}
	})
}

// What pgx calls a type does not always tell which it is, and a connection may
// have been told of more types than the first one was.
func TestPgxNativeScanningOfTypesHardToTell(t *testing.T) {
	t.Parallel()
	register := func(names ...string) stdlib.OptionOpenDB {
		return stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			for _, name := range names {
				if typ, err := conn.LoadType(ctx, name); err == nil { // it may not be there yet
					conn.TypeMap().RegisterType(typ)
				}
			}
			return nil
		})
	}
	same(t, func(r *run) {
		r.exec(`CREATE SCHEMA s`, `CREATE TYPE s.pair AS (a int, b text)`, `CREATE TYPE "Pair" AS (a int, b text)`,
			`CREATE TABLE t (p "Pair", q s.pair)`, `INSERT INTO t VALUES ('(1,x)', '(2,y)'), ('(3,z)', NULL)`)
		config, err := pgx.ParseConfig(r.dsn)
		r.must(err)
		db := opened(r, stdlib.GetConnector(*config, register(`"Pair"`, `s.pair`, `later`)))
		for range 2 {
			var p, q ownPair
			r.see("capitals", db.QueryRow(`SELECT p FROM t ORDER BY p`).Scan(&p), p)
			r.see("qualified", db.QueryRow(`SELECT q FROM t ORDER BY q`).Scan(&q), q)
			rows, err := db.Query(`SELECT p, q FROM t ORDER BY p`)
			r.rows("both", rows, err)
		}

		_, err = db.Exec(`CREATE TYPE later AS (a int, b text)`)
		r.must(err)
		_, err = db.Exec(`CREATE TABLE u AS SELECT '(1,x)'::later AS p`)
		r.must(err)
		db.SetMaxIdleConns(-1) // as a program does after its migrations
		db.SetMaxIdleConns(2)
		for range 2 {
			var p ownPair
			r.see("later", db.QueryRow(`SELECT p FROM u`).Scan(&p), p)
		}
	})
}
