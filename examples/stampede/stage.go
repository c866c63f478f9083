package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/embedded"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// otherEntries is the query of the outage: every page of an entry lists what
// else is new in its repository. The page leaves itself out when it renders,
// so all pages of a repository ask the same.
const otherEntries = `
SELECT e.id, e.title, e.author, count(*) AS revisions, sum(v.added - v.removed) AS lines, max(v.made_at) AS last_change
FROM entries AS e
JOIN revisions AS v ON v.entry_id = e.id
WHERE e.repository_id = $1
GROUP BY e.id
ORDER BY last_change DESC, e.id
LIMIT 20`

// So many that one run of otherEntries takes a few dozen milliseconds.
const (
	entriesEach   = 600 // per repository
	revisionsEach = 60  // per entry
)

// schema takes the numbers of repositories, of entries and of revisions. Keys
// and indexes come last, since that is the fastest way to fill a table.
const schema = `
CREATE TABLE repositories (
	id   bigint PRIMARY KEY,
	name text NOT NULL
);
CREATE TABLE entries (
	id            bigint PRIMARY KEY,
	repository_id bigint NOT NULL,
	title         text NOT NULL,
	author        text NOT NULL
);
CREATE TABLE revisions (
	id       bigint PRIMARY KEY,
	entry_id bigint NOT NULL,
	made_at  timestamptz NOT NULL,
	added    int NOT NULL,
	removed  int NOT NULL
);
INSERT INTO repositories
SELECT r, 'repository-' || r FROM generate_series(1, %[1]d) AS r;
INSERT INTO entries
SELECT (r.id - 1) * %[2]d + e, r.id, 'Entry ' || e || ' of ' || r.name,
	(ARRAY['ada', 'barbara', 'donald', 'edsger', 'frances', 'grace'])[1 + (r.id * 7 + e) %% 6]
FROM repositories AS r, generate_series(1, %[2]d) AS e;
INSERT INTO revisions
SELECT (e.id - 1) * %[3]d + v, e.id,
	timestamptz '2025-01-01 00:00:00Z' + (e.id * 7919 + v * 104729) %% 31536000 * interval '1 second',
	(e.id * v) %% 97, (e.id + v) %% 41
FROM entries AS e, generate_series(1, %[3]d) AS v;
ALTER TABLE entries ADD FOREIGN KEY (repository_id) REFERENCES repositories;
ALTER TABLE revisions ADD FOREIGN KEY (entry_id) REFERENCES entries;
CREATE INDEX ON entries (repository_id);
CREATE INDEX ON revisions (entry_id);
`

// stage is the server with the data on it.
type stage struct {
	server   *pgtest.Server
	database string // ours alone
	pageDSN  string // what the pages connect with
	observer *observer
}

// setStage starts or finds the server and fills a database of our own.
func setStage(ctx context.Context, opt options, out *os.File) (_ *stage, err error) {
	st := &stage{database: "coalesce_stampede_" + rand.Text()[:8]}
	if st.server, err = findServer(ctx, opt, out); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = st.close(err)
		}
	}()
	if err := st.exec(ctx, st.server.DSN(), "CREATE DATABASE "+st.quoted()+" TEMPLATE template0"); err != nil {
		return nil, fmt.Errorf("a database of our own: %w", err)
	}
	dsn := pgtest.WithDatabase(st.server.DSN(), st.database)
	fmt.Fprintf(out, "filling it with %d repositories, %d entries, %d revisions\n",
		opt.repositories, opt.repositories*entriesEach, opt.repositories*entriesEach*revisionsEach)
	fill := fmt.Sprintf(schema, opt.repositories, entriesEach, revisionsEach)
	for _, sql := range []string{fill, "VACUUM ANALYZE"} {
		if err := st.exec(ctx, dsn, sql); err != nil {
			return nil, err
		}
	}
	if st.pageDSN, err = st.pageUser(ctx, dsn); err != nil {
		return nil, err
	}
	// Before the pages come: afterwards there may be no slot left for it.
	st.observer, err = newObserver(ctx, st.server, dsn)
	return st, err
}

func findServer(ctx context.Context, opt options, out *os.File) (*pgtest.Server, error) {
	if opt.dsn != "" {
		return pgtest.Attach(ctx, opt.dsn)
	}
	fmt.Fprintln(out, "looking for a PostgreSQL")
	pgtest.Download = embedded.Download
	return pgtest.Start(ctx, pgtest.Options{MaxConnections: opt.maxConns})
}

// pageUser gives the DSN of the pages. On a server of our own they have a role
// of their own, as any program should: the slots reserved for superusers are
// not for them.
func (st *stage) pageUser(ctx context.Context, dsn string) (string, error) {
	if !st.server.Owned() {
		return dsn, nil
	}
	if err := st.exec(ctx, dsn, "CREATE ROLE "+pageRole+" LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+pageRole); err != nil {
		return "", err
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.User = url.User(pageRole)
	return u.String(), nil
}

// pageRole is the role of the pages on a server of our own.
const pageRole = "web"

func (st *stage) quoted() string { return pgx.Identifier{st.database}.Sanitize() }

// exec runs sql, of one or more statements, on a connection of its own.
func (st *stage) exec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// errLeftBehind is in an error that says what could not be removed.
var errLeftBehind = errors.New("something is left behind")

// close removes all that setStage made, and adds to err what it could not. It
// runs after Ctrl-C too, so it takes no context from above.
func (st *stage) close(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if st.observer != nil {
		st.observer.close(ctx)
	}
	var left error
	if !st.server.Owned() {
		left = st.exec(ctx, st.server.DSN(), "DROP DATABASE IF EXISTS "+st.quoted()+" WITH (FORCE)")
	}
	if left = errors.Join(left, st.server.Close()); left != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errLeftBehind, left))
	}
	return err
}
