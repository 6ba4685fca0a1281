package node_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// away is a queue that can't be reached for its first heartbeats.
type away struct {
	queue.Claimer
	left atomic.Int32
}

func (a *away) Heartbeat(ctx context.Context, l queue.Lease, p queue.Progress) error {
	if a.left.Add(-1) >= 0 {
		return queue.ErrUnavailable
	}
	return a.Claimer.Heartbeat(ctx, l, p)
}

// An answer whose first text comes while the queue is away waits for it, and is whole then.
func TestQueueAwayAtFirstText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := memory.New(memory.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		m := model(t, "m", 1, nil)
		gone := &away{Claimer: q}
		gone.left.Store(5)
		deps := node.Deps{Queue: gone, Frames: node.Here(d), Log: slog.New(slog.DiscardHandler)}
		n, err := node.New(node.DefaultConfig(), []node.Model{{ID: "m", Backend: m, Workers: 1}}, deps)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = q.Run(ctx) })
		parts.Go(func() { _ = n.Run(ctx) })
		r := &rig{T: t, q: q, d: d, models: map[string]backends.Backend{"m": m}}
		r.right(r.do("a"))
		if left := gone.left.Load(); left > 0 {
			t.Errorf("the queue was to be away %d times more", left)
		}
		stop()
		parts.Wait()
	})
}
