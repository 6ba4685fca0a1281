package route_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/route"
)

func TestFailsOverBeforeContent(t *testing.T) {
	for kind, again := range map[backends.Kind]bool{
		backends.KindUnavailable: true, backends.KindLost: true, backends.KindUpstream: true, backends.KindTimeout: true, backends.KindLimited: true,
		backends.KindInvalid: false, backends.KindTooLong: false, backends.KindEntropy: false, backends.KindModel: false, backends.KindInternal: false,
	} {
		t.Run(string(kind), func(t *testing.T) {
			a, b := newEngine(t, "a", 4), newEngine(t, "b", 4)
			a.broken(kind)
			cfg := config()
			cfg.Sticky = false
			g := group(t, cfg, a, b)
			for i := 0; a.all.Load() == 0; i++ {
				got := ask(t.Context(), g, prompt(i))
				if a.all.Load() == 0 {
					got.right(t, prompt(i))
					continue
				}
				if !again {
					got.kind(t, kind)
					continue
				}
				got.right(t, prompt(i))
				if got.starts != 2 || got.result.Stats.Replica != "b" || got.result.Stats.Tries != 2 {
					t.Errorf("started %d times, stats %+v; want 2 tries, the last on b", got.starts, got.result.Stats)
				}
				if s := stats(t, g, "a"); s.Failovers != 1 || stats(t, g, "b").Picks["failover"] != 1 {
					t.Errorf("stats %+v, want one failover", g.Stats())
				}
			}
			idle(t, g)
		})
	}
}

// TestTotalTimeout holds that a request that had all its time does not get as much again.
func TestTotalTimeout(t *testing.T) {
	a, b := newEngine(t, "a", 4), newEngine(t, "b", 4)
	for _, e := range []*engine{a, b} {
		e.at(0, &backends.Error{Kind: backends.KindTimeout, Code: "total_timeout"})
	}
	ask(t.Context(), group(t, config(), a, b), "x").kind(t, backends.KindTimeout)
	if n := a.all.Load() + b.all.Load(); n != 1 {
		t.Errorf("%d replicas had the request, want 1", n)
	}
}

func TestNoFailoverAfterContent(t *testing.T) {
	a, b := newEngine(t, "a", 4), newEngine(t, "b", 4)
	for _, e := range []*engine{a, b} {
		e.at(3, fake.Lost())
	}
	got := ask(t.Context(), group(t, config(), a, b), "x")
	got.kind(t, backends.KindLost)
	if n := a.all.Load() + b.all.Load(); n != 1 || got.text == "" {
		t.Errorf("%d replicas had the request, text %q; want one, and the text so far", n, got.text)
	}
}

// TestMarkOutlivesFailover: what one replica may have run stays so when another one refuses it.
func TestMarkOutlivesFailover(t *testing.T) {
	for name, c := range map[string]struct {
		first *backends.Error
		want  bool
	}{
		"had it":  {&backends.Error{Kind: backends.KindUpstream, Message: "broke", MayHaveRun: true}, true},
		"lost it": {&backends.Error{Kind: backends.KindLost, Message: "died"}, true},
		"late":    {&backends.Error{Kind: backends.KindTimeout, Message: "late"}, true},
		"refused": {&backends.Error{Kind: backends.KindUpstream, Message: "full"}, false},
		"was off": {&backends.Error{Kind: backends.KindUnavailable, Message: "off"}, false},
	} {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		refusal := &backends.Error{Kind: backends.KindUpstream, Message: "full"}
		a.at(0, c.first)
		b.at(0, refusal)
		cfg := config()
		cfg.Sticky, cfg.Breaker.Failures = false, 1000
		g := group(t, cfg, a, b)
		for firstA := false; !firstA; {
			got := ask(t.Context(), g, "x")
			var e *backends.Error
			if firstA = errors.As(got.err, &e) && e.Message == "full"; firstA && e.MayHaveRun != c.want {
				t.Errorf("%s: it may have run: %t, want %t", name, e.MayHaveRun, c.want)
			}
			if b.all.Load() > 40 {
				t.Fatalf("%s: no request went to a first and was refused by b: %v", name, got.err)
			}
		}
		if refusal.MayHaveRun {
			t.Errorf("%s: the replica's own error was changed", name)
		}
	}
}

func TestTriesAreBounded(t *testing.T) {
	for kind, want := range map[backends.Kind]int64{backends.KindUnavailable: 3, backends.KindLost: 2} {
		var all []*engine
		for _, name := range []string{"a", "b", "c", "d"} {
			e := newEngine(t, name, 1)
			e.broken(kind)
			all = append(all, e)
		}
		ask(t.Context(), group(t, config(), all...), "x").kind(t, kind)
		n := int64(0)
		for _, e := range all {
			if e.all.Load() > 1 {
				t.Errorf("%s: replica %s had the request %d times", kind, e.name, e.all.Load())
			}
			n += e.all.Load()
		}
		if n != want {
			t.Errorf("%s: %d replicas had the request, want %d", kind, n, want)
		}
	}
}

// TestOthersBusy has a request that failed on one replica while the other has no free worker: it is to wait in the queue.
func TestOthersBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.hang.Store(true)
		b.hang.Store(true)
		g := group(t, config(), a, b)
		ctx, cancel := context.WithCancel(t.Context())
		held := make(chan answer)
		go func() { held <- ask(ctx, g, "held") }()
		synctest.Wait()
		busy, free := a, b
		if b.runs.Load() == 1 {
			busy, free = b, a
		}
		free.hang.Store(false)
		free.broken(backends.KindUpstream)
		ask(t.Context(), g, "x").kind(t, backends.KindUnavailable)
		free.broken(backends.KindLost)
		ask(t.Context(), g, "x").kind(t, backends.KindLost)
		if busy.all.Load() != 1 {
			t.Errorf("the busy replica had %d requests", busy.all.Load())
		}
		cancel()
		if got := <-held; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the held request ended with %v", got.err)
		}
		idle(t, g)
	})
}

func TestLoneReplica(t *testing.T) {
	a := newEngine(t, "a", 2)
	g := group(t, config(), a)
	got := ask(t.Context(), g, "x").right(t, "x")
	if got.result.Stats.Replica != "" || got.result.Stats.Tries != 0 || g.Info().Replicas != nil {
		t.Errorf("a model with one backend speaks of replicas: %+v, %+v", got.result.Stats, g.Info())
	}
	a.broken(backends.KindUnavailable)
	ask(t.Context(), g, "x").kind(t, backends.KindUnavailable)
	want := a.Info()
	if info := g.Info(); info.Workers != 2 || info.Vocabulary != want.Vocabulary || info.Backend != "fake" || !info.Ready || info.State != "ready" {
		t.Errorf("info %+v", info)
	}
}

func TestRefusedAtStart(t *testing.T) {
	small := func(t *testing.T, name string) *engine {
		c := fake.DefaultConfig()
		c.Model, c.Context = "m", 100
		m, err := fake.New(c, fake.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		return &engine{Model: m, name: name, workers: 1, weight: 1}
	}
	for name, c := range map[string]struct {
		change func(cfg *route.Config, a, b *engine)
		say    string
	}{
		"context":  {func(_ *route.Config, _, b *engine) { b.Model = small(t, "b").Model }, "replicas a and b don't serve the same model: context 2048 and 100"},
		"raw":      {func(_ *route.Config, _, b *engine) { b.raw = true }, "replicas a (fake) and b (fake) can't stand in"},
		"one name": {func(_ *route.Config, _, b *engine) { b.name = "a" }, "replicas 0 and 1 are both named a"},
		"weight":   {func(_ *route.Config, _, b *engine) { b.weight = 0 }, "weight of replica b is 0"},
		"workers":  {func(_ *route.Config, _, b *engine) { b.workers = 0 }, `replica "b" needs`},
		"tries":    {func(cfg *route.Config, _, _ *engine) { cfg.Tries = 0 }, "tries is 0"},
		"breaker":  {func(cfg *route.Config, _, _ *engine) { cfg.Breaker.Window = 0 }, "window is 0s"},
	} {
		cfg, a, b := config(), newEngine(t, "a", 1), newEngine(t, "b", 1)
		c.change(&cfg, a, b)
		if _, err := build(cfg, a, b); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: New = %v, want %q", name, err, c.say)
		}
	}
	if _, err := build(config()); err == nil {
		t.Error("New took no replicas")
	}
}

func TestWaitReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		g := group(t, config(), a, b)
		a.SetDown("restarting")
		b.SetDown("unreachable")
		ready := make(chan error, 1)
		go func() { ready <- g.WaitReady(t.Context()) }()
		after(time.Hour)
		select {
		case err := <-ready:
			t.Fatalf("WaitReady = %v while all are down", err)
		default:
		}
		b.SetDown("")
		began := time.Now()
		if err := <-ready; err != nil || time.Since(began) > 200*time.Millisecond {
			t.Errorf("WaitReady = %v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		a.SetDown("restarting")
		b.hang.Store(true)
		held := make(chan answer)
		go func() { held <- ask(ctx, g, "held") }()
		synctest.Wait()
		go func() { ready <- g.WaitReady(t.Context()) }()
		after(time.Minute)
		cancel()
		<-held
		if err := <-ready; err != nil {
			t.Errorf("WaitReady = %v when a worker is free again", err)
		}
	})
}

func TestAllDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		g := group(t, config(), a, b)
		p, err := g.Prepare(t.Context(), request("x"))
		if err != nil {
			t.Fatal(err)
		}
		a.SetDown("out of memory")
		b.SetDown("unreachable")
		began := time.Now()
		got := ask(t.Context(), g, "x")
		got.kind(t, backends.KindUnavailable)
		if d := time.Since(began); d < config().Wait || d > config().Wait+time.Second {
			t.Errorf("Prepare was refused after %s, want the wait", d)
		}
		for _, want := range []string{"replica a is failed: out of memory", "replica b is failed: unreachable"} {
			if !strings.Contains(got.err.Error(), want) {
				t.Errorf("the error is %q, want %q in it", got.err, want)
			}
		}
		began = time.Now()
		_, err = g.Generate(t.Context(), p, func(backends.Event) error { return nil })
		answer{err: err}.kind(t, backends.KindUnavailable)
		if time.Since(began) > 0 {
			t.Error("Generate waited for a replica that is not there; the queue is for that")
		}
		if info := g.Info(); info.Ready || info.State != "failed" || len(info.Replicas) != 2 || info.Replicas[1].Reason != "unreachable" {
			t.Errorf("info %+v", info)
		}
	})
}

// TestServersAway holds that nobody waits for servers that are known to be away, unlike for engines that are being restarted.
func TestServersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newEngine(t, "a", 1), newEngine(t, "b", 1)
		a.raw, b.raw = true, true
		g := group(t, config(), a, b)
		a.SetDown("it refuses connections")
		b.SetDown("it refuses connections")
		began := time.Now()
		ask(t.Context(), g, "x").kind(t, backends.KindUnavailable)
		if d := time.Since(began); d > 0 {
			t.Errorf("refused after %s, want at once", d)
		}
	})
}
