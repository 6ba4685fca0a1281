package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// forgetful is a queue on a server that may be emptied or go away.
type forgetful struct {
	mu   sync.Mutex // guards what follows
	q    *memory.Queue
	cut  context.CancelFunc // of the watches
	life context.Context    //nolint:containedctx // it stands for the connection that watches have
	down error
}

func (f *forgetful) now() (*memory.Queue, context.Context, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.q, f.life, f.down
}

func (f *forgetful) Submit(ctx context.Context, j queue.Job) (queue.Ticket, error) {
	q, _, err := f.now()
	if err != nil {
		return queue.Ticket{}, err
	}
	return q.Submit(ctx, j)
}

func (f *forgetful) Cancel(ctx context.Context, id, reason string) error {
	q, _, err := f.now()
	if err != nil {
		return err
	}
	return q.Cancel(ctx, id, reason)
}

func (f *forgetful) Watch(ctx context.Context, id string) (<-chan queue.Status, error) {
	q, life, err := f.now()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(life, stop)
	return q.Watch(ctx, id)
}

// flush forgets everything, and ends the watches as a queue does that has lost their job.
func (f *forgetful) flush(r *rig) {
	q, err := memory.New(memory.DefaultConfig())
	if err != nil {
		r.Fatal(err)
	}
	f.mu.Lock()
	cut := f.cut
	f.q = q
	f.life, f.cut = context.WithCancel(context.Background())
	f.mu.Unlock()
	r.q = q
	if cut != nil {
		cut()
	}
}

func (f *forgetful) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

// forgets runs f with a dispatcher on a queue that may forget.
func forgets(t *testing.T, f func(r *rig, q *forgetful)) {
	t.Helper()
	bench(t, 4, nil, func(r *rig) {
		q := &forgetful{}
		q.flush(r)
		var err error
		if r.d, err = dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q}); err != nil {
			r.Fatal(err)
		}
		f(r, q)
		q.cut()
	})
}

func after(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestForgottenWhileItWaits(t *testing.T) {
	forgets(t, func(r *rig, q *forgetful) {
		c := r.do("a", &sink{})
		q.flush(r)
		after(time.Second)
		l := r.claim()
		r.text(l, 1, "x")
		r.finish(l, 2)
		c.wait()
		r.sees(c, "at 1", "at 0", "x")
	})
}

// TestForgottenBeforeContent has a worker that goes on with a job that the queue has forgotten and another worker has by now.
func TestForgottenBeforeContent(t *testing.T) {
	forgets(t, func(r *rig, q *forgetful) {
		c := r.do("a", &sink{})
		old := r.claim()
		q.flush(r)
		after(time.Second)
		stale := dispatch.Frame{Event: backends.Event{Content: "stale"}}
		if err := r.send(old, 1, stale); err != nil {
			r.Fatal(err)
		}
		l := r.claim()
		if l.Epoch <= old.Epoch+1 {
			r.Errorf("epoch %d follows %d: a lease in between could be mistaken for it", l.Epoch, old.Epoch)
		}
		r.text(l, 1, "new")
		if err := r.send(old, 2, stale); err != nil {
			r.Fatal(err)
		}
		r.finish(l, 2)
		c.wait()
		r.sees(c, "at 1", "at 0", "at 1", "at 0", "new")
	})
}

func TestForgottenStreamGoesOn(t *testing.T) {
	forgets(t, func(r *rig, q *forgetful) {
		c := r.do("a", &sink{})
		l := r.claim()
		r.text(l, 1, "one")
		q.flush(r)
		after(10 * time.Second)
		if err := r.send(l, 2, dispatch.Frame{Event: backends.Event{Content: "two"}}); err != nil {
			r.Fatal(err)
		}
		after(10 * time.Second)
		if err := r.send(l, 3, dispatch.Frame{Result: &backends.Result{}}); err != nil {
			r.Fatal(err)
		}
		if c.wait(); c.err != nil {
			r.Errorf("Do = %v", c.err)
		}
		r.sees(c, "at 1", "at 0", "one", "two")
		if s, err := r.q.Stats(r.Context()); err != nil || s.Submitted != 0 {
			r.Errorf("%d jobs were submitted again (%v), though the client had text", s.Submitted, err)
		}
	})
}

func TestForgottenStreamOfADeadNode(t *testing.T) {
	forgets(t, func(r *rig, q *forgetful) {
		c := r.do("a", &sink{})
		r.text(r.claim(), 1, "one")
		q.flush(r)
		began := time.Now()
		r.kind(c, backends.KindLost)
		if d := time.Since(began); d < 14*time.Second || d > 20*time.Second {
			r.Errorf("given up after %s, want 15 s", d)
		}
	})
}

func TestQueueAway(t *testing.T) {
	forgets(t, func(r *rig, q *forgetful) {
		c := r.do("a", &sink{})
		l := r.claim()
		q.set(queue.ErrUnavailable)
		q.flush(r)
		late := r.do("late", &sink{})
		r.kind(late, backends.KindUnavailable)
		r.kindCode(late, "queue_unavailable")
		after(time.Minute)
		q.set(nil)
		after(2 * time.Second)
		if again := r.claim(); again.Job.ID != "a" || again.Epoch <= l.Epoch {
			r.Errorf("claimed %s with epoch %d, want a again", again.Job.ID, again.Epoch)
		}
		c.cancel(nil)
		c.wait()
	})
}

func (r *rig) kindCode(c *call, want string) {
	r.Helper()
	var e *backends.Error
	if !errors.As(c.err, &e) || e.Code != want {
		r.Errorf("Do = %v, want code %s", c.err, want)
	}
}

func TestPrefixes(t *testing.T) {
	long, other := make([]int32, 10_000), make([]int32, 10_000)
	for i := range long {
		long[i], other[i] = int32(i), int32(i)
	}
	other[5000]++
	a, b := dispatch.Prefixes("m", long), dispatch.Prefixes("m", other)
	if len(a) == 0 || len(a) > queue.MaxPrefixes || len(a) != len(b) {
		t.Fatalf("%d and %d prefixes", len(a), len(b))
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if same < len(a)/2 || same == len(a) {
		t.Errorf("%d of %d prefixes are alike in prompts that differ in the middle", same, len(a))
	}
	if short := dispatch.Prefixes("m", long[:130]); len(short) != 2 || short[1] != a[1] {
		t.Errorf("prefixes of the beginning are %v, of all %v", short, a[:2])
	}
	if got := dispatch.Prefixes("other", long); got[0] == a[0] {
		t.Error("the prefixes of two models are the same")
	}
	if got := dispatch.Prefixes("m", long[:63]); got != nil {
		t.Errorf("a prompt of less than a block has prefixes %v", got)
	}
}
