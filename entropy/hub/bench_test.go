package hub

import (
	"context"
	"slices"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// BenchmarkDraw is a draw of 20,480 bytes that cost nothing to make. p50-us is the median.
func BenchmarkDraw(b *testing.B) {
	src, _ := open(b, still{})
	buf := make([]byte, 20480)
	took := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		begun := time.Now()
		if _, err := src.Draw(b.Context(), buf); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-us")
	b.SetBytes(int64(len(buf)))
}

// still leaves the bytes as they are.
type still struct{}

func (still) Draw(_ context.Context, buf []byte) (entropy.Block, error) {
	return entropy.Block{Bytes: buf, Source: "still", Class: entropy.ClassReplay}, nil
}
