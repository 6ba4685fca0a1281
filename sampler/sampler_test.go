package sampler_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler"
)

// reference is the same decoder written the slow way: sort everything, then filter. It also says how far u is from the edge of the
// chosen token's share, so that a choice within rounding can be told from a wrong one.
func reference(row []float32, ban *sampler.Mask, p sampler.Cut, u float64) (d sampler.Draw, slack float64, ok bool) {
	type cand struct {
		id int32
		v  float64
		q  float64
	}
	var cs []cand
	for i, v := range row {
		f := float64(v)
		if !math.IsNaN(f) && !math.IsInf(f, 0) && !ban.Has(int32(i)) {
			cs = append(cs, cand{int32(i), f, 0})
		}
	}
	if len(cs) == 0 {
		return d, 0, false
	}
	slices.SortStableFunc(cs, func(a, b cand) int {
		switch {
		case a.v > b.v:
			return -1
		case a.v < b.v:
			return 1
		}
		return int(a.id - b.id)
	})
	if p.Temperature == 0 || p.TopP == 0 {
		cs = cs[:1]
	}
	if p.TopK > 0 {
		cs = cs[:min(p.TopK, len(cs))]
	}
	total := 0.0
	for i := range cs {
		cs[i].q = 1
		if p.Temperature > 0 {
			cs[i].q = math.Exp((cs[i].v - cs[0].v) / p.Temperature)
		}
		seen := cs[i].q
		if p.TruncateFirst {
			seen = math.Exp(cs[i].v - cs[0].v)
		}
		if seen < p.MinP || cs[i].q < math.Exp(-700) {
			cs = cs[:i]
			break
		}
		total += cs[i].q
	}
	sum := 0.0
	for i := range cs {
		if sum += cs[i].q; p.TopP < 1 && sum >= p.TopP*total {
			cs, total = cs[:i+1], sum
			break
		}
	}
	sum = 0
	for i := range cs {
		low := sum / total
		if sum += cs[i].q; sum >= u*total || i == len(cs)-1 {
			d = sampler.Draw{Token: cs[i].id, Rank: i, Prob: cs[i].q / total, Candidates: len(cs), U: u}
			return d, min(math.Abs(u-low), math.Abs(u-sum/total)), true
		}
	}
	return d, 0, false
}

// genRow draws rows of the shapes that matter: a bell, equal values, few distinct values, a heavy head, and holes.
func genRow(t *rapid.T) []float32 {
	n := rapid.SampledFrom([]int{1, 2, 7, 300, 3000}).Draw(t, "n")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "row"), 1))
	shape := rapid.IntRange(0, 3).Draw(t, "shape")
	holes := rapid.Bool().Draw(t, "holes")
	row := make([]float32, n)
	for i := range row {
		switch shape {
		case 0:
			row[i] = float32(r.NormFloat64() * 3)
		case 1:
			row[i] = -2.5
		case 2:
			row[i] = float32(r.IntN(4))
		case 3:
			row[i] = float32(20 / (1 + float64(i)))
		}
		if holes && r.IntN(5) == 0 {
			row[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[r.IntN(3)]
		}
	}
	return row
}

func genCut(t *rapid.T) (c sampler.Cut) {
	c.Temperature = rapid.SampledFrom([]float64{0, 0.01, 0.7, 1, 1.5, 5}).Draw(t, "T")
	c.TopK = rapid.SampledFrom([]int{0, 0, 1, 5, 1000, 1200, 1e6}).Draw(t, "top-k")
	c.TopP = rapid.SampledFrom([]float64{0, 0.3, 0.9, 0.999, 1, 1}).Draw(t, "top-p")
	c.MinP = rapid.SampledFrom([]float64{0, 0, 1e-6, 0.05, 1}).Draw(t, "min-p")
	c.TruncateFirst = rapid.Bool().Draw(t, "truncate first")
	return c
}

func TestChooseAgreesWithSortingEverything(t *testing.T) {
	samplers := map[int]*sampler.Sampler{}
	rapid.Check(t, func(t *rapid.T) {
		row, p := genRow(t), genCut(t)
		ban := sampler.NewMask(rapid.SliceOfN(rapid.Int32Range(0, int32(len(row))), 0, 5).Draw(t, "ban")...)
		u := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "u")
		want, slack, ok := reference(row, ban, p, u)
		s := samplers[len(row)]
		if s == nil {
			s = sampler.New(len(row))
			samplers[len(row)] = s
		}
		got, err := s.Choose(row, ban, p, u)
		if !ok {
			if !errors.Is(err, sampler.ErrNoCandidates) {
				t.Fatalf("no candidate: error %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got.Candidates != want.Candidates && !nearCut(p) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if got.Token != want.Token && slack > 1e-9 && got.Candidates == want.Candidates {
			t.Fatalf("got %+v, want %+v, u is %g from the edge", got, want, slack)
		}
		if got.Token == want.Token && (got.Rank != want.Rank || math.Abs(got.Prob-want.Prob) > 1e-9) && got.Candidates == want.Candidates {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// nearCut reports whether equal shares may fall on either side of a limit by rounding alone: top-p of equal tokens.
func nearCut(p sampler.Cut) bool { return p.TopP > 0 && p.TopP < 1 }

func TestChooseIsMonotoneInU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row, p := genRow(t), genCut(t)
		s := sampler.New(len(row))
		a := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "a")
		b := rapid.Float64Range(a, 1-1e-10).Draw(t, "b")
		x, err := s.Choose(row, nil, p, a)
		if err != nil {
			return
		}
		y, err := s.Choose(row, nil, p, b)
		if err != nil || y.Rank < x.Rank {
			t.Fatalf("u=%g gives rank %d, u=%g gives rank %d, error %v", a, x.Rank, b, y.Rank, err)
		}
	})
}

func TestChooseTail(t *testing.T) {
	const n = 151936
	row := make([]float32, n) // equal: the share of every token is 1/n exactly
	s, p := sampler.New(n), sampler.Cut{Temperature: 1, TopP: 1}
	for _, rank := range []int{0, 1, n / 2, n - 2, n - 1} {
		d, err := s.Choose(row, nil, p, (float64(rank)+0.5)/n)
		if err != nil || d.Rank != rank || d.Token != int32(rank) {
			t.Errorf("rank %d: got %+v, error %v", rank, d, err)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	s, p := sampler.New(3), sampler.Cut{Temperature: 1, TopP: 1}
	for name, tc := range map[string]struct {
		row []float32
		u   float64
	}{
		"short row": {[]float32{1}, 0.5},
		"u of 0":    {[]float32{1, 2, 3}, 0},
		"u of 1":    {[]float32{1, 2, 3}, 1},
		"u of NaN":  {[]float32{1, 2, 3}, math.NaN()},
	} {
		if d, err := s.Choose(tc.row, nil, p, tc.u); err == nil {
			t.Errorf("%s: got %+v, want an error", name, d)
		}
	}
}

// bell is a row as a model gives it: many small logits, a few large ones.
func bell(n int, std float64) []float32 {
	r := rand.New(rand.NewPCG(7, 7))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64() * std)
	}
	return row
}

type chooseCase struct {
	name string
	set  func(*sampler.Cut)
}

func chooseCases() []chooseCase {
	return []chooseCase{
		{"plain", func(p *sampler.Cut) {}},
		{"top_k", func(p *sampler.Cut) { p.TopK = 50 }},
		{"top_p", func(p *sampler.Cut) { p.TopP = 0.95 }},
		{"min_p", func(p *sampler.Cut) { p.MinP = 0.05 }},
		{"greedy", func(p *sampler.Cut) { p.Temperature = 0 }},
	}
}

func TestChooseAllocatesNothing(t *testing.T) {
	row := bell(49152, 3)
	ban := sampler.NewMask(0, 1, 2, 17, 300)
	for _, c := range chooseCases() {
		s, p := sampler.New(len(row)), sampler.Cut{Temperature: 1, TopP: 1}
		c.set(&p)
		n := testing.AllocsPerRun(20, func() {
			if _, err := s.Choose(row, ban, p, 0.37); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a token", c.name, n)
		}
	}

	s := sampler.New(len(row))
	n := testing.AllocsPerRun(20, func() { // from the tail, after the moments
		if err := s.Load(row, ban); err != nil || s.Moments().H <= 0 {
			t.Fatal(err)
		}
		if _, err := s.Pick(sampler.Cut{Temperature: 0.9, TopP: 0.99999}, 0.9999); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("moments and choice: %v allocations a token", n)
	}
}

// TestLargeTopK holds the limits that are found in the histogram.
func TestLargeTopK(t *testing.T) {
	row, p := bell(5000, 2), sampler.Cut{Temperature: 1, TopP: 1}
	s := sampler.New(len(row))
	for _, k := range []int{1025, 1200, 4999, 5000, 1e6} {
		p.TopK = k
		d, err := s.Choose(row, nil, p, 1-1e-12)
		if want := min(k, len(row)); err != nil || d.Candidates != want || d.Rank != want-1 {
			t.Errorf("top-k %d: got %+v, error %v, want the last of %d", k, d, err, want)
		}
	}
}

func TestMaskLeavesOutWhatIsNoToken(t *testing.T) {
	m := sampler.NewMask(-1, 2, -7, 2)
	if m.Len() != 1 || !m.Has(2) {
		t.Errorf("the set is %v, want 2 alone", m.IDs())
	}
	row := []float64{0, 0, 9}
	if d, err := sampler.NewExact(3).Choose(row, m, sampler.Cut{TopP: 1}, 0.5); err != nil || d.Token != 0 {
		t.Errorf("chose %+v, %v; want token 0: 2 is banned", d, err)
	}
}
