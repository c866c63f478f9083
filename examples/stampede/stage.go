package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
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

// counted is otherEntries as the server keeps it, with its constants as
// parameters.
const counted = "%from entries as e%revisions as v%limit%"

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

// setStage starts or finds the server and fills a database of our own.
func setStage(ctx context.Context, opt options, out *os.File) (*demo.Stage, error) {
	st, err := demo.SetStage(ctx, demo.Options{Name: "stampede", DSN: opt.dsn, MaxConns: opt.maxConns, Queries: counted}, out)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "filling it with %d repositories, %d entries, %d revisions\n",
		opt.repositories, opt.repositories*entriesEach, opt.repositories*entriesEach*revisionsEach)
	fill := fmt.Sprintf(schema, opt.repositories, entriesEach, revisionsEach)
	for _, sql := range []string{fill, "VACUUM ANALYZE repositories, entries, revisions"} {
		if err := st.Exec(ctx, sql); err != nil {
			return nil, st.Close(err)
		}
	}
	return st, nil
}

// sight is what the server had done up to a moment. A wave is what came between
// two of them.
type sight struct {
	queries  demo.Count // executions of otherEntries
	accepted demo.Count // connections of pages
	refused  demo.Count // known from a log only
}

// look takes a sight. db is the pages' pool, at rest.
func look(ctx context.Context, o *demo.Observer, db *sql.DB) (s sight, err error) {
	if s.queries, err = o.Queries(ctx); err != nil {
		return s, err
	}
	s.accepted, s.refused, err = o.Connections(ctx, db)
	return s, err
}
