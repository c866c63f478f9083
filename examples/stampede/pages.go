package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coalesce-pgx/coalesce/examples/internal/demo"
)

// spread gives each page's repository. Pages are dealt out unevenly, as readers
// do: where the most popular repository gets 19, the least popular gets 12.
func spread(pages, repositories int) []int {
	var dealt []int
	for round := 1; len(dealt) < pages; round++ {
		for r := range repositories {
			popularity := 12 + r*5%8
			if round%19 < popularity && len(dealt) < pages {
				dealt = append(dealt, r+1)
			}
		}
	}
	return dealt
}

// wave counts one wave of pages while it runs.
type wave struct {
	rendered, failed atomic.Int64

	mu      sync.Mutex
	reasons map[string]int // pages that failed, by the reason given; guarded by mu
	refused int            // pages that failed for want of a connection; guarded by mu
}

// answers holds what the pages of each repository showed first. Whatever the
// driver, all must show the same.
type answers struct{ byRepository sync.Map }

func (a *answers) check(repository int, page string) error {
	if first, _ := a.byRepository.LoadOrStore(repository, page); first != page {
		return errors.New("the page shows something else than the others of its repository")
	}
	return nil
}

// stampede renders all pages at once through driver, twice: the second wave
// comes while a result may still be held. The pool has its default settings.
func stampede(ctx context.Context, st *demo.Stage, driver string, pages []int, a *answers, out *os.File) ([]tally, error) {
	db, err := sql.Open(driver, st.DSN)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var tallies []tally
	for _, name := range []string{"first wave", "second wave"} {
		before, err := look(ctx, st.Observer, db)
		if err != nil {
			return nil, err
		}
		w := &wave{reasons: map[string]int{}}
		progress := showProgress(out, driver+", "+name, len(pages), w)
		took := w.render(ctx, db, pages, a)
		progress.end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		after, err := look(ctx, st.Observer, db)
		if err != nil {
			return nil, err
		}
		tallies = append(tallies, newTally(driver, name, w, before, after, took))
	}
	return tallies, nil
}

// render lets all pages go in the same instant and waits for them.
func (w *wave) render(ctx context.Context, db *sql.DB, pages []int, a *answers) time.Duration {
	var ready, done sync.WaitGroup
	gate := make(chan struct{}) // closed once all pages stand ready
	ready.Add(len(pages))
	for _, repository := range pages {
		done.Go(func() {
			ready.Done()
			<-gate
			page, err := renderPage(ctx, db, repository)
			if err == nil {
				err = a.check(repository, page)
			}
			w.count(err)
		})
	}
	ready.Wait()
	start := time.Now()
	close(gate)
	done.Wait()
	return time.Since(start)
}

func (w *wave) count(err error) {
	if err == nil {
		w.rendered.Add(1)
		return
	}
	w.failed.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reasons[demo.Reason(err)]++
	if demo.IsFull(err) {
		w.refused++
	}
}

// renderPage is what a program does for one page: one query, all its rows.
func renderPage(ctx context.Context, db *sql.DB, repository int) (string, error) {
	rows, err := db.QueryContext(ctx, otherEntries, repository)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var page strings.Builder
	for rows.Next() {
		var (
			id, revisions, lines int64
			title, author        string
			lastChange           time.Time
		)
		if err := rows.Scan(&id, &title, &author, &revisions, &lines, &lastChange); err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "<li><a href=/entries/%d>%s</a> by %s, %d revisions, %+d lines, %s</li>\n",
			id, title, author, revisions, lines, lastChange.UTC().Format(time.DateTime))
	}
	return page.String(), rows.Err()
}
