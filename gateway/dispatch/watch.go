package dispatch

import (
	"context"
	"errors"
	"time"

	"qr-gateway/gateway/queue"
)

// watch follows a job in the queue. The gateway keeps each request until it has ended, so that what the queue forgets can be
// submitted again. It belongs to the goroutine that called Do.
type watch struct {
	queue    queue.Submitter
	hub      *Dispatcher
	job      queue.Job
	patience time.Duration

	states <-chan queue.Status // nil while there is nothing to watch
	timer  *time.Timer         // runs while there is not
	pause  time.Duration       // before the next try
	lost   time.Time           // since when the queue doesn't know the job; zero if it does
}

// Pauses between tries to find a job again.
const (
	shortPause = 100 * time.Millisecond
	longPause  = time.Second
)

// round separates the epochs of two submissions of one job: leases of the first that nobody here has heard of are below those of
// the second.
const round = 1 << 20

// again is due when it is time to try once more.
func (w *watch) again() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// begin watches the job, and submits it again if the queue has forgotten it. A queue that can't be reached is tried again
// later: a run that is under way needs none. Its error ends the job.
func (w *watch) begin(ctx context.Context, f *follower) error {
	w.states = nil
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	states, err := w.queue.Watch(ctx, w.job.ID)
	if errors.Is(err, queue.ErrUnknown) {
		states, err = w.forgotten(ctx, f)
	}
	switch {
	case err == nil:
		w.states, w.pause, w.lost = states, 0, time.Time{}
		w.stop()
		w.timer = nil
		return w.first(f)
	case errors.Is(err, queue.ErrClosed), errors.As(err, new(*RepeatError)): // the latter: somebody else was first, after the queue forgot it
		w.stop()
		w.timer = nil
		return queueError(err)
	case errors.Is(err, errGivenUp):
		return lost("the queue has lost the request, and its node is silent")
	}
	w.later()
	return nil
}

// errGivenUp is for a job that nobody knows of any more.
var errGivenUp = errors.New("nobody knows the job")

// first takes the first status at once: frames of a run that has no right to the job any more must not come before it.
func (w *watch) first(f *follower) error {
	select {
	case s, open := <-w.states:
		if open && !s.State.Terminal() { // a terminal one needs the frames that came before it
			return f.status(s, nil)
		}
		if open {
			w.states = replay(s)
		}
	default:
	}
	return nil
}

// replay is a channel with one last status.
func replay(s queue.Status) <-chan queue.Status {
	out := make(chan queue.Status, 1)
	out <- s
	return out
}

// forgotten submits a job again that nothing has come of. If the client has part of the answer that would begin another one:
// then the node has to tell the queue of its run, which it does with its next heartbeat.
func (w *watch) forgotten(ctx context.Context, f *follower) (<-chan queue.Status, error) {
	if w.lost.IsZero() {
		w.lost = time.Now()
	}
	if f.content {
		if silent := time.Since(later(w.lost, f.last)); silent >= w.patience {
			return nil, errGivenUp
		}
		return nil, queue.ErrUnknown
	}
	w.job.Floor = (f.epoch/round + 1) * round
	if _, err := w.submit(ctx); err != nil {
		return nil, err
	}
	w.hub.retried(w.job.Model, RetryAgain)
	return w.queue.Watch(ctx, w.job.ID)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// later sets the time of the next try.
func (w *watch) later() {
	w.pause = min(longPause, max(shortPause, 2*w.pause))
	w.stop()
	w.timer = time.NewTimer(w.pause)
}
