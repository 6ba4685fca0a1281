package node_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
)

// stuckAt holds a request at one step until its run is cancelled.
func stuckAt(at int) step {
	return func(ctx context.Context, _ string, step int) error {
		if step == at {
			<-ctx.Done()
		}
		return ctx.Err()
	}
}

// another starts a second node on the queue of the rig. The function that it returns ends it.
func (r *rig) another() (end func()) {
	r.Helper()
	models := []node.Model{{ID: "m", Backend: model(r.T, "m", 1, nil), Workers: 1}}
	cfg := node.DefaultConfig()
	cfg.Name = "another"
	n, err := node.New(cfg, models, node.Deps{
		Queue: r.q, Logs: r.q, Frames: func(string) node.FrameSink { return *r.sink.Load() }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = n.Run(ctx) })
	return func() {
		stop()
		run.Wait()
	}
}

// drained asserts that a call ended with the error of a node that shuts down.
func (r *rig) drained(c *call) {
	r.Helper()
	var e *backends.Error
	if !errors.As(c.wait().err, &e) || e.Kind != backends.KindUnavailable || e.Code != dispatch.CodeDrained {
		r.Errorf("request %s ended with %v, want the error of a node that shuts down", c.id, c.err)
	}
}

// TestDrainedAnswerGoesOn: an answer that a draining node has cut goes on at another one, and whoever asked for it, or repeats the request,
// sees one unbroken text.
func TestDrainedAnswerGoesOn(t *testing.T) {
	for name, carry := range map[string]bool{"by link": false, "through the log": true} {
		t.Run(name, func(t *testing.T) {
			benchWith(t, 1, one(1, stuckAt(3)), parts{carry: carry}, func(r *rig) {
				a := r.again("a")
				synctest.Wait()
				b := r.again("b")
				r.drain()
				<-r.ended
				end := r.another()
				defer end()
				r.right(a)
				if a.err == nil && (!slices.Equal(a.result.Stats.ContinuedAt, []int{3}) || a.result.Usage.CompletionTokens != 8) {
					r.Errorf("taken up at %v with %+v", a.result.Stats.ContinuedAt, a.result.Usage)
				}
				r.copied(b, a)
				r.copied(r.again("c"), a)
			})
		})
	}
}

// TestDrainedAnswerEnds: where nobody takes the answer up, or the model can't, it ends as its node has said.
func TestDrainedAnswerEnds(t *testing.T) {
	for name, whole := range map[string]bool{"nobody is there": true, "the model can't": false} {
		t.Run(name, func(t *testing.T) {
			bench(t, 1, one(1, stuckAt(3)), func(r *rig) {
				a := r.doWith(&call{id: "a", whole: whole, key: "once", asks: "a1"}, "m", 8)
				synctest.Wait()
				b := r.doWith(&call{id: "b", whole: whole, key: "once", asks: "a1"}, "m", 8)
				r.drain()
				<-r.ended
				r.drained(a)
				r.drained(b)
			})
		})
	}
}
