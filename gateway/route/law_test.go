package route_test

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

// watcher is what the law knows of one request.
type watcher struct {
	mu      sync.Mutex
	running int
	begun   int
	content bool
	broken  string
}

// spy is an engine that tells the watcher of each request.
type spy struct {
	*engine
	watch *sync.Map // *watcher by request id
}

func (s spy) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	found, _ := s.watch.Load(p.Request.ID)
	w := found.(*watcher)
	w.enter()
	defer w.leave()
	return s.engine.Generate(ctx, p, func(e backends.Event) error {
		w.saw(e)
		return emit(e)
	})
}

func (w *watcher) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
	w.begun++
	switch {
	case w.running > 1:
		w.broken = "it ran on two replicas at once"
	case w.content:
		w.broken = "it was given to another replica after its client had content"
	}
}

func (w *watcher) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
}

func (w *watcher) saw(e backends.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.content = w.content || dispatch.Visible(e)
}

// TestLaw runs requests at once on replicas that fail at random tokens: none is on two replicas, none goes on elsewhere after content, none
// is tried more often than it may, and whoever got an answer got the right one.
func TestLaw(t *testing.T) {
	kinds := []backends.Kind{
		backends.KindUnavailable, backends.KindLost, backends.KindUpstream, backends.KindTimeout, backends.KindLimited, backends.KindInvalid, backends.KindInternal,
	}
	rapid.Check(t, func(rt *rapid.T) {
		cfg := config()
		cfg.Breaker.Failures = rapid.SampledFrom([]int{2, 1 << 30}).Draw(rt, "failures")
		cfg.Tries = rapid.IntRange(1, 4).Draw(rt, "tries")
		cfg.Sticky = rapid.Bool().Draw(rt, "sticky")
		watch := &sync.Map{}
		var replicas []backends.Backend
		var names []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "replicas") {
			e := newEngine(t, string(rune('a'+i)), rapid.IntRange(1, 3).Draw(rt, "workers"))
			if rapid.Bool().Draw(rt, "fails") {
				e.at(rapid.IntRange(0, 4).Draw(rt, "step"), &backends.Error{Kind: rapid.SampledFrom(kinds).Draw(rt, "kind")})
			}
			replicas, names = append(replicas, spy{e, watch}), append(names, e.name)
		}
		g := groupOf(rt, cfg, names, replicas)
		var calls sync.WaitGroup
		for i := range 12 {
			w := &watcher{}
			watch.Store(prompt(i), w)
			calls.Go(func() {
				if got := ask(context.Background(), g, prompt(i)); got.err == nil {
					got.right(t, prompt(i))
				}
				if w.begun > cfg.Tries {
					w.broken = "it was tried too often"
				}
			})
		}
		calls.Wait()
		watch.Range(func(id, found any) bool {
			if w := found.(*watcher); w.broken != "" {
				rt.Errorf("request %s: %s", id, w.broken)
			}
			return true
		})
		for _, s := range g.Stats() {
			if s.InFlight != 0 {
				rt.Errorf("%d requests are left with %s", s.InFlight, s.Name)
			}
		}
	})
}
