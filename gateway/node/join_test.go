package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// again asks with the key of others.
func (r *rig) again(id string) *call {
	return r.doWith(&call{id: id, whole: true, key: "once", asks: "a1"}, "m", 8)
}

// copied asserts that a call has the answer to another one.
func (r *rig) copied(c, of *call) {
	r.Helper()
	if c.wait(); c.err != nil {
		r.Errorf("request %s: %v", c.id, c.err)
		return
	}
	if of.wait(); c.text.String() != of.text.String() || c.result.Usage != of.result.Usage || !slices.Equal(c.result.Stats.ContinuedAt, of.result.Stats.ContinuedAt) {
		r.Errorf("request %s got %q (%+v), want %q (%+v)", c.id, c.text.String(), c.result, of.text.String(), of.result)
	}
	if c.joined != of.id || of.joined != "" {
		r.Errorf("request %s is told to repeat %q, want %q", c.id, c.joined, of.id)
	}
}

// barrier counts runs, and holds each before a step until it is told to go on.
type barrier struct {
	at   int
	runs int
	goOn chan struct{}
}

// model builds a model with the gate.
func (g *barrier) model(t *testing.T) []backends.Backend {
	g.goOn = make(chan struct{}) // in the bubble
	return one(1, g.step)(t)
}

func (g *barrier) step(ctx context.Context, _ string, step int) error {
	if step == 0 {
		g.runs++
	}
	if step != g.at {
		return nil
	}
	select {
	case <-g.goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestRepeatedAtEachStage: whoever repeats a request gets its whole answer, whether it waits, runs, or has ended, and it runs once.
func TestRepeatedAtEachStage(t *testing.T) {
	g := &barrier{at: 4}
	bench(t, 1, g.model, func(r *rig) {
		block := r.do("first of all")
		synctest.Wait()
		a := r.again("a")
		synctest.Wait()
		waiting := r.again("b")
		synctest.Wait()
		g.goOn <- struct{}{}
		block.wait()
		after(time.Second)
		running := r.again("c")
		synctest.Wait()
		g.goOn <- struct{}{}
		r.right(a)
		for _, c := range []*call{waiting, running, r.again("d")} {
			r.copied(c, a)
		}
		after(5 * time.Minute)
		r.copied(r.again("e"), a)
		if g.runs != 2 {
			r.Errorf("%d runs, want that of the first request and one", g.runs)
		}
	})
}

func TestRepeatedWithAnotherRequest(t *testing.T) {
	bench(t, 1, one(1, nil), func(r *rig) {
		r.right(r.again("a"))
		other := r.doWith(&call{id: "b", key: "once", asks: "b2"}, "m", 8).wait()
		var e *dispatch.RepeatError
		if !errors.As(other.err, &e) || !e.Other || e.First != "a" {
			r.Errorf("another request with the key ended with %v", other.err)
		}
	})
}

// TestRepeaterLeaves: the first goes on.
func TestRepeaterLeaves(t *testing.T) {
	g := &barrier{at: 4}
	bench(t, 1, g.model, func(r *rig) {
		a := r.again("a")
		synctest.Wait()
		b := r.again("b")
		after(time.Second)
		b.cancel()
		if b.wait(); !errors.Is(b.err, context.Canceled) {
			r.Errorf("the one that left ended with %v", b.err)
		}
		g.goOn <- struct{}{}
		r.right(a)
	})
}

// TestRepeatedFailure: whoever repeats a request that failed is told what the first was told.
func TestRepeatedFailure(t *testing.T) {
	bad := &backends.Error{Kind: backends.KindModel, Code: "broken_logits", Message: "no numbers"}
	bench(t, 1, one(1, func(_ context.Context, _ string, step int) error {
		if step == 2 {
			return bad
		}
		return nil
	}), func(r *rig) {
		a := r.again("a").wait()
		b := r.again("b").wait()
		var e *backends.Error
		if !errors.As(b.err, &e) || e.Code != bad.Code || b.text.String() != a.text.String() {
			r.Errorf("the repetition ended with %v after %q, the first with %v after %q", b.err, b.text.String(), a.err, a.text.String())
		}
	})
}

// TestRepeatedAcrossWorkers: wherever two workers are lost, whoever repeats the request while it runs or later has the same text.
func TestRepeatedAcrossWorkers(t *testing.T) {
	for first := range 8 {
		for second := range 8 {
			var mu sync.Mutex
			cuts := []int{first, second}
			hook := func(_ context.Context, _ string, step int) error {
				after(30 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if len(cuts) > 0 && cuts[0] == step {
					cuts = cuts[1:]
					return fake.Lost()
				}
				return nil
			}
			if first == 0 && second == 0 {
				continue // there is no text
			}
			bench(t, 1, one(1, hook), func(r *rig) {
				a := r.again("a")
				synctest.Wait()
				b := r.again("b")
				r.right(a)
				r.copied(b, a)
				r.copied(r.again("c"), a)
			})
		}
	}
}

// brittle is a log that can't be written to, or not for a while.
type brittle struct {
	queue.Log
	err   error
	times int
	tried int
}

func (b *brittle) Append(ctx context.Context, l queue.Lease, entries ...[]byte) error {
	b.tried++
	if b.times--; b.times >= 0 {
		return b.err
	}
	return b.Log.Append(ctx, l, entries...)
}

// TestLogFails: an answer whose log can't be written is whole all the same; whoever repeats it is refused.
func TestLogFails(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		times int
		lost  int
	}{
		"for a while": {queue.ErrUnavailable, 3, 0},
		"for good":    {queue.ErrUnavailable, 1 << 30, 1},
		"at once":     {queue.ErrTooLarge, 1 << 30, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				losses := &tally{}
				r := assemble(t, 1, one(1, nil), parts{logs: func(l queue.Log) queue.Log { return &brittle{Log: l, err: c.err, times: c.times} }, losses: losses})
				a := r.again("a")
				r.right(a)
				b := r.again("b").wait()
				if e, refused := errors.AsType[*dispatch.RepeatError](b.err); c.lost == 0 && b.err != nil || c.lost > 0 && !refused {
					r.Errorf("the repetition ended with %v, %v", e, b.err)
				}
				r.end()
				if losses.n != c.lost {
					t.Errorf("%d logs are said to be lost, want %d", losses.n, c.lost)
				}
			})
		})
	}
}

// tally counts logs that are lost.
type tally struct{ n int }

func (l *tally) LogLost(string) { l.n++ }

// TestGatewayGone: an answer that has a key is made to its end without its gateway, for the one who comes back to another gateway.
func TestGatewayGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &barrier{at: 4}
		r := assemble(t, 1, g.model, parts{})
		a := r.again("a")
		synctest.Wait()
		after(time.Second)
		r.to(gone{})
		g.goOn <- struct{}{}
		b := r.again("b").wait()
		if b.err != nil || b.text.String() != r.alone("a", 8) {
			r.Errorf("who came back got %q, %v", b.text.String(), b.err)
		}
		a.cancel() // it waits for frames that never come
		a.wait()
		if r.do("p").wait().err == nil {
			r.Error("a request without a key goes on without its gateway")
		}
		r.end()
		if g.runs != 1 {
			t.Errorf("%d runs, want 1", g.runs)
		}
	})
}

// gone is the way to a gateway that is gone.
type gone struct{}

func (gone) Deliver(context.Context, dispatch.Frame) error { return dispatch.ErrGone }
