package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"qr-gateway/gateway/queue"
)

// holding is a lease of this process.
type holding struct {
	epoch int64
	lost  chan struct{}
	seq   int64 // as last reported
	taken int
}

// hold notes a lease, and whether word of its end came before it did.
func (q *Queue) hold(l queue.Lease) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &holding{epoch: l.Epoch, lost: make(chan struct{})}
	if q.closed || q.gone[l.Job.ID] >= l.Epoch {
		close(h.lost)
		return h.lost
	}
	if old := q.held[l.Job.ID]; old != nil {
		if old.epoch == l.Epoch {
			return old.lost // the same claim, answered twice
		}
		close(old.lost)
	}
	q.held[l.Job.ID] = h
	return h.lost
}

// lose takes a lease back.
func (q *Queue) lose(id string, epoch int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.held[id]
	if h == nil || h.epoch != epoch {
		q.gone[id] = max(q.gone[id], epoch)
		return
	}
	close(h.lost)
	delete(q.held, id)
}

// release forgets a lease that has ended well.
func (q *Queue) release(l queue.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.held[l.Job.ID]; h != nil && h.epoch == l.Epoch {
		delete(q.held, l.Job.ID)
	}
}

// report notes progress. It returns the newest that is known, and whether this process believes to hold the lease.
func (q *Queue) report(l queue.Lease, p queue.Progress) (queue.Progress, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.held[l.Job.ID]
	if h == nil || h.epoch != l.Epoch {
		return p, false
	}
	h.seq, h.taken = max(h.seq, p.Seq), max(h.taken, p.Cost)
	return queue.Progress{Seq: h.seq, Cost: h.taken}, true
}

// Heartbeat implements [queue.Claimer].
func (q *Queue) Heartbeat(ctx context.Context, l queue.Lease, p queue.Progress) error {
	return q.asHolder(ctx, l, p, func() (string, error) {
		return q.word(ctx, "heartbeat", l.Job.ID, l.Epoch, p.Seq, p.Cost)
	})
}

// Settle implements [queue.Claimer].
func (q *Queue) Settle(ctx context.Context, l queue.Lease, o queue.Outcome) error {
	switch o.State {
	case queue.StateDone, queue.StateFailed, queue.StateCancelled, queue.StateQueued:
	default:
		return fmt.Errorf("settle job %s: %q is not an outcome", l.Job.ID, o.State)
	}
	token := rand.Text()
	err := q.asHolder(ctx, l, queue.Progress{}, func() (string, error) {
		return q.word(ctx, "settle", l.Job.ID, l.Epoch, string(o.State), o.Cost, hidden(o.Reason), token)
	})
	if err == nil {
		q.release(l)
	}
	return err
}

// asHolder does what only the holder of a lease may. Where the server has forgotten the job though its client may have part of
// the answer, it is told of the run and asked again.
func (q *Queue) asHolder(ctx context.Context, l queue.Lease, p queue.Progress, do func() (string, error)) error {
	newest, holds := q.report(l, p)
	answer, err := do()
	if err == nil && answer == "unknown" && holds && newest.Seq > 0 {
		if err = q.restore(ctx, l, newest); err == nil {
			answer, err = do()
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("job %s, epoch %d: %w", l.Job.ID, l.Epoch, err)
	case answer == "ok":
		return nil
	case answer == "streaming":
		return fmt.Errorf("hand back job %s: the client has part of the answer; settle it as failed", l.Job.ID)
	}
	q.lose(l.Job.ID, l.Epoch)
	return fmt.Errorf("job %s, epoch %d: %w", l.Job.ID, l.Epoch, queue.ErrFenced)
}

func (q *Queue) restore(ctx context.Context, l queue.Lease, p queue.Progress) error {
	j := &l.Job
	answer, err := q.word(ctx, "restore", j.ID, l.Epoch, hidden(j.Key), line(j), j.Cost, weight(j), j.Charge(j.Cost), hidden(j.IdempotencyKey),
		q.id, hidden(l.Node), p.Seq, p.Cost)
	if err == nil && answer != "ok" {
		err = errors.New("the queue's server did not take back a run that it had forgotten")
	}
	return err
}
