package sampler_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler"
)

// given is noise of one number, which counts how often it is asked.
type given struct {
	u     float64
	asked int
	ev    sampler.Evidence
}

func (g *given) One(context.Context, int) (float64, error) {
	g.asked++
	return g.u, nil
}

func (g *given) Each(context.Context, int, []int32, []float64) error {
	return errors.New("a number per candidate was asked for")
}
func (g *given) Info() (string, string, int64) { return "given", "given", 0 }
func (g *given) Last() *sampler.Evidence       { return &g.ev }

// headOf is the head of row: the k largest, of equal ones any, in any order, and sums with errors of float32 size. wrong, in [-1,1], is how far
// they go.
func headOf(row []float32, k int, r *rand.Rand, wrong float64) *sampler.Head {
	ids := r.Perm(len(row))
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case row[a] > row[b]:
			return -1
		case row[a] < row[b]:
			return 1
		}
		return 0
	})
	h := &sampler.Head{Max: row[ids[0]]}
	for i := range k {
		id, v := int32(-1), float32(math.Inf(-1))
		if i < len(ids) && row[ids[i]] > v {
			id, v = int32(ids[i]), row[ids[i]]
		}
		h.IDs, h.Logits = append(h.IDs, id), append(h.Logits, v)
	}
	r.Shuffle(k, func(i, j int) {
		h.IDs[i], h.IDs[j] = h.IDs[j], h.IDs[i]
		h.Logits[i], h.Logits[j] = h.Logits[j], h.Logits[i]
	})
	lse, entropy, finite := moments(row)
	h.Finite = finite
	h.LSE = float32(lse + wrong*9e-6)
	h.Entropy = float32(entropy + wrong*(2e-5+1e-6*(math.Abs(lse)+entropy)))
	return h
}

// moments adds up a row in float64.
func moments(row []float32) (lse, entropy float64, finite int) {
	largest, z, zx := float64(slices.Max(row)), 0.0, 0.0
	for _, v := range row {
		if x := float64(v) - largest; !math.IsInf(x, -1) {
			finite++
			z += math.Exp(x)
			zx += math.Exp(x) * x
		}
	}
	return largest + math.Log(z), math.Log(z) - zx/z, finite
}

// rowOf is a row of n logits of one of the shapes that models give, or that are hard.
func rowOf(shape string, n int, r *rand.Rand) []float32 {
	row := make([]float32, n)
	slope, scale := 0.9+1.5*r.Float64(), 1+2*r.Float64()
	for i, rank := range r.Perm(n) {
		switch shape {
		case "model": // a head that falls off by a power of the rank over a bell
			row[i] = float32(12 - 2*slope*math.Log1p(float64(rank)) + 0.7*r.NormFloat64())
		case "bell":
			row[i] = float32(scale * r.NormFloat64())
		case "flat":
			row[i] = float32(0.01 * r.NormFloat64())
		case "ties":
			row[i] = float32(r.IntN(12))
		case "sure":
			row[i] = float32(r.NormFloat64())
			if rank < 3 {
				row[i] += 20 - float32(rank)
			}
		case "masked":
			row[i] = float32(8 - 2*math.Log1p(float64(rank)))
			if r.IntN(10) > 0 {
				row[i] = float32(math.Inf(-1))
			}
		}
	}
	row[r.IntN(n)] = 9 // one is finite
	return row
}

func rowShapes() []string { return []string{"model", "bell", "flat", "ties", "sure", "masked"} }

// headParams draws parameters of the plain decoder.
func headParams(t *rapid.T, n int) *sampler.Params {
	p := sampler.Defaults()
	p.Temperature = rapid.SampledFrom([]float64{0, 0.01, 0.3, 0.7, 0.95, 1, 1, 1, 1.05, 1.4, 4}).Draw(t, "T")
	p.TopK = rapid.SampledFrom([]int{0, 0, 0, 1, 7, 60, 255, 256, 257, 900, 1500}).Draw(t, "top-k")
	p.TopP = rapid.SampledFrom([]float64{1, 1, 1, 0.3, 0.9, 0.95, 0.999, 0}).Draw(t, "top-p")
	p.MinP = rapid.SampledFrom([]float64{0, 0, 0, 0.05, 0.001, 1e-6, 1}).Draw(t, "min-p")
	p.TruncateFirst = rapid.Bool().Draw(t, "truncate first")
	if rapid.Bool().Draw(t, "penalties") {
		p.FrequencyPenalty = rapid.SampledFrom([]float64{0, 0, 0.2, 1.5, -0.5}).Draw(t, "frequency")
		p.PresencePenalty = rapid.SampledFrom([]float64{0, 0, 0.4, 2, -0.7}).Draw(t, "presence")
		p.RepetitionPenalty = rapid.SampledFrom([]float64{1, 1, 1.1, 1.5, 0.8}).Draw(t, "repetition")
	}
	if rapid.IntRange(0, 3).Draw(t, "biased") == 0 {
		for i := range rapid.IntRange(1, 20).Draw(t, "biases") {
			bias := rapid.SampledFrom([]float64{-100, -2, -0.5, 0, 0.5, 3, 100}).Draw(t, "bias")
			p.LogitBias = append(p.LogitBias, sampler.TokenBias{Token: int32(i * (n - 1) / 20), Bias: bias})
		}
		p.LogitBias = slices.CompactFunc(p.LogitBias, func(a, b sampler.TokenBias) bool { return a.Token == b.Token })
	}
	return &p
}

// pair are two streams of the same answer.
type pair struct {
	head, whole *sampler.Stream
	temperature float64
}

func newPair(t rapid.TB, p *sampler.Params, n int, prompt, history []int32) pair {
	t.Helper()
	x := pair{sampler.NewStream(n), sampler.NewStream(n), p.Temperature}
	if err := errors.Join(x.head.Begin(p, prompt), x.whole.Begin(p, prompt)); err != nil {
		t.Fatal(err)
	}
	for _, id := range history {
		x.head.Accept(id, nil)
		x.whole.Accept(id, nil)
	}
	return x
}

// agree decides a token from head and from row and compares. It reports whether the head decided.
func (x pair) agree(t rapid.TB, row []float32, h *sampler.Head, ban *sampler.Mask, u float64) bool {
	t.Helper()
	ctx, a, b := context.Background(), &given{u: u}, &given{u: u}
	want, wantErr := x.whole.Next(ctx, row, ban, b)
	got, err := x.head.NextHead(ctx, h, ban, a)
	if errors.Is(err, sampler.ErrWholeRow) {
		full, err := x.head.Next(ctx, row, ban, a)
		if full != want || !errors.Is(err, wantErr) || a.asked != b.asked {
			t.Fatalf("u %v, after the head: got %+v, error %v, asked %d times; want %+v, error %v, %d times", u, full, err, a.asked, want, wantErr, b.asked)
		}
		return false
	}
	if err != nil || wantErr != nil {
		if !errors.Is(wantErr, sampler.ErrNoCandidates) || !errors.Is(err, sampler.ErrNoCandidates) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		return true
	}
	sameDraw(t, got, want)
	if got.Candidates > want.Candidates && x.temperature > 0.1 { // below, some have no probability any more
		t.Fatalf("the head counts %d candidates, the whole row %d", got.Candidates, want.Candidates)
	}
	if a.asked != b.asked || x.head.Step() != x.whole.Step() {
		t.Fatalf("asked %d times and is at token %d; want %d and %d", a.asked, x.head.Step(), b.asked, x.whole.Step())
	}
	return true
}

func sameDraw(t rapid.TB, got, want sampler.Draw) {
	t.Helper()
	off := math.Abs(got.Prob - want.Prob)
	if got.Token != want.Token || got.Rank != want.Rank || got.U != want.U || !(off <= got.ProbErr*1.000001+1e-8) || !(got.Covered > 0 && got.Covered <= 1) {
		t.Fatalf("the head gives %+v, the whole row %+v", got, want)
	}
	if got.Candidates != 0 && got.Candidates < want.Candidates {
		t.Fatalf("the head counts %d candidates, the whole row %d", got.Candidates, want.Candidates)
	}
}

// edgeU is a number at the edge of two tokens, up to 2^-52, or u where there is none between.
func edgeU(row []float32, ban *sampler.Mask, s *sampler.Stream, u float64) float64 {
	if _, err := s.Plan(row, ban); err != nil || !s.NeedsU() {
		return u
	}
	lo, hi := u, 1-0x1p-40
	at, err := s.Choose(lo)
	if last, _ := s.Choose(hi); err != nil || last.Token == at.Token {
		return u
	}
	for hi-lo > 0x1p-52 {
		if d, _ := s.Choose(lo/2 + hi/2); d.Token == at.Token {
			lo = lo/2 + hi/2
		} else {
			hi = lo/2 + hi/2
		}
	}
	return hi
}

// TestLawHead: what a head decides, the whole row decides likewise, whatever the row, the parameters, the errors of the head's sums and the number.
func TestLawHead(t *testing.T) {
	decided, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "row"), 5))
		n := rapid.SampledFrom([]int{4, 300, 1100, 2500}).Draw(t, "n")
		row := rowOf(rapid.SampledFrom(rowShapes()).Draw(t, "shape"), n, r)
		k := rapid.SampledFrom([]int{1, 8, 64, 256, 256}).Draw(t, "k")
		h := headOf(row, k, r, rapid.Float64Range(-1, 1).Draw(t, "wrong"))
		p := headParams(t, n)
		var history []int32 // every second one shown
		for range rapid.IntRange(0, 40).Draw(t, "history") {
			history = append(history, int32(r.IntN(n)), h.IDs[r.IntN(k)])
		}
		var ban *sampler.Mask
		if rapid.IntRange(0, 4).Draw(t, "banned") == 0 {
			ban = sampler.NewMask(int32(r.IntN(n)), int32(r.IntN(n)), h.IDs[r.IntN(k)], int32(n+3))
		}
		u := rapid.Float64Range(1e-9, 1-1e-9).Draw(t, "u")
		x := newPair(t, p, n, history[:len(history)/4], history)
		if rapid.Bool().Draw(t, "at an edge") {
			edge := edgeU(row, ban, x.whole, u) + rapid.SampledFrom([]float64{0, 1e-15, -1e-15, 1e-11, -1e-11, 1e-8, -1e-8, 3e-6, -3e-6, 1e-4, -1e-4}).Draw(t, "off")
			u = min(max(edge, 1e-9), 1-1e-9)
		}
		asked++
		if x.agree(t, row, h, ban, u) {
			decided++
		}
	})
	t.Logf("decided %d of %d", decided, asked)
	if decided < asked/4 {
		t.Errorf("only %d of %d were decided", decided, asked)
	}
}
