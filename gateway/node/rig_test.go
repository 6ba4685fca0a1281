package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a queue, a dispatcher and a node, all real, with a model that the test steers.
type rig struct {
	*testing.T
	q      *memory.Queue
	d      *dispatch.Dispatcher
	drain  context.CancelFunc // tells the node to stop
	ended  chan struct{}      // closed when the node has
	end    func()             // ends all
	sink   atomic.Pointer[node.FrameSink]
	calls  sync.WaitGroup
	models map[string]backends.Backend
}

// step is a hook of the fake model.
type step func(ctx context.Context, id string, step int) error

func model(t *testing.T, id string, workers int, hook step) *fake.Model {
	t.Helper()
	c := fake.DefaultConfig()
	c.Model, c.Workers = id, workers
	m, err := fake.New(c, fake.Deps{Step: hook})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// parts are what a rig has in the place of the usual.
type parts struct {
	logs   func(queue.Log) queue.Log
	losses node.LogLosses
	carry  bool // frames go through the log alone
}

// assemble starts a node that serves what build makes. end ends it.
func assemble(t *testing.T, workers int, build func(t *testing.T) []backends.Backend, p parts) *rig {
	t.Helper()
	r := &rig{T: t, ended: make(chan struct{}), models: map[string]backends.Backend{}}
	var err error
	if r.q, err = memory.New(memory.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	c := dispatch.DefaultConfig()
	c.Carry = p.carry
	if r.d, err = dispatch.New(c, dispatch.Deps{Queue: r.q, Log: r.q}); err != nil {
		t.Fatal(err)
	}
	r.to(r.d)
	if p.carry {
		r.to(nil)
	}
	var models []node.Model
	for _, b := range build(t) {
		id := b.Info().Model
		r.models[id] = b
		models = append(models, node.Model{ID: id, Backend: b, Workers: workers})
	}
	deps := node.Deps{
		Queue: r.q, Logs: r.q, Frames: func(string) node.FrameSink { return *r.sink.Load() }, Losses: p.losses, Log: slog.New(slog.DiscardHandler),
	}
	if p.logs != nil {
		deps.Logs = p.logs(r.q)
	}
	n, err := node.New(node.DefaultConfig(), models, deps)
	if err != nil {
		t.Fatal(err)
	}
	queueCtx, stopQueue := context.WithCancel(t.Context())
	nodeCtx, drain := context.WithCancel(t.Context())
	r.drain = drain
	go func() { defer close(r.ended); _ = n.Run(nodeCtx) }()
	var queueRun sync.WaitGroup
	queueRun.Go(func() { _ = r.q.Run(queueCtx) })
	r.end = func() {
		r.calls.Wait()
		drain()
		<-r.ended
		stopQueue()
		queueRun.Wait()
	}
	return r
}

// to has the node send frames somewhere else; to nil, to the logs alone.
func (r *rig) to(sink node.FrameSink) { r.sink.Store(&sink) }

// bench runs f in a bubble with a node that serves what build makes; build is called in the bubble.
func bench(t *testing.T, workers int, build func(t *testing.T) []backends.Backend, f func(r *rig)) {
	t.Helper()
	benchWith(t, workers, build, parts{}, f)
}

func benchWith(t *testing.T, workers int, build func(t *testing.T) []backends.Backend, p parts, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := assemble(t, workers, build, p)
		f(r)
		r.end()
	})
}

// one builds a single model.
func one(workers int, hook step) func(t *testing.T) []backends.Backend {
	return func(t *testing.T) []backends.Backend { return []backends.Backend{model(t, "m", workers, hook)} }
}

// call is one request under way.
type call struct {
	id     string
	cancel context.CancelFunc
	done   chan struct{}
	text   strings.Builder
	starts int
	task   bool          // of the class of tasks
	whole  bool          // another worker may take it up
	key    string        // with which the request may be repeated
	asks   string        // what it asks for, of those with a key; empty is the same for all
	joined string        // the request that it repeats
	block  chan struct{} // if not nil, each event waits for it
	onText func()        // if not nil, called at each text
	result *backends.Result
	err    error
}

func (c *call) Queued(int, time.Duration) {}

func (c *call) Joined(first string) { c.joined = first }

func (c *call) Event(e backends.Event) error {
	if c.block != nil {
		<-c.block
	}
	if e.Started != nil {
		c.starts++
	}
	if e.Content != "" && c.onText != nil {
		c.onText()
	}
	c.text.WriteString(e.Content)
	return nil
}

// request prepares a request of its own text to a model.
func (r *rig) request(id, modelID string, tokens int) *backends.Prepared {
	r.Helper()
	text := "prompt of " + id
	req := &backends.Request{ID: id, Model: modelID, Text: &text, MaxTokens: tokens}
	p, err := r.models[modelID].Prepare(r.Context(), req)
	if err != nil {
		r.Fatal(err)
	}
	return p
}

func (r *rig) do(id string) *call { return r.doWith(&call{id: id}, "m", 8) }

func (r *rig) doWith(c *call, modelID string, tokens int) *call {
	r.Helper()
	c.done = make(chan struct{})
	ctx, cancel := context.WithCancel(r.Context())
	c.cancel = cancel
	job := dispatch.Job{ID: c.id, Key: "k", Model: modelID, Task: c.task, Resumes: c.whole, Prepared: r.request(c.id, modelID, tokens), Repeat: c.key, Digest: c.asks}
	r.calls.Go(func() {
		defer close(c.done)
		defer cancel()
		c.result, c.err = r.d.Do(ctx, job, c)
	})
	return c
}

func (c *call) wait() *call {
	<-c.done
	return c
}

// alone is what a request says when nothing goes wrong, straight from a model.
func (r *rig) alone(id string, tokens int) string {
	r.Helper()
	var text strings.Builder
	_, err := model(r.T, "m", 1, nil).Generate(r.Context(), r.request(id, "m", tokens), func(e backends.Event) error {
		text.WriteString(e.Content)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return text.String()
}

// right asserts that a call ended well with the text it should have.
func (r *rig) right(c *call) {
	r.Helper()
	if c.wait(); c.err != nil {
		r.Errorf("request %s: %v", c.id, c.err)
		return
	}
	if want := r.alone(c.id, 8); c.text.String() != want {
		r.Errorf("request %s got %q, want %q", c.id, c.text.String(), want)
	}
}

// kind asserts how a call failed.
func (r *rig) kind(c *call, want backends.Kind) {
	r.Helper()
	var e *backends.Error
	if !errors.As(c.wait().err, &e) || e.Kind != want {
		r.Errorf("request %s ended with %v, want an error of kind %s", c.id, c.err, want)
	}
}

// state is a job's, once everything has come to rest.
func (r *rig) state(id string) queue.State {
	r.Helper()
	synctest.Wait()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	states, err := r.q.Watch(ctx, id)
	if err != nil {
		r.Fatal(err)
	}
	return (<-states).State
}

// stats are the queue's, once everything has come to rest.
func (r *rig) stats() queue.Stats {
	r.Helper()
	synctest.Wait()
	s, err := r.q.Stats(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func after(d time.Duration) { <-time.NewTimer(d).C }

func name(i int) string { return fmt.Sprint("r", i) }
