package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func normal(n int, std float64) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * std)
	}
	return x
}

func BenchmarkKernels(b *testing.B) {
	for _, n := range []int{49152, 151936} {
		x := normal(n, 3)
		b.Run(fmt.Sprintf("max/%d", n), func(b *testing.B) {
			for b.Loop() {
				Max(x)
			}
		})
		h := NewHist()
		b.Run(fmt.Sprintf("hist/%d", n), func(b *testing.B) {
			for b.Loop() {
				h.Reset(20, 1, 0)
				h.Add(x)
			}
		})
		b.Run(fmt.Sprintf("top30/%d", n), func(b *testing.B) {
			var t Top
			for b.Loop() {
				t.Reset(30)
				t.Scan(0, x)
			}
		})
		keys := make([]Key, 0, n)
		b.Run(fmt.Sprintf("gather/%d", n), func(b *testing.B) {
			for b.Loop() {
				keys = Gather(keys[:0], 0, x, 7)
			}
		})
	}
}

func TestExpError(t *testing.T) {
	h := NewHist()
	worst := 0.0
	for i := range 200000 {
		x := -float64(i) * 0.0034567
		got, _ := h.exp(x * perNat)
		worst = max(worst, math.Abs(got/math.Exp(x)-1))
	}
	if worst > 1e-11 {
		t.Errorf("relative error %g, documented as under 1e-11", worst)
	}
}
