package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnswer(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.do("a", &sink{})
		l := r.claim()
		if err := r.send(l, 1, dispatch.Frame{Event: backends.Event{Started: &backends.Started{}}}); err != nil {
			r.Fatal(err)
		}
		r.text(l, 2, "one")
		r.text(l, 3, "two")
		r.finish(l, 4)
		c.wait()
		if c.err != nil || c.result.Reason != backends.ReasonStop {
			r.Errorf("Do = %v, %v", c.result, c.err)
		}
		r.sees(c, "at 1", "at 0", "started", "one", "two")
		if l.Job.Cost != 10 {
			r.Errorf("cost = %d, want prompt and answer together, 10", l.Job.Cost)
		}
	})
}

func TestPositions(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		first, second := r.do("a", &sink{}), r.do("b", &sink{})
		r.finish(r.claim(), 1)
		<-time.NewTimer(2 * time.Second).C
		r.sees(second, "at 2", "at 1")
		second.cancel(nil)
		first.wait()
		second.wait()
	})
}

func TestStaleFrames(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.do("a", &sink{})
		old := r.claim()
		r.settle(old, queue.Outcome{State: queue.StateQueued, Reason: "engine died"})
		frame := dispatch.Frame{Event: backends.Event{Content: "stale"}}
		if err := r.send(old, 1, frame); err != nil {
			r.Fatal(err)
		}
		l := r.claim()
		r.text(l, 1, "new")
		for range 2 { // the second time as if a network had sent it twice
			if err := errors.Join(r.send(old, 9, frame), r.send(l, 1, frame)); err != nil {
				r.Fatal(err)
			}
		}
		r.finish(l, 2)
		c.wait()
		r.sees(c, "at 1", "at 0", "at 1", "at 0", "new")
	})
}

func TestNeverStartsAgainAfterContent(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.do("a", &sink{})
		l := r.claim()
		r.text(l, 1, "begun")
		l.Epoch++
		if err := r.send(l, 1, dispatch.Frame{Event: backends.Event{Content: "again"}}); err != nil {
			r.Fatal(err)
		}
		r.kind(c, backends.KindLost)
		r.sees(c, "at 1", "at 0", "begun")
		if got := r.state("a"); got != queue.StateCancelled {
			r.Errorf("job is %s, want cancelled", got)
		}
	})
}

func TestClientLeaves(t *testing.T) {
	why := errors.New("client left")
	for name, stage := range map[string]int{"queued": 0, "leased": 1, "streaming": 2} {
		t.Run(name, func(t *testing.T) {
			bench(t, 4, nil, func(r *rig) {
				c := r.do("a", &sink{})
				var l queue.Lease
				if stage > 0 {
					l = r.claim()
				}
				if stage > 1 {
					r.text(l, 1, "x")
				}
				c.cancel(why)
				if c.wait(); !errors.Is(c.err, why) {
					r.Errorf("Do = %v, want its context's cause", c.err)
				}
				if got := r.state("a"); got != queue.StateCancelled {
					r.Errorf("job is %s, want cancelled", got)
				}
				if stage > 0 {
					<-l.Lost
					if err := r.send(l, 2, dispatch.Frame{}); !errors.Is(err, dispatch.ErrGone) {
						r.Errorf("Deliver = %v, want ErrGone", err)
					}
				}
			})
		})
	}
}

func TestSinkRefuses(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		broken := errors.New("write timed out")
		c := r.do("a", &sink{refuse: broken})
		l := r.claim()
		r.text(l, 1, "x")
		if c.wait(); !errors.Is(c.err, broken) {
			r.Errorf("Do = %v, want the sink's error", c.err)
		}
		<-l.Lost
	})
}

// TestSlowClient has one client that reads nothing: its worker waits, the other's does not.
func TestSlowClient(t *testing.T) {
	bench(t, 1, nil, func(r *rig) {
		block := make(chan struct{})
		slow, fast := r.do("slow", &sink{block: block}), r.do("fast", &sink{})
		ls, lf := r.claim(), r.claim()
		r.text(ls, 1, "1")
		r.text(ls, 2, "2")
		blocked := make(chan error, 1)
		go func() { blocked <- r.send(ls, 3, dispatch.Frame{Event: backends.Event{Content: "3"}}) }()
		synctest.Wait()
		select {
		case err := <-blocked:
			r.Errorf("the worker of a slow client ran on: %v", err)
		default:
		}
		r.text(lf, 1, "quick")
		r.finish(lf, 2)
		fast.wait()
		close(block)
		if err := <-blocked; err != nil {
			r.Error(err)
		}
		r.finish(ls, 4)
		slow.wait()
		r.sees(slow, "at 1", "at 0", "1", "2", "3")
		r.sees(fast, "at 2", "at 0", "quick")
	})
}

func TestEndsWithoutLastFrame(t *testing.T) {
	silence := func() { <-time.NewTimer(10 * time.Second).C }
	for _, c := range []struct {
		name string
		end  func(r *rig)
		want backends.Kind
	}{
		{"expired in the queue", func(*rig) { <-time.NewTimer(time.Hour).C }, backends.KindUnavailable},
		{"lease lost after content", func(r *rig) { r.text(r.claim(), 1, "x"); silence() }, backends.KindLost},
		{"leases lost before content", func(r *rig) { r.claim(); silence(); r.claim(); silence() }, backends.KindLost},
		{"cancelled by somebody else", func(r *rig) { _ = r.q.Cancel(r.Context(), "a", "operator") }, backends.KindUnavailable},
		{"settled as done without a result", func(r *rig) { r.settle(r.claim(), queue.Outcome{State: queue.StateDone}) }, backends.KindLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			bench(t, 4, nil, func(r *rig) {
				call := r.do("a", &sink{})
				c.end(r)
				r.kind(call, c.want)
			})
		})
	}
}

func TestErrorFrame(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.do("a", &sink{})
		l := r.claim()
		if err := r.send(l, 1, dispatch.Frame{Err: &backends.Error{Kind: backends.KindEntropy}}); err != nil {
			r.Fatal(err)
		}
		r.kind(c, backends.KindEntropy)
	})
}

func TestFull(t *testing.T) {
	bench(t, 4, func(c *memory.Config) { c.Jobs = 1 }, func(r *rig) {
		first := r.do("a", &sink{})
		second := r.do("b", &sink{}).wait()
		var full *queue.FullError
		if !errors.As(second.err, &full) || full.Limit != queue.LimitJobs {
			r.Errorf("Do = %v, want a *queue.FullError", second.err)
		}
		r.sees(second)
		again := r.do("a", &sink{}).wait()
		if !errors.Is(again.err, dispatch.ErrLive) {
			r.Errorf("Do with a live id = %v, want ErrLive", again.err)
		}
		first.cancel(nil)
		first.wait()
	})
}

func TestClosedQueue(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		q, err := memory.New(memory.DefaultConfig())
		if err != nil {
			r.Fatal(err)
		}
		ctx, stop := context.WithCancel(r.Context())
		stop()
		if err := q.Run(ctx); err != nil {
			r.Fatal(err)
		}
		if r.d, err = dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q}); err != nil {
			r.Fatal(err)
		}
		r.kind(r.do("a", &sink{}), backends.KindUnavailable)
	})
}

// waits counts what the dispatcher reports.
type waits struct{ d time.Duration }

func (w *waits) Waited(_ string, d time.Duration) { w.d += d }

func TestReportsWait(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		w := &waits{}
		var err error
		if r.d, err = dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: r.q, Waits: w}); err != nil {
			r.Fatal(err)
		}
		c := r.do("a", &sink{})
		<-time.NewTimer(3 * time.Second).C
		r.finish(r.claim(), 1)
		c.wait()
		if w.d != 3*time.Second {
			r.Errorf("waited %s, want 3s", w.d)
		}
	})
}

// quiet is a client that notes nothing.
type quiet struct{}

func (quiet) Queued(int, time.Duration)  {}
func (quiet) Event(backends.Event) error { return nil }

// TestDeliverAllocatesNothing holds the path of each token.
func TestDeliverAllocatesNothing(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.doWith("a", nil, quiet{})
		l, seq := r.claim(), int64(0)
		frame := dispatch.Frame{Job: "a", Epoch: l.Epoch, Event: backends.Event{Content: "word"}}
		allocs := testing.AllocsPerRun(1000, func() {
			seq++
			frame.Seq = seq
			if err := r.d.Deliver(r.Context(), frame); err != nil {
				r.Fatal(err)
			}
		})
		if allocs > 0 {
			r.Errorf("%g allocations a frame, want none", allocs)
		}
		r.finish(l, seq+1)
		c.wait()
	})
}

func TestUnpackRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "no object": "[]", "no request": "{}", "half a token": `{"prepared":{"Request":{}},"tokens":"AAA="}`,
	} {
		if p, err := dispatch.Unpack([]byte(data)); err == nil {
			t.Errorf("%s: Unpack = %+v", name, p)
		}
	}
}
