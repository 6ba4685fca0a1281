package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/local"
)

// TestBaselineIsMeasuredOnce, however many ask at the same time.
func TestBaselineIsMeasuredOnce(t *testing.T) {
	var draws atomic.Int64
	src := &scripted{draw: func(ctx context.Context, buf []byte) (entropy.Block, error) {
		draws.Add(1)
		return local.NewSystem().Draw(ctx, buf)
	}}
	var b Baselines
	got := make([]*guard.Calibration, 8)
	var asking sync.WaitGroup
	for i := range got {
		asking.Go(func() {
			var err error
			if got[i], err = b.Of(t.Context(), "s", src, Blocks{Count: 30, Bytes: 64}); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	for _, c := range got {
		if c != got[0] || len(c.Sums) != 30 || c.BlockBytes != 64 {
			t.Errorf("got %+v", c)
		}
	}
	if _, err := b.Of(t.Context(), "s", src, Blocks{Count: 20, Bytes: 64}); err != nil || draws.Load() != 30+20 {
		t.Errorf("%d draws, %v; want 30, and 20 for another question", draws.Load(), err)
	}
}

func TestBaselineThatFailsIsTriedAgain(t *testing.T) {
	var b Baselines
	ask := Blocks{Count: 20, Bytes: 64}
	answer := func(block entropy.Block, err error) error {
		_, failed := b.Of(t.Context(), "s", &scripted{draw: func(context.Context, []byte) (entropy.Block, error) { return block, err }}, ask)
		return failed
	}
	if err := answer(entropy.Block{}, &entropy.Error{Kind: entropy.KindTimeout, Source: "s"}); entropy.KindOf(err) != entropy.KindTimeout {
		t.Errorf("no answer: %v", err)
	}
	if err := answer(entropy.Block{Source: "second", Fallback: true}, nil); entropy.KindOf(err) != entropy.KindTransport {
		t.Errorf("a second choice: %v", err)
	}
	if err := answer(entropy.Block{}, nil); entropy.KindOf(err) != entropy.KindConfig { // all bytes are 0
		t.Errorf("no spread: %v", err)
	}
	if _, err := b.Of(t.Context(), "s", local.NewSystem(), ask); err != nil {
		t.Errorf("at last: %v", err)
	}
}

func TestBaselineWaitEndsWithTheContext(t *testing.T) {
	w := newWaiting()
	var b Baselines
	ask := Blocks{Count: 20, Bytes: 64}
	busy, stop := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := b.Of(busy, "s", w, ask)
		first <- err
	}()
	<-w.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Of(ctx, "s", w, ask); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	stop()
	<-w.ended
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}
