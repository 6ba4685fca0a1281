package link_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link"
)

// clocked takes frames and notes when.
type clocked struct {
	at   chan time.Time // of each frame, if not nil
	seen atomic.Int64
}

func (c *clocked) Deliver(context.Context, dispatch.Frame) error {
	c.seen.Add(1)
	if c.at != nil {
		c.at <- time.Now()
	}
	return nil
}

// BenchmarkLatency is the time from Deliver on the worker to Deliver on the gateway, one frame after the other, over loopback.
func BenchmarkLatency(b *testing.B) {
	to := &clocked{at: make(chan time.Time, 1)}
	s, _ := serve(b, to, nil)
	c, _ := dial(b, link.ClientDeps{}, nil)
	sink := c.For(s.Addr().String())
	f := dispatch.Frame{Job: "a", Epoch: 1, Event: backends.Event{Content: " word", Tokens: []int32{1234}}}
	took := make([]time.Duration, 0, b.N)
	one := func() {
		f.Seq++
		began := time.Now()
		if err := sink.Deliver(b.Context(), f); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-to.at).Sub(began))
	}
	one() // makes the connection
	took = took[:0]
	for b.Loop() {
		one()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkThroughput is how many frames a link carries, of jobs that run at the same time.
func BenchmarkThroughput(b *testing.B) {
	for _, jobs := range []int{1, 16, 100} {
		b.Run(fmt.Sprint("jobs=", jobs), func(b *testing.B) {
			to := &clocked{}
			s, _ := serve(b, to, nil)
			c, _ := dial(b, link.ClientDeps{}, nil)
			sink := c.For(s.Addr().String())
			var next atomic.Int64
			b.SetParallelism(max(1, jobs/2))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				f := dispatch.Frame{Job: fmt.Sprint("job", next.Add(1)), Epoch: 1, Event: backends.Event{Content: " word", Tokens: []int32{1234}}}
				for pb.Next() {
					f.Seq++
					if err := sink.Deliver(b.Context(), f); err != nil {
						b.Error(err)
						return
					}
				}
			})
			until(b, "all have come", func() bool { return to.seen.Load() >= int64(b.N) })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
