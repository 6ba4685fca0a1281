package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// What the dispatcher is for.
var (
	_ gateway.Dispatcher = (*dispatch.Dispatcher)(nil)
	_ node.FrameSink     = (*dispatch.Dispatcher)(nil)
)

// rig is a dispatcher on a real queue; the test plays the node.
type rig struct {
	*testing.T
	q *memory.Queue
	d *dispatch.Dispatcher
}

// bench runs f in a synctest bubble with a rig.
func bench(t *testing.T, buffer int, change func(*memory.Config), f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := memory.DefaultConfig()
		if change != nil {
			change(&c)
		}
		q, err := memory.New(c)
		if err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(dispatch.Config{Buffer: buffer, Resume: 2}, dispatch.Deps{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = q.Run(ctx) })
		f(&rig{T: t, q: q, d: d})
		stop()
		run.Wait()
	})
}

// sink notes what a client sees.
type sink struct {
	mu     sync.Mutex // guards log
	log    []string
	refuse error
	block  chan struct{} // if not nil, each event waits for it
}

func (s *sink) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, text)
}

func (s *sink) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

func (s *sink) Queued(position int, _ time.Duration) { s.note(fmt.Sprint("at ", position)) }

func (s *sink) Event(e backends.Event) error {
	if s.block != nil {
		<-s.block
	}
	if e.Started != nil {
		s.note("started")
	} else {
		s.note(e.Content)
	}
	return s.refuse
}

// call is one Do under way.
type call struct {
	sink   *sink
	cancel context.CancelCauseFunc
	result *backends.Result
	err    error
	done   chan struct{}
}

func job(id string) dispatch.Job {
	return dispatch.Job{ID: id, Key: "k", Model: "m", Prepared: &backends.Prepared{
		Request: &backends.Request{ID: id, Model: "m"}, Tokens: []int32{1, 2, 3}, MaxTokens: 7,
	}}
}

func (r *rig) do(id string, s *sink) *call { return r.doWith(id, s, s) }

func (r *rig) doWith(id string, s *sink, to dispatch.Sink) *call { return r.doJob(job(id), s, to) }

func (r *rig) doJob(j dispatch.Job, s *sink, to dispatch.Sink) *call {
	ctx, cancel := context.WithCancelCause(r.Context())
	c := &call{sink: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.result, c.err = r.d.Do(ctx, j, to)
	}()
	synctest.Wait()
	return c
}

// wait returns when Do has.
func (c *call) wait() *call {
	<-c.done
	c.cancel(nil)
	return c
}

func (r *rig) claim() queue.Lease {
	r.Helper()
	ctx, stop := context.WithTimeout(r.Context(), time.Second)
	defer stop()
	l, err := r.q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
	if err != nil {
		r.Fatalf("Claim: %v", err)
	}
	return l
}

// send delivers a frame with the lease's epoch.
func (r *rig) send(l queue.Lease, seq int64, f dispatch.Frame) error {
	f.Job, f.Epoch, f.Seq = l.Job.ID, l.Epoch, seq
	return r.d.Deliver(r.Context(), f)
}

func (r *rig) text(l queue.Lease, seq int64, text string) {
	r.Helper()
	if err := r.q.Heartbeat(r.Context(), l, queue.Progress{Seq: seq}); err != nil {
		r.Fatalf("Heartbeat: %v", err)
	}
	if err := r.send(l, seq, dispatch.Frame{Event: backends.Event{Content: text}}); err != nil {
		r.Fatalf("Deliver(%q): %v", text, err)
	}
	synctest.Wait()
}

func (r *rig) finish(l queue.Lease, seq int64) {
	r.Helper()
	if err := r.send(l, seq, dispatch.Frame{Result: &backends.Result{Reason: backends.ReasonStop}}); err != nil {
		r.Fatalf("Deliver(result): %v", err)
	}
	r.settle(l, queue.Outcome{State: queue.StateDone})
}

func (r *rig) settle(l queue.Lease, o queue.Outcome) {
	r.Helper()
	if err := r.q.Settle(r.Context(), l, o); err != nil {
		r.Fatalf("Settle: %v", err)
	}
	synctest.Wait()
}

func (r *rig) state(id string) queue.State {
	r.Helper()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	states, err := r.q.Watch(ctx, id)
	if err != nil {
		r.Fatal(err)
	}
	return (<-states).State
}

// sees asserts what the client saw.
func (r *rig) sees(c *call, want ...string) {
	r.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, c.sink.seen()); diff != "" {
		r.Errorf("the client saw (-want +got):\n%s", diff)
	}
}

// kind asserts how a call failed.
func (r *rig) kind(c *call, want backends.Kind) {
	r.Helper()
	var e *backends.Error
	if !errors.As(c.wait().err, &e) || e.Kind != want {
		r.Errorf("Do = %v, want an error of kind %s", c.err, want)
	}
}
