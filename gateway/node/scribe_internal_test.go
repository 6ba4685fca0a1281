package node

import (
	"context"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// sunk is a log that takes everything.
type sunk struct{}

func (sunk) Append(context.Context, queue.Lease, ...[]byte) error { return nil }

// TestCopyAllocatesNothing: what a token costs a run whose answer is kept.
func TestCopyAllocatesNothing(t *testing.T) {
	n := &Node{cfg: DefaultConfig(), deps: Deps{Logs: sunk{}}}
	n.cfg.Batch = time.Hour
	s := newScribe(t.Context(), n, queue.Lease{}, false)
	f := dispatch.Frame{Event: backends.Event{Content: " word", Tokens: []int32{7}}}
	s.piece.content, s.piece.tokens = make([]byte, 0, copyBytes), make([]int32, 0, copyBytes)
	if allocs := testing.AllocsPerRun(500, func() {
		f.Seq++
		if err := s.add(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%g allocations a token, want none", allocs)
	}
	if err := s.end(time.Minute); err != nil {
		t.Error(err)
	}
}
