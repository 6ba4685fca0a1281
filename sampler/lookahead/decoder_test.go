package lookahead_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// rows is an evaluator with a fixed row after every token.
type rows struct {
	after map[int32][]float32
	group int
	err   error
	short bool // show one row too few

	peeked, held []int32
	committed    []int32
}

func (r *rows) Group() int { return r.group }
func (r *rows) Hold(t int32) {
	r.held = append(r.held, t)
}

func (r *rows) Peek(_ context.Context, tokens []int32, visit func(int, []float32)) error {
	r.peeked = append(r.peeked, tokens...)
	for i, t := range tokens {
		if r.short && i == len(tokens)-1 {
			break
		}
		visit(i, r.after[t])
	}
	return r.err
}

func (r *rows) Commit(_ context.Context, t int32) ([]float32, error) {
	r.committed = append(r.committed, t)
	return r.after[t], nil
}

// flat and sharp are rows of four tokens with the largest and no entropy.
func flat() []float32  { return []float32{0, 0, 0, 0} }
func sharp() []float32 { return []float32{0, -1e6, -1e6, -1e6} }

func argmaxParams(alpha float64) *sampler.Params {
	p := sampler.Defaults()
	p.Alpha, p.LookaheadChoice, p.LookaheadN = &alpha, sampler.ChoiceArgmax, 4
	return &p
}

func next(t *testing.T, st lookahead.Step) (lookahead.Outcome, error) {
	t.Helper()
	d, err := lookahead.New(4, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Next(context.Background(), &st)
}

func TestArgmaxPrefersOpenFutures(t *testing.T) {
	e := &rows{group: 1, after: map[int32][]float32{0: sharp(), 1: flat(), 2: flat(), 3: flat()}}
	out, err := next(t, lookahead.Step{Row: []float32{1, 0.9, 0, -20}, Params: argmaxParams(0), Eval: e})
	if err != nil {
		t.Fatal(err)
	}
	if out.Token != 1 || out.H != 1 || math.Abs(out.Score-math.Exp(-0.1)) > 1e-6 || out.Peeks != 2 {
		t.Errorf("got %+v, want token 1 after two peeks", out)
	}
	if !slices.Equal(e.held, []int32{1}) || !slices.Equal(e.committed, []int32{1}) {
		t.Errorf("held %v, committed %v, want token 1 each", e.held, e.committed)
	}
}

func TestAllScoresZeroFallBackToProbability(t *testing.T) {
	for _, mode := range []string{"lazy", "full"} {
		e := &rows{group: 4, after: map[int32][]float32{0: sharp(), 1: sharp(), 2: sharp(), 3: sharp()}}
		p := argmaxParams(1)
		p.Lookahead = mode
		out, err := next(t, lookahead.Step{Row: []float32{0.5, 1, 0, -20}, Params: p, Eval: e})
		if err != nil || out.Token != 1 || out.Peeks != 3 {
			t.Errorf("%s: got %+v, error %v, want token 1", mode, out, err)
		}
	}
}

func TestEndOfText(t *testing.T) {
	after := map[int32][]float32{0: flat(), 1: flat(), 2: flat(), 3: flat()}
	for _, c := range []struct {
		name string
		row  []float32
		u    float64
		mode string
		end  bool
	}{
		{"argmax is the end", []float32{2, 1, 1, 1}, 0, "argmax", true},
		{"argmax is not the end", []float32{1, 1.1, 1, 1}, 0, "argmax", false},
		{"a tie goes to the lower id", []float32{1, 1, 1, 1}, 0, "argmax", true},
		{"its own number is under its share", []float32{1, 1, 1, 1}, 0.2499, "lazy", true},
		{"its own number is over its share", []float32{1, 1, 1, 1}, 0.2501, "lazy", false},
		{"the whole number is under its share", []float32{1, 1, 1, 1}, 0.2499, "bounded", true},
		{"the whole number is over its share", []float32{1, 1, 1, 1}, 0.2501, "bounded", false},
		{"the end is all there is", []float32{1, -90, -90, -90}, 0.9999, "lazy", true},
		{"the end is cut off by min-p", []float32{-9, 1, 1, 1}, 1e-9, "lazy", false},
	} {
		p := argmaxParams(0.3)
		if c.mode != "argmax" {
			p.LookaheadChoice, p.Lookahead = sampler.ChoiceSample, c.mode
		}
		e := &rows{group: 4, after: after}
		out, err := next(t, lookahead.Step{Row: c.row, Params: p, Noise: fixed(c.u), Eval: e, EOG: sampler.NewMask(0)})
		if err != nil || out.End != c.end || out.End != (out.Token == 0) || out.End != (out.Row == nil) {
			t.Errorf("%s: got %+v, error %v, want end %v", c.name, out, err, c.end)
		}
		if slices.Contains(e.peeked, 0) || c.end != (len(e.committed) == 0) {
			t.Errorf("%s: peeked %v, committed %v", c.name, e.peeked, e.committed)
		}
	}
}

// Where nothing that follows has any entropy, the choice is plain sampling at the temperature.
func TestZeroScoresFollowProbability(t *testing.T) {
	row := []float32{0, -0.5, -1, -2}
	for _, mode := range []string{"lazy", "full", "bounded", "full_inverse"} {
		p := argmaxParams(0.3)
		p.LookaheadChoice, p.Lookahead, p.Temperature = sampler.ChoiceSample, mode, 0.7
		law, sum := map[int32]float64{}, 0.0
		for i, v := range row {
			law[int32(i)] = math.Exp(float64(v) / p.Temperature)
			sum += law[int32(i)]
		}
		for i := range law {
			law[i] /= sum
		}
		e := &rows{group: 4, after: map[int32][]float32{0: sharp(), 1: sharp(), 2: sharp(), 3: sharp()}}
		d, err := lookahead.New(4, lookahead.Config{})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[int32]int{}
		for seed := range int64(draws) {
			st := lookahead.Step{Row: row, Params: p, Noise: sampler.NewSeeded(seed), Eval: e}
			out, err := d.Next(context.Background(), &st)
			if err != nil {
				t.Fatal(err)
			}
			counts[out.Token]++
		}
		follows(t, mode, counts, law)
	}
}

// The divisor of the entropy is ln n even where the vocabulary has fewer tokens.
func TestEntropyDivisor(t *testing.T) {
	p := argmaxParams(1)
	p.LookaheadN = 1000
	e := &rows{group: 4, after: map[int32][]float32{0: flat(), 1: sharp(), 2: sharp(), 3: sharp()}}
	out, err := next(t, lookahead.Step{Row: []float32{1, 1, 1, 1}, Params: p, Eval: e})
	if want := math.Log(4) / math.Log(1000); err != nil || math.Abs(out.H-want) > 1e-12 {
		t.Errorf("got %+v, error %v, want an entropy of %v", out, err, want)
	}
}

func TestBannedTokensShapeTheFutureOnly(t *testing.T) {
	e := &rows{group: 4, after: map[int32][]float32{1: flat(), 2: sharp(), 3: sharp()}}
	out, err := next(t, lookahead.Step{Row: []float32{9, 1, 1, 1}, Params: argmaxParams(0), Eval: e, Ban: sampler.NewMask(0)})
	if err != nil || out.Token != 1 || out.H != 1 || out.Candidates != 3 {
		t.Errorf("got %+v, error %v; want token 1 of 3 with an entropy over all four tokens", out, err)
	}
}

func TestConfidenceThreshold(t *testing.T) {
	after := map[int32][]float32{0: sharp(), 1: flat(), 2: flat(), 3: flat()}
	row := []float32{1, 0, -1, -2} // p = 0.644
	for threshold, skipped := range map[float64]bool{0: false, 0.64: true, 0.65: false} {
		p := argmaxParams(0)
		p.ConfidenceThreshold = threshold
		e := &rows{group: 1, after: after}
		out, err := next(t, lookahead.Step{Row: row, Params: p, Eval: e})
		if err != nil || out.Skipped != skipped || (out.Token == 0) != skipped || (out.Peeks == 0) != skipped {
			t.Errorf("threshold %v: got %+v, error %v", threshold, out, err)
		}
	}
}

func TestErrors(t *testing.T) {
	nan, boom := float32(math.NaN()), errors.New("boom")
	four := []float32{1, 1, 1, 1}
	after := map[int32][]float32{0: flat(), 1: flat(), 2: flat(), 3: flat()}
	for _, c := range []struct {
		name string
		row  []float32
		eval *rows
		want error
	}{
		{"nothing finite", []float32{nan, nan, nan, nan}, &rows{group: 4, after: after}, sampler.ErrNoCandidates},
		{"evaluator fails", four, &rows{group: 4, after: after, err: boom}, boom},
		{"a row is missing", four, &rows{group: 4, after: after, short: true}, lookahead.ErrEvaluator},
		{"rows are short", four, &rows{group: 4}, lookahead.ErrEvaluator},
	} {
		if out, err := next(t, lookahead.Step{Row: c.row, Params: argmaxParams(0), Eval: c.eval}); !errors.Is(err, c.want) {
			t.Errorf("%s: got %+v, error %v, want %v", c.name, out, err, c.want)
		}
	}
	p := sampler.Defaults()
	if _, err := next(t, lookahead.Step{Row: four, Params: &p, Noise: silent{}, Eval: &rows{group: 4, after: after}}); !errors.Is(err, errAsked) {
		t.Errorf("noise fails: error %v", err)
	}
	if _, err := next(t, lookahead.Step{Row: four[:3], Params: &p, Eval: &rows{group: 4}}); err == nil {
		t.Error("short base row: no error")
	}
}

func TestConfigRefusesFallingCosts(t *testing.T) {
	for _, cost := range [][]float64{{0}, {1, 0.5}, {math.NaN()}, {1, math.Inf(1)}} {
		if _, err := lookahead.New(4, lookahead.Config{Cost: cost}); err == nil {
			t.Errorf("cost %v: no error", cost)
		}
	}
}

func TestExponents(t *testing.T) {
	for _, c := range []struct {
		curve       string
		alpha, a, b float64
	}{
		{"article", -1, 1, 0},
		{"article", -0.5, 1, 0.5},
		{"article", 0, 1, 1},
		{"article", 0.3, 0.7, 1},
		{"article", 1, 0, 1},
		{"crossfade", -1, 1, 0},
		{"crossfade", 0, 0.5, 0.5},
		{"crossfade", 1, 0, 1},
		{"seed", -1, 2, 0},
		{"seed", 0, 1, 1},
		{"seed", 1, 0, 2},
	} {
		if a, b := lookahead.Exponents(c.curve, c.alpha); a != c.a || b != c.b {
			t.Errorf("%s at %v: a %v, b %v, want %v, %v", c.curve, c.alpha, a, b, c.a, c.b)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	const vocab = 300
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	for _, mode := range []string{"lazy", "full", "bounded", "full_inverse"} {
		p, alpha, seed := sampler.Defaults(), 0.3, int64(1)
		p.Alpha, p.Lookahead, p.Seed, p.ConfidenceThreshold = &alpha, mode, &seed, 0.95
		e := lookaheadtest.New(m, 1, 8)
		d, err := lookahead.New(vocab, lookahead.Config{})
		if err != nil {
			t.Fatal(err)
		}
		st := lookahead.Step{Row: e.Row(), Params: &p, Noise: sampler.NewSeeded(1), Eval: e, Ban: sampler.NewMask(3, 9), EOG: sampler.NewMask(7)}
		step := func() {
			out, err := d.Next(context.Background(), &st)
			if err != nil {
				t.Fatal(err)
			}
			if out.End {
				e.Restart(uint64(st.Index))
				out.Row = e.Row()
			}
			st.Row, st.Index, e.Tokens = out.Row, st.Index+1, e.Tokens[:0]
		}
		for range 500 {
			step()
		}
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%s: %v allocations a token", mode, n)
		}
	}
}
