package redis

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/queue"
)

// How many ticks go by until a job is polled: one that is soon to run, one that runs, and one far behind.
const (
	often  = 1
	seldom = 2
	rarely = 10
	near   = 20 // positions
	most   = 100
)

// listen hands on what is published to this process, until ctx ends. What was published while the connection was broken is
// polled for when it is back.
func (q *Queue) listen(ctx context.Context) {
	own := q.base + ":c:" + q.id
	sub := q.db.Subscribe(ctx, own, q.base+":wake")
	defer func() { _ = sub.Close() }() // there is nobody to tell
	in := sub.ChannelWithSubscriptions(client.WithChannelSize(1024))
	for {
		select {
		case <-ctx.Done():
			return
		case m, open := <-in:
			if !open {
				return
			}
			switch m := m.(type) {
			case *client.Subscription:
				q.caughtUp()
			case *client.Message:
				q.hear(m.Channel == own, m.Payload)
			}
		}
	}
}

// caughtUp has everything polled at the next tick, and claims ask at once.
func (q *Queue) caughtUp() {
	q.mu.Lock()
	for _, t := range q.watched {
		t.due = 0
	}
	ids := make([]string, 0, len(q.readers))
	for id := range q.readers {
		ids = append(ids, id)
	}
	q.mu.Unlock()
	for _, id := range ids {
		q.grown(id)
	}
	q.nudge("", 0)
}

// hear takes one message: to all, the line of a new job; to this process, a list that begins with what it is about.
func (q *Queue) hear(own bool, payload string) {
	if !own {
		class, model, _ := strings.Cut(shown(payload), ":")
		n, err := strconv.Atoi(class)
		if err == nil {
			q.nudge(model, queue.Class(n))
		}
		return
	}
	var words []any
	if err := json.Unmarshal([]byte(payload), &words); err != nil || len(words) < 2 {
		return // the poll makes up for it
	}
	switch text(words[0]) {
	case "s":
		if n, err := readNews(words[1:]); err == nil {
			q.spread(n)
		}
	case "l":
		q.grown(text(words[1]))
	case "x":
		if len(words) == 3 {
			q.lose(text(words[1]), number(words[2]))
		}
	}
}

// keep keeps time until ctx ends.
func (q *Queue) keep(ctx context.Context) {
	t := time.NewTicker(min(time.Second, q.cfg.Lease/6))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := q.tick(ctx); err != nil && ctx.Err() == nil {
				q.deps.Log.WarnContext(ctx, "keep queue", "error", err)
			}
		}
	}
}

// tick says that this process is alive, sweeps, and polls.
func (q *Queue) tick(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, q.cfg.Timeout)
	defer stop()
	if _, err := q.run(ctx, "alive", q.id, 1); err != nil {
		return err
	}
	for more := true; more; {
		reply, err := q.run(ctx, "sweep")
		if err != nil {
			return err
		}
		more = number(reply) == 1
	}
	return q.poll(ctx)
}

// poll asks how the jobs stand whose turn it is.
func (q *Queue) poll(ctx context.Context) error {
	ids := q.due()
	for len(ids) > 0 {
		n := min(len(ids), most)
		all, err := q.look(ctx, ids[:n]...)
		if err != nil {
			return err
		}
		for _, one := range all {
			q.spread(one)
		}
		ids = ids[n:]
	}
	return nil
}

// due lists the jobs to poll.
func (q *Queue) due() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.gone) // long known to those who held them
	var ids []string
	for id, t := range q.watched {
		if t.due--; t.due > 0 {
			continue
		}
		ids = append(ids, id)
		switch s := t.newest; {
		case s.State != queue.StateQueued:
			t.due = seldom
		case s.Position <= near:
			t.due = often
		default:
			t.due = rarely
		}
	}
	return ids
}
