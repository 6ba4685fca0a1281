// Package node runs jobs: it claims them from a queue for the models it hosts, gives each to its backend, keeps the lease
// alive and sends what the backend emits to the gateway that waits for it.
//
// A [Node] has one goroutine per model that claims, as long as a worker is free (the last free one is for chats), and for each job one that runs it and one
// that sends its heartbeats, so a slow decode or a slow client never costs the lease. A third one writes the log of a job that has one. [Node.Run] waits for all of them.
// When its context ends it stops claiming, gives the running jobs some grace, then cancels them: what the client has not
// seen anything of goes back to the queue, and an answer that has begun ends with [dispatch.CodeDrained], for another node to take it up.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// Config is how a node behaves.
type Config struct {
	Name      string        // unique among the nodes of a queue
	Heartbeat time.Duration // between heartbeats; at most half the queue's lease
	Grace     time.Duration // for running jobs when the node drains
	Pause     time.Duration // before claiming again, after a backend or the queue was not there
	Batch     time.Duration // between what is written into the log of a job
}

// DefaultConfig fits the default queue.
func DefaultConfig() Config {
	return Config{Name: "embedded", Heartbeat: 2 * time.Second, Grace: 30 * time.Second, Pause: 250 * time.Millisecond, Batch: 100 * time.Millisecond}
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("a node needs a name"))
	}
	if c.Heartbeat <= 0 || c.Pause <= 0 {
		errs = append(errs, fmt.Errorf("heartbeat is %s and pause %s; both must be above 0", c.Heartbeat, c.Pause))
	}
	if c.Batch < 0 {
		errs = append(errs, fmt.Errorf("log batches are %s apart; it can't be negative", c.Batch))
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("grace is %s; it can't be negative", c.Grace))
	}
	return errors.Join(errs...)
}

// Model is one served model.
type Model struct {
	ID      string
	Backend backends.Backend
	Workers int // jobs it runs at once; at least 1
}

// Readiness is an optional power of a backend: to wait until it can take a job. Without it the node looks at
// [backends.Info] every Pause.
type Readiness interface {
	// WaitReady returns nil as soon as a job could run, or ctx's error. Any other error means that none ever will: the node
	// stops claiming for the model.
	WaitReady(ctx context.Context) error
}

// FrameSink takes frames to the gateway that owns the job.
type FrameSink interface {
	// Deliver blocks while the client is behind. dispatch.ErrGone means that nobody waits for the job any more.
	Deliver(ctx context.Context, frame dispatch.Frame) error
}

// Deps is what a node works with.
type Deps struct {
	Queue  queue.Claimer
	Frames func(owner string) FrameSink // to the gateway that owns a job, as the job says; nil: the log of the job is the way
	Logs   Appender                     // of jobs; nil: none is kept
	Losses LogLosses                    // optional
	Log    *slog.Logger
}

// Node hosts models.
type Node struct {
	cfg    Config
	models []Model
	deps   Deps
}

// New checks the models and makes a node; it claims nothing before Run.
func New(cfg Config, models []Model, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check node: %w", err)
	}
	if len(models) == 0 {
		return nil, errors.New("check node: it has no models")
	}
	for _, m := range models {
		if m.ID == "" || m.Backend == nil || m.Workers < 1 {
			return nil, fmt.Errorf("check node: model %q needs an id, a backend and at least one worker", m.ID)
		}
	}
	return &Node{cfg: cfg, models: models, deps: deps}, nil
}

// Here is for a node whose jobs all come from one gateway, in the same process.
func Here(frames FrameSink) func(owner string) FrameSink {
	return func(string) FrameSink { return frames }
}

// errDrained is why a run is cancelled when its grace is over.
var errDrained = errors.New("node is shutting down")

// Run claims and runs jobs until ctx ends, and returns when the last job has.
func (n *Node) Run(ctx context.Context) error {
	runs, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var claims, jobs sync.WaitGroup
	for _, m := range n.models {
		claims.Go(func() { n.serve(ctx, runs, m, &jobs) })
	}
	claims.Wait()
	grace := time.AfterFunc(n.cfg.Grace, func() { stop(errDrained) })
	defer grace.Stop()
	jobs.Wait()
	return nil
}

// serve claims jobs for one model while one of its workers is free.
func (n *Node) serve(ctx, runs context.Context, m Model, jobs *sync.WaitGroup) {
	s := &slots{busy: make(chan struct{}, m.Workers)}
	for {
		select {
		case s.busy <- struct{}{}:
		case <-ctx.Done():
			return
		}
		lease, err := n.claim(ctx, m, s)
		if err != nil {
			return
		}
		jobs.Go(func() {
			defer s.release()
			n.run(runs, m, lease)
		})
	}
}

// claim waits until the model can run a job, and for a job. It tries again while the queue can't be reached; its error means
// that there will be no more.
func (n *Node) claim(ctx context.Context, m Model, s *slots) (queue.Lease, error) {
	for {
		if err := n.ready(ctx, m); err != nil {
			if ctx.Err() == nil {
				n.deps.Log.ErrorContext(ctx, "model is out of service", "model", m.ID, "error", err)
			}
			return queue.Lease{}, err
		}
		lease, err := n.offer(ctx, m, s)
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, queue.ErrClosed):
			return lease, err
		case errors.Is(err, errFreed):
			continue
		}
		n.deps.Log.WarnContext(ctx, "claim", "model", m.ID, "error", err)
		if err := pause(ctx, n.cfg.Pause); err != nil {
			return queue.Lease{}, err
		}
	}
}

// ready waits until the backend can take a job, so that jobs wait in the queue, where others may take them.
func (n *Node) ready(ctx context.Context, m Model) error {
	if w, ok := m.Backend.(Readiness); ok {
		return w.WaitReady(ctx)
	}
	for !m.Backend.Info().Ready {
		if err := pause(ctx, n.cfg.Pause); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
