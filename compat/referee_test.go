package compat

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// sent are the statements that a run has sent, with their arguments, each text
// as it was sent first. It is a tracer of pgx.
type sent struct {
	mu    sync.Mutex
	names map[string]string // prepared statements by name
	args  map[string][]any  // by text
}

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := d.SQL
	if prepared, ok := s.names[text]; ok {
		text = prepared
	}
	if _, ok := s.args[text]; !ok {
		s.args[text] = d.Args
	}
	return ctx
}

func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *sent) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[d.Name] = d.SQL
	return ctx
}

func (s *sent) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// traced opens a DSN with pgx so that r.sent notes what is sent.
func (r *run) traced(dsn string) *sql.DB {
	r.Helper()
	config, err := pgx.ParseConfig(dsn)
	r.must(err)
	config.Tracer = r.sent
	name := stdlib.RegisterConnConfig(config)
	r.Cleanup(func() { stdlib.UnregisterConnConfig(name) })
	db, err := sql.Open(r.driver, name)
	r.must(err)
	return db
}

// referee asks the server about each statement of the run that coalesce-pgx
// would share: it must not write, lock rows or take other locks than a reader's,
// nor read a relation that Explain does not name.
func (r *run) referee() {
	r.Helper()
	judge, err := sql.Open("coalesce-pgx", r.dsn)
	r.must(err)
	defer judge.Close()
	conn, err := pgx.Connect(bg, r.dsn)
	r.must(err)
	defer conn.Close(bg)

	parents := make(map[string][]string)
	rows, err := conn.Query(bg, pgtest.ParentsQuery)
	r.must(err)
	var child, parent string
	_, err = pgx.ForEachRow(rows, []any{&child, &parent}, func() error {
		parents[child] = append(parents[child], parent)
		return nil
	})
	r.must(err)

	r.sent.mu.Lock()
	defer r.sent.mu.Unlock()
	verdicts := make(map[string]int)
	for text, args := range r.sent.args {
		e, err := coalesce.Explain(bg, judge, text)
		r.must(err)
		verdicts[e.Verdict]++
		if e.Verdict == "private" {
			continue
		}
		if did, err := effects(conn, text, args); err != nil {
			verdicts["shared, but not to be run again"]++ // its table may be gone
			continue
		} else if did != "" {
			r.Errorf("%s is %s, but it did this: %s", text, e.Verdict, did)
		}
		var plan []byte
		r.must(conn.QueryRow(bg, "EXPLAIN (VERBOSE, FORMAT JSON) "+text, args...).Scan(&plan))
		unnamed, err := pgtest.Unnamed(plan, e.Tables, parents)
		r.must(err)
		if len(unnamed) > 0 {
			r.Errorf("%s is %s and reads %v, but Explain names %v", text, e.Verdict, unnamed, e.Tables)
		}
	}
	r.Logf("statements: %v", verdicts)
}

// effects runs a statement in a transaction of its own, which it rolls back, and
// says what other sessions could have noticed. Whatever changes a row, locks one
// or moves a sequence needs a transaction ID.
func effects(conn *pgx.Conn, text string, args []any) (did string, err error) {
	tx, err := conn.Begin(bg)
	if err != nil {
		return "", err
	}
	defer tx.Rollback(bg)
	// Some were sent to be cancelled, and have no end.
	if _, err := tx.Exec(bg, "SET LOCAL statement_timeout = '1s'"); err != nil {
		return "", err
	}
	rows, err := tx.Query(bg, text, args...)
	if err != nil {
		return "", err
	}
	rows.Close()
	if rows.Err() != nil {
		return "", rows.Err()
	}
	var xid, locks *string
	err = tx.QueryRow(bg, `SELECT pg_current_xact_id_if_assigned()::text, (SELECT string_agg(format('%s %s', locktype, mode), ', ') FROM pg_locks
		WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND mode <> 'AccessShareLock')`).Scan(&xid, &locks)
	if err != nil {
		return "", err
	}
	if xid != nil || locks != nil {
		did = fmt.Sprintf("transaction ID %v, locks %v", deref(xid), deref(locks))
	}
	return did, nil
}

func deref(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}
