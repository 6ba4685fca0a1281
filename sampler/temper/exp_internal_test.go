package temper

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestExp(t *testing.T) {
	check := func(s float64) {
		t.Helper()
		if got, want := exp(s), math.Exp(s); math.Abs(got/want-1) > 6e-16-1.3e-16*s {
			t.Errorf("e^%v is %v, want %v", s, got, want)
		}
	}
	for s := deepest; s <= 0; s += 0.0137 {
		check(s)
	}
	for i := range 2000 {
		check(-float64(i) * math.Ln2 / 512) // the ends of each part
	}
	check(-5e-324)
	check(0)
}

func TestLog(t *testing.T) {
	for x := 1e-300; x < 1e300; x *= 1.37 {
		for _, near := range []float64{x, math.Nextafter(x, 0), math.Float64frombits(math.Float64bits(x) &^ (1<<45 - 1))} {
			if got, want := log(near), math.Log(near); math.Abs(got-want) > 3e-16*max(1, math.Abs(want)) {
				t.Errorf("ln %v is %v, want %v", near, got, want)
			}
		}
	}
	for i := range 4096 {
		x := 0.5 + float64(i)/4096
		if got, want := log(x), math.Log(x); math.Abs(got-want) > 3e-16 {
			t.Errorf("ln %v is %v, want %v", x, got, want)
		}
	}
}

// exactMoments adds the definition up in 300 bits, given e^s to 53.
func exactMoments(row []float64, top float64) (h, vh float64) {
	z, s1, s2 := newBig(0), newBig(0), newBig(0)
	for _, v := range row {
		s := v - top
		if !(s <= 0 && s > -745) {
			continue
		}
		e, x := newBig(math.Exp(s)), newBig(s)
		z.Add(z, e)
		e.Mul(e, x)
		s1.Add(s1, e)
		s2.Add(s2, e.Mul(e, x))
	}
	mean := newBig(0).Quo(s1, z)
	second := newBig(0).Quo(s2, z)
	second.Sub(second, newBig(0).Mul(mean, mean))
	m, _ := mean.Float64()
	vh, _ = second.Float64()
	one, _ := z.Float64()
	return math.Log(one) - m, vh
}

func newBig(v float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(v) }

// TestMomentsExact: entropy and varentropy of rows of any shape are those of the definition.
func TestMomentsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]float64{0, 1e-3, 3, 30, 900}).Draw(t, "width")
		row := rapid.SliceOfN(rapid.Float64Range(-width, width), 1, 300).Draw(t, "row")
		for range rapid.IntRange(0, 3).Draw(t, "absent") {
			row = append(row, rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "value"))
		}
		h, vh := Moments(row)
		wantH, wantVH := exactMoments(row, largest(row))
		if math.Abs(h-wantH) > 1e-13*(1+wantH) || math.Abs(vh-wantVH) > 1e-12*(1+wantVH) {
			t.Fatalf("H %v, VH %v, want %v, %v", h, vh, wantH, wantVH)
		}
	})
}

// TestMomentsLong adds up rows as long as a vocabulary, where rounding could add up too.
func TestMomentsLong(t *testing.T) {
	for _, spread := range []float64{0, 1e-4, 0.5, 12} {
		row := make([]float64, 151_936)
		for i := range row {
			row[i] = spread * math.Sin(float64(i))
		}
		h, vh := Moments(row)
		wantH, wantVH := exactMoments(row, largest(row))
		if math.Abs(h-wantH) > 1e-12 || math.Abs(vh-wantVH) > 1e-12*(1+wantVH) {
			t.Errorf("spread %v: H %v, VH %v, want %v, %v", spread, h, vh, wantH, wantVH)
		}
	}
}
