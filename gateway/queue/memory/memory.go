// Package memory is the embedded queue: one process, nothing on disk, no other server. It is fair by turns: jobs of one key
// leave in the order they came, and the keys with waiting jobs take turns, per model and class.
//
// A [Queue] owns all its state behind one mutex; no method holds it while it waits. [Queue.Run] is the only goroutine: a
// tick that takes back expired leases, drops jobs that waited too long and publishes positions. The state machine is in
// design.md.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"qr-gateway/gateway/queue"
)

// Config bounds a queue. Start from [DefaultConfig].
type Config struct {
	// Waiting jobs, in all and of one key; those that run don't count. At least 1.
	Jobs, JobsPerKey int
	// Tokens (cost) of waiting jobs, in all and of one key. At least 1. A job alone in the line is taken whatever it costs.
	Tokens, TokensPerKey int
	Wait                 time.Duration // a job without a deadline of its own must be claimed within this time; 0 is no limit
	Lease                time.Duration // without a heartbeat for this long the lease is lost
	Stall                time.Duration // a streaming job whose progress stands still for this long loses its lease; 0 is off
	Attempts             int           // leases a job may lose before its first token; at least 1
	Keep                 time.Duration // how long a finished job's id is remembered
	KeepJobs             int           // how many finished ids are remembered at most
}

// DefaultConfig is what a gateway without a config file runs with.
func DefaultConfig() Config {
	return Config{
		Jobs: 256, JobsPerKey: 64, Tokens: 2_000_000, TokensPerKey: 1_000_000,
		Wait: 10 * time.Minute, Lease: 6 * time.Second, Stall: 2 * time.Minute,
		Attempts: 2, Keep: 10 * time.Minute, KeepJobs: 4096,
	}
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	return errors.Join(
		atLeast("jobs", c.Jobs, 1), atLeast("jobs_per_key", c.JobsPerKey, 1),
		atLeast("tokens", c.Tokens, 1), atLeast("tokens_per_key", c.TokensPerKey, 1),
		atLeast("attempts", c.Attempts, 1), atLeast("keep jobs", c.KeepJobs, 0),
		atLeast("lease", c.Lease, 10*time.Millisecond),
		atLeast("wait limit", c.Wait, 0), atLeast("stall limit", c.Stall, 0), atLeast("keep time", c.Keep, 0),
	)
}

func atLeast[T int | time.Duration](name string, value, least T) error {
	if value >= least {
		return nil
	}
	return fmt.Errorf("%s is %v; it must be at least %v", name, value, least)
}

// Queue implements [queue.Queue].
type Queue struct {
	cfg Config

	// mu guards everything below.
	mu       sync.Mutex
	closed   bool
	records  map[string]*record // by job id: live ones, and finished ones until they are forgotten
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
type usage struct{ jobs, tokens int }

// New makes a queue. It works at once, but nothing expires until Run is called.
func New(cfg Config) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check queue limits: %w", err)
	}
	return &Queue{
		cfg:     cfg,
		records: map[string]*record{},
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
	s.Models = make(map[string]queue.ModelStats, len(q.lines))
	now := time.Now()
	for at, l := range q.lines {
		m := s.Models[at.model]
		s.Models[at.model] = queue.ModelStats{
			Waiting: m.Waiting + l.waiting.jobs, WaitingTokens: m.WaitingTokens + l.waiting.tokens, Running: m.Running + l.running,
			Oldest: max(m.Oldest, l.oldest(now)),
		}
	}
	return s, nil
}
