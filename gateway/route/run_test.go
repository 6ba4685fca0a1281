package route_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
)

// until runs until its context ends, as an engine does.
func until(ctx context.Context) error { <-ctx.Done(); return nil }

func dies(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.run, b.run = until, until
		ended := started(t.Context(), group(t, config(), a, b))
		after(time.Hour)
		if err := ended(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestOneDies has a replica that fails for good: the other serves on.
func TestOneDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.run, b.run = dies(errors.New("file is damaged")), until
		g := group(t, config(), a, b)
		ended := started(t.Context(), g)
		synctest.Wait()
		for i := range 20 {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		if r := replica(t, g, "a"); r.State != "failed" || !strings.Contains(r.Reason, "file is damaged") || a.all.Load() > 0 {
			t.Errorf("replica a is %+v with %d requests", r, a.all.Load())
		}
		if err := ended(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestAllDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.run, b.run = dies(errors.New("file is damaged")), dies(errors.New("no program"))
		g := group(t, config(), a, b)
		err := g.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "replica a: file is damaged") || !strings.Contains(err.Error(), "replica b: no program") {
			t.Errorf("Run = %v, want why both have failed", err)
		}
		if err := g.WaitReady(t.Context()); err == nil {
			t.Error("WaitReady took a group of which nothing is left")
		}
		began := time.Now()
		ask(t.Context(), g, "x").kind(t, backends.KindUnavailable)
		if time.Since(began) > 0 {
			t.Error("a request waited for what has failed for good")
		}
	})
}

// late is an engine that tells what it serves when it is ready, as those do that load a file.
type late struct {
	*engine
	context *atomic.Int64
}

func newLate(t *testing.T, name string, size int64) late {
	t.Helper()
	l := late{newEngine(t, name, 1), &atomic.Int64{}}
	l.context.Store(size)
	return l
}

func (l late) Info() backends.Info {
	info := l.Model.Info()
	if info.Context = int(l.context.Load()); !info.Ready {
		info.Context, info.Vocabulary = 0, 0
	}
	return info
}

// TestAnotherModel has replicas that turn out to serve different models once they have loaded them.
func TestAnotherModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newLate(t, "a", 2048), newLate(t, "b", 100)
		b.SetDown("loading")
		g := groupOf(t, config(), []string{"a", "b"}, []backends.Backend{a, b})
		done := make(chan error, 1)
		go func() { done <- g.Run(t.Context()) }()
		after(time.Second)
		b.SetDown("")
		err := <-done
		if err == nil || !strings.Contains(err.Error(), "replicas a and b don't serve the same model: context 2048 and 100") {
			t.Errorf("Run = %v, want both named", err)
		}
	})
}

// TestReplacedModel has a replica whose file was replaced while it served: it is left out, and nothing else happens.
func TestReplacedModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newLate(t, "a", 2048), newLate(t, "b", 2048)
		g := groupOf(t, config(), []string{"a", "b"}, []backends.Backend{a, b})
		ended := started(t.Context(), g)
		after(time.Second)
		b.context.Store(100)
		after(time.Second)
		for i := range 20 {
			ask(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		if r := replica(t, g, "b"); r.State != "refused" || r.Ready || b.all.Load() > 0 {
			t.Errorf("replica b is %+v with %d requests", r, b.all.Load())
		}
		if err := ended(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestEmitAllocatesNothing holds what the group adds to each token.
func TestEmitAllocatesNothing(t *testing.T) {
	a := &measure{engine: newEngine(t, "a", 1)}
	g := groupOf(t, config(), []string{"a", "b"}, []backends.Backend{a, &measure{engine: newEngine(t, "b", 1)}})
	for i := 0; a.events == 0; i++ {
		askQuiet(t, g, prompt(i))
	}
	if a.allocs > 0 {
		t.Errorf("%g allocations an event, want none", a.allocs)
	}
}

// measure is an engine that measures what emitting costs.
type measure struct {
	*engine
	events int
	allocs float64
}

func (m *measure) Generate(_ context.Context, _ *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	m.events = 1000
	var err error
	m.allocs = testing.AllocsPerRun(m.events, func() { err = errors.Join(err, emit(backends.Event{Content: "word"})) })
	return &backends.Result{}, err
}

// askQuiet asks with a client that keeps nothing.
func askQuiet(t *testing.T, g backends.Backend, prompt string) {
	t.Helper()
	p, err := g.Prepare(t.Context(), request(prompt))
	if err == nil {
		_, err = g.Generate(t.Context(), p, func(backends.Event) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
}
