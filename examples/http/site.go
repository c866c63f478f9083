package main

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"html/template"
	"log"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
)

// panel is the query of the page. All readers ask the same, so it is one that
// they can share: nothing in it depends on who asks, or when.
const panel = `
SELECT r.id, r.name, r.language, c.commits, c.authors, c.last_commit, s.stars
FROM repositories AS r
JOIN (SELECT repository_id, count(*) AS commits, count(DISTINCT author) AS authors, max(made_at) AS last_commit
	FROM commits GROUP BY repository_id) AS c ON c.repository_id = r.id
JOIN (SELECT repository_id, count(*) AS stars FROM stars GROUP BY repository_id) AS s ON s.repository_id = r.id
ORDER BY s.stars DESC, r.id
LIMIT 20`

type repository struct {
	ID                      int64
	Name, Language          string
	Commits, Authors, Stars int
	LastCommit              time.Time
}

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Parse(pageHTML))

type site struct {
	db     *sql.DB
	log    *log.Logger
	logged atomic.Int64 // the second in which a failure was logged last
}

func (s *site) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.home)
	mux.HandleFunc("GET /admin", s.admin)
	mux.HandleFunc("POST /star", s.star)
	mux.HandleFunc("GET /debug", s.debug)
	return http.NewCrossOriginProtection().Handler(mux)
}

// home serves the page as most readers get it: with the answer to the query
// that someone else has asked, now or less than 30 seconds ago.
func (s *site) home(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r.Context(), "Repositories", "Shared by all who ask.")
}

// admin serves what the server says now, to people who have just changed
// something with another program, and must not doubt what they see.
func (s *site) admin(w http.ResponseWriter, r *http.Request) {
	s.serve(w, coalesce.Fresh(r.Context()), "Repositories, for administrators", "Asked for this page alone.")
}

func (s *site) serve(w http.ResponseWriter, ctx context.Context, title, note string) {
	repositories, err := s.repositories(ctx)
	if err != nil {
		s.fail(w, ctx, err)
		return
	}
	var body bytes.Buffer
	if err := page.Execute(&body, map[string]any{"Title": title, "Note": note, "Repositories": repositories}); err != nil {
		s.fail(w, ctx, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(body.Bytes())
}

func (s *site) repositories(ctx context.Context) ([]repository, error) {
	rows, err := s.db.QueryContext(ctx, panel)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []repository
	for rows.Next() {
		var r repository
		if err := rows.Scan(&r.ID, &r.Name, &r.Language, &r.Commits, &r.Authors, &r.LastCommit, &r.Stars); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// star adds a star and sends the reader back to the page, which shows it: a
// read that begins after a write of this process sees it.
func (s *site) star(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PostFormValue("repository"), 10, 64)
	if err != nil {
		http.Error(w, "repository: not a number", http.StatusBadRequest)
		return
	}
	res, err := s.db.ExecContext(r.Context(), "INSERT INTO stars (repository_id) SELECT id FROM repositories WHERE id = $1", id)
	if err != nil {
		s.fail(w, r.Context(), err)
		return
	}
	if n, _ := res.RowsAffected(); n == 0 {
		http.Error(w, "no such repository", http.StatusNotFound)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// debug serves the driver's counters. A service with expvar would publish them
// so: expvar.Publish("coalesce", expvar.Func(func() any { return coalesce.StatsOf(db) })).
func (s *site) debug(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(coalesce.StatsOf(s.db))
}

func (s *site) fail(w http.ResponseWriter, ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the reader has left
	}
	// One a second will do: a database that is full fails hundreds of pages.
	if now := time.Now().Unix(); s.logged.Swap(now) != now {
		s.log.Print(demo.Reason(err))
	}
	http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
}
