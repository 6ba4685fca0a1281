package sampler_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler"
)

// both runs a law on either decoder.
func both(t *testing.T, law func(t *rapid.T, decoder func(row []float64) chooser)) {
	for name, decoder := range map[string]func([]float64) chooser{"exact": exactly, "plain": plainly} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { law(t, decoder) })
		})
	}
}

// steps draws logits that are multiples of 1/64, so that float32 holds them and their sums exactly. At most one in few is different.
func steps(t *rapid.T, n int) []float64 {
	few := rapid.SampledFrom([]int{3, 40, 2000}).Draw(t, "few")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "row"), 2))
	row := make([]float64, n)
	for i := range row {
		row[i] = float64(r.IntN(few)-few/2) / 64 * float64(1+2000/few) / 8
		row[i] = math.Round(row[i]*64) / 64
	}
	return row
}

func size(t *rapid.T) int { return rapid.SampledFrom([]int{1, 2, 9, 60, 1100, 2500}).Draw(t, "n") }

func lawCut(t *rapid.T) sampler.Cut {
	return sampler.Cut{
		Temperature:   rapid.SampledFrom([]float64{0.25, 0.7, 1, 1.5, 5}).Draw(t, "T"),
		TopK:          rapid.SampledFrom([]int{0, 0, 2, 5, 1000, 1200}).Draw(t, "top-k"),
		TopP:          rapid.SampledFrom([]float64{0.3, 0.9, 0.999, 1, 1}).Draw(t, "top-p"),
		MinP:          rapid.SampledFrom([]float64{0, 0, 1e-6, 0.05, 1}).Draw(t, "min-p"),
		TruncateFirst: rapid.Bool().Draw(t, "truncate first"),
	}
}

func chosen(t *rapid.T, f chooser, c sampler.Cut, u float64) sampler.Draw {
	t.Helper()
	d, err := f(c, u)
	if err != nil {
		t.Fatalf("%+v, u %v: %v", c, u, err)
	}
	return d
}

func TestLawMonotone(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		f, c := decoder(steps(t, size(t))), lawCut(t)
		a := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "a")
		b := rapid.Float64Range(a, 1-1e-10).Draw(t, "b")
		if x, y := chosen(t, f, c, a), chosen(t, f, c, b); x.Rank > y.Rank {
			t.Fatalf("u %v takes rank %d, u %v rank %d", a, x.Rank, b, y.Rank)
		}
	})
}

// TestLawShares goes through the unit interval: the numbers that choose a token are an interval as long as its probability, the intervals follow
// each other by rank, and together they are everything.
func TestLawShares(t *testing.T) {
	const slack = 1e-11
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		row, c := steps(t, rapid.IntRange(1, 60).Draw(t, "n")), lawCut(t)
		f, from, seen := decoder(row), 0.0, map[int32]bool{}
		for rank := 0; from < 1-100*slack && rank < len(row); rank++ { // every token left has more than slack
			d := chosen(t, f, c, from+slack)
			if d.Rank != rank || seen[d.Token] {
				t.Fatalf("after %v comes %+v, want a new token of rank %d", from, d, rank)
			}
			if d.Prob > 4*slack && d.Candidates > 1 {
				if e := chosen(t, f, c, from+d.Prob-slack); e != (sampler.Draw{
					Token: d.Token, Rank: d.Rank, Prob: d.Prob, Candidates: d.Candidates, U: from + d.Prob - slack, AfterTopK: d.AfterTopK, AfterMinP: d.AfterMinP,
				}) {
					t.Fatalf("%+v begins at %v; before its end is %+v", d, from, e)
				}
			}
			seen[d.Token] = true
			from += d.Prob
		}
		if math.Abs(from-1) > 100*slack {
			t.Fatalf("the shares of %d tokens are %v together", len(seen), from)
		}
	})
}

func TestLawShift(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		row, c := steps(t, size(t)), lawCut(t)
		by := float64(rapid.IntRange(-400, 400).Draw(t, "by"))
		moved := make([]float64, len(row))
		for i, v := range row {
			moved[i] = v + by
		}
		u := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "u")
		if x, y := chosen(t, decoder(row), c, u), chosen(t, decoder(moved), c, u); x != y {
			t.Fatalf("%+v, and %+v once every logit is %v higher", x, y, by)
		}
	})
}

// TestLawTies: where logits are equal the lower id stands first.
func TestLawTies(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		row, c := steps(t, size(t)), lawCut(t)
		f := decoder(row)
		last := sampler.Draw{Rank: -1}
		for i := range 60 {
			d := chosen(t, f, c, (float64(i)+0.5)/60)
			if last.Rank >= 0 && d.Rank > last.Rank && (row[d.Token] > row[last.Token] || row[d.Token] == row[last.Token] && d.Token < last.Token) {
				t.Fatalf("%+v stands before %+v, of logits %v and %v", last, d, row[last.Token], row[d.Token])
			}
			if d.Rank == last.Rank && d.Token != last.Token {
				t.Fatalf("%+v and %+v have the same rank", last, d)
			}
			last = d
		}
	})
}

func TestLawPermutation(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		n, c := size(t), lawCut(t)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 3))
		row, mixed := make([]float64, n), make([]float64, n)
		for i, at := range r.Perm(n) {
			row[i] = float64(at) / 256 // all different
		}
		to := r.Perm(n)
		for i, v := range row {
			mixed[to[i]] = v
		}
		u := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "u")
		x, y := chosen(t, decoder(row), c, u), chosen(t, decoder(mixed), c, u)
		x.Token = int32(to[x.Token])
		if math.Abs(x.Prob-y.Prob) < 1e-12 { // the order of a sum may move the last digit
			x.Prob = y.Prob
		}
		if x != y && edge(t, decoder(row), c, u) > 1e-12 {
			t.Fatalf("%+v, and %+v by other names", x, y)
		}
	})
}

// edge is how far u is from where another token would be chosen.
func edge(t *rapid.T, f chooser, c sampler.Cut, u float64) float64 {
	t.Helper()
	at := chosen(t, f, c, u).Token
	for d := 1e-13; d < 1; d *= 10 {
		if u-d <= 0 || u+d >= 1 || chosen(t, f, c, u-d).Token != at || chosen(t, f, c, u+d).Token != at {
			return d
		}
	}
	return 1
}

// TestLawCuts: a wider cut keeps what a narrower one keeps.
func TestLawCuts(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		f, c := decoder(steps(t, size(t))), lawCut(t)
		more := c
		switch rapid.IntRange(0, 2).Draw(t, "which") {
		case 0:
			c.TopK = rapid.IntRange(2, 1500).Draw(t, "k")
			more.TopK = c.TopK + rapid.IntRange(0, 1000).Draw(t, "more")
		case 1:
			c.TopP = rapid.Float64Range(0.01, 1).Draw(t, "p")
			more.TopP = rapid.Float64Range(c.TopP, 1).Draw(t, "more")
		case 2:
			c.MinP = rapid.Float64Range(0, 1).Draw(t, "min")
			more.MinP = rapid.Float64Range(0, c.MinP).Draw(t, "less")
		}
		x, y := chosen(t, f, c, 1-1e-12), chosen(t, f, more, 1-1e-12)
		if c.TopP < 1 && c.TopP == more.TopP {
			return // top-p of a larger whole may keep fewer of the first: only its own parameter is monotone
		}
		if x.Candidates > y.Candidates {
			t.Fatalf("%+v keeps %d, %+v keeps %d", c, x.Candidates, more, y.Candidates)
		}
	})
}

// TestLawCutsFollowOrder: whatever is cut, the candidates are the first of the order.
func TestLawCutsFollowOrder(t *testing.T) {
	both(t, func(t *rapid.T, decoder func([]float64) chooser) {
		row, c := steps(t, rapid.IntRange(1, 60).Draw(t, "n")), lawCut(t)
		order := make([]int32, len(row))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		f := decoder(row)
		for i := range 50 {
			if d := chosen(t, f, c, (float64(i)+0.5)/50); d.Token != order[d.Rank] {
				t.Fatalf("%+v: rank %d of the row is token %d", d, d.Rank, order[d.Rank])
			}
		}
	})
}

// TestLawStreamAddsNothing: with the fixed temperature, no penalties and no bans a stream is the plain decoder.
func TestLawStreamAddsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := to32(steps(t, size(t)))
		c := lawCut(t)
		p := sampler.Defaults()
		p.Temperature, p.TopK, p.TopP, p.MinP, p.TruncateFirst = c.Temperature, c.TopK, c.TopP, c.MinP, c.TruncateFirst
		s := sampler.NewStream(len(row))
		if err := s.Begin(&p, nil); err != nil {
			t.Fatal(err)
		}
		plain := sampler.New(len(row))
		for range 3 {
			if _, err := s.Plan(row, nil); err != nil {
				t.Fatal(err)
			}
			u := rapid.Float64Range(1e-10, 1-1e-10).Draw(t, "u")
			x, err := s.Choose(u)
			if err != nil {
				t.Fatal(err)
			}
			if y, err := plain.Choose(row, nil, c, u); err != nil || x != y {
				t.Fatalf("%+v, and %+v without a stream, error %v", x, y, err)
			}
			s.Accept(x.Token, nil)
		}
	})
}
