package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
)

// TestTakenUp: an answer whose worker is lost after its first text goes on, and its client sees one unbroken text. A worker that is lost before it
// has added to the text costs an attempt, as with any job.
func TestTakenUp(t *testing.T) {
	for _, c := range []struct {
		losses int
		at     []int // nil: it is given up
	}{
		{1, []int{3}}, {2, []int{3}}, {3, []int{3, 3}}, {4, []int{3, 3}}, {5, nil},
	} {
		bench(t, 1, one(1, lostAt(3, c.losses)), func(r *rig) {
			got := r.doWith(&call{id: "a", whole: true}, "m", 8)
			if c.at == nil {
				r.kind(got, backends.KindLost)
				return
			}
			r.right(got)
			if got.err != nil {
				return
			}
			if !slices.Equal(got.result.Stats.ContinuedAt, c.at) || got.result.Usage.CompletionTokens != 8 {
				r.Errorf("%d losses: taken up at %v with %+v, want %v", c.losses, got.result.Stats.ContinuedAt, got.result.Usage, c.at)
			}
		})
	}
}

// TestTakenUpAnywhere: wherever two workers are lost, and whether before the first text or after it, the client gets its whole text once.
func TestTakenUpAnywhere(t *testing.T) {
	for first := range 8 {
		for second := range 8 {
			var mu sync.Mutex
			cuts := []int{first, second}
			hook := func(_ context.Context, _ string, step int) error {
				mu.Lock()
				defer mu.Unlock()
				if len(cuts) > 0 && cuts[0] == step {
					cuts = cuts[1:]
					return fake.Lost()
				}
				return nil
			}
			bench(t, 1, one(1, hook), func(r *rig) {
				c := r.doWith(&call{id: "a", whole: true}, "m", 8)
				if first == 0 && second == 0 { // the queue gives up before there is any text
					r.kind(c, backends.KindLost)
					return
				}
				r.right(c)
			})
		}
	}
}
