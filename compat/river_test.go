package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

var riverQuiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func (r *run) riverMigrator(db *sql.DB) *rivermigrate.Migrator[*sql.Tx] {
	r.Helper()
	m, err := rivermigrate.New(riverdatabasesql.New(db), &rivermigrate.Config{Logger: riverQuiet})
	r.must(err)
	return m
}

// riverSchema is the schema of the newest version. It is made on a pool of its
// own: river's migrations have DO blocks, after which a session is private.
func (r *run) riverSchema() {
	r.Helper()
	db := r.open()
	_, err := r.riverMigrator(db).Migrate(bg, rivermigrate.DirectionUp, nil)
	r.must(err)
	r.must(db.Close())
}

func TestRiverMigrate(t *testing.T) {
	same(t, func(r *run) {
		m := r.riverMigrator(r.db)
		// The migrations have DO blocks, after which a session is private.
		migrate := func(direction rivermigrate.Direction, opts *rivermigrate.MigrateOpts) (done *rivermigrate.MigrateResult, err error) {
			r.inChangedSession(r.db, func() { done, err = m.Migrate(bg, direction, opts) })
			renew(r.db)
			return done, err
		}
		state := func() {
			for range 2 {
				versions, err := m.ExistingVersions(bg)
				var numbers []int
				for _, v := range versions {
					numbers = append(numbers, v.Version)
				}
				r.see("versions", numbers, err)
				valid, err := m.Validate(bg, nil)
				r.must(err)
				r.see("valid", valid.OK, valid.Messages)
				r.anew(r.db, `SELECT line, version FROM river_migration ORDER BY line, version`)
				r.anew(r.db, `SELECT count(*) FROM river_job`)
			}
		}
		result := func(what string, result *rivermigrate.MigrateResult, err error) {
			r.must(err)
			var versions []string
			for _, v := range result.Versions {
				versions = append(versions, fmt.Sprint(v.Version, " ", v.Name))
			}
			r.see(what, result.Direction, versions)
			state()
		}
		state()
		for range m.AllVersions() {
			done, err := migrate(rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{MaxSteps: 1})
			result("up by one", done, err)
		}
		done, err := migrate(rivermigrate.DirectionUp, nil)
		result("up, none left", done, err)
		done, err = migrate(rivermigrate.DirectionDown, nil)
		result("down", done, err)
		done, err = migrate(rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
		result("down to none", done, err)

		done, err = migrate(rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{TargetVersion: 4})
		result("up to 4", done, err)
		done, err = migrate(rivermigrate.DirectionUp, nil)
		result("the rest", done, err)
	})
}

// transfer is a job that leaves a trace in the table ledger.
type transfer struct {
	N int `json:"n"`
}

func (transfer) Kind() string { return "transfer" }

// hang is a job that waits for its cancellation.
type hang struct{}

func (hang) Kind() string { return "hang" }

// riverJob records a job without what two runs cannot have in common.
func (r *run) riverJob(what string, j *rivertype.JobRow, err error) {
	r.Helper()
	if err != nil || j == nil {
		r.see(what, err)
		return
	}
	var failures []string
	for _, e := range j.Errors {
		failures = append(failures, fmt.Sprint(e.Attempt, " ", e.Error))
	}
	r.see(what, j.ID, j.Kind, j.State, string(j.EncodedArgs), j.Attempt, j.MaxAttempts, j.AttemptedBy, j.Priority, j.Queue,
		j.Tags, timestamp.ReplaceAllString(string(j.Metadata), "<time>"), failures, j.UniqueKey, j.UniqueStates, j.AttemptedAt != nil, j.FinalizedAt != nil, j.ScheduledAt)
}

// riverState records jobs and counts, each asked twice: the second answer may
// be a held one.
func (r *run) riverState(c *river.Client[*sql.Tx], ids ...int64) {
	r.Helper()
	exec := c.Driver().GetExecutor()
	for range 2 {
		for _, id := range ids {
			j, err := c.JobGet(bg, id)
			r.riverJob("get", j, err)
		}
		list, err := c.JobList(bg, river.NewJobListParams().First(100).OrderBy(river.JobListOrderByID, river.SortOrderAsc))
		r.must(err)
		for _, j := range list.Jobs {
			r.see("list", j.ID, j.State, j.Attempt, len(j.Errors))
		}
		list, err = c.JobList(bg, river.NewJobListParams().Kinds("transfer").States(rivertype.JobStateAvailable).TagsAny("slow", "odd"))
		r.must(err)
		r.see("list by tag", len(list.Jobs))
		counts, err := exec.JobCountByAllStates(bg, &riverdriver.JobCountByAllStatesParams{})
		r.see("count", counts, err)
		n, err := exec.JobCountByState(bg, &riverdriver.JobCountByStateParams{State: rivertype.JobStateAvailable})
		r.see("available", n, err)
		r.query(`SELECT state::text, count(*) FROM river_job GROUP BY 1 ORDER BY 1`)
	}
}

// riverInserter is a client without workers.
func (r *run) riverInserter() *river.Client[*sql.Tx] {
	r.Helper()
	c, err := river.NewClient(riverdatabasesql.New(r.db), &river.Config{Logger: riverQuiet, TestOnly: true})
	r.must(err)
	return c
}

func TestRiverInsert(t *testing.T) {
	same(t, func(r *run) {
		r.riverSchema()
		c := r.riverInserter()
		inserted := func(what string, result *rivertype.JobInsertResult, err error) int64 {
			r.Helper()
			r.must(err)
			r.see(what, result.UniqueSkippedAsDuplicate)
			r.riverJob(what, result.Job, nil)
			return result.Job.ID
		}
		r.riverState(c, 1)
		result, err := c.Insert(bg, transfer{1}, nil)
		first := inserted("insert", result, err)
		r.riverState(c, first)

		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		result, err = c.InsertTx(bg, tx, transfer{2}, nil)
		second := inserted("insert, rolled back", result, err)
		j, err := c.JobGetTx(bg, tx, second)
		r.riverJob("get in the transaction", j, err)
		r.riverState(c, second)
		r.must(tx.Rollback())
		r.riverState(c, second)

		tx, err = r.db.BeginTx(bg, nil)
		r.must(err)
		result, err = c.InsertTx(bg, tx, transfer{3}, &river.InsertOpts{MaxAttempts: 3, Priority: 2, Queue: "other", Tags: []string{"slow", "odd"}, Metadata: []byte(`{"a": 1}`)})
		third := inserted("insert, committed", result, err)
		r.riverState(c, third)
		r.must(tx.Commit())
		r.riverState(c, third)

		many, err := c.InsertMany(bg, []river.InsertManyParams{
			{Args: transfer{4}, InsertOpts: &river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)}},
			{Args: transfer{5}, InsertOpts: &river.InsertOpts{Pending: true}},
			{Args: transfer{6}, InsertOpts: &river.InsertOpts{Tags: []string{"slow"}}},
		})
		r.must(err)
		for _, m := range many {
			inserted("insert many", m, nil)
		}
		n, err := c.InsertManyFast(bg, []river.InsertManyParams{{Args: transfer{7}}, {Args: transfer{8}}})
		r.see("insert many fast", n, err)
		r.riverState(c)

		unique := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
		for _, n := range []int{20, 20, 21, 20} {
			result, err = c.Insert(bg, transfer{n}, unique)
			inserted("unique", result, err)
			r.riverState(c)
		}

		other := result.Job.ID
		for _, step := range []struct {
			what string
			do   func() (*rivertype.JobRow, error)
		}{
			{"update", func() (*rivertype.JobRow, error) {
				return c.JobUpdate(bg, first, &river.JobUpdateParams{Output: map[string]int{"sum": 1}})
			}},
			{"cancel", func() (*rivertype.JobRow, error) { return c.JobCancel(bg, first) }},
			{"cancel again", func() (*rivertype.JobRow, error) { return c.JobCancel(bg, first) }},
			{"retry", func() (*rivertype.JobRow, error) { return c.JobRetry(bg, first) }},
			{"retry again", func() (*rivertype.JobRow, error) { return c.JobRetry(bg, first) }},
			{"cancel a unique one", func() (*rivertype.JobRow, error) { return c.JobCancel(bg, other) }},
			{"delete", func() (*rivertype.JobRow, error) { return c.JobDelete(bg, third) }},
			{"delete again", func() (*rivertype.JobRow, error) { return c.JobDelete(bg, third) }},
		} {
			j, err := step.do()
			r.riverJob(step.what, j, err)
			r.riverState(c, first, third, other)
		}
		// A cancelled job does not keep others of its kind out.
		result, err = c.Insert(bg, transfer{20}, unique)
		inserted("unique after a cancelled one", result, err)
		r.riverState(c, result.Job.ID)
		deleted, err := c.JobDeleteMany(bg, river.NewJobDeleteManyParams().States(rivertype.JobStateCancelled, rivertype.JobStateScheduled))
		r.must(err)
		r.see("delete many", len(deleted.Jobs))
		r.riverState(c, first)

		queues := func() {
			for range 2 {
				list, err := c.QueueList(bg, river.NewQueueListParams().First(10))
				r.must(err)
				for _, q := range list.Queues {
					r.see("queue", q.Name, q.PausedAt != nil, string(q.Metadata))
				}
			}
		}
		exec := c.Driver().GetExecutor()
		queues()
		_, err = exec.QueueCreateOrSetUpdatedAt(bg, &riverdriver.QueueCreateOrSetUpdatedAtParams{Name: "other"})
		r.must(err)
		queues()
		r.must(c.QueuePause(bg, "other", nil))
		queues()
		_, err = c.QueueUpdate(bg, "other", &river.QueueUpdateParams{Metadata: []byte(`{"b": 2}`)})
		r.must(err)
		queues()
		r.must(c.QueueResume(bg, "other", nil))
		queues()
	})
}

func (r *run) riverClaim(exec riverdriver.Executor, worker string, most int) []*rivertype.JobRow {
	r.Helper()
	got, err := exec.JobGetAvailable(bg, &riverdriver.JobGetAvailableParams{
		ClientID: worker, MaxAttemptedBy: 100, MaxToLock: most, Queue: river.QueueDefault,
	})
	r.must(err)
	return got.Jobs
}

func (r *run) riverSet(exec riverdriver.Executor, sets ...*riverdriver.JobSetStateIfRunningParams) {
	r.Helper()
	var p riverdriver.JobSetStateIfRunningManyParams
	for _, s := range sets {
		p.ID = append(p.ID, s.ID)
		p.Attempt = append(p.Attempt, s.Attempt)
		p.ErrData = append(p.ErrData, s.ErrData)
		p.FinalizedAt = append(p.FinalizedAt, s.FinalizedAt)
		p.MetadataDoMerge = append(p.MetadataDoMerge, s.MetadataDoMerge)
		p.MetadataUpdates = append(p.MetadataUpdates, s.MetadataUpdates)
		p.ScheduledAt = append(p.ScheduledAt, s.ScheduledAt)
		p.State = append(p.State, s.State)
	}
	jobs, err := exec.JobSetStateIfRunningMany(bg, &p)
	r.must(err)
	slices.SortFunc(jobs, func(a, b *rivertype.JobRow) int { return int(a.ID - b.ID) })
	for _, j := range jobs {
		r.riverJob("set", j, nil)
	}
}

func TestRiverClaim(t *testing.T) {
	same(t, func(r *run) {
		r.riverSchema()
		c := r.riverInserter()
		exec := c.Driver().GetExecutor()
		r.riverState(c)
		var params []river.InsertManyParams
		for n := range 6 {
			params = append(params, river.InsertManyParams{Args: transfer{n}, InsertOpts: &river.InsertOpts{Priority: 1 + n%2}})
		}
		_, err := c.InsertMany(bg, params)
		r.must(err)
		r.riverState(c)

		var ids []int64
		for _, j := range r.riverClaim(exec, "a", 2) {
			r.riverJob("claim", j, nil)
			ids = append(ids, j.ID)
		}
		r.riverState(c, ids...)
		for _, j := range r.riverClaim(exec, "b", 2) {
			r.riverJob("claim", j, nil)
			ids = append(ids, j.ID)
		}
		r.riverState(c, ids...)

		now := time.Now()
		failure := func(attempt int) []byte {
			return fmt.Appendf(nil, `{"attempt": %d, "at": "2020-01-02T03:04:05Z", "error": "no", "trace": ""}`, attempt)
		}
		r.riverSet(exec,
			riverdriver.JobSetStateCompleted(ids[0], now, []byte(`{"done": true}`)),
			riverdriver.JobSetStateErrorAvailable(ids[1], now, failure(1), nil),
			riverdriver.JobSetStateCancelled(ids[2], now, failure(1), nil))
		r.riverState(c, ids...)
		// A job that does not run any more is left as it is.
		r.riverSet(exec, riverdriver.JobSetStateCompleted(ids[2], now, nil), riverdriver.JobSetStateDiscarded(ids[3], now, failure(1), nil))
		r.riverState(c, ids...)
		for _, j := range r.riverClaim(exec, "c", 10) {
			r.riverJob("claim", j, nil)
		}
		r.riverState(c, ids...)
		r.see("none left", r.riverClaim(exec, "d", 10))

		// Whoever does not come back loses the job.
		stuck := func() {
			for range 2 {
				jobs, err := exec.JobGetStuck(bg, &riverdriver.JobGetStuckParams{Max: 10, StuckHorizon: time.Now().Add(-time.Hour)})
				r.must(err)
				for _, j := range jobs {
					r.riverJob("stuck", j, nil)
				}
			}
		}
		stuck()
		r.exec(`UPDATE river_job SET attempted_at = attempted_at - interval '2 hours' WHERE state = 'running' AND id % 2 = 0`)
		stuck()
	})
}

func TestRiverClaimersAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.riverSchema()
		c := r.riverInserter()
		exec := c.Driver().GetExecutor()
		const jobs, claimers = 120, 8
		r.riverState(c)
		var params []river.InsertManyParams
		for n := range jobs {
			params = append(params, river.InsertManyParams{Args: transfer{n}})
		}
		_, err := c.InsertManyFast(bg, params)
		r.must(err)

		var wg sync.WaitGroup
		var mu sync.Mutex
		var claimed, completed []int64
		for i := range claimers {
			wg.Go(func() {
				for {
					got, err := exec.JobGetAvailable(bg, &riverdriver.JobGetAvailableParams{
						ClientID: fmt.Sprint(i), MaxAttemptedBy: 100, MaxToLock: 3, Queue: river.QueueDefault,
					})
					if err != nil {
						r.Errorf("claim: %v", err)
						return
					}
					if len(got.Jobs) == 0 {
						return
					}
					for _, claim := range got.Jobs {
						j, err := c.JobGet(bg, claim.ID)
						if err != nil || j.State != rivertype.JobStateRunning || !slices.Equal(j.AttemptedBy, claim.AttemptedBy) {
							r.Errorf("after the claim: %+v, %v", j, err)
						}
						now := time.Now()
						_, err = exec.JobSetStateIfRunningMany(bg, &riverdriver.JobSetStateIfRunningManyParams{
							ID: []int64{claim.ID}, Attempt: []*int{nil}, ErrData: [][]byte{nil}, FinalizedAt: []*time.Time{&now},
							MetadataDoMerge: []bool{false}, MetadataUpdates: [][]byte{nil}, ScheduledAt: []*time.Time{nil},
							State: []rivertype.JobState{rivertype.JobStateCompleted},
						})
						if err != nil {
							r.Errorf("complete: %v", err)
						}
						j, err = c.JobGet(bg, claim.ID)
						if err != nil || j.State != rivertype.JobStateCompleted {
							r.Errorf("after the work: %+v, %v", j, err)
						}
						mu.Lock()
						claimed = append(claimed, claim.ID)
						completed = append(completed, j.ID)
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		slices.Sort(claimed)
		slices.Sort(completed)
		r.see("claimed", claimed)
		r.see("completed", completed)
		r.riverState(c)
		r.exec(`DELETE FROM river_job`)
	})
}

// transferWorker pays once for each job, in the transaction that completes it.
type transferWorker struct {
	river.WorkerDefaults[transfer]
	db *sql.DB

	mu   sync.Mutex
	runs map[int]int // attempts of each transfer; guarded by mu
}

func (w *transferWorker) Work(ctx context.Context, job *river.Job[transfer]) error {
	n := job.Args.N
	w.mu.Lock()
	w.runs[n]++
	w.mu.Unlock()
	switch {
	case n%10 == 3 && job.Attempt == 1:
		return errors.New("once more")
	case n%10 == 5:
		return river.JobCancel(errors.New("never"))
	case n%10 == 7:
		return errors.New("not now, not ever")
	case n%10 == 9 && job.Attempt == 1 && len(job.Metadata) <= len(`{}`):
		return river.JobSnooze(0)
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (n) VALUES ($1)`, n); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[*riverdatabasesql.Driver](ctx, tx, job); err != nil {
		return err
	}
	return tx.Commit()
}

type hangWorker struct {
	river.WorkerDefaults[hang]
	started chan int64
}

func (w *hangWorker) Work(ctx context.Context, job *river.Job[hang]) error {
	w.started <- job.ID
	<-ctx.Done()
	return ctx.Err()
}

// riverAtOnce tries a failed job again without delay.
type riverAtOnce struct{}

func (riverAtOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

func TestRiverWorkers(t *testing.T) {
	same(t, func(r *run) {
		r.riverSchema()
		r.exec(`CREATE TABLE ledger (n int PRIMARY KEY)`)
		work := &transferWorker{db: r.db, runs: make(map[int]int)}
		hanging := &hangWorker{started: make(chan int64, 1)}
		workers := river.NewWorkers()
		river.AddWorker(workers, work)
		river.AddWorker(workers, hanging)

		// Two processes, as far as river can tell.
		var clients []*river.Client[*sql.Tx]
		ended := make(chan *river.Event, 1000)
		var forwarders sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			config := &river.Config{
				ID:                id,
				FetchCooldown:     5 * time.Millisecond,
				FetchPollInterval: 10 * time.Millisecond,
				Logger:            riverQuiet,
				MaxAttempts:       2,
				Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
				RetryPolicy:       riverAtOnce{},
				TestOnly:          true,
				Workers:           workers,
			}
			c, err := river.NewClient(riverdatabasesql.New(r.db), config)
			r.must(err)
			clients = append(clients, c)
			events, stop := c.Subscribe(river.EventKindJobCompleted, river.EventKindJobCancelled, river.EventKindJobFailed, river.EventKindQueuePaused, river.EventKindQueueResumed)
			forwarders.Go(func() {
				for e := range events {
					if e.Kind != river.EventKindJobFailed || e.Job.State == rivertype.JobStateDiscarded {
						ended <- e
					}
				}
			})
			r.must(c.Start(bg))
			r.Cleanup(stop)
		}
		next := func() *river.Event {
			select {
			case e := <-ended:
				return e
			case <-time.After(time.Minute):
				r.Fatal("nothing ends any more")
				return nil
			}
		}

		const jobs = 60
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := i; n < jobs; n += 4 {
					if _, err := clients[i%2].Insert(bg, transfer{n}, nil); err != nil {
						r.Errorf("insert: %v", err)
					}
				}
			})
		}
		wg.Wait()
		states := make(map[rivertype.JobState]int)
		seen := make(map[int64]bool)
		for range jobs {
			e := next()
			states[e.Job.State]++
			if seen[e.Job.ID] {
				r.Errorf("job %d ended twice", e.Job.ID)
			}
			seen[e.Job.ID] = true
		}
		r.see("ended", states)
		work.mu.Lock()
		r.see("attempts", work.runs)
		work.mu.Unlock()
		r.query(`SELECT count(*), sum(n) FROM ledger`)
		r.query(`SELECT kind, args, state::text, attempt, cardinality(attempted_by), cardinality(errors) FROM river_job ORDER BY args`)

		// Without a listener the one finds out by asking what the other was told.
		// It cannot be said which of the two has the job.
		result, err := clients[0].Insert(bg, hang{}, nil)
		r.must(err)
		r.see("hangs", <-hanging.started == result.Job.ID)
		for range 2 {
			j, err := clients[0].JobGet(bg, result.Job.ID)
			r.must(err)
			r.see("runs", j.State)
		}
		j, err := clients[0].JobGet(bg, result.Job.ID)
		r.must(err)
		other := clients[0]
		if j.AttemptedBy[0] == "a" {
			other = clients[1]
		}
		_, err = other.JobCancel(bg, result.Job.ID)
		r.must(err)
		r.must(other.QueuePause(bg, river.QueueDefault, nil))
		var kinds []river.EventKind
		for range 3 {
			kinds = append(kinds, next().Kind)
		}
		slices.Sort(kinds)
		r.see("cancelled, and paused by both", kinds)
		for range 2 {
			j, err := clients[0].JobGet(bg, result.Job.ID)
			r.must(err)
			r.see("cancelled", j.State)
		}
		result, err = other.Insert(bg, transfer{jobs + 10}, nil)
		r.must(err)
		r.must(other.QueueResume(bg, river.QueueDefault, nil))
		for {
			// Of queues that pause or resume the other client hears later, more
			// than once, or not before it stops.
			if e := next(); e.Job != nil {
				r.see("resumed", e.Kind, e.Job.ID == result.Job.ID)
				break
			}
		}

		for _, c := range clients {
			r.must(c.Stop(bg))
		}
		forwarders.Wait()
		r.query(`SELECT count(*), sum(n) FROM ledger`)
		r.query(`SELECT state::text, count(*) FROM river_job GROUP BY 1 ORDER BY 1`)
		r.query(`SELECT count(*) FROM river_leader`)
		// Who did which job, and in which order they came, is chance.
		r.exec(`DELETE FROM river_job`, `DELETE FROM river_queue`)
	})
}
