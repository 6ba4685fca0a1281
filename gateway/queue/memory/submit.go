package memory

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/gateway/queue"
)

// Submit implements [queue.Submitter].
func (q *Queue) Submit(ctx context.Context, job queue.Job) (queue.Ticket, error) {
	if err := q.check(ctx, &job); err != nil {
		return queue.Ticket{}, fmt.Errorf("submit job %q: %w", job.ID, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return queue.Ticket{}, queue.ErrClosed
	}
	if r := q.known(&job); r != nil {
		return q.ticket(r), nil
	}
	r := &record{job: job, state: queue.StateQueued, submitted: time.Now(), epoch: job.Floor, charge: job.Charge(job.Cost)}
	if job.Deadline.IsZero() && q.cfg.Wait > 0 {
		r.job.Deadline = r.submitted.Add(q.cfg.Wait)
	}
	if err := q.join(r); err != nil {
		q.stats.Refused++
		return queue.Ticket{}, err
	}
	q.stats.Submitted++
	q.records[job.ID] = r
	if job.IdempotencyKey != "" {
		q.repeats[repeatOf(&job)] = job.ID
	}
	q.offer(r)
	t := q.ticket(r)
	t.Room = q.left(r, t)
	return t, nil
}

// left is what r's key may still have waiting.
func (q *Queue) left(r *record, t queue.Ticket) queue.Room {
	own, all := q.keys[r.job.Key], q.waiting
	if own == nil {
		own = &usage{}
	}
	room := queue.Room{
		Jobs:   queue.Share{Limit: q.cfg.JobsPerKey, Left: max(0, min(q.cfg.JobsPerKey-own.jobs, q.cfg.Jobs-all.jobs))},
		Tokens: queue.Share{Limit: q.cfg.TokensPerKey, Left: max(0, min(q.cfg.TokensPerKey-own.tokens, q.cfg.Tokens-all.tokens))},
	}
	switch {
	case own.jobs == 0:
	case t.Wait == 0:
		room.Reset = -1
	default:
		room.Reset = t.Wait // r is the last of its key
	}
	return room
}

// join puts a new job into its line, unless a limit forbids it. No limit counts while a node waits for such a job.
func (q *Queue) join(r *record) error {
	free := q.waiterFor(&r.job) != nil
	if err := q.room(r); err != nil && !free {
		return err
	}
	l := q.line(r)
	l.pushBack(r)
	q.enter(r)
	r.position = q.ahead(placeOf(&r.job)) + l.last(r.job.Key)
	err := q.inTime(r, l)
	if err == nil || free {
		return nil
	}
	q.leaveLine(r)
	return err
}

func (q *Queue) check(ctx context.Context, job *queue.Job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := len(job.Payload); n > q.cfg.Payload {
		return &queue.TooLargeError{What: "payload", Size: n, Max: q.cfg.Payload}
	}
	return job.Check()
}

// known is the job that a submission repeats, or nil.
func (q *Queue) known(job *queue.Job) *record {
	if r := q.records[job.ID]; r != nil {
		return r
	}
	if job.IdempotencyKey == "" {
		return nil
	}
	return q.records[q.repeats[repeatOf(job)]]
}

// repeatOf is a job's idempotency key with its caller.
func repeatOf(job *queue.Job) string { return job.Key + "\x00" + job.IdempotencyKey }

// room says whether r may wait.
func (q *Queue) room(r *record) error {
	key := q.keys[r.job.Key]
	if key == nil {
		key = &usage{}
	}
	line := q.line(r)
	gap := line.meter.gap(time.Now())
	share := times(gap, max(1, len(line.lanes))) // a key has its turn once a round
	tokens, bytes := r.job.Cost, len(r.job.Payload)
	full := func(limit string, depth, most int, wait time.Duration) error {
		return queue.Full(limit, depth, most, wait)
	}
	switch c, all := q.cfg, q.waiting; {
	case all.jobs >= c.Jobs:
		return full(queue.LimitJobs, all.jobs, c.Jobs, gap)
	case key.jobs >= c.JobsPerKey:
		return full(queue.LimitJobsPerKey, key.jobs, c.JobsPerKey, share)
	case all.over(all.tokens+tokens, c.Tokens):
		return full(queue.LimitTokens, all.tokens, c.Tokens, times(gap, all.departures(all.tokens, tokens, c.Tokens)))
	case key.over(key.tokens+tokens, c.TokensPerKey):
		return full(queue.LimitTokensPerKey, key.tokens, c.TokensPerKey, times(share, key.departures(key.tokens, tokens, c.TokensPerKey)))
	case all.over(all.bytes+bytes, c.Bytes):
		return full(queue.LimitBytes, all.bytes, c.Bytes, times(gap, all.departures(all.bytes, bytes, c.Bytes)))
	case key.over(key.bytes+bytes, c.BytesPerKey):
		return full(queue.LimitBytesPerKey, key.bytes, c.BytesPerKey, times(share, key.departures(key.bytes, bytes, c.BytesPerKey)))
	default:
		return nil
	}
}

// inTime says whether r can be expected to start before its deadline. In doubt it can.
func (q *Queue) inTime(r *record, l *line) error {
	gap := l.meter.least()
	if r.job.Deadline.IsZero() || gap == 0 {
		return nil
	}
	wait, within := times(gap, r.position), r.job.Deadline.Sub(r.submitted)
	if wait <= within {
		return nil
	}
	e := queue.Full(queue.LimitDeadline, r.position, 0, wait-within)
	e.Wait, e.Within = wait.Round(time.Second), max(0, within.Round(time.Millisecond))
	return e
}

// over says whether one more job would pass a limit. A job alone always fits, or it never would.
func (u usage) over(sum, limit int) bool { return u.jobs > 0 && sum > limit }

// departures is how many jobs must leave until one more fits, by the mean of those waiting.
func (u usage) departures(have, more, limit int) int {
	mean := max(1, have/max(1, u.jobs))
	return min(u.jobs, (have+more-limit+mean-1)/mean)
}

func times(d time.Duration, n int) time.Duration { return d * time.Duration(n) }

// enter and leaveLine keep the counts of waiting jobs.
func (q *Queue) enter(r *record) {
	key := q.keys[r.job.Key]
	if key == nil {
		key = &usage{}
		q.keys[r.job.Key] = key
	}
	q.waiting.add(&r.job, 1)
	key.add(&r.job, 1)
}

func (q *Queue) leaveLine(r *record) {
	q.line(r).remove(r)
	key := q.keys[r.job.Key]
	q.waiting.add(&r.job, -1)
	key.add(&r.job, -1)
	if key.jobs == 0 {
		delete(q.keys, r.job.Key)
	}
}

func (q *Queue) line(r *record) *line {
	at := placeOf(&r.job)
	l := q.lines[at]
	if l == nil {
		l = newLine()
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
	t := queue.Ticket{ID: r.job.ID, State: r.state}
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
