package hub

import (
	"context"
	"errors"
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
