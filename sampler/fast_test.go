package sampler_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/temper"
)

// tolerance is how near to the edge of a share a limit may be for either side to be right.
const tolerance = 2e-11

// shapes make rows of n logits.
var shapes = []func(r *rand.Rand, i int) float32{
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 3) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 0.3) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 12) },
	func(_ *rand.Rand, _ int) float32 { return -2.5 },
	func(r *rand.Rand, _ int) float32 { return float32(r.IntN(4)) },
	func(_ *rand.Rand, i int) float32 { return float32(20 - 1.8*math.Log(float64(i*7919%65537+1))) },
	func(_ *rand.Rand, i int) float32 { return float32(20 / (1 + float64(i))) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 1e-3) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 1e-42) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 500) },
	func(r *rand.Rand, _ int) float32 { return float32(r.NormFloat64() * 1e30) },
	func(r *rand.Rand, _ int) float32 { // on and beside the edges of cells
		return math.Nextafter32(float32(r.IntN(4096)-2048)/512, float32(r.IntN(3)-1)*100)
	},
	func(r *rand.Rand, i int) float32 { // a few far above the rest
		return float32(r.NormFloat64()) + float32(30*(i%997/996))
	},
}

// holes are values that stand for a token that is absent, and values that are finite but far away.
var holes = []float32{
	float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -math.MaxFloat32, -1e9, -120, float32(math.Copysign(0, -1)), 0,
}

// makeRow makes a row: every bit of with lets one kind of hole in.
func makeRow(seed uint64, n int, shape, with uint8) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	value := shapes[int(shape)%len(shapes)]
	row := make([]float32, n)
	for i := range row {
		row[i] = value(r, i)
		if h := r.IntN(12); h < len(holes) && with>>h&1 == 1 {
			row[i] = holes[h]
		}
	}
	return row
}

// order is the ids of the tokens that are present, by descending logit, the lower id first.
func order(row []float32, ban *sampler.Mask) (ids []int32) {
	for i, v := range row {
		if math.Abs(float64(v)) <= math.MaxFloat32 && !ban.Has(int32(i)) {
			ids = append(ids, int32(i))
		}
	}
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
	return ids
}

// oracle decides exactly, with each limit a little lower and a little higher than asked for, and as it is.
func oracle(tb testing.TB, row []float32, ban *sampler.Mask, c sampler.Cut, u float64) (low, mid, high sampler.Draw, err error) {
	wide := make([]float64, len(row))
	for i, v := range row {
		wide[i] = float64(v)
	}
	e := sampler.NewExact(len(row))
	at := func(by float64) sampler.Draw {
		x := c
		if c.TopP > 0 && c.TopP < 1 {
			x.TopP = min(max(c.TopP*(1+by), 1e-300), 1-1e-16)
		}
		if c.MinP > 0 {
			x.MinP = min(c.MinP*(1-by/100), 1) // over 1 means something else
		}
		d, e := e.Choose(wide, ban, x, min(max(u*(1+by), 1e-300), 1-1e-16))
		err = cmp.Or(err, e)
		return d
	}
	low, mid, high = at(-tolerance), at(0), at(tolerance)
	return low, mid, high, err
}

// check compares a draw with the oracle's.
func check(tb testing.TB, s *sampler.Sampler, row []float32, ban *sampler.Mask, c sampler.Cut, u float64) sampler.Draw {
	tb.Helper()
	low, want, high, werr := oracle(tb, row, ban, c, u)
	got, err := s.Choose(row, ban, c, u)
	if werr != nil {
		if !errors.Is(werr, sampler.ErrNoCandidates) || !errors.Is(err, sampler.ErrNoCandidates) {
			tb.Fatalf("%+v, u %v: error %v, the oracle's %v", c, u, err, werr)
		}
		return got
	}
	if err != nil {
		tb.Fatalf("%+v, u %v: error %v, the oracle takes %+v", c, u, err, want)
	}
	switch ids := order(row, ban); {
	case got.Rank < low.Rank || got.Rank > high.Rank:
		tb.Fatalf("%+v, u %v: got %+v, want %+v, ranks %d to %d", c, u, got, want, low.Rank, high.Rank)
	case got.Token != ids[got.Rank]:
		tb.Fatalf("%+v, u %v: got %+v, but the token of that rank is %d", c, u, got, ids[got.Rank])
	case got.Rank == want.Rank && got.Candidates == want.Candidates && math.Abs(got.Prob-want.Prob) > 1e-9:
		tb.Fatalf("%+v, u %v: got %+v, want %+v", c, u, got, want)
	}
	if (got.Candidates < low.Candidates || got.Candidates > high.Candidates) && !faint(row, ban, c) {
		tb.Fatalf("%+v, u %v: got %+v, want %+v", c, u, got, want)
	}
	return got
}

// faint reports whether a token has a probability of e^-745 to e^-699 of the largest: float64 still has those below e^-700, though not to all
// its digits.
func faint(row []float32, ban *sampler.Mask, c sampler.Cut) bool {
	ids := order(row, ban)
	for _, id := range ids {
		x := float64(row[id]) - float64(row[ids[0]])
		for _, t := range []float64{1, c.Temperature} {
			if x/t < -699 && x/t > -747 {
				return true
			}
		}
	}
	return false
}

func fuzzCut(t, topP, minP float64, topK uint16, first bool) sampler.Cut {
	within := func(x, least, most float64) float64 {
		if math.IsNaN(x) {
			return least
		}
		return min(max(x, least), most)
	}
	return sampler.Cut{Temperature: within(t, 0, 100), TopP: within(topP, 0, 1), MinP: within(minP, 0, 1), TopK: int(topK), TruncateFirst: first}
}

func FuzzChoose(f *testing.F) {
	us := []float64{1e-10, 0.001, 0.3, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-10}
	for shape := range shapes {
		for i, n := range []uint16{0, 1, 1023, 1024, 3000, 5000, 9000, 20000} {
			u, seed := us[(i+shape)%len(us)], uint64(i)
			switch (i + shape) % 3 {
			case 0:
				f.Add(seed, n, uint8(shape), uint8(0), 1.0, 1.0, 0.0, uint16(0), false, u)
				f.Add(seed, n, uint8(shape), uint8(0), 1.5, 0.95, 0.02, uint16(0), true, u)
			case 1:
				f.Add(seed, n, uint8(shape), uint8(1<<i), 0.7, 0.9, 0.0, uint16(0), false, u)
				f.Add(seed, n, uint8(shape), uint8(0xf0), 2.5, 0.999, 0.0, uint16(1500), false, u)
			case 2:
				f.Add(seed, n, uint8(shape), uint8(0xff), 0.3, 1.0, 0.0, uint16(0), false, u)
				f.Add(seed, n, uint8(shape), uint8(0), 0.05, 0.5, 0.0, uint16(50), false, u)
			}
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, shape, with uint8, temp, topP, minP float64, topK uint16, first bool, u float64) {
		if !(u > 1e-15 && u < 1-1e-15) {
			u = 0.5
		}
		row, c := makeRow(seed, 1+int(n)%20000, shape, with), fuzzCut(temp, topP, minP, topK, first)
		ban := sampler.NewMask(int32(seed%7), int32(seed%1000), int32(n))
		got := check(t, sampler.New(len(row)), row, ban, c, u)
		// With vector instructions or without, the choice is the same.
		if plain := check(t, sampler.NewPlain(len(row)), row, ban, c, u); plain.Token != got.Token || plain.Rank != got.Rank {
			t.Fatalf("%+v, u %v: got %+v, without vector instructions %+v", c, u, got, plain)
		}
	})
}

// Moments are those of the temperature strategies, and may be asked for before a choice or not.
func TestMoments(t *testing.T) {
	for shape := range shapes {
		for i, n := range []int{1, 7, 3000, 9000, 40000} {
			if raceEnabled && n > 9000 {
				continue // there is one goroutine, and it would take long
			}
			row := makeRow(uint64(i), n, uint8(shape), []uint8{0, 0, 0x04, 0xff, 0x38}[i])
			for _, s := range []*sampler.Sampler{sampler.New(n), sampler.NewPlain(n)} {
				if err := s.Load(row, nil); err != nil {
					t.Fatal(err)
				}
				m := s.Moments()
				h, vh := temper.Moments(row)
				if math.Abs(m.H-h) > 1e-9*(1+h) || math.Abs(m.VH-vh) > 1e-8*(1+vh) || m.Count != len(order(row, nil)) {
					t.Errorf("shape %d, %d: got %+v, want H %v, VH %v, of %d", shape, n, m, h, vh, len(order(row, nil)))
				}
				if broken := slices.ContainsFunc(row, func(v float32) bool { return v != v || v > math.MaxFloat32 }); m.Broken != broken {
					t.Errorf("shape %d, %d: broken is %v", shape, n, m.Broken)
				}
				for _, c := range []sampler.Cut{{Temperature: 0.4, TopP: 1}, {Temperature: 1.3, TopP: 0.8}} {
					again, err := s.Pick(c, 0.3)
					fresh := check(t, sampler.New(n), row, nil, c, 0.3)
					if err == nil && again.Token != fresh.Token {
						t.Errorf("shape %d, %d: after moments %+v, without %+v", shape, n, again, fresh)
					}
				}
			}
		}
	}
}

// A sampler that has chosen before chooses no other way.
func TestChooseKeepsNothing(t *testing.T) {
	const n = 3000
	s, r := sampler.New(n), rand.New(rand.NewPCG(3, 3))
	for i := range 300 {
		row := makeRow(uint64(i), n, uint8(r.IntN(len(shapes))), uint8(r.IntN(256)))
		c := fuzzCut(r.Float64()*2, 1.5*r.Float64(), 0, 0, false)
		check(t, s, row, sampler.NewMask(int32(r.IntN(n))), c, r.Float64()*0.999+1e-4)
	}
}

// TestPicksOfOneRow holds that choices by other limits in between change nothing, and that a row is forgotten with the next.
func TestPicksOfOneRow(t *testing.T) {
	const n = 9000
	cuts := []sampler.Cut{
		{Temperature: 1, TopP: 1, MinP: 1e-7},
		{Temperature: 1, TopP: 1, TopK: 2000},
		{Temperature: 1.5, TopP: 0.9, MinP: 1e-7},
		{Temperature: 1.5, TopP: 0.9, MinP: 1e-7, TruncateFirst: true},
		{Temperature: 0.8, TopP: 1},
	}
	s, r := sampler.New(n), rand.New(rand.NewPCG(5, 5))
	for round := range 4 {
		row := makeRow(uint64(round), n, uint8(round%len(shapes)), 0)
		if err := s.Load(row, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			c, u := cuts[r.IntN(len(cuts))], r.Float64()*0.999+1e-4
			if i == 0 || i == 39 {
				c = cuts[0] // the last of this row is the first of the next
			}
			got, err := s.Pick(c, u)
			want, werr := sampler.New(n).Choose(row, nil, c, u)
			if got != want || err != nil || werr != nil {
				t.Fatalf("%+v, u %v: got %+v, %v, alone %+v, %v", c, u, got, err, want, werr)
			}
		}
	}
}
