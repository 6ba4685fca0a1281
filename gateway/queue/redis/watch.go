package redis

import (
	"context"
	"fmt"
	"slices"

	"qr-gateway/gateway/queue"
)

// topic is a job that somebody watches. The queue's mutex guards it.
type topic struct {
	newest   news
	watchers []*watcher
	due      int // ticks until it is polled
}

// watcher hands the newest status to one reader.
type watcher struct {
	ch   chan queue.Status // one place: what the reader has not taken is replaced
	sent news
	stop func() bool // ends the wait for the reader's context
}

// send hands on what is news to the reader.
func (w *watcher) send(n news) {
	if n.revision < w.sent.revision || n.revision == w.sent.revision && n.Position == w.sent.Position {
		return
	}
	w.sent = n
	select {
	case <-w.ch:
	default:
	}
	w.ch <- n.Status
}

func (t *topic) close() {
	for _, w := range t.watchers {
		if w.stop != nil {
			w.stop()
		}
		close(w.ch)
	}
	t.watchers = nil
}

// Watch implements [queue.Submitter].
func (q *Queue) Watch(ctx context.Context, id string) (<-chan queue.Status, error) {
	w := &watcher{ch: make(chan queue.Status, 1), sent: news{revision: -1}}
	if err := q.follow(ctx, id, w); err != nil {
		return nil, err
	}
	all, err := q.look(ctx, id)
	if err == nil && all[0].State == "" {
		err = queue.ErrUnknown
	}
	if err != nil {
		q.unwatch(id, w)
		return nil, fmt.Errorf("watch job %q: %w", id, err)
	}
	q.spread(all[0])
	return w.ch, nil
}

// follow registers a watcher before it looks, so that it misses nothing.
func (q *Queue) follow(ctx context.Context, id string, w *watcher) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return queue.ErrClosed
	}
	t := q.watched[id]
	if t == nil {
		t = &topic{due: often}
		q.watched[id] = t
	}
	t.watchers = append(t.watchers, w)
	w.stop = context.AfterFunc(ctx, func() { q.unwatch(id, w) })
	return nil
}

func (q *Queue) unwatch(id string, w *watcher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.watched[id]
	if t == nil {
		return
	}
	i := slices.Index(t.watchers, w)
	if i < 0 {
		return
	}
	w.stop()
	t.watchers = slices.Delete(t.watchers, i, i+1)
	close(w.ch)
	if len(t.watchers) == 0 {
		delete(q.watched, id)
	}
}

// look asks how jobs stand, and to be told of what follows.
func (q *Queue) look(ctx context.Context, ids ...string) ([]news, error) {
	args := []any{q.id}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := q.run(ctx, "watch", args...)
	if err != nil {
		return nil, err
	}
	rows := list(reply)
	if len(rows) != len(ids) {
		return nil, fmt.Errorf("the queue's server answers %d of %d jobs", len(rows), len(ids))
	}
	out := make([]news, len(rows))
	for i, row := range rows {
		if out[i], err = readNews(list(row)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// spread tells those who watch a job how it stands. A job without a state is lost: Watch again will say so.
func (q *Queue) spread(n news) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.watched[n.id]
	if t == nil {
		return
	}
	if n.State != "" {
		for _, w := range t.watchers {
			w.send(n)
		}
		if n.revision >= t.newest.revision {
			t.newest = n
		}
	}
	if n.State == "" || n.State.Terminal() {
		t.close()
		delete(q.watched, n.id)
	}
}
