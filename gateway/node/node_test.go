package node_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/sampler"
)

func TestCapacity(t *testing.T) {
	var busy, most atomic.Int64
	hook := func(ctx context.Context, _ string, _ int) error {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		after(10 * time.Millisecond)
		return ctx.Err()
	}
	bench(t, 3, one(99, hook), func(r *rig) {
		var calls []*call
		for i := range 20 {
			calls = append(calls, r.do(name(i)))
		}
		for _, c := range calls {
			r.right(c)
		}
		if most.Load() != 3 {
			r.Errorf("%d requests ran at once on 3 workers", most.Load())
		}
		if s := r.stats(); s.Done != 20 || s.Tokens == 0 {
			r.Errorf("stats are %+v, want 20 done and their tokens", s)
		}
	})
}

func TestModelsRunBesideEachOther(t *testing.T) {
	hold := func(ctx context.Context, _ string, _ int) error { <-ctx.Done(); return ctx.Err() }
	build := func(t *testing.T) []backends.Backend {
		return []backends.Backend{model(t, "stuck", 1, hold), model(t, "m", 1, nil)}
	}
	bench(t, 1, build, func(r *rig) {
		stuck := r.doWith(&call{id: "a"}, "stuck", 8)
		synctest.Wait()
		r.right(r.do("b"))
		stuck.cancel()
	})
}

// lostAt makes the engine die at one step of a request, times times.
func lostAt(at, times int) step {
	var n atomic.Int64
	return func(_ context.Context, _ string, step int) error {
		if step == at && n.Add(1) <= int64(times) {
			return fake.Lost()
		}
		return nil
	}
}

func TestLostBeforeFirstToken(t *testing.T) {
	bench(t, 1, one(1, lostAt(0, 1)), func(r *rig) {
		c := r.do("a")
		r.right(c)
		if s := r.stats(); s.Requeued != 1 || s.Done != 1 {
			r.Errorf("stats are %+v, want one requeued and done", s)
		}
	})
}

func TestLostTwice(t *testing.T) {
	bench(t, 1, one(1, lostAt(0, 2)), func(r *rig) { r.kind(r.do("a"), backends.KindLost) })
}

func TestLostAfterFirstToken(t *testing.T) {
	bench(t, 1, one(1, lostAt(3, 1)), func(r *rig) {
		c := r.do("a")
		r.kind(c, backends.KindLost)
		if c.starts != 1 || c.text.Len() == 0 {
			r.Errorf("started %d times with %q, want once with the text so far", c.starts, c.text.String())
		}
		r.right(r.do("b"))
	})
}

// TestQueueKnowsFirst holds that no client sees text of a job that the queue would start again.
func TestQueueKnowsFirst(t *testing.T) {
	slow := func(ctx context.Context, _ string, _ int) error { after(time.Second); return ctx.Err() }
	bench(t, 1, one(1, slow), func(r *rig) {
		c := &call{id: "a"}
		seen := queue.StateStreaming
		c.onText = func() {
			if got := r.state("a"); got == queue.StateQueued || got == queue.StateLeased {
				seen = got
			}
		}
		r.right(r.doWith(c, "m", 8))
		if seen != queue.StateStreaming {
			r.Errorf("the job was %s when its client saw text", seen)
		}
	})
}

func TestOtherErrorsReachTheClient(t *testing.T) {
	for kind, err := range map[backends.Kind]error{
		backends.KindEntropy:  &backends.Error{Kind: backends.KindEntropy},
		backends.KindInternal: errors.New("a secret of the inside"),
	} {
		t.Run(string(kind), func(t *testing.T) {
			hook := func(context.Context, string, int) error { return err }
			bench(t, 1, one(1, hook), func(r *rig) {
				c := r.do("a")
				r.kind(c, kind)
				if got := r.state("a"); got != queue.StateFailed && got != queue.StateCancelled {
					r.Errorf("job is %s", got)
				}
			})
		})
	}
}

// TestUnavailable has a backend that is away for longer than a job's attempts would last.
func TestUnavailable(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	hook := func(context.Context, string, int) error {
		if away.Load() {
			return &backends.Error{Kind: backends.KindUnavailable}
		}
		return nil
	}
	bench(t, 2, one(2, hook), func(r *rig) {
		c := r.do("a")
		after(5 * time.Second)
		if n := r.stats().Requeued; n < 5 || n > 50 {
			r.Errorf("tried %d times in 5 s, want a try now and then", n)
		}
		away.Store(false)
		r.right(c)
	})
}

func TestClaimsOnlyWhenReady(t *testing.T) {
	bench(t, 1, one(1, nil), func(r *rig) {
		m := r.models["m"].(*fake.Model)
		synctest.Wait()
		m.SetDown("restarting")
		r.right(r.do("was claimed before"))
		c := r.do("a")
		after(time.Minute)
		if got := r.state("a"); got != queue.StateQueued {
			r.Errorf("job is %s, want queued", got)
		}
		m.SetDown("")
		r.right(c)
	})
}

func TestClientLeaves(t *testing.T) {
	ended := make(chan error, 1)
	hook := func(ctx context.Context, id string, step int) error {
		if id != "leaves" || step < 2 {
			return nil
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	bench(t, 1, one(1, hook), func(r *rig) {
		c := r.do("leaves")
		synctest.Wait()
		began := time.Now()
		c.cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.Errorf("the run ended with %v", err)
		}
		if d := time.Since(began); d > 0 {
			r.Errorf("the worker went on for %s", d)
		}
		if c.wait(); !errors.Is(c.err, context.Canceled) {
			r.Errorf("Do = %v", c.err)
		}
		r.right(r.do("next"))
	})
}

// TestSlowClient has a client that takes an event a minute: the lease must live on.
func TestSlowClient(t *testing.T) {
	bench(t, 1, one(1, nil), func(r *rig) {
		c := &call{id: "a", block: make(chan struct{})}
		r.doWith(c, "m", 8)
		for range 4 {
			after(time.Minute)
			c.block <- struct{}{}
		}
		close(c.block)
		r.right(c)
		if n := r.stats().LeasesLost; n != 0 {
			r.Errorf("%d leases were lost", n)
		}
	})
}

// TestDrain stops a node with one request running and one waiting.
func TestDrain(t *testing.T) {
	hook := func(ctx context.Context, _ string, _ int) error {
		after(time.Second)
		return ctx.Err()
	}
	bench(t, 1, one(1, hook), func(r *rig) {
		running := r.do("a")
		synctest.Wait()
		waiting := r.do("b")
		after(1500 * time.Millisecond)
		r.drain()
		r.right(running)
		<-r.ended
		if got := r.state("b"); got != queue.StateQueued {
			r.Errorf("the waiting job is %s, want queued", got)
		}
		waiting.cancel()
	})
}

func TestDrainOutOfGrace(t *testing.T) {
	hook := func(ctx context.Context, id string, step int) error {
		if id == "prompt" || step == 2 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	bench(t, 2, one(2, hook), func(r *rig) {
		streaming, prompt := r.do("streaming"), r.do("prompt")
		synctest.Wait()
		began := time.Now()
		r.drain()
		<-r.ended
		if d := time.Since(began); d != node.DefaultConfig().Grace {
			r.Errorf("drained after %s, want the grace", d)
		}
		r.kind(streaming, backends.KindUnavailable)
		if got := r.state("prompt"); got != queue.StateQueued {
			r.Errorf("the job without a token is %s, want queued", got)
		}
		prompt.cancel()
	})
}

// TestPayload holds that a request survives the queue whole.
func TestPayload(t *testing.T) {
	text, seed, alpha, ban := "naïve \u2028 text", int64(-1<<63), -0.25, true
	want := &backends.Prepared{
		Request: &backends.Request{
			ID: "a", Model: "m", Text: &text, MaxTokens: 3, Stop: []string{"\n", "é"}, IncludeStop: true,
			Chat:   &backends.Chat{Messages: []byte(`[{"role":"user","content":"<hi>"}]`), Thinking: true, Kwargs: []byte(`{"a":1}`)},
			Params: sampler.Params{Seed: &seed, Alpha: &alpha, ThinkBan: &ban, TopP: 0.1},
		},
		Tokens: []int32{0, 1, 1 << 30}, MaxTokens: 3, Stops: []string{"x"}, ChatFormat: []byte{0, 255},
	}
	got := make(chan *backends.Prepared, 1)
	bench(t, 1, func(*testing.T) []backends.Backend { return []backends.Backend{&catcher{got: got}} }, func(r *rig) {
		c := &call{id: "a"}
		if _, err := r.d.Do(r.Context(), dispatch.Job{ID: "a", Key: "k", Model: "m", Prepared: want}, c); err != nil {
			r.Fatal(err)
		}
		p := <-got
		p.Request.Chat.Messages = []byte(`[{"role":"user","content":"<hi>"}]`) // < is written \u003c: the same JSON
		if diff := cmp.Diff(want, p); diff != "" {
			r.Errorf("prepared request (-want +got):\n%s", diff)
		}
	})
}

// catcher is a backend that keeps what it is asked and measures what an event costs.
type catcher struct {
	got    chan *backends.Prepared
	allocs float64
	events int
}

func (b *catcher) Prepare(context.Context, *backends.Request) (*backends.Prepared, error) {
	return nil, errors.ErrUnsupported
}

func (b *catcher) Info() backends.Info { return backends.Info{Model: "m", Ready: true} }

func (b *catcher) Generate(_ context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	var err error
	if b.events > 0 {
		b.allocs = testing.AllocsPerRun(b.events, func() { err = errors.Join(err, emit(backends.Event{Content: "word"})) })
	}
	b.got <- p
	return &backends.Result{}, err
}

// quiet is a client that keeps nothing.
type quiet struct{}

func (quiet) Queued(int, time.Duration)  {}
func (quiet) Event(backends.Event) error { return nil }

// TestEventAllocatesNothing holds the path of each token, from the backend's emit to the client's sink.
func TestEventAllocatesNothing(t *testing.T) {
	b := &catcher{got: make(chan *backends.Prepared, 1), events: 1000}
	bench(t, 1, func(*testing.T) []backends.Backend { return []backends.Backend{b} }, func(r *rig) {
		p := &backends.Prepared{Request: &backends.Request{ID: "a"}}
		if _, err := r.d.Do(r.Context(), dispatch.Job{ID: "a", Key: "k", Model: "m", Prepared: p}, quiet{}); err != nil {
			r.Fatal(err)
		}
		<-b.got
		if b.allocs > 0 {
			r.Errorf("%g allocations an event, want none", b.allocs)
		}
	})
}

// TestRandomCancels ends many requests at random moments; those left must be right and no worker lost.
func TestRandomCancels(t *testing.T) {
	const requests, workers = 400, 4
	hook := func(ctx context.Context, _ string, _ int) error {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		return ctx.Err()
	}
	bench(t, workers, one(workers, hook), func(r *rig) {
		random := rand.New(rand.NewPCG(1, 2))
		var kept []*call
		for i := range requests {
			c := r.do(name(i))
			if i%20 == 0 {
				kept = append(kept, c)
				continue
			}
			limit := time.Duration(random.IntN(40_000)) * time.Microsecond
			r.calls.Go(func() {
				after(limit)
				c.cancel()
			})
			after(500 * time.Microsecond)
		}
		for _, c := range kept {
			r.right(c)
		}
		r.calls.Wait()
		synctest.Wait()
		s := r.stats()
		if s.Done+s.Cancelled != requests || s.Failed+s.LeasesLost > 0 || s.Models["m"].Running > 0 {
			r.Errorf("stats are %+v, want each of %d done or cancelled", s, requests)
		}
		for i := range workers {
			r.right(r.do("last" + name(i)))
		}
	})
}

func TestNewRefuses(t *testing.T) {
	m := node.Model{ID: "m", Backend: &catcher{}, Workers: 1}
	for name, change := range map[string]func(c *node.Config, models *[]node.Model){
		"no name":      func(c *node.Config, _ *[]node.Model) { c.Name = "" },
		"no heartbeat": func(c *node.Config, _ *[]node.Model) { c.Heartbeat = 0 },
		"grace":        func(c *node.Config, _ *[]node.Model) { c.Grace = -1 },
		"no models":    func(_ *node.Config, models *[]node.Model) { *models = nil },
		"no workers":   func(_ *node.Config, models *[]node.Model) { (*models)[0].Workers = 0 },
	} {
		c, models := node.DefaultConfig(), []node.Model{m}
		change(&c, &models)
		if _, err := node.New(c, models, node.Deps{}); err == nil {
			t.Errorf("%s: New took it", name)
		}
	}
}
