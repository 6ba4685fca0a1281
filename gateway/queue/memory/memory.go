// Package memory is the embedded queue: one process, nothing on disk, no other server. It is fair: jobs of one key
// leave in the order they came, and the keys with waiting jobs take turns that are weighed by tokens, per model and class.
//
// A [Queue] owns all its state behind one mutex; no method holds it while it waits. [Queue.Run] is the only goroutine: a
// tick that takes back expired leases, drops jobs that waited too long and publishes positions. The state machine is in
// design.md.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"qr-gateway/gateway/queue"
)

// Config bounds a queue. Start from [DefaultConfig].
type Config = queue.Config

// DefaultConfig is what a gateway without a config file runs with.
func DefaultConfig() Config { return queue.DefaultConfig() }

// Queue implements [queue.Queue].
type Queue struct {
	cfg Config

	// mu guards everything below.
	mu       sync.Mutex
	closed   bool
	records  map[string]*record // by job id: live ones, and finished ones until they are forgotten
	repeats  map[string]string  // idempotency keys, with their callers, to job ids
	running  map[string]*record // leased and streaming
	finished []*record          // in the order they ended
	lines    map[place]*line
	keys     map[string]*usage // by key, waiting jobs of all models
	waiting  usage
	waiters  []*waiter // claims that found nothing, in the order they came
	stats    queue.Stats
}

var _ queue.Queue = (*Queue)(nil)

// usage is what counts against the limits.
type usage struct{ jobs, tokens, bytes int }

// add counts a job in, or out with -1.
func (u *usage) add(j *queue.Job, n int) {
	u.jobs += n
	u.tokens += n * j.Cost
	u.bytes += n * len(j.Payload)
}

// New makes a queue. It works at once, but nothing expires until Run is called.
func New(cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check queue limits: %w", err)
	}
	return &Queue{
		cfg:     cfg,
		records: map[string]*record{},
		repeats: map[string]string{},
		running: map[string]*record{},
		lines:   map[place]*line{},
		keys:    map[string]*usage{},
	}, nil
}

// Run keeps time until ctx ends; then it closes the queue and cancels what is left in it.
func (q *Queue) Run(ctx context.Context) error {
	t := time.NewTicker(min(time.Second, q.cfg.Lease/6))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			q.close()
			return nil
		case now := <-t.C:
			q.sweep(now)
		}
	}
}

func (q *Queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, r := range q.records {
		q.cancel(r, "the gateway is shutting down")
	}
	for _, w := range q.waiters {
		close(w.ready)
	}
	q.waiters = nil
}

// Stats implements [queue.Gauge].
func (q *Queue) Stats(context.Context) (queue.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Models, s.Claims = make(map[string]queue.ModelStats, len(q.lines)), len(q.waiters)
	now := time.Now()
	for at, l := range q.lines {
		m := s.Models[at.model]
		m.Waiting += l.waiting.jobs
		m.WaitingTokens += l.waiting.tokens
		m.Running += l.running
		m.Oldest = max(m.Oldest, l.age(now))
		m.Classes[at.class] = queue.ClassStats{Waiting: l.waiting.jobs, Oldest: l.age(now)}
		s.Models[at.model] = m
	}
	return s, nil
}
