package dispatch_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// doWhole starts a job that another worker may take up.
func (r *rig) doWhole(id string, s *sink) *call {
	j := job(id)
	j.Resumes = true
	return r.doJob(j, s, s)
}

// words delivers text with the tokens that made it.
func (r *rig) words(l queue.Lease, seq int64, text string, tokens ...int32) {
	r.Helper()
	if err := r.q.Heartbeat(r.Context(), l, queue.Progress{Seq: seq}); err != nil {
		r.Fatalf("Heartbeat: %v", err)
	}
	if err := r.send(l, seq, dispatch.Frame{Event: backends.Event{Content: text, Tokens: tokens}}); err != nil {
		r.Fatalf("Deliver(%q): %v", text, err)
	}
}

// takesUp claims the rest of an answer and starts it, with so many bytes of text told already.
func (r *rig) takesUp(id string, told int, delivered ...int32) queue.Lease {
	r.Helper()
	l := r.claim()
	p, err := dispatch.Unpack(l.Job.Payload)
	if err != nil || l.Job.ID != id || !slices.Equal(p.Delivered, delivered) || !slices.Equal(p.Tokens, []int32{1, 2, 3}) {
		r.Fatalf("job %s with %+v, %v; want %s with %v delivered", l.Job.ID, p, err, id, delivered)
	}
	if err := r.send(l, 1, dispatch.Frame{Event: backends.Event{Started: &backends.Started{Content: told}}}); err != nil {
		r.Fatal(err)
	}
	return l
}

// TestSilentNode: the node of an answer is not heard of any more; another one takes the answer up, and what the first still sends is not wanted.
func TestSilentNode(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.doWhole("a", &sink{})
		first := r.claim()
		r.words(first, 1, "one ", 11)
		r.words(first, 2, "two ", 12, 13)
		<-time.NewTimer(10 * time.Second).C
		second := r.takesUp("a~1", 8, 11, 12, 13)
		if err := r.send(first, 3, dispatch.Frame{Event: backends.Event{Content: "again"}}); !errors.Is(err, dispatch.ErrGone) {
			r.Errorf("a frame of the run that was lost: %v", err)
		}
		r.words(second, 2, "three", 14)
		r.finish(second, 3)
		r.sees(c.wait(), "at 1", "at 0", "one ", "two ", "at 1", "at 0", "started", "three")
		if at := c.result.Stats.ContinuedAt; !slices.Equal(at, []int{3}) {
			r.Errorf("taken up at %v", at)
		}
	})
}

// TestHeldBackText: the last words of a run that was lost right at its end are not sent twice.
func TestHeldBackText(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		c := r.doWhole("a", &sink{})
		first := r.claim()
		r.words(first, 1, "one ", 11, 12)
		r.words(first, 2, "two") // was held back, for it might have begun a stop string
		r.settle(first, queue.Outcome{State: queue.StateFailed, Reason: "its machine is gone"})
		second := r.takesUp("a~1", 4, 11, 12)
		r.words(second, 2, "t")
		r.words(second, 3, "wo!", 13)
		r.finish(second, 4)
		r.sees(c.wait(), "at 1", "at 0", "one ", "two", "at 1", "at 0", "started", "", "!")
	})
}

func TestNotTakenUp(t *testing.T) {
	lose := func(r *rig, l queue.Lease) {
		r.settle(l, queue.Outcome{State: queue.StateFailed, Reason: "its machine is gone"})
	}
	cases := map[string]func(r *rig) *call{
		"the model can't": func(r *rig) *call {
			c := r.do("a", &sink{})
			l := r.claim()
			r.words(l, 1, "one", 11)
			lose(r, l)
			return c
		},
		"text without tokens": func(r *rig) *call {
			c := r.doWhole("a", &sink{})
			l := r.claim()
			r.words(l, 1, "one")
			lose(r, l)
			return c
		},
		"another text": func(r *rig) *call {
			c := r.doWhole("a", &sink{})
			l := r.claim()
			r.words(l, 1, "one", 11)
			lose(r, l)
			r.takesUp("a~1", 4, 11)
			return c
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			bench(t, 4, nil, func(r *rig) { r.kind(f(r), backends.KindLost) })
		})
	}
}

// shutsDown delivers the error of a node that cuts a run short, and settles.
func (r *rig) shutsDown(l queue.Lease, seq int64, code string) {
	r.Helper()
	e := &backends.Error{Kind: backends.KindUnavailable, Code: code, Message: "the node shuts down"}
	if err := r.send(l, seq, dispatch.Frame{Err: e}); err != nil {
		r.Fatal(err)
	}
	r.settle(l, queue.Outcome{State: queue.StateFailed, Reason: e.Message})
}

// TestNodeShutsDown: the answer that a node cuts short is taken up. Any other error that a run tells ends it.
func TestNodeShutsDown(t *testing.T) {
	begin := func(r *rig, start func(string, *sink) *call, code string) *call {
		c := start("a", &sink{})
		l := r.claim()
		r.words(l, 1, "one ", 11)
		r.shutsDown(l, 2, code)
		return c
	}
	ends := func(r *rig, c *call, code string) {
		r.Helper()
		var e *backends.Error
		if !errors.As(c.wait().err, &e) || e.Kind != backends.KindUnavailable || e.Code != code {
			r.Errorf("Do = %v, want %s", c.err, code)
		}
		r.sees(c, "at 1", "at 0", "one ")
	}
	bench(t, 4, nil, func(r *rig) {
		c := begin(r, r.doWhole, dispatch.CodeDrained)
		second := r.takesUp("a~1", 4, 11)
		r.words(second, 2, "two", 12)
		r.finish(second, 3)
		r.sees(c.wait(), "at 1", "at 0", "one ", "at 1", "at 0", "started", "two")
	})
	bench(t, 4, nil, func(r *rig) { ends(r, begin(r, r.do, dispatch.CodeDrained), dispatch.CodeDrained) })
	bench(t, 4, nil, func(r *rig) { ends(r, begin(r, r.doWhole, "other"), "other") })
}

// TestNobodyTakesItUp: an answer ends as it was cut where its rest finds no worker, or no place in the queue.
func TestNobodyTakesItUp(t *testing.T) {
	for name, cut := range map[string]func(r *rig, l queue.Lease){
		string(backends.KindLost): func(r *rig, l queue.Lease) {
			r.settle(l, queue.Outcome{State: queue.StateFailed, Reason: "its machine is gone"})
		},
		string(backends.KindUnavailable): func(r *rig, l queue.Lease) { r.shutsDown(l, 2, dispatch.CodeDrained) },
	} {
		for where, full := range map[string]bool{"no worker": false, "no place": true} {
			t.Run(name+"/"+where, func(t *testing.T) {
				bench(t, 4, func(c *memory.Config) { c.Jobs = 1 }, func(r *rig) {
					c := r.doWhole("a", &sink{})
					l := r.claim()
					r.words(l, 1, "one ", 11)
					if full {
						r.do("b", &sink{})
					}
					cut(r, l)
					r.kind(c, backends.Kind(name))
				})
			})
		}
	}
}
