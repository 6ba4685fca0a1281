package hub

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/local"
)

// failing is a source that can be told to fail.
type failing struct {
	entropy.Source
	mu  sync.Mutex // guards err
	err error
}

func (f *failing) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return entropy.Block{}, f.err
	}
	return f.Source.Draw(ctx, buf)
}

// TestBaselinesAreBounded: whoever may ask for draws of any size may not fill the memory with calibrations.
func TestBaselinesAreBounded(t *testing.T) {
	var b Baselines
	src := &failing{Source: local.NewSystem(), err: errors.New("it is down")}
	for i := range 2 * maxMade {
		if _, err := b.Of(t.Context(), "q", src, Blocks{Count: 16, Bytes: 8 + i}); err == nil {
			t.Fatal("a source that is down was calibrated")
		}
	}
	if len(b.made) != 0 {
		t.Errorf("%d calibrations that failed are kept", len(b.made))
	}
	src.err = nil
	for i := range maxMade {
		if _, err := b.Of(t.Context(), "q", src, Blocks{Count: 16, Bytes: 8 + i}); err != nil {
			t.Fatal(err)
		}
	}
	e, ok := errors.AsType[*entropy.Error](last(b.Of(t.Context(), "q", src, Blocks{Count: 16, Bytes: 4})))
	if !ok || e.Kind != entropy.KindConfig || e.Hint == "" {
		t.Errorf("one more: %v", e)
	}
	if _, err := b.Of(t.Context(), "q", src, Blocks{Count: 16, Bytes: 8}); err != nil {
		t.Errorf("one that was made: %v", err)
	}
}

// TestLargeBaselinesAreBounded: what an ECDF is made of takes more room than what a mean is.
func TestLargeBaselinesAreBounded(t *testing.T) {
	b := Baselines{made: map[question]*baseline{{"q", Blocks{Count: maxSums - 16, Bytes: 1}}: {turn: make(chan struct{}, 1)}}}
	if _, err := b.Of(t.Context(), "q", local.NewSystem(), Blocks{Count: 17, Bytes: 8}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("one block too many: %v", err)
	}
	if _, err := b.Of(t.Context(), "q", local.NewSystem(), Blocks{Count: 16, Bytes: 8}); err != nil {
		t.Errorf("as many as there is room for: %v", err)
	}
}

// TestFewBlocks: parameters may ask for as few as two.
func TestFewBlocks(t *testing.T) {
	var b Baselines
	if c, err := b.Of(t.Context(), "q", local.NewSystem(), Blocks{Count: 2, Bytes: 1000}); err != nil || len(c.Sums) != 2 || math.IsNaN(c.HalvesZ) {
		t.Errorf("two: %+v, %v", c, err)
	}
	if _, err := b.Of(t.Context(), "q", local.NewSystem(), Blocks{Count: 1, Bytes: 1000}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("one: %v", err)
	}
}

func last[T any](_ T, err error) error { return err }

// TestDescriptionsAreBounded: what a client keeps is a cache.
func TestDescriptionsAreBounded(t *testing.T) {
	_, r := open(t, local.NewSystem())
	for i := range 3 * maxMade {
		if _, err := r.client.Describe(t.Context(), "lent", Blocks{Count: 16, Bytes: 1 + i}); err != nil {
			t.Fatal(err)
		}
	}
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	if n := len(r.client.described); n > maxMade {
		t.Errorf("%d descriptions are kept", n)
	}
}
