package node_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

// TestWarmPrefixFirst: of two callers whose turn is equally near, the one is served whose prompt begins like what the worker had last.
func TestWarmPrefixFirst(t *testing.T) {
	g := &gate{waiting: map[string]chan struct{}{}}
	bench(t, 1, one(99, g.hook), func(r *rig) {
		like := func(start int32) []int32 {
			tokens := make([]int32, 100)
			for i := range tokens {
				tokens[i] = start + int32(i)
			}
			return tokens
		}
		running := r.doTokens("a", "1", like(1))
		synctest.Wait()
		cold := r.doTokens("b", "2", like(50))
		synctest.Wait()
		warm := r.doTokens("c", "3", like(1))
		synctest.Wait()
		for i, c := range []*call{running, warm, cold} {
			if got := g.running(); len(got) != i+1 || got[i] != c.id {
				t.Fatalf("started %v, want %s as number %d", got, c.id, i+1)
			}
			g.let(c.id)
			<-c.done
		}
	})
}

// doTokens sends a prompt of tokens for a caller.
func (r *rig) doTokens(id, key string, tokens []int32) *call {
	r.Helper()
	p, err := r.models["m"].Prepare(r.Context(), &backends.Request{ID: id, Model: "m", Tokens: tokens, MaxTokens: 4})
	if err != nil {
		r.Fatal(err)
	}
	if len(p.Tokens) != len(tokens) || !slices.Equal(dispatch.Prefixes("m", p.Tokens), dispatch.Prefixes("m", tokens)) {
		r.Fatalf("prepared %d of %d tokens", len(p.Tokens), len(tokens))
	}
	c := &call{id: id, done: make(chan struct{})}
	r.calls.Go(func() {
		defer close(c.done)
		c.result, c.err = r.d.Do(r.Context(), dispatch.Job{ID: id, Key: key, Model: "m", Prepared: p}, c)
	})
	return c
}

// TestCancelledRunIsCharged: a caller that leaves early pays for what it took, not for what it asked for.
func TestCancelledRunIsCharged(t *testing.T) {
	bench(t, 1, one(99, nil), func(r *rig) {
		c := r.doWith(&call{id: "a", block: make(chan struct{})}, "m", 500)
		synctest.Wait()
		after(6 * time.Second) // three heartbeats
		c.cancel()
		close(c.block)
		c.wait()
		s := r.stats()
		if s.Cancelled != 1 || s.Tokens == 0 || s.Tokens > 400 {
			t.Errorf("%d cancelled, %d tokens charged of 500", s.Cancelled, s.Tokens)
		}
	})
}
