package memory

import (
	"context"
	"fmt"
	"slices"

	"qr-gateway/gateway/queue"
)

// watcher hands the newest status to one reader. The queue's mutex guards it; only its holder sends and closes.
type watcher struct {
	ch   chan queue.Status // one place: what the reader has not taken is replaced
	stop func() bool       // ends the wait for the reader's context
}

func (w *watcher) send(s queue.Status) {
	select {
	case <-w.ch:
	default:
	}
	w.ch <- s
}

// Watch implements [queue.Submitter].
func (q *Queue) Watch(ctx context.Context, id string) (<-chan queue.Status, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.records[id]
	if r == nil {
		return nil, fmt.Errorf("watch job %q: %w", id, queue.ErrUnknown)
	}
	w := &watcher{ch: make(chan queue.Status, 1)}
	w.send(q.status(r))
	if r.state.Terminal() {
		close(w.ch)
		return w.ch, nil
	}
	r.watchers = append(r.watchers, w)
	w.stop = context.AfterFunc(ctx, func() { q.unwatch(r, w) })
	return w.ch, nil
}

func (q *Queue) unwatch(r *record, w *watcher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(r.watchers, w); i >= 0 {
		r.watchers = slices.Delete(r.watchers, i, i+1)
		close(w.ch)
	}
}

func (q *Queue) status(r *record) queue.Status {
	t := q.ticket(r)
	return queue.Status{State: r.state, Epoch: r.epoch, Position: t.Position, Wait: t.Wait, Reason: r.reason}
}

// publish tells everybody who watches r, and closes their channels when nothing more can come.
func (q *Queue) publish(r *record) {
	if len(r.watchers) == 0 {
		return
	}
	s := q.status(r)
	for _, w := range r.watchers {
		w.send(s)
	}
	if !r.state.Terminal() {
		return
	}
	for _, w := range r.watchers {
		w.stop()
		close(w.ch)
	}
	r.watchers = nil
}
