package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

// waiter is a claim that found nothing. The queue's mutex guards it; lease may be read once ready is closed.
type waiter struct {
	offer queue.Offer
	lease queue.Lease // the zero lease when the queue closed
	ready chan struct{}
}

// Claim implements [queue.Claimer].
func (q *Queue) Claim(ctx context.Context, offer queue.Offer) (queue.Lease, error) {
	w, err := q.claim(ctx, offer)
	if err != nil {
		return queue.Lease{}, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		q.withdraw(w)
		return queue.Lease{}, context.Cause(ctx)
	}
	if w.lease.Job.ID == "" {
		return queue.Lease{}, queue.ErrClosed
	}
	return w.lease, nil
}

// claim grants a job at once if one waits, else it leaves a waiter.
func (q *Queue) claim(ctx context.Context, offer queue.Offer) (*waiter, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, queue.ErrClosed
	}
	w := &waiter{offer: offer, ready: make(chan struct{})}
	now := time.Now()
	if r := q.pick(&w.offer, now); r != nil {
		q.line(r).meter.depart(now) // a job that found a free node says nothing of how fast the line drains
		q.grant(r, w)
	} else {
		q.waiters = append(q.waiters, w)
	}
	return w, nil
}

// late says that a waiting job has passed its deadline.
func (r *record) late(now time.Time) bool {
	return !r.job.Deadline.IsZero() && !now.Before(r.job.Deadline)
}

func (q *Queue) expire(r *record) {
	waited := time.Since(r.submitted).Round(time.Millisecond)
	q.finish(r, queue.StateExpired, fmt.Sprintf("no worker was free within %s", waited))
}

// grant gives r to the claim behind w.
func (q *Queue) grant(r *record, w *waiter) {
	now, l := time.Now(), q.line(r)
	l.serve(r)
	if q.move(r, queue.StateLeased) != nil {
		return
	}
	r.epoch++
	r.node, r.position, r.seq = w.offer.Node, 0, 0
	r.expires, r.moved = now.Add(q.cfg.Lease), now
	r.lost = make(chan struct{})
	l.running++
	q.running[r.job.ID] = r
	w.lease = queue.Lease{Job: r.job, Epoch: r.epoch, Node: r.node, Lost: r.lost}
	close(w.ready)
	q.publish(r)
}

// offer gives a job that has just joined to a claim that waits for one like it.
func (q *Queue) offer(r *record) {
	w := q.waiterFor(&r.job)
	if w == nil {
		return
	}
	if next := q.pick(&w.offer, time.Now()); next != nil {
		q.drop(w)
		q.grant(next, w)
	}
}

func (q *Queue) waiterFor(j *queue.Job) *waiter {
	for _, w := range q.waiters {
		if j.Class <= w.offer.Least && slices.Contains(w.offer.Models, j.Model) {
			return w
		}
	}
	return nil
}

func (q *Queue) drop(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
}

// withdraw takes back a claim whose context has ended. If a job was granted in the same moment it goes back unharmed.
func (q *Queue) withdraw(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(w)
	if w.lease.Job.ID == "" {
		return
	}
	if r, err := q.holder(w.lease); err == nil {
		q.requeue(r, "")
	}
}

// holder finds the job that a lease is for, if the lease is still good.
func (q *Queue) holder(l queue.Lease) (*record, error) {
	r := q.running[l.Job.ID]
	if r == nil || r.epoch != l.Epoch {
		q.stats.Fenced++
		return nil, fmt.Errorf("job %s, epoch %d: %w", l.Job.ID, l.Epoch, queue.ErrFenced)
	}
	return r, nil
}

// Heartbeat implements [queue.Claimer].
func (q *Queue) Heartbeat(_ context.Context, lease queue.Lease, p queue.Progress) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.holder(lease)
	if err != nil {
		return err
	}
	now := time.Now()
	r.expires = now.Add(q.cfg.Lease)
	r.taken = max(r.taken, p.Cost)
	if p.Seq <= r.seq {
		return nil
	}
	r.seq, r.moved = p.Seq, now
	if r.state == queue.StateLeased && q.move(r, queue.StateStreaming) == nil {
		q.publish(r)
	}
	return nil
}

// Settle implements [queue.Claimer].
func (q *Queue) Settle(_ context.Context, lease queue.Lease, o queue.Outcome) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.holder(lease)
	if err != nil {
		return err
	}
	switch o.State {
	case queue.StateDone, queue.StateFailed, queue.StateCancelled:
		q.finish(r, o.State, o.Reason)
		q.settle(r, o.Cost)
		return nil
	case queue.StateQueued:
		return q.handBack(r, o.Reason)
	default:
		return fmt.Errorf("settle job %s: %q is not an outcome", r.job.ID, o.State)
	}
}

func (q *Queue) handBack(r *record, reason string) error {
	switch {
	case r.state == queue.StateStreaming:
		return fmt.Errorf("hand back job %s: the client has part of the answer; settle it as failed", r.job.ID)
	case reason != "":
		q.retry(r, reason)
	default:
		q.requeue(r, "")
	}
	return nil
}
