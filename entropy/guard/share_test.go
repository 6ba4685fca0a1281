package guard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/entropy"
)

// hangs answers nothing for as long as it may.
func hangs(ctx context.Context, _ []byte, _ *entropy.Block) error {
	<-ctx.Done()
	return ctx.Err()
}

// A source that hangs is replaced while its caller still waits; without a second choice it has all of the time.
func TestHangingSourceIsReplacedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Policy = Fallback })
		r.src.set(hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		b, err := r.Draw(ctx, make([]byte, 64))
		if err != nil || !b.Fallback || b.Source != "second" || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %v: block of %q, fallback %v, error %v", time.Since(began), b.Source, b.Fallback, err)
		}
		if s := r.State(); s.Fallbacks[ReasonTimeout.String()] != 1 {
			t.Errorf("counted %v", s.Fallbacks)
		}

		r = newRig(t, nil)
		r.src.set(hangs)
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began = time.Now()
		if b, err := r.Draw(ctx, make([]byte, 64)); err == nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("after %v: block of %q, error %v", time.Since(began), b.Source, err)
		}
	})
}

// A start-up test that is cut off has failed: the draws that follow don't wait for it again.
func TestHangingStartUpTestIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Policy = Fallback })
		r.src.set(stuck)
		if b, err := r.draw(t, 4096); err != nil || !b.Fallback {
			t.Fatalf("fallback %v, error %v", b.Fallback, err)
		}
		r.src.set(hangs)
		r.clock.add(time.Minute)
		took := make([]time.Duration, 2)
		for i := range took {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			began := time.Now()
			if b, err := r.Draw(ctx, make([]byte, 64)); err != nil || !b.Fallback {
				t.Errorf("draw %d: fallback %v, error %v", i, b.Fallback, err)
			}
			cancel()
			took[i] = time.Since(began)
		}
		if took[0] != 200*time.Millisecond || took[1] != 0 {
			t.Errorf("draws took %v", took)
		}
	})
}

// A source that hangs again and again costs its callers little: it is kept out, until it is well.
func TestHangingSourceIsKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Policy = Fallback })
		draw := func() (entropy.Block, time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			b, err := r.Draw(ctx, make([]byte, 64))
			if err != nil {
				t.Error(err)
			}
			return b, time.Since(began)
		}
		r.src.set(hangs)
		for i := range 5 {
			b, took := draw()
			want := 200 * time.Millisecond
			if i >= mostLate {
				want = 0
			}
			if !b.Fallback || took != want {
				t.Errorf("draw %d took %v, fallback %v", i, took, b.Fallback)
			}
		}
		r.src.set(nil)
		r.clock.add(time.Minute)
		if b, _ := draw(); b.Fallback {
			t.Error("a source that is well again is not used")
		}
	})
}
