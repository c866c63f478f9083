package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/libpq"
)

// gueClient works on the table that the documentation of gue asks for.
func (r *run) gueClient(options ...gue.ClientOption) *gue.Client {
	r.Helper()
	r.exec(`CREATE TABLE gue_jobs (
		job_id text NOT NULL PRIMARY KEY, priority smallint NOT NULL, run_at timestamptz NOT NULL, job_type text NOT NULL,
		args bytea NOT NULL, error_count integer NOT NULL DEFAULT 0, last_error text, queue text NOT NULL,
		created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)`,
		`CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`)
	c, err := gue.NewClient(libpq.NewConnPool(r.db), options...)
	r.must(err)
	return c
}

func TestGueJobs(t *testing.T) {
	same(t, func(r *run) {
		c := r.gueClient(gue.WithClientBackoff(gue.NewConstantBackoff(0)))
		// Each is asked twice: the second answer may be a held one.
		state := func() {
			for range 2 {
				r.query(`SELECT queue, priority, job_type, args, error_count, last_error FROM gue_jobs ORDER BY args`)
				r.query(`SELECT count(*) FROM gue_jobs WHERE queue = $1`, "mail")
			}
		}
		job := func(what string, j *gue.Job, err error) *gue.Job {
			r.Helper()
			if j == nil || err != nil {
				r.see(what, j == nil, err)
				return nil
			}
			r.see(what, j.Queue, j.Priority, j.Type, string(j.Args), j.ErrorCount, j.LastError)
			return j
		}
		state()
		j, err := c.LockJob(bg, "mail")
		job("nothing to do", j, err)

		first := &gue.Job{Queue: "mail", Type: "send", Args: []byte("1")}
		r.must(c.Enqueue(bg, first))
		state()
		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		r.must(c.EnqueueTx(bg, &gue.Job{Queue: "mail", Type: "send", Args: []byte("rolled back")}, libpq.NewTx(tx)))
		state()
		r.must(tx.Rollback())
		state()
		tx, err = r.db.BeginTx(bg, nil)
		r.must(err)
		r.must(c.EnqueueTx(bg, &gue.Job{Queue: "mail", Type: "send", Args: []byte("2"), Priority: gue.JobPriorityHigh}, libpq.NewTx(tx)))
		r.must(tx.Commit())
		r.must(c.EnqueueBatch(bg, []*gue.Job{
			{Queue: "mail", Type: "send", Args: []byte("3"), RunAt: time.Now().Add(time.Hour)},
			{Queue: "other", Type: "send", Args: []byte("4")},
		}))
		r.see("no type", c.Enqueue(bg, &gue.Job{Queue: "mail"}))
		state()

		// What one has locked, the next does not get.
		high, err := c.LockJob(bg, "mail")
		job("high priority", high, err)
		low, err := c.LockJob(bg, "mail")
		job("low priority", low, err)
		j, err = c.LockJob(bg, "mail")
		job("nothing left", j, err)
		_, err = c.LockJobByID(bg, first.ID)
		r.see("locked", err)
		state()

		r.must(high.Delete(bg))
		state()
		r.must(high.Done(bg))
		state()
		r.must(low.Error(bg, errors.New("once more")))
		state()
		again, err := c.LockNextScheduledJob(bg, "mail")
		job("again", again, err)
		// Done without Delete gives it back.
		r.must(again.Done(bg))
		byID, err := c.LockJobByID(bg, first.ID)
		job("by ID", byID, err)
		r.must(byID.Error(bg, gue.ErrDiscardJob("not worth it")))
		state()
		_, err = c.LockJobByID(bg, first.ID)
		r.see("discarded", err)
		r.exec(`UPDATE gue_jobs SET run_at = run_at - interval '2 hours', job_id = args::text`)
		state()
		late, err := c.LockJob(bg, "mail")
		if err == nil {
			r.must(late.Done(bg))
		}
		r.see("an ID that is none", err)
	})
}

func TestGueWorkersAtOnce(t *testing.T) {
	same(t, func(r *run) {
		c := r.gueClient(gue.WithClientBackoff(gue.NewConstantBackoff(0)))
		r.exec(`CREATE TABLE ledger (n text PRIMARY KEY)`)
		const jobs = 100
		ctx, cancel := context.WithCancel(bg)
		defer cancel()

		var mu sync.Mutex
		runs := make(map[string]int) // attempts of each job; guarded by mu
		var left sync.WaitGroup
		left.Add(jobs)
		work := func(ctx context.Context, j *gue.Job) error {
			mu.Lock()
			runs[string(j.Args)]++
			mu.Unlock()
			var n int
			fmt.Sscan(string(j.Args), &n)
			switch {
			case n%10 == 3 && j.ErrorCount == 0:
				return errors.New("once more")
			case n%10 == 7:
				return gue.ErrDiscardJob("never")
			}
			_, err := j.Tx().Exec(ctx, `INSERT INTO ledger VALUES ($1)`, string(j.Args))
			return err
		}
		ended := func(ctx context.Context, j *gue.Job, err error) {
			if err == nil || err.Error() != "once more" {
				left.Done()
			}
		}
		var pools sync.WaitGroup
		for range 2 {
			p, err := gue.NewWorkerPool(c, gue.WorkMap{"pay": work}, 4, gue.WithPoolPollInterval(5*time.Millisecond), gue.WithPoolHooksJobDone(ended),
				gue.WithPoolGracefulShutdown(nil))
			r.must(err)
			pools.Go(func() {
				if err := p.Run(ctx); err != nil {
					r.Errorf("pool: %v", err)
				}
			})
		}
		var publishers sync.WaitGroup
		for i := range 4 {
			publishers.Go(func() {
				for n := i; n < jobs; n += 4 {
					if err := c.Enqueue(bg, &gue.Job{Type: "pay", Args: fmt.Append(nil, n)}); err != nil {
						r.Errorf("enqueue: %v", err)
					}
				}
			})
		}
		publishers.Wait()
		left.Wait()
		cancel()
		pools.Wait() // the last transactions are committed
		var attempts []string
		for n, times := range runs {
			attempts = append(attempts, fmt.Sprintf("%3s: %d", n, times))
		}
		slices.Sort(attempts)
		r.see("attempts", attempts)
		for range 2 {
			r.query(`SELECT count(*), sum(n::int) FROM ledger`)
			r.query(`SELECT count(*) FROM gue_jobs`)
		}
	})
}
