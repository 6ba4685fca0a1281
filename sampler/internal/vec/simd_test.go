//go:build goexperiment.simd && amd64

package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kernels skips the test on a machine without the instructions.
func kernels(t *testing.T) {
	t.Helper()
	if !hasSIMD() {
		t.Skip("this machine has no AVX-512")
	}
}

// TestSkimSums compares a skim with adding up in float64.
func TestSkimSums(t *testing.T) {
	kernels(t)
	s := NewSketch(false)
	rapid.Check(t, func(t *rapid.T) {
		n := headMost + rapid.IntRange(1, 200).Draw(t, "n")
		std, at := rapid.Float64Range(0.5, 20).Draw(t, "std"), rapid.Float64Range(-60, 60).Draw(t, "at")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		row := make([]float32, n)
		for i := range row {
			row[i] = float32(at + std*r.NormFloat64())
		}
		row[7], row[8] = inf(-1), float32(at-500)
		temp := rapid.Float64Range(0.2, 4).Draw(t, "T")
		s.reset()
		if k := &s.skim; !s.aimSkim(row) || !k.set(temp) {
			return // such a row is left to the sketch
		}
		k := &s.skim
		k.t, k.full, k.sums = temp, true, [3]float64{}
		s.skimSegment(0, row, false)
		s.settleSkim()
		var want [3]float64
		count := 0
		for _, v := range row {
			if x := float64(v) - k.hi; x <= 0 && x >= -depth {
				w := math.Exp(x / temp)
				want[0], want[1], want[2], count = want[0]+w, want[1]+w*x, want[2]+w*x*x, count+1
			}
		}
		for i := range want {
			if math.Abs(k.sums[i]-want[i]) > 2*skimErr*math.Abs(want[i])+1e-6*float64(k.high) {
				t.Fatalf("sum %d is %v, want %v", i, k.sums[i], want[i])
			}
		}
		if k.count != count {
			t.Fatalf("%d tokens in the tail, want %d", k.count, count)
		}
	})
}

func TestRuns(t *testing.T) {
	kernels(t)
	rapid.Check(t, func(t *rapid.T) {
		x := values().Draw(t, "x")
		x = x[:len(x)&^15]
		lo, width := math.Float32bits(rapid.Float32Range(-2, 2).Draw(t, "lo")), rapid.Uint32Range(0, 1<<24).Draw(t, "width")
		odd := make([]oddRun, len(x)/16+1)
		var got []int
		for _, o := range odd[:runsWithin(x, lo, width, odd)] {
			for j := range 16 {
				if o.mask>>j&1 == 1 {
					got = append(got, int(o.at)+j)
				}
			}
		}
		var want []int
		for i, v := range x {
			if math.Float32bits(v)-lo < width {
				want = append(want, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		low := rapid.Float32Range(-40, 40).Draw(t, "low")
		at := 0
		for at < len(x) && !slices.ContainsFunc(x[at:at+16], func(v float32) bool { return v > low }) {
			at += 16
		}
		if got := runAbove(x, 0, low); got != at {
			t.Fatalf("first run over %v at %d, want %d", low, got, at)
		}
	})
}
