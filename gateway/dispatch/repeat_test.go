package dispatch_test

import (
	"errors"
	"testing"

	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

func repeat(id, key string) dispatch.Job {
	j := job(id)
	j.Repeat, j.Resumes = key, true
	return j
}

// TestRepeatIsNotRun: a request that its caller sends again is refused while the first is live and once it has ended, and does the first no harm.
func TestRepeatIsNotRun(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		refused := func(id string, want queue.State) {
			r.Helper()
			again := &sink{}
			c := r.doJob(repeat(id, "once"), again, again).wait()
			var e *dispatch.RepeatError
			if !errors.As(c.err, &e) || e.First != "a" || e.State != want || len(again.seen()) > 0 {
				r.Errorf("the repetition ended with %v and saw %q, want one of a, which is %s", c.err, again.seen(), want)
			}
		}
		s := &sink{}
		first := r.doJob(repeat("a", "once"), s, s)
		refused("b", queue.StateQueued)
		l := r.claim()
		r.text(l, 1, "hello")
		refused("c", queue.StateStreaming)
		r.finish(l, 2)
		r.sees(first.wait(), "at 1", "at 0", "hello")
		refused("d", queue.StateDone)

		other := repeat("e", "once")
		other.Key = "another caller"
		s = &sink{}
		c := r.doJob(other, s, s)
		r.finish(r.claim(), 1)
		if c.wait(); c.err != nil {
			r.Errorf("another caller's request with the same key: %v", c.err)
		}
	})
}

// TestRepeatIsTakenUp: what another worker does of an answer is no repetition of it.
func TestRepeatIsTakenUp(t *testing.T) {
	bench(t, 4, nil, func(r *rig) {
		s := &sink{}
		c := r.doJob(repeat("a", "once"), s, s)
		l := r.claim()
		r.words(l, 1, "one ", 11)
		r.settle(l, queue.Outcome{State: queue.StateFailed, Reason: "its machine is gone"})
		second := r.takesUp("a~1", 4, 11)
		r.words(second, 2, "two", 12)
		r.finish(second, 3)
		r.sees(c.wait(), "at 1", "at 0", "one ", "at 1", "at 0", "started", "two")
	})
}

// TestOutlives: where others share the queue, the end of a gateway leaves what its clients may ask for at another one, and no more.
func TestOutlives(t *testing.T) {
	for name, c := range map[string]struct {
		job     dispatch.Job
		outlive bool
		want    queue.State
	}{
		"may be repeated":        {repeat("a", "once"), true, queue.StateStreaming},
		"can't be repeated":      {job("a"), true, queue.StateCancelled},
		"nobody else could tell": {repeat("a", "once"), false, queue.StateCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			bench(t, 4, nil, func(r *rig) {
				cfg := dispatch.DefaultConfig()
				cfg.Outlive = c.outlive
				var err error
				if r.d, err = dispatch.New(cfg, dispatch.Deps{Queue: r.q, Log: r.q}); err != nil {
					r.Fatal(err)
				}
				s := &sink{}
				do := r.doJob(c.job, s, s)
				l := r.claim()
				r.text(l, 1, "hello")
				do.cancel(errors.New("the gateway ends"))
				if do.wait(); do.err == nil {
					r.Error("Do did not end")
				}
				if got := r.state("a"); got != c.want {
					r.Errorf("the job is %s, want %s", got, c.want)
				}
			})
		})
	}
}
