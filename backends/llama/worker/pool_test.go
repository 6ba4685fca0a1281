package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends/llama/engine"
)

// newFakePool makes a pool of n workers that is not running.
func newFakePool(t *testing.T, n int) (*Pool, []*fakeCache) {
	t.Helper()
	var gate Gate
	workers, caches := make([]*Worker, n), make([]*fakeCache, n)
	for i := range workers {
		caches[i] = newFakeCache(false)
		cfg, deps := fakeConfig(engine.MemoryAttention), fakeDeps(t, caches[i])
		cfg.Index, deps.Turn = i, gate.Join()
		var err error
		if workers[i], err = New(cfg, deps); err != nil {
			t.Fatal(err)
		}
	}
	return NewPool(workers), caches
}

func TestPoolKeepsRequestsApart(t *testing.T) {
	p, _ := newFakePool(t, 4)
	runUntilEnd(t, p.Run)
	job := func(i int) *Job { return looking(seeded(prompt(50+i, i), int64(i), 20), "lazy", "sample", 0.3) }
	var alone, together [12][]int32
	for i := range alone {
		alone[i] = do(t, p, job(i)).tokens
	}
	var group sync.WaitGroup
	for i := range together {
		group.Go(func() {
			a, err := try(t.Context(), p, job(i))
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			together[i] = a.tokens
		})
	}
	group.Wait()
	if diff := cmp.Diff(alone, together); diff != "" {
		t.Errorf("(-alone +together)\n%s", diff)
	}
}

func TestPoolPrefersTheWorkerThatKnowsThePrompt(t *testing.T) {
	p, _ := newFakePool(t, 3)
	runUntilEnd(t, p.Run)
	for i := range 3 {
		do(t, p, seeded(prompt(100, i), 1, 3))
	}
	for _, i := range []int{2, 0, 1, 1, 2} {
		got := do(t, p, seeded(prompt(100, i), 1, 3))
		if got.Stats.Worker != i || got.cached == 0 {
			t.Errorf("prompt %d went to worker %d, %d tokens reused", i, got.Stats.Worker, got.cached)
		}
	}
	if got := do(t, p, seeded(prompt(100, 9), 1, 3)); got.Stats.Worker != 0 {
		t.Errorf("an unknown prompt went to worker %d, not to the one idle longest", got.Stats.Worker)
	}
}

func TestPoolQueuesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, caches := newFakePool(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		hold := make(chan struct{})
		caches[0].onDecode = func(int) error { <-hold; return nil }
		order := make(chan string, 10)
		submit := func(ctx context.Context, name string) {
			go func() {
				_, err := try(ctx, p, seeded(prompt(10, 1), 1, 1))
				order <- fmt.Sprintf("%s %v", name, err)
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		submit(t.Context(), "a")
		submit(t.Context(), "b")
		submit(leaving, "leaves")
		submit(t.Context(), "c")
		leave()
		synctest.Wait()
		close(hold)
		for _, want := range []string{"leaves context canceled", "a <nil>", "b <nil>", "c <nil>"} {
			if got := <-order; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestPoolStats(t *testing.T) {
	p, caches := newFakePool(t, 2)
	runUntilEnd(t, p.Run)
	s := p.Stats(time.Now())
	if s.Tokens != 0 || s.Idle != 0 || s.Workers[0].State != "idle" {
		t.Errorf("before anything: %+v", s)
	}
	reached, hold := make(chan struct{}), make(chan struct{})
	caches[0].onDecode = func(n int) error {
		if n == 3 {
			close(reached)
			<-hold
		}
		return nil
	}
	done := make(chan error)
	go func() {
		_, err := try(t.Context(), p, seeded(prompt(40, 1), 1, 5))
		done <- err
	}()
	<-reached
	s = p.Stats(time.Now().Add(time.Hour))
	if s.Idle < 59*time.Minute || s.Workers[0].State != "decode" || s.Workers[0].Request != "test" {
		t.Errorf("while a decode hangs: %+v", s)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s = p.Stats(time.Now().Add(time.Hour))
	if s.Tokens != 5 || s.Decodes != 5 || s.Idle != 0 || s.Workers[0].Used != 44 {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestPoolCancelledWaiterRacingGrant(t *testing.T) {
	p, _ := newFakePool(t, 1)
	runUntilEnd(t, p.Run)
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
			defer cancel()
			if _, err := try(ctx, p, seeded(prompt(10, 1), 1, 2)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(p.idle) != 1 || len(p.queue) != 0 {
		t.Errorf("%d idle, %d in the queue; want the worker back", len(p.idle), len(p.queue))
	}
}
