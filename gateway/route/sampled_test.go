package route_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
)

// choosing makes an engine that chooses tokens by parameters, or can't for a reason.
func choosing(t *testing.T, name, why string) *engine {
	t.Helper()
	e := newEngine(t, name, 2)
	e.samples.Store(&why)
	return e
}

func sampled(ctx context.Context, g backends.Backend, id string) answer {
	r := request(id)
	r.Sampled = true
	return askFor(ctx, g, r, func(backends.Event) error { return nil })
}

// TestSampledGoesWhereItCan holds that a sampled request goes to no replica that can't do it, while others go everywhere.
func TestSampledGoesWhereItCan(t *testing.T) {
	a, b := choosing(t, "a", "its plugin is not loaded"), choosing(t, "b", "")
	cfg := config()
	cfg.Sticky = false
	g := group(t, cfg, a, b)
	for i := range 16 {
		sampled(t.Context(), g, prompt(i)).right(t, prompt(i))
	}
	if a.all.Load() != 0 || b.all.Load() != 16 {
		t.Errorf("%d went to the one that can't, %d to the other", a.all.Load(), b.all.Load())
	}
	for i := 0; a.all.Load() == 0 && i < 1000; i++ {
		ask(t.Context(), g, prompt(i)).right(t, prompt(i))
	}
	if info := g.Info(); a.all.Load() == 0 || !info.Samples || info.Unsampled != "" || replica(t, g, "a").Unsampled == "" {
		t.Errorf("%d plain requests went to a; the model is %+v", a.all.Load(), info)
	}
}

// TestNobodySamples holds that a sampled request is refused at once, with every reason, and others are not.
func TestNobodySamples(t *testing.T) {
	a, b := choosing(t, "a", "its plugin is not loaded"), choosing(t, "b", "the sidecar is away")
	g := group(t, config(), a, b)
	got := sampled(t.Context(), g, "x")
	got.kind(t, backends.KindUnavailable)
	var e *backends.Error
	if !errors.As(got.err, &e) || e.Code != backends.CodeUnsampled {
		t.Errorf("it came to %v, want %s", got.err, backends.CodeUnsampled)
	}
	for _, want := range []string{"its plugin is not loaded", "the sidecar is away", "replica a", "replica b"} {
		if got.err == nil || !strings.Contains(got.err.Error(), want) {
			t.Errorf("%v does not say %q", got.err, want)
		}
	}
	ask(t.Context(), g, "x").right(t, "x")
	if info := g.Info(); !info.Ready || info.Unsampled == "" {
		t.Errorf("the model is %+v, want it ready, and why it chooses no tokens", info)
	}
	p, err := g.Prepare(t.Context(), request("late"))
	if err != nil {
		t.Fatal(err)
	}
	p.Request.Sampled = true // it could be done when it was prepared
	_, err = g.Generate(t.Context(), p, func(backends.Event) error { return nil })
	if !errors.As(err, &e) || e.Kind != backends.KindUnavailable || e.Code != backends.CodeUnsampled {
		t.Errorf("Generate = %v", err)
	}
	idle(t, g)
}

// TestSamplingFailsOver holds that what fails about choosing goes to another replica, and is not held against the one that failed.
func TestSamplingFailsOver(t *testing.T) {
	for _, code := range []string{backends.CodeUnsampled, backends.CodeMismatched} {
		a, b := choosing(t, "a", ""), choosing(t, "b", "")
		a.at(0, &backends.Error{Kind: backends.KindUnavailable, Code: code, Message: "made to fail"})
		cfg := config()
		cfg.Sticky, cfg.Breaker.Failures = false, 1
		g := group(t, cfg, a, b)
		for i := 0; a.all.Load() < 2 && i < 1000; i++ {
			sampled(t.Context(), g, prompt(i)).right(t, prompt(i))
		}
		if s := stats(t, g, "a"); s.Failovers < 2 || s.Failures != 0 || !s.Ready {
			t.Errorf("%s: %+v", code, s)
		}
	}
}

// TestUnsampledIsTold holds that a request that can't be sampled on one replica while the other is busy is not put off: nobody would count how often.
func TestUnsampledIsTold(t *testing.T) {
	a, b := choosing(t, "a", "not yet"), choosing(t, "b", "")
	why := &backends.Error{Kind: backends.KindUnavailable, Code: backends.CodeUnsampled, Message: "made to fail"}
	a.at(0, why)
	b.hang.Store(true)
	g := group(t, config(), a, b)
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	for range b.workers {
		holding.Go(func() { _ = sampled(ctx, g, "held") })
	}
	for b.runs.Load() < int64(b.workers) {
		after(time.Millisecond)
	}
	a.samples.Store(new(""))
	var e *backends.Error
	if got := sampled(t.Context(), g, "x"); !errors.As(got.err, &e) || e.Code != why.Code || a.all.Load() != 1 {
		t.Errorf("it came to %v after %d tries", got.err, a.all.Load())
	}
	cancel()
	holding.Wait()
}

// TestToldLoadDecides holds that the replica that says that it has less to do is picked, though neither has a request of ours.
func TestToldLoadDecides(t *testing.T) {
	a, b := choosing(t, "a", ""), choosing(t, "b", "")
	a.load.Store(90)
	b.load.Store(10)
	cfg := config()
	cfg.Sticky = false
	g := group(t, cfg, a, b)
	for i := range 16 {
		ask(t.Context(), g, prompt(i)).right(t, prompt(i))
	}
	if a.all.Load() != 0 {
		t.Errorf("the busier one got %d of 16", a.all.Load())
	}
}
