package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"qr-gateway/gateway/queue"
)

// claimant is a claim that waits.
type claimant struct {
	offer  queue.Offer
	waiter string        // its name
	wake   chan struct{} // one place
	noted  bool          // the server knows that it waits
}

func (c *claimant) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Claim implements [queue.Claimer]. It asks once, then whenever a job is published that it may have, and at each poll.
func (q *Queue) Claim(ctx context.Context, offer queue.Offer) (queue.Lease, error) {
	if ctx.Err() != nil {
		return queue.Lease{}, context.Cause(ctx)
	}
	c := &claimant{offer: offer, waiter: rand.Text(), wake: make(chan struct{}, 1)}
	if !q.enter(c) {
		return queue.Lease{}, queue.ErrClosed
	}
	defer q.waits.Done()
	lease, err := q.await(ctx, c)
	q.leave(c)
	if err != nil {
		q.withdraw(ctx, c)
	}
	return lease, err
}

// enter registers a claim before it first asks, so that it misses nothing.
func (q *Queue) enter(c *claimant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waits.Add(1)
	q.claims[c.waiter] = c
	return true
}

func (q *Queue) leave(c *claimant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.claims, c.waiter)
}

func (q *Queue) await(ctx context.Context, c *claimant) (queue.Lease, error) {
	poll := time.NewTicker(q.cfg.Poll)
	defer poll.Stop()
	for {
		lease, found, err := q.ask(ctx, c)
		if found || err != nil {
			return lease, err
		}
		select {
		case <-c.wake:
		case <-poll.C:
		case <-q.stop:
			return queue.Lease{}, queue.ErrClosed
		case <-ctx.Done():
			return queue.Lease{}, context.Cause(ctx)
		}
	}
}

// tries is how often a claim is sent when its answer is lost. Each try has the same token: what the first has taken the next
// one gets.
const tries = 3

// ask asks for a job. It is not cut short by ctx, for then the server might give a job to nobody.
func (q *Queue) ask(ctx context.Context, c *claimant) (lease queue.Lease, found bool, err error) {
	token := rand.Text()
	var reply any
	for try := range tries {
		reply, err = q.askOnce(ctx, c, token)
		if err == nil || ctx.Err() != nil || errors.Is(err, queue.ErrClosed) || !q.pause(ctx, time.Duration(try+1)*50*time.Millisecond) {
			break
		}
	}
	if err != nil || reply == nil {
		return queue.Lease{}, false, err
	}
	lease, err = q.take(list(reply), c.offer.Node)
	if err == nil && ctx.Err() != nil {
		return queue.Lease{}, false, errors.Join(context.Cause(ctx), q.giveBack(ctx, lease))
	}
	return lease, err == nil, err
}

func (q *Queue) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-q.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

func (q *Queue) askOnce(ctx context.Context, c *claimant, token string) (any, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.Timeout)
	defer stop()
	o, noted := &c.offer, c.noted
	c.noted = true
	return q.run(ctx, "claim", token, hidden(o.Node), q.id, c.waiter, int(o.Least), words(o.Models), words(o.Loaded), hashes(o.Warm), noted)
}

func (q *Queue) giveBack(ctx context.Context, l queue.Lease) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.Timeout)
	defer stop()
	return q.Settle(ctx, l, queue.Outcome{State: queue.StateQueued})
}

// withdraw tells the server that a claim waits no more. If that is lost, the server forgets it soon.
func (q *Queue) withdraw(ctx context.Context, c *claimant) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.Timeout)
	defer stop()
	if _, err := q.run(ctx, "withdraw", c.waiter, words(c.offer.Models)); err != nil {
		q.deps.Log.DebugContext(ctx, "withdraw claim", "error", err)
	}
}

// take reads id, epoch, time left, parcel.
func (q *Queue) take(v []any, node string) (queue.Lease, error) {
	if len(v) != 4 {
		return queue.Lease{}, errors.New("claim a job: what the queue's server answers is not whole")
	}
	job, err := openParcel([]byte(text(v[3])))
	if err != nil {
		return queue.Lease{}, fmt.Errorf("claim job %s: %w", text(v[0]), err)
	}
	job.ID = text(v[0])
	if left := micros(v[2]); left != 0 {
		job.Deadline = time.Now().Add(left)
	}
	lease := queue.Lease{Job: job, Epoch: number(v[1]), Node: node}
	lease.Lost = q.hold(lease)
	return lease, nil
}

// nudge asks again for the claims that may have a job of this line; an empty model means any.
func (q *Queue) nudge(model string, class queue.Class) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.claims {
		if model == "" || class <= c.offer.Least && slices.Contains(c.offer.Models, model) {
			c.nudge()
		}
	}
}

// words is a list for a script.
func words(list []string) string {
	var b strings.Builder
	for i, w := range list {
		if i > 0 {
			b.WriteByte(1)
		}
		b.WriteString(hidden(w))
	}
	return b.String()
}

func hashes(list []uint64) string {
	var b []byte
	for i, h := range list {
		if i > 0 {
			b = append(b, 1)
		}
		b = strconv.AppendUint(b, h, 16)
	}
	return string(b)
}
