package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"qr-gateway/gateway/queue"
)

// Submit implements [queue.Submitter].
func (q *Queue) Submit(ctx context.Context, job queue.Job) (queue.Ticket, error) {
	if err := check(ctx, job); err != nil {
		return queue.Ticket{}, fmt.Errorf("submit job %q: %w", job.ID, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return queue.Ticket{}, queue.ErrClosed
	}
	if r := q.records[job.ID]; r != nil {
		return q.ticket(r), nil
	}
	r := &record{job: job, state: queue.StateQueued, submitted: time.Now()}
	if job.Deadline.IsZero() && q.cfg.Wait > 0 {
		r.job.Deadline = r.submitted.Add(q.cfg.Wait)
	}
	w := q.waiterFor(&job)
	if err := q.room(r); w == nil && err != nil {
		q.stats.Refused++
		return queue.Ticket{}, err
	}
	q.stats.Submitted++
	q.records[job.ID] = r
	q.line(r).pushBack(r)
	q.enter(r)
	q.offer(r)
	return q.ticket(r), nil
}

func check(ctx context.Context, job queue.Job) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case job.ID == "":
		return errors.New("a job needs an id")
	case job.Model == "":
		return errors.New("a job needs a model")
	case job.Class < queue.ClassChat || job.Class > queue.ClassTask:
		return fmt.Errorf("class is %d; it can be %d or %d", job.Class, queue.ClassChat, queue.ClassTask)
	case job.Cost < 0:
		return fmt.Errorf("cost is %d; it can't be negative", job.Cost)
	default:
		return nil
	}
}

// room says whether r may wait.
func (q *Queue) room(r *record) error {
	key := q.keys[r.job.Key]
	if key == nil {
		key = &usage{}
	}
	line := q.line(r)
	gap := line.meter.gap(time.Now())
	share := times(gap, max(1, len(line.lanes))) // a key has its turn once a round
	switch c := q.cfg; {
	case q.waiting.jobs >= c.Jobs:
		return full(queue.LimitJobs, q.waiting.jobs, c.Jobs, gap)
	case key.jobs >= c.JobsPerKey:
		return full(queue.LimitJobsPerKey, key.jobs, c.JobsPerKey, share)
	case q.waiting.over(r.job.Cost, c.Tokens) > 0:
		return full(queue.LimitTokens, q.waiting.tokens, c.Tokens, times(gap, q.waiting.departures(r.job.Cost, c.Tokens)))
	case key.over(r.job.Cost, c.TokensPerKey) > 0:
		return full(queue.LimitTokensPerKey, key.tokens, c.TokensPerKey, times(share, key.departures(r.job.Cost, c.TokensPerKey)))
	default:
		return nil
	}
}

// over is by how many tokens one more job would pass the limit. A job alone always fits, or it never would.
func (u usage) over(cost, limit int) int {
	if u.jobs == 0 {
		return 0
	}
	return max(0, u.tokens+cost-limit)
}

// departures is how many jobs must leave until the cost fits, by the mean cost of those waiting.
func (u usage) departures(cost, limit int) int {
	mean := max(1, u.tokens/max(1, u.jobs))
	return min(u.jobs, (u.over(cost, limit)+mean-1)/mean)
}

func times(d time.Duration, n int) time.Duration { return d * time.Duration(n) }

// full rounds the wait up to whole seconds, 1 to 60: clients read it from a header in seconds.
func full(limit string, depth, most int, wait time.Duration) error {
	seconds := min(max(1, int((wait+time.Second-1)/time.Second)), 60)
	return &queue.FullError{
		Limit: limit, Depth: depth, Max: most, RetryAfter: times(time.Second, seconds),
	}
}

// enter and leaveLine keep the counts of waiting jobs.
func (q *Queue) enter(r *record) {
	key := q.keys[r.job.Key]
	if key == nil {
		key = &usage{}
		q.keys[r.job.Key] = key
	}
	for _, u := range []*usage{&q.waiting, key} {
		u.jobs++
		u.tokens += r.job.Cost
	}
}

func (q *Queue) leaveLine(r *record) {
	q.line(r).remove(r)
	key := q.keys[r.job.Key]
	for _, u := range []*usage{&q.waiting, key} {
		u.jobs--
		u.tokens -= r.job.Cost
	}
	if key.jobs == 0 {
		delete(q.keys, r.job.Key)
	}
}

func (q *Queue) line(r *record) *line {
	at := placeOf(&r.job)
	l := q.lines[at]
	if l == nil {
		l = &line{lanes: map[string]*lane{}}
		q.lines[at] = l
	}
	return l
}

// ahead is how many jobs of more urgent classes wait for the same model.
func (q *Queue) ahead(at place) int {
	n := 0
	for class := queue.ClassChat; class < at.class; class++ {
		if l := q.lines[place{at.model, class}]; l != nil {
			n += l.waiting.jobs
		}
	}
	return n
}

func (q *Queue) ticket(r *record) queue.Ticket {
	t := queue.Ticket{State: r.state}
	if r.state == queue.StateQueued {
		l := q.line(r)
		if r.position == 0 {
			r.position = q.ahead(placeOf(&r.job)) + l.last(r.job.Key)
		}
		t.Position, t.Wait = r.position, l.wait(r.position)
	}
	return t
}

// wait estimates how long a job at this position has to wait; 0 is unknown.
func (l *line) wait(position int) time.Duration {
	return times(l.meter.gap(time.Now()), position)
}

// Cancel implements [queue.Submitter].
func (q *Queue) Cancel(_ context.Context, id, reason string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.records[id]
	if r == nil {
		return fmt.Errorf("cancel job %q: %w", id, queue.ErrUnknown)
	}
	q.cancel(r, reason)
	return nil
}
