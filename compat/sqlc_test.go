package compat

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce/compat/internal/sqlc"
)

//go:embed internal/sqlc/schema.sql
var sqlcSchema string

// The code of internal/sqlc is what sqlc makes of the .sql files beside it.
func TestSqlc(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name string
		open func(r *run) *sqlc.Queries
	}{
		{"new", func(r *run) *sqlc.Queries { return sqlc.New(r.db) }},
		{"prepare", func(r *run) *sqlc.Queries {
			q, err := sqlc.Prepare(bg, r.db)
			r.must(err)
			r.Cleanup(func() { q.Close() })
			return q
		}},
		{"connection", func(r *run) *sqlc.Queries { return sqlc.New(pinned(r)) }},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(sqlcSchema)
				sqlcProgram(r, way.open(r))
			})
		})
	}
}

func sqlcProgram(r *run, q *sqlc.Queries) {
	check := func() {
		r.Helper()
		for range 2 {
			authors, err := q.ListAuthors(bg)
			r.see("authors", authors, err)
			author, err := q.GetAuthor(bg, 1)
			r.see("author", author, err)
			author, err = q.GetAuthorByName(bg, "Ada")
			r.see("by name", author, err)
			authors, err = q.ListAuthorsByIDs(bg, []int64{3, 1})
			r.see("by ids", authors, err)
			n, err := q.CountAuthors(bg)
			r.see("count", n, err)
			names, err := q.ListAuthorNames(bg, sqlc.ListAuthorNamesParams{Mood: sqlc.MoodHappy, Prefix: sql.NullString{String: "A", Valid: true}})
			r.see("names", names, err)
			names, err = q.ListAuthorNames(bg, sqlc.ListAuthorNamesParams{Mood: sqlc.MoodSad})
			r.see("names", names, err)
			books, err := q.ListBooks(bg)
			r.see("books", books, err)
			pages, err := q.PagesByAuthor(bg)
			r.see("pages", pages, err)
		}
	}
	check()
	for _, params := range []sqlc.CreateAuthorParams{
		{Name: "Ada", Mood: sqlc.MoodHappy, Tags: []string{"a", `b "c"`}, Details: json.RawMessage(`{"k":  [1]}`), Born: sql.NullTime{Time: time.Date(1815, 12, 10, 0, 0, 0, 0, time.UTC), Valid: true}, Rating: sql.NullString{String: "4.50", Valid: true}},
		{Name: "Ben", Bio: sql.NullString{String: "it's", Valid: true}, Mood: sqlc.MoodSad, Tags: []string{}, Details: json.RawMessage(`{}`)},
		{Name: "Cleo", Mood: sqlc.MoodSad, Tags: []string{""}, Details: json.RawMessage(`[]`)},
		{Name: "Ada", Mood: sqlc.MoodSad, Tags: []string{}, Details: json.RawMessage(`{}`)},
		{Name: "Dov", Mood: "angry", Tags: []string{}, Details: json.RawMessage(`{}`)},
		{Name: "Dov", Mood: sqlc.MoodSad, Details: json.RawMessage(`{}`)},
		{Name: "Dov", Mood: sqlc.MoodSad, Tags: []string{}, Details: json.RawMessage(`{`)},
		{Name: "Dov", Mood: sqlc.MoodSad, Tags: []string{}, Details: json.RawMessage(`{}`), Rating: sql.NullString{String: "1000", Valid: true}},
	} {
		author, err := q.CreateAuthor(bg, params)
		r.see("create", author, err)
		check()
	}
	for i := range 3 {
		id, err := q.CreateBook(bg, sqlc.CreateBookParams{AuthorID: int64(i), Title: "t", Pages: int32(100 * i), Cover: []byte{0, byte(i)}})
		r.see("book", id, err)
		check()
	}
	for _, bio := range []string{"one", "two"} {
		row, err := q.UpsertAuthor(bg, sqlc.UpsertAuthorParams{Name: "Ada", Bio: sql.NullString{String: bio, Valid: true}})
		r.see("upsert", row, err)
		check()
	}
	r.see("bio", q.UpdateBio(bg, sqlc.UpdateBioParams{ID: 2}))
	check()
	n, err := q.RenameAuthor(bg, sqlc.RenameAuthorParams{NewName: "Zoe", OldName: "Cleo"})
	r.see("rename", n, err)
	n, err = q.RenameAuthor(bg, sqlc.RenameAuthorParams{NewName: "Ada", OldName: "Zoe"})
	r.see("rename", n, err)
	n, err = q.RenameAuthor(bg, sqlc.RenameAuthorParams{NewName: "x", OldName: "nobody"})
	r.see("rename", n, err)
	check()
	result, err := q.TouchAuthors(bg, json.RawMessage(`{"touched": true}`))
	r.must(err)
	n, err = result.RowsAffected()
	r.see("touch", n, err)
	check()

	for _, commit := range []bool{true, false} {
		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		inside := q.WithTx(tx)
		author, err := inside.LockAuthor(bg, 1)
		r.see("lock", author, err)
		r.see("inside", inside.UpdateBio(bg, sqlc.UpdateBioParams{ID: 1, Bio: sql.NullString{String: "inside", Valid: true}}))
		author, err = inside.GetAuthor(bg, 1)
		r.see("inside", author, err)
		deleted, err := inside.DeleteAuthors(bg, []int64{2, 99})
		r.see("delete", deleted, err)
		authors, err := inside.ListAuthors(bg)
		r.see("inside", authors, err)
		check()
		if commit {
			r.see("commit", tx.Commit())
		} else {
			_, err = inside.CreateBook(bg, sqlc.CreateBookParams{AuthorID: 99})
			r.see("fail", err)
			_, err = inside.CountAuthors(bg)
			r.see("failed", err)
			r.see("rollback", tx.Rollback())
		}
		check()
		_, err = inside.CountAuthors(bg)
		r.see("done", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, err = q.CountAuthors(ctx)
	r.see("cancelled", err)
	deleted, err := q.DeleteAuthors(bg, []int64{1, 3})
	r.see("delete", deleted, err)
	check()
	deleted, err = q.DeleteAuthors(bg, nil)
	r.see("delete none", deleted, err)
}
