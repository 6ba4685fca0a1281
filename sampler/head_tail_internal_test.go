package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// tailWith is what is known of tokens at distances x, the least of which may be over x0.
func tailWith(x []float64, x0 float64) tail {
	t := tail{n: float64(len(x)), x0: x0, known: true}
	for _, v := range x {
		w := math.Exp(-v)
		t.sum, t.moment = t.sum.plus(span{w, w}), t.moment.plus(span{w * v, w * v})
	}
	return t
}

func sumAt(x []float64, b float64) (sum float64) {
	for _, v := range x {
		sum += math.Exp(-v * b)
	}
	return sum
}

// TestLawTailBounds: the mass at another temperature is within its bounds, and these are no wider with the entropy than without, nor with exact
// sums than with loose ones.
func TestLawTailBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "row"), 5))
		x0 := rapid.SampledFrom([]float64{0, 1, 8}).Draw(t, "x0")
		wide := rapid.SampledFrom([]float64{0, 1e-4, 0.5, 3, 30}).Draw(t, "wide")
		x := make([]float64, rapid.SampledFrom([]int{1, 2, 30, 3000}).Draw(t, "n"))
		for i := range x {
			x[i] = x0 + wide*math.Abs(r.NormFloat64())
		}
		b := rapid.SampledFrom([]float64{0.2, 0.5, 0.7, 0.99, 1.001, 1.4, 3, 100}).Draw(t, "b")
		exact, truth := tailWith(x, x0), sumAt(x, b)
		loose, blind := exact, exact
		loose.sum = span{exact.sum.lo * rapid.Float64Range(0.5, 1).Draw(t, "less"), exact.sum.hi * rapid.Float64Range(1, 2).Draw(t, "more")}
		loose.moment = span{exact.moment.lo * 0.9, exact.moment.hi * 1.1}
		blind.known = false
		s := exact.at(b)
		for _, outer := range []span{s, loose.at(b), blind.at(b)} {
			if !(outer.lo <= truth && truth <= outer.hi) {
				t.Fatalf("the mass is %v, the bounds are %v", truth, outer)
			}
			if s.lo < outer.lo*(1-1e-9) || s.hi > outer.hi*(1+1e-9) {
				t.Fatalf("%v with all that is known, %v with less", s, outer)
			}
		}
	})
}

// TestTailBoundsAreReached: tokens all alike have the least mass at any temperature, and tokens at the edge and at one other place the most.
func TestTailBoundsAreReached(t *testing.T) {
	alike, two := make([]float64, 500), make([]float64, 500)
	for i := range alike {
		alike[i], two[i] = 7, 4
		if i >= 20 {
			two[i] = 9
		}
	}
	for _, b := range []float64{0.5, 0.8, 1.3, 2} {
		a, c := tailWith(alike, 4), tailWith(two, 4)
		if s, want := a.at(b), sumAt(alike, b); math.Abs(s.lo/want-1) > 3e-6 {
			t.Errorf("1/T %v: all alike have %v, the bounds are %v", b, want, s)
		}
		if s, want := c.at(b), sumAt(two, b); math.Abs(s.hi/want-1) > 3e-6 {
			t.Errorf("1/T %v: two places have %v, the bounds are %v", b, want, s)
		}
	}
}
