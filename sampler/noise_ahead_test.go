package sampler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"qr-gateway/sampler"
)

// pipelined makes noise that asks ahead, and the asking side of it.
func pipelined(t *testing.T, r *rig) (sampler.Noise, sampler.Pipelined) {
	t.Helper()
	n := noise(t, params(func(p *sampler.Params) { p.EntropyPrefetch = true }), r, nil)
	p, ok := n.(sampler.Pipelined)
	if !ok {
		t.Fatal("noise of bytes can't ask ahead")
	}
	return n, p
}

// nonceOf is what a request for step after the token previous carries.
func nonceOf(e *sampler.Evidence, step int, previous int32) string {
	return fmt.Sprintf("begin 1000 %016x", sampler.Nonce(e.Asked.Salt[:], uint64(step), int64(previous)))
}

// TestAskedAhead follows three tokens: the first was asked for before the answer began, the second right after the first, and the third just in
// time, since its request was given up.
func TestAskedAhead(t *testing.T) {
	r := &rig{value: 128}
	n, p := pipelined(t, r)
	p.Accepted(-1, -1)
	one(t, n, 0)
	e := n.Last()
	if !e.Asked.Hit || e.Asked.Step != 0 || e.Asked.Previous != -1 {
		t.Errorf("first token: asked %+v", e.Asked)
	}
	first := nonceOf(e, 0, -1)
	p.Accepted(0, 42)
	one(t, n, 1)
	second := nonceOf(n.Last(), 1, 42)
	p.Accepted(1, 7)
	third := nonceOf(n.Last(), 2, 7)
	p.End()
	one(t, n, 2)
	if n.Last().Asked != nil {
		t.Errorf("third token: asked %+v, want none", n.Last().Asked)
	}
	want := []string{first, "redeem 1000", second, "redeem 1000", third, "drop", "fill 1000"}
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
	if _, _, bytes := n.Info(); bytes != 3000 {
		t.Errorf("%d bytes were taken, want 3000", bytes)
	}
}

// TestAskedAheadAndMissed: where the bytes don't come, or there was no room to ask, others are asked for now, and the record says so.
func TestAskedAheadAndMissed(t *testing.T) {
	r := &rig{value: 128, redeemErr: errors.New("too late")}
	n, p := pipelined(t, r)
	p.Accepted(-1, -1)
	one(t, n, 0)
	if a := n.Last().Asked; a == nil || a.Hit || r.calls[len(r.calls)-1] != "fill 1000" {
		t.Errorf("a ticket that fails: asked %+v, calls %q", a, r.calls)
	}
	r.busy, r.redeemErr = true, nil
	p.Accepted(0, 1)
	one(t, n, 1)
	if a := n.Last().Asked; a != nil || r.calls[len(r.calls)-1] != "fill 1000" {
		t.Errorf("a source that can't be asked: asked %+v, calls %q", a, r.calls)
	}
	// A request for another step is never used for this one.
	r.busy, r.calls = false, nil
	p.Accepted(1, 1)
	one(t, n, 9)
	if a := n.Last().Asked; a != nil || !slices.Equal(r.calls[1:], []string{"drop", "fill 1000"}) {
		t.Errorf("bytes of another step: asked %+v, calls %q", a, r.calls)
	}
	// The next request takes the place of one that was never used.
	r.calls = nil
	p.Accepted(9, 1)
	p.Accepted(10, 2)
	if len(r.calls) != 3 || r.calls[1] != "drop" {
		t.Errorf("two requests: calls %q", r.calls)
	}
}

// TestEndedWhileRedeeming: when the caller's context has ended nobody else is asked.
func TestEndedWhileRedeeming(t *testing.T) {
	r := &rig{redeemErr: context.Canceled}
	n, p := pipelined(t, r)
	p.Accepted(-1, -1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := n.One(ctx, 0); !errors.Is(err, context.Canceled) || len(r.calls) != 2 {
		t.Errorf("error %v, calls %q", err, r.calls)
	}
}

// TestJustInTime is the default: nothing is asked for before its number is.
func TestJustInTime(t *testing.T) {
	r := &rig{value: 128}
	n := noise(t, params(nil), r, nil)
	p := n.(sampler.Pipelined)
	p.Accepted(-1, -1)
	one(t, n, 0)
	p.Accepted(0, 3)
	p.End()
	if !slices.Equal(r.calls, []string{"fill 1000"}) || n.Last().Asked != nil {
		t.Errorf("calls %q, asked %+v", r.calls, n.Last().Asked)
	}
}

// TestSaltsDiffer: every request has a salt of its own.
func TestSaltsDiffer(t *testing.T) {
	seen := map[[sampler.SaltSize]byte]bool{}
	for range 20 {
		n, p := pipelined(t, &rig{value: 128})
		p.Accepted(-1, -1)
		one(t, n, 0)
		seen[n.Last().Asked.Salt] = true
	}
	if len(seen) != 20 {
		t.Errorf("20 requests have %d salts", len(seen))
	}
}
