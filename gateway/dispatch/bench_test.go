package dispatch_test

import (
	"context"
	"fmt"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// BenchmarkPayload is what it costs to carry a request through the queue as bytes, both ways.
func BenchmarkPayload(b *testing.B) {
	for _, n := range []int{50, 2000, 16000} {
		b.Run(fmt.Sprint("tokens=", n), func(b *testing.B) {
			p := job("a").Prepared
			p.Tokens = make([]int32, n)
			for i := range p.Tokens {
				p.Tokens[i] = int32(i * 3)
			}
			for b.Loop() {
				data, err := dispatch.Pack(p)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := dispatch.Unpack(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDo is a whole job through dispatcher and queue, with a node that answers at once.
func BenchmarkDo(b *testing.B) {
	q, err := memory.New(memory.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	d, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answer(ctx, q, d)
	}()
	n := 0
	for b.Loop() {
		n++
		if _, err := d.Do(b.Context(), job(fmt.Sprint(n)), quiet{}); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	<-ended
}

// answer settles what it claims until ctx ends.
func answer(ctx context.Context, q queue.Claimer, d *dispatch.Dispatcher) {
	for {
		l, err := q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
		if err != nil {
			return
		}
		_ = d.Deliver(ctx, dispatch.Frame{Job: l.Job.ID, Epoch: l.Epoch, Seq: 1, Result: &backends.Result{}})
		_ = q.Settle(ctx, l, queue.Outcome{State: queue.StateDone})
	}
}
