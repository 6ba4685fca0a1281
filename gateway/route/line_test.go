package route_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
)

// TestLineGoesOn has a node that waits in line before a request: when a worker gets free, the one is told and the other served, at once.
func TestLineGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newEngine(t, "a", 1)
		a.hang.Store(true)
		g := group(t, config(), a)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { ask(ctx, g, "held") })
		synctest.Wait()
		all.Go(func() {
			if err := g.WaitReady(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() { ask(t.Context(), g, "x").right(t, "x") })
		synctest.Wait()
		began := time.Now()
		a.hang.Store(false)
		cancel()
		all.Wait()
		if d := time.Since(began); d > 0 {
			t.Errorf("the line went on after %s, want at once", d)
		}
	})
}

// TestNobodyJumpsTheLine has a replica that comes up while a request waits: the next request goes behind it.
func TestNobodyJumpsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.hang.Store(true)
		b.SetDown("away")
		g := group(t, config(), a, b)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { ask(ctx, g, "held") })
		synctest.Wait()
		order := make(chan string, 2)
		for _, name := range []string{"first", "second"} {
			all.Go(func() {
				askWith(t.Context(), g, name, func(e backends.Event) error {
					if e.Started != nil {
						order <- name
					}
					return nil
				}).right(t, name)
			})
			synctest.Wait()
			b.SetDown("") // nobody is told
		}
		if got := [2]string{<-order, <-order}; got != [2]string{"first", "second"} {
			t.Errorf("the turns went to %v", got)
		}
		cancel()
		all.Wait()
	})
}

// TestTrialHangs has a replica that is tried by a request that gets no answer: the others don't wait for it.
func TestTrialHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 4), newEngine(t, "b", 4)
		cfg := config()
		cfg.Sticky = false
		g := group(t, cfg, a, b)
		a.broken(backends.KindUpstream)
		for i := 0; stats(t, g, "a").Breaker != "open"; i++ {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		after(cfg.Breaker.Open + time.Millisecond)
		a.whole()
		a.hang.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := 0; a.runs.Load() == 0; i++ {
			all.Go(func() { ask(ctx, g, prompt(i)) })
			synctest.Wait()
		}
		b.hang.Store(true)
		for i := range 2 { // so that the replica that is tried has the least to do
			all.Go(func() { ask(ctx, g, prompt(i)) })
		}
		synctest.Wait()
		b.hang.Store(false)
		began := time.Now()
		for i := range 50 {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		if d := time.Since(began); d > 0 || a.runs.Load() != 1 {
			t.Errorf("others waited %s; %d requests try the replica", d, a.runs.Load())
		}
		cancel()
		all.Wait()
	})
}
