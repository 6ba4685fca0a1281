package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"qr-gateway/gateway/queue"
)

// Submit implements [queue.Submitter].
func (q *Queue) Submit(ctx context.Context, job queue.Job) (queue.Ticket, error) {
	if err := q.check(ctx, &job); err != nil {
		return queue.Ticket{}, fmt.Errorf("submit job %q: %w", job.ID, err)
	}
	reply, err := q.run(ctx, "submit", job.ID, hidden(job.Key), line(&job), job.Cost, weight(&job), job.Charge(job.Cost),
		q.patience(&job).Microseconds(), hidden(job.IdempotencyKey), job.Floor, q.id, len(job.Payload), parcel(&job))
	if err != nil {
		return queue.Ticket{}, err
	}
	v := list(reply)
	t, err := readTicket(v)
	if err == nil && len(v) == 9 {
		t.Room = q.left(v[5:], t)
	}
	return t, err
}

// left reads what a key has waiting, and what all have: jobs and tokens.
func (q *Queue) left(v []any, t queue.Ticket) queue.Room {
	own, ownTokens, all, tokens := int(number(v[0])), int(number(v[1])), int(number(v[2])), int(number(v[3]))
	c := &q.cfg
	r := queue.Room{
		Jobs:   queue.Share{Limit: c.JobsPerKey, Left: max(0, min(c.JobsPerKey-own, c.Jobs-all))},
		Tokens: queue.Share{Limit: c.TokensPerKey, Left: max(0, min(c.TokensPerKey-ownTokens, c.Tokens-tokens))},
	}
	switch {
	case own == 0:
	case t.Wait == 0:
		r.Reset = -1
	default:
		r.Reset = t.Wait
	}
	return r
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

// line is the name of the line that a job waits in.
func line(j *queue.Job) string { return strconv.Itoa(int(j.Class)) + ":" + hidden(j.Model) }

func weight(j *queue.Job) float64 {
	if j.Weight == 0 {
		return 1
	}
	return j.Weight
}

// patience is how long a job may wait, so that only the server's clock counts from here on; 0 is no limit.
func (q *Queue) patience(j *queue.Job) time.Duration {
	if j.Deadline.IsZero() {
		return q.cfg.Wait
	}
	return max(time.Microsecond, time.Until(j.Deadline))
}

func readTicket(reply []any) (queue.Ticket, error) {
	switch {
	case (len(reply) == 5 || len(reply) == 9) && text(reply[0]) == "ok":
		return queue.Ticket{
			ID: text(reply[1]), State: queue.State(text(reply[2])), Position: int(number(reply[3])), Wait: micros(reply[4]),
		}, nil
	case len(reply) >= 5 && text(reply[0]) == "full":
		e := queue.Full(text(reply[1]), int(number(reply[2])), int(number(reply[3])), micros(reply[4]))
		if len(reply) == 7 {
			e.Wait, e.Within = micros(reply[5]).Round(time.Second), micros(reply[6]).Round(time.Millisecond)
		}
		return queue.Ticket{}, e
	default:
		return queue.Ticket{}, errors.New("submit a job: what the queue's server answers is not whole")
	}
}

// Cancel implements [queue.Submitter].
func (q *Queue) Cancel(ctx context.Context, id, reason string) error {
	answer, err := q.word(ctx, "cancel", id, hidden(reason))
	if err == nil && answer == "unknown" {
		err = queue.ErrUnknown
	}
	if err != nil {
		return fmt.Errorf("cancel job %q: %w", id, err)
	}
	return nil
}
