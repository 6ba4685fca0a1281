package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
)

// cancelRuns is 1,000 in a full verification.
func cancelRuns() int {
	if os.Getenv("QR_VERIFY") != "" {
		return 1000
	}
	return 60
}

func TestCancelledAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, memory := range memories {
		c := fakeMemory(memory)
		w := newFakeWorker(t, c, fakeConfig(memory))
		job := looking(seeded(prompt(150, 1), 5, 30), "lazy", "sample", 0.3)
		want := do(t, w, job)
		for range cancelRuns() / 4 {
			ctx, cancel := context.WithCancel(t.Context())
			left := rng.IntN(30)
			c.onDecode = func(int) error {
				if left--; left < 0 {
					cancel()
				}
				return nil
			}
			_, err := try(ctx, w, job)
			if left < 0 && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: cancelled request: %v", memory, err)
			}
			c.onDecode = nil
			cancel()
			checkSettled(t, w, c)
			if err != nil && c.tokens() != 0 {
				t.Fatalf("%s: %d tokens left in the cache", memory, c.tokens())
			}
		}
		if diff := cmp.Diff(want.tokens, do(t, w, job).tokens); diff != "" {
			t.Errorf("%s: after the cancels (-before +after)\n%s", memory, diff)
		}
	}
}

func TestCancelReachesARunningDecode(t *testing.T) {
	c := newFakeCache(false)
	w := newFakeWorker(t, c, fakeConfig(engine.MemoryAttention))
	ctx, cancel := context.WithCancel(t.Context())
	c.onDecode = func(int) error {
		cancel()
		for !c.stop.Load() { // as the real one does between the nodes of its graph
		}
		return nil
	}
	if _, err := try(ctx, w, seeded(prompt(20, 1), 5, 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	c.onDecode = nil
	if c.stop.Load() {
		t.Error("the next request would be interrupted too")
	}
	do(t, w, seeded(prompt(20, 1), 5, 5))
}

func TestFailuresLeaveAnEmptyCache(t *testing.T) {
	c := newFakeCache(false)
	w := newFakeWorker(t, c, fakeConfig(engine.MemoryAttention))
	job := seeded(prompt(20, 1), 5, 9)
	want := do(t, w, job)
	for name, fail := range map[string]func(int) error{
		"no cells": func(int) error { return engine.ErrNoCells },
		"panic":    func(int) error { panic("a defect") },
	} {
		c.onDecode = fail
		_, err := try(t.Context(), w, job)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		c.onDecode = nil
		if c.tokens() != 0 || len(w.held.tokens) != 0 {
			t.Errorf("%s: the cache is not empty", name)
		}
		if diff := cmp.Diff(want.tokens, do(t, w, job).tokens); diff != "" {
			t.Errorf("%s: the next request (-want +got)\n%s", name, diff)
		}
	}
}

func TestEmitErrorEndsTheRequest(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	gone := errors.New("client gone")
	_, err := w.Do(t.Context(), seeded(prompt(20, 1), 5, 9), func(backends.Event) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestEndOfRunEndsTheRequest(t *testing.T) {
	c := newFakeCache(false)
	w, err := New(fakeConfig(engine.MemoryAttention), fakeDeps(t, c))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	c.onDecode = func(n int) error {
		if n == 5 {
			cancel()
		}
		return nil
	}
	if _, err := try(t.Context(), w, seeded(prompt(20, 1), 5, 300)); !errors.Is(err, context.Canceled) {
		t.Errorf("running request: %v", err)
	}
	if err := <-done; err != nil || !c.closed {
		t.Errorf("run: %v, cache closed: %v", err, c.closed)
	}
	if _, err := try(t.Context(), w, seeded(prompt(20, 1), 5, 3)); !errors.Is(err, backends.ErrLost) {
		t.Errorf("request after the end: %v", err)
	}
}
