package node_test

import (
	"context"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

// silent is a backend that tells no usage, as a server elsewhere may.
type silent struct{ catcher }

func (*silent) Generate(_ context.Context, _ *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	for range 5 {
		if err := emit(backends.Event{Raw: []byte(`{}`)}); err != nil {
			return nil, err
		}
	}
	return &backends.Result{}, nil
}

// TestCostWithoutUsage holds that an answer is not free because nobody counted it: the estimate of its prompt and its pieces count.
func TestCostWithoutUsage(t *testing.T) {
	build := func(*testing.T) []backends.Backend { return []backends.Backend{&silent{}} }
	bench(t, 1, build, func(r *rig) {
		p := &backends.Prepared{Request: &backends.Request{ID: "a"}, Estimate: 100, MaxTokens: 512}
		if _, err := r.d.Do(r.Context(), dispatch.Job{ID: "a", Key: "k", Model: "m", Prepared: p}, quiet{}); err != nil {
			r.Fatal(err)
		}
		r.drain()
		<-r.ended
		if got := r.stats().Tokens; got != 105 {
			r.Errorf("it took %d tokens, want 105", got)
		}
	})
}
