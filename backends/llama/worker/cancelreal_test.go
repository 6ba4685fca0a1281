//go:build llama

package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends/llama/engine"
)

// TestCancelledAnywhereOnModels cancels requests at random moments: queued, in the prompt, between and during decodes. Afterwards
// every worker has room for a request as long as the context, which it has not if a cell was lost, and says what it said before.
func TestCancelledAnywhereOnModels(t *testing.T) {
	const size = 512
	for _, name := range toys {
		t.Run(name, func(t *testing.T) {
			b := load(t, name, size, 1, engine.F16)
			workers := make([]*Worker, 4)
			for i := range workers {
				workers[i] = b.idleWorker(t, size)
				workers[i].cfg.Index = i
			}
			p := NewPool(workers)
			runUntilEnd(t, p.Run)
			probe := looking(seeded(b.tokens(60, 1), 5, 30), "lazy", "sample", 0.3)
			want := do(t, p, probe).tokens
			goroutines := runtime.NumGoroutine()
			cancelMany(t, p, b, cancelRuns()/4)
			for i := range workers {
				if got := do(t, p, probe).tokens; !equalTokens(got, want) {
					t.Errorf("request %d after the cancels: another text", i)
				}
			}
			if n := runtime.NumGoroutine(); n > goroutines {
				t.Errorf("%d goroutines, %d before", n, goroutines)
			}
			for _, w := range p.workers {
				got := do(t, p, looking(seeded(b.tokens(size-3, 100+w.cfg.Index), 1, 1000), "full", "sample", 0.3))
				if got.Usage.CompletionTokens != 3 {
					t.Errorf("a request as long as the context got %d of 3 tokens", got.Usage.CompletionTokens)
				}
			}
		})
	}
}

// cancelMany runs n requests, eight at a time, and cancels each at a random moment.
func cancelMany(t *testing.T, p *Pool, b *bench, n int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	var group sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		job := looking(seeded(b.tokens(60+rng.IntN(300), i), int64(i), 120), "lazy", "sample", 0.3)
		after := time.Duration(rng.IntN(40_000)) * time.Microsecond
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if _, err := try(ctx, p, job); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	group.Wait()
}
