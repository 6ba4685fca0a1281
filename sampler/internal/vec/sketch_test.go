package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestExponential(t *testing.T) {
	var e exponential
	e.fill()
	for i := range 200001 {
		x := float64(i-100000) * 0.0069
		if got, want := e.at(x), math.Exp(x); math.Abs(got/want-1) > 1e-15+math.Abs(x)*0x1p-52 {
			t.Fatalf("e^%v is %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{-745, -1e9, 709, math.Inf(-1), math.Inf(1)} {
		if got, want := e.at(x), math.Exp(x); got != want {
			t.Errorf("e^%v is %v, want %v", x, got, want)
		}
	}
}

// bigRow draws a row that is too long to be all head.
func bigRow(t *rapid.T) []float32 {
	std := rapid.SampledFrom([]float64{1e-6, 0.01, 0.3, 3, 12}).Draw(t, "std")
	tail := rapid.SampledFrom([]float64{0, 1, 4}).Draw(t, "tail")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	row := make([]float32, headMost+rapid.IntRange(1, 3000).Draw(t, "more"))
	for i := range row {
		row[i] = float32(r.NormFloat64()*std + tail*r.ExpFloat64())
		if r.IntN(50) == 0 {
			row[i] = []float32{nan(), inf(-1), 0, 1, 1}[r.IntN(5)]
		}
	}
	return row
}

// running is the running mass of the keys, largest first.
func running(keys []Key, t float64) []float64 {
	sums, sum := make([]float64, len(keys)), 0.0
	for i, k := range keys {
		sum += math.Exp((float64(k.Value()) - float64(keys[0].Value())) / t)
		sums[i] = sum
	}
	return sums
}

// TestFind holds that a sketch finds the token that sorting everything finds, wherever the limit is farther from its edges than the error that
// it owns up to.
func TestFind(t *testing.T) {
	s, d := NewSketch(false), NewSoftmax()
	var scratch []Key
	rapid.Check(t, func(t *rapid.T) {
		row, temp := bigRow(t), rapid.SampledFrom([]float64{0.3, 1, 2}).Draw(t, "T")
		banned := []int32{3, int32(rapid.IntRange(4, 4000).Draw(t, "banned"))}
		if !s.Read(row, banned) || !d.Set(s, temp) {
			t.Fatal("the row doesn't fit")
		}
		all := slices.DeleteFunc(finite(row), func(k Key) bool { return slices.Contains(banned, k.ID()) })
		sums := running(all, temp)
		total, n, err := d.Total()
		scale := d.Mass(all[0])
		if n != len(all) || math.Abs(total-scale*sums[n-1]) > err || err > 1e-7*total {
			t.Fatalf("total %v of %d, error %v; want %v of %d", total, n, err, scale*sums[len(all)-1], len(all))
		}
		m := total * rapid.Float64Range(0, 1).Draw(t, "share")
		var at Place
		at, scratch = d.Find(m, row, banned, scratch)
		want, _ := slices.BinarySearch(sums, m/scale)
		want = min(want, n-1)
		near := math.Abs(scale*sums[want]-m) <= 2*err || want > 0 && math.Abs(scale*sums[want-1]-m) <= 2*err
		if !near && (at.Rank != want || at.Key != all[want]) {
			t.Fatalf("at %v of %v: got %+v, want %v of rank %d", m, total, at, all[want].ID(), want)
		}
		if math.Abs(at.Through-at.Before-d.Mass(at.Key)) > 1e-12*total {
			t.Fatalf("%+v has the mass %v", at, d.Mass(at.Key))
		}
	})
}

// TestSketchHasNoOrder holds what makes a sketch the same however a row is read: its sums are whole numbers.
func TestSketchHasNoOrder(t *testing.T) {
	row := normal(20000, 3)
	a, b := NewSketch(true), NewSketch(true)
	if !a.Read(row, nil) || !b.aim(row) {
		t.Fatal("the row doesn't fit")
	}
	for _, i := range rand.New(rand.NewPCG(5, 5)).Perm(len(row)) {
		b.add(int32(i), row[i:i+1])
	}
	if a.cells != b.cells {
		t.Error("cells depend on the order of adding")
	}
	slices.Sort(a.head)
	slices.Sort(b.head)
	if !slices.Equal(a.head, b.head) {
		t.Error("heads differ")
	}
}

func TestReadRefuses(t *testing.T) {
	above := make([]float32, 20000) // more than the window's top leaves room for, where the sample doesn't look
	for i := range 800 {
		above[100+i], above[1100+i] = 100, 100
	}
	s := NewSketch(false)
	for name, row := range map[string][]float32{
		"nothing":              {},
		"nothing finite":       {nan(), inf(1), inf(-1)},
		"too large":            {1e20, 1},
		"too long":             make([]float32, maxTokens+1),
		"far above the sample": above,
	} {
		if s.Read(row, nil) {
			t.Errorf("%s: taken", name)
		}
	}
	if !s.Read(above[:1000], nil) {
		t.Error("a good row is refused after bad ones")
	}
}

func TestMomentsByHand(t *testing.T) {
	m := MomentsOf([]float32{2, 1, 0, 9, -1, -2, inf(-1)}, []int32{3})
	if math.Abs(m.H-0.999972828275399) > 1e-12 || math.Abs(m.VH-0.749931772202991) > 1e-12 || m.Count != 5 || m.Max != 2 || m.Broken {
		t.Errorf("got %+v", m)
	}
	if m := MomentsOf([]float32{nan()}, nil); !m.Broken || m.Count != 0 || m.H != 0 {
		t.Errorf("got %+v", m)
	}
}
