package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func inf(sign int) float32 { return float32(math.Inf(sign)) }

func nan() float32 { return float32(math.NaN()) }

func normal(n int, std float64) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * std)
	}
	return x
}

// values are logits with ties, zeros of both signs and values that are not finite.
func values() *rapid.Generator[[]float32] {
	return rapid.SliceOfN(rapid.OneOf(
		rapid.Float32Range(-30, 30),
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 1, 1, -2, inf(1), inf(-1), nan(), math.MaxFloat32, -math.MaxFloat32}),
	), 0, 200)
}

// finite sorts the keys of the finite values of x by value, then id, the slow way.
func finite(x []float32) []Key {
	var keys []Key
	for i, v := range x {
		if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
			keys = append(keys, NewKey(v, int32(i)))
		}
	}
	slices.SortFunc(keys, func(a, b Key) int {
		switch {
		case a.Value() > b.Value():
			return -1
		case a.Value() < b.Value():
			return 1
		}
		return int(a.ID() - b.ID())
	})
	return keys
}

func TestKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float32().Draw(t, "a"), rapid.Float32().Draw(t, "b")
		i, j := rapid.Int32Min(0).Draw(t, "i"), rapid.Int32Min(0).Draw(t, "j")
		x, y := NewKey(a, i), NewKey(b, j)
		if x.Value() != a || x.ID() != i {
			t.Fatalf("%v, %d became %v, %d", a, i, x.Value(), x.ID())
		}
		if less := a < b || a == b && i > j; less != (x < y) {
			t.Fatalf("(%v, %d) < (%v, %d) is %v", a, i, b, j, x < y)
		}
	})
}

func TestTopIsTheHeadOfASort(t *testing.T) {
	var top Top
	rapid.Check(t, func(t *rapid.T) {
		x, m := values().Draw(t, "x"), rapid.IntRange(1, 40).Draw(t, "m")
		cut := rapid.IntRange(0, len(x)).Draw(t, "cut")
		top.Reset(m)
		top.Scan(0, x[:cut])
		top.Scan(int32(cut), x[cut:])
		got := slices.Clone(top.Keys())
		Sort(got)
		want := finite(x)
		if want = want[:min(m, len(want))]; !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestMaxGatherIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, least := values().Draw(t, "x"), rapid.Float32Range(-40, 40).Draw(t, "least")
		all := finite(x)
		m := MaxFinite(x)
		if len(all) == 0 {
			if m != inf(-1) {
				t.Fatalf("max of nothing is %v", m)
			}
			return
		}
		if m != all[0].Value() || Index(x, m) != all[0].ID() {
			t.Fatalf("max %v at %d, want %v at %d", m, Index(x, m), all[0].Value(), all[0].ID())
		}
		got := Gather(nil, 0, x, least)
		Sort(got)
		n, _ := slices.BinarySearchFunc(all, least, func(k Key, least float32) int {
			if k.Value() >= least {
				return -1
			}
			return 1
		})
		if !slices.Equal(got, all[:n]) {
			t.Fatalf("gathered %v, want %v", got, all[:n])
		}
	})
}

func TestBroken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := values().Draw(t, "x")
		if rapid.Bool().Draw(t, "whole") {
			x = slices.DeleteFunc(x, func(v float32) bool { return v != v || v == inf(1) })
		}
		want := slices.ContainsFunc(x, func(v float32) bool { return v != v || v == inf(1) })
		if got := Broken(x); got != want {
			t.Fatalf("%v: broken is %v", x, got)
		}
	})
}

func TestSegmentsStepOverBans(t *testing.T) {
	row := []float32{0, 1, 2, 3, 4, 5}
	var got []float32
	Segments(row, []int32{-1, 0, 2, 3, 5, 9}, func(base int32, seg []float32) {
		for i, v := range seg {
			if v != float32(int(base)+i) {
				t.Errorf("segment at %d holds %v", base, seg)
			}
		}
		got = append(got, seg...)
	})
	if !slices.Equal(got, []float32{1, 4}) {
		t.Errorf("got %v", got)
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
	if worst > 1e-15+700*0x1p-52 {
		t.Errorf("relative error %g, documented as under 1e-15 and |x| 2^-52 more", worst)
	}
}

// TestBucketsDescend holds what finding a place in the distribution rests on: each bucket's tokens lie under those of the one before,
// Gather finds all of them, and mass and count add up.
func TestBucketsDescend(t *testing.T) {
	h := NewHist()
	rapid.Check(t, func(t *rapid.T) {
		x := values().Draw(t, "x")
		temp := rapid.SampledFrom([]float64{1e-9, 0.1, 1, 5}).Draw(t, "T")
		largest := MaxFinite(x)
		if largest == inf(-1) {
			return
		}
		floor := rapid.SampledFrom([]float64{0, 1e-12, 0.05, 0.999, 1}).Draw(t, "floor")
		h.Reset(largest, temp, floor)
		h.Add(x)
		h.Settle()
		last, count, mass := inf(1), 0, 0.0
		for at := range h.buckets {
			keys := h.Gather(nil, at, 0, x)
			if len(keys) != h.buckets[at].count {
				t.Fatalf("bucket %d gathers %d of %d", at, len(keys), h.buckets[at].count)
			}
			for _, k := range h.Sorted(at, keys) {
				if k.Value() > last {
					t.Fatalf("bucket %d holds %v after %v", at, k.Value(), last)
				}
				last, count, mass = k.Value(), count+1, mass+h.Prob(k)
			}
		}
		present := 0
		for _, k := range finite(x) {
			if y := (float64(k.Value()) - h.max) * h.scale; y >= h.least {
				present++
			}
		}
		if count != present {
			t.Fatalf("buckets hold %d tokens of %d", count, present)
		}
		if m, n := h.Total(); n != count || math.Abs(m-mass) > 1e-12*mass {
			t.Fatalf("total %v, %d; added up %v, %d", m, n, mass, count)
		}
	})
}

func BenchmarkKernels(b *testing.B) {
	for _, n := range []int{49152, 151936} {
		x, h, keys := normal(n, 3), NewHist(), make([]Key, 0, n)
		var top Top
		for name, f := range map[string]func(){
			"max":    func() { Max(x) },
			"broken": func() { Broken(x) },
			"hist":   func() { h.Reset(20, 1, 0); h.Add(x) },
			"top30":  func() { top.Reset(30); top.Scan(0, x) },
			"gather": func() { keys = Gather(keys[:0], 0, x, 7) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
	}
}
