package grpc_test

import (
	"slices"
	"testing"
	"time"

	"qr-gateway/entropy/grpc"
)

// BenchmarkDraw draws 20,480 bytes from a server in another process and reports percentiles of the time one draw takes.
func BenchmarkDraw(b *testing.B) {
	for _, way := range []struct{ name, address string }{{"unix", ""}, {"tcp", "127.0.0.1:0"}} {
		for _, mode := range modes {
			b.Run(way.name+"/"+mode, func(b *testing.B) {
				address := way.address
				if address == "" {
					address = socket(b)
				}
				benchmarkDraw(b, open(b, spawn(b, address, "plain").address, func(c *grpc.Config) {
					c.Mode, c.Breaker.Floor = mode, 2*time.Second // whatever else the machine does
				}))
			})
		}
	}
}

func benchmarkDraw(b *testing.B, s *grpc.Source) {
	b.Helper()
	buf := make([]byte, 20480)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		if _, err := s.Draw(b.Context(), buf); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
