package route_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
)

// TestBreaker has a replica that fails: it is left alone, then tried by one request, then back.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 4), newEngine(t, "b", 4)
		cfg := config()
		g := group(t, cfg, a, b)
		a.broken(backends.KindUpstream)
		next := 0
		serve := func(n int) {
			for range n {
				next++
				ask(t.Context(), g, prompt(next)).right(t, prompt(next))
			}
		}
		serve(50)
		if n := a.all.Load(); n != int64(cfg.Breaker.Failures) {
			t.Errorf("a replica that fails had %d requests, want %d", n, cfg.Breaker.Failures)
		}
		if r := replica(t, g, "a"); r.Ready || r.State != "paused" || r.Reason == "" || stats(t, g, "a").Breaker != "open" {
			t.Errorf("replica a is %+v, want paused", r)
		}
		after(cfg.Breaker.Open + time.Millisecond)
		serve(50)
		if n := a.all.Load(); n != int64(cfg.Breaker.Failures)+1 {
			t.Errorf("it had %d requests, want one more for a try", n)
		}
		a.whole()
		after(cfg.Breaker.Open + time.Millisecond)
		serve(200)
		if r := replica(t, g, "a"); !r.Ready || r.State != "ready" || a.all.Load() < 50 {
			t.Errorf("replica a is %+v with %d requests, want it back", r, a.all.Load())
		}
		idle(t, g)
	})
}

// TestOneTrial holds that a replica that failed is tried by one request at a time, and that one whose client leaves decides nothing.
func TestOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newEngine(t, "a", 4)
		cfg := config()
		g := group(t, cfg, a)
		a.broken(backends.KindUpstream)
		for i := range cfg.Breaker.Failures {
			ask(t.Context(), g, prompt(i)).kind(t, backends.KindUpstream)
		}
		ask(t.Context(), g, "x").kind(t, backends.KindUnavailable)
		after(cfg.Breaker.Open + time.Millisecond)
		a.whole()
		a.hang.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() { ask(ctx, g, prompt(i)) })
		}
		synctest.Wait()
		if n := a.runs.Load(); n != 1 {
			t.Errorf("%d requests try the replica, want 1", n)
		}
		cancel()
		calls.Wait()
		if s := stats(t, g, "a"); s.Breaker != "half-open" || s.InFlight != 0 {
			t.Errorf("stats %+v after the client left, want the breaker as it was", s)
		}
		a.hang.Store(false)
		ask(t.Context(), g, "x").right(t, "x")
		if s := stats(t, g, "a"); s.Breaker != "closed" {
			t.Errorf("stats %+v after a success, want the breaker closed", s)
		}
	})
}

// TestOldFailures holds that the breaker counts within its window only.
func TestOldFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newEngine(t, "a", 1)
		g := group(t, config(), a)
		a.broken(backends.KindUpstream)
		for i := range 50 {
			ask(t.Context(), g, prompt(i)).kind(t, backends.KindUpstream)
			after(8 * time.Second)
		}
	})
}

// TestHang has a replica that takes requests and says nothing: others don't wait for it.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 3), newEngine(t, "b", 3)
		cfg := config()
		cfg.StickyLoad = 1
		g := group(t, cfg, a, b)
		a.hang.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var stuck sync.WaitGroup
		for i := 0; a.runs.Load() < 3; i++ {
			stuck.Go(func() { ask(ctx, g, prompt(i)) })
			synctest.Wait()
		}
		began := time.Now()
		for i := range 100 {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("others waited %s for the replica that hangs", d)
		}
		cancel()
		stuck.Wait()
		a.hang.Store(false)
		a.prepare.Store(true)
		for i := range 40 {
			began := time.Now()
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
			if d := time.Since(began); d > cfg.PrepareTry {
				t.Errorf("a request waited %s", d)
			}
		}
		if r := replica(t, g, "a"); r.State != "paused" {
			t.Errorf("the replica that hangs is %+v, want paused", r)
		}
		idle(t, g)
	})
}

// TestLine has more requests than workers: they get their turns in the order of their coming.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		b.SetDown("away")
		g := group(t, config(), a, b)
		turn := make(chan struct{})
		var order []int
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				askWith(t.Context(), g, prompt(i), func(e backends.Event) error {
					if e.Started != nil {
						<-turn
						order = append(order, i)
					}
					return nil
				}).right(t, prompt(i))
			})
			synctest.Wait()
		}
		began := time.Now()
		for range 10 {
			turn <- struct{}{}
			synctest.Wait()
		}
		calls.Wait()
		if d := time.Since(began); d > 0 {
			t.Errorf("the turns took %s; a worker that gets free is to be taken at once", d)
		}
		for i, got := range order {
			if got != i {
				t.Fatalf("turns went to %v", order)
			}
		}
	})
}

// TestRandomCancels lets 1,000 clients leave at any moment, with replicas that fail and hang: nothing is left behind.
func TestRandomCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		a, b, c := newEngine(t, "a", 2), newEngine(t, "b", 3), newEngine(t, "c", 1)
		cfg := config()
		cfg.Breaker.Failures = 1 << 30
		g := group(t, cfg, a, b, c)
		var calls sync.WaitGroup
		for i := range 1000 {
			switch i % 100 {
			case 10:
				a.hang.Store(true)
			case 40:
				b.broken(backends.KindLost)
			case 60:
				a.hang.Store(false)
				b.whole()
			}
			ctx, cancel := context.WithCancel(t.Context())
			limit := time.Duration(random.IntN(20_000)) * time.Microsecond
			calls.Go(func() {
				defer cancel()
				got := askWith(ctx, g, prompt(i), func(backends.Event) error { after(time.Millisecond); return ctx.Err() })
				if got.err == nil {
					got.right(t, prompt(i))
				}
			})
			calls.Go(func() { after(limit); cancel() })
			after(time.Duration(random.IntN(3000)) * time.Microsecond)
		}
		calls.Wait()
		idle(t, g)
		for i, e := range []*engine{a, b, c} {
			e.whole()
			e.hang.Store(false)
			if n := e.runs.Load(); n != 0 || e.Info().Busy != 0 {
				t.Errorf("replica %d has %d runs and %d busy workers", i, n, e.Info().Busy)
			}
		}
		for i := range 20 {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
	})
}

// TestClientsDoing holds that what a client does is not held against a replica, whatever the error looks like.
func TestClientsDoing(t *testing.T) {
	for name, gone := range map[string]error{
		"any": errors.New("write timed out"), "like a backend's": &backends.Error{Kind: backends.KindUnavailable, Message: "the gateway is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
			g := group(t, config(), a, b)
			for i := range 20 {
				got := askWith(t.Context(), g, prompt(i), func(backends.Event) error { return gone })
				if !errors.Is(got.err, gone) || got.starts != 1 {
					t.Fatalf("got %v after %d starts, want the client's error after one", got.err, got.starts)
				}
			}
			for _, s := range g.Stats() {
				if s.Failures != 0 || s.Breaker != "closed" {
					t.Errorf("stats %+v", s)
				}
			}
		})
	}
}

// TestClientLeaves has an engine that answers a cancel with an error of its own: it is no failure, and nobody else gets the request.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		for _, e := range []*engine{a, b} {
			e.hang.Store(true)
			e.broken(backends.KindLost)
		}
		g := group(t, config(), a, b)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan answer)
		go func() { done <- ask(ctx, g, "x") }()
		synctest.Wait()
		cancel()
		if got := <-done; got.err == nil || a.all.Load()+b.all.Load() != 1 {
			t.Errorf("got %v from %d replicas, want an error of one", got.err, a.all.Load()+b.all.Load())
		}
		for _, s := range g.Stats() {
			if s.Failures != 0 {
				t.Errorf("stats %+v", s)
			}
		}
	})
}
