package lookahead_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// draws is the number of steps a distribution is judged by.
const draws = 20000

// openText finds a text whose next token is uncertain: at least six candidates, the least with a fair share.
func openText(t testing.TB, m *lookaheadtest.Model, vocab int) uint64 {
	t.Helper()
	p := sampler.Defaults()
	for text := range uint64(1000) {
		e := lookaheadtest.New(m, text, 1)
		if n := len(scores(e, vocab, &p, nil)); n >= 6 && n <= 12 {
			return text
		}
	}
	t.Fatal("no open text found")
	return 0
}

// scores computes the law of the choice from its definition: ids and weights, end-of-generation tokens with the weight that makes their
// share the plain one.
func scores(e *lookaheadtest.Evaluator, vocab int, p *sampler.Params, eog *sampler.Mask) map[int32]float64 {
	row := e.Row()
	largest := float32(math.Inf(-1))
	for _, v := range row {
		largest = max(largest, v)
	}
	a, b := lookahead.Exponents(p.Curve, p.AlphaAt(0))
	law, plain := map[int32]float64{}, map[int32]float64{}
	var end, rest, sum float64
	for i, v := range row {
		lp := float64(v - largest)
		if lp < math.Log(p.LookaheadMinP) {
			continue
		}
		plain[int32(i)] = math.Exp(lp)
		if eog.Has(int32(i)) {
			end += plain[int32(i)]
			continue
		}
		rest += plain[int32(i)]
		law[int32(i)] = math.Pow(math.Exp(a*lp)*math.Pow(entropyOf(e, vocab, int32(i), p.LookaheadN), b), 1/p.Temperature)
		sum += law[int32(i)]
	}
	for id := range law {
		law[id] *= rest / (end + rest) / sum
	}
	if end > 0 {
		law[sampler.EndToken] = end / (end + rest)
	}
	return law
}

// entropyOf sorts the whole row.
func entropyOf(e *lookaheadtest.Evaluator, vocab int, id int32, n int) float64 {
	row := append([]float32(nil), e.After(id)...)
	sortDescending(row)
	row = row[:min(n, vocab)]
	var z, h float64
	for _, v := range row {
		z += math.Exp(float64(v - row[0]))
	}
	for _, v := range row {
		if q := math.Exp(float64(v-row[0])) / z; q > 0 {
			h -= q * math.Log(q)
		}
	}
	return h / math.Log(float64(n))
}

func sortDescending(x []float32) {
	for i := range x {
		for j := i; j > 0 && x[j] > x[j-1]; j-- {
			x[j], x[j-1] = x[j-1], x[j]
		}
	}
}

// count decides the first step of text draws times, each with its own seed.
func count(t testing.TB, e *lookaheadtest.Evaluator, text uint64, vocab int, p sampler.Params, eog *sampler.Mask) map[int32]int {
	t.Helper()
	d, err := lookahead.New(vocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int32]int{}
	for seed := range int64(draws) {
		p.Seed = &seed
		e.Restart(text)
		st := lookahead.Step{Row: e.Row(), Params: &p, Noise: sampler.NewSeeded(seed), Eval: e, EOG: eog}
		out, err := d.Next(context.Background(), &st)
		if err != nil {
			t.Fatal(err)
		}
		if out.End {
			out.Token = sampler.EndToken
		}
		counts[out.Token]++
	}
	return counts
}

// follows fails unless counts may be draws of law: chi-square, at a level of one in a million.
func follows(t testing.TB, what string, counts map[int32]int, law map[int32]float64) {
	t.Helper()
	chi, n := 0.0, 0
	for id, p := range law {
		want := p * draws
		chi += (float64(counts[id]) - want) * (float64(counts[id]) - want) / want
		n += counts[id]
	}
	if n != draws {
		t.Fatalf("%s: %d of %d draws lie outside the candidates", what, draws-n, draws)
	}
	if limit := chiLimit(len(law) - 1); chi > limit {
		t.Errorf("%s: chi-square %.1f over %d tokens, limit %.1f\ncounts %v\nlaw %v", what, chi, len(law), limit, counts, law)
	}
}

// chiLimit is what chi-square with k degrees of freedom stays under but for one time in a million (Wilson and Hilferty's cube).
func chiLimit(k int) float64 {
	v := 2 / (9 * float64(k))
	return float64(k) * math.Pow(1-v+4.7534*math.Sqrt(v), 3)
}

func TestSampledLaw(t *testing.T) {
	const vocab = 60
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	text := openText(t, m, vocab)
	for _, mode := range []string{"lazy", "full_inverse", "bounded"} {
		for _, curve := range []string{"article", "crossfade", "seed"} {
			for _, ends := range []int{0, 2} {
				if mode == "full_inverse" && (curve != "article" || ends == 0) || mode == "bounded" && ends == 0 {
					continue
				}
				p, alpha := sampler.Defaults(), 0.3
				p.Alpha, p.Curve, p.Lookahead = &alpha, curve, mode
				p.Temperature = map[string]float64{"article": 1, "crossfade": 0.6, "seed": 1.5}[curve]
				e := lookaheadtest.New(m, text, 4)
				eog := someEOG(e, ends)
				law := scores(e, vocab, &p, eog)
				follows(t, mode+" "+curve, count(t, e, text, vocab, p, eog), law)
			}
		}
	}
}

// someEOG declares the second and third most probable tokens to be end-of-generation tokens.
func someEOG(e *lookaheadtest.Evaluator, n int) *sampler.Mask {
	s, p := sampler.New(len(e.Row())), sampler.Defaults()
	var ids []int32
	for len(ids) < n+1 {
		p.Temperature = 0
		d, err := s.Choose(e.Row(), sampler.NewMask(ids...), p.Cut(), 0.5)
		if err != nil {
			return nil
		}
		ids = append(ids, d.Token)
	}
	return sampler.NewMask(ids[1:]...)
}

// With alpha -1 and temperature 1, a sampled choice is plain sampling with the same truncation, end of the text included.
func TestAlphaMinusOneIsPlain(t *testing.T) {
	const vocab = 60
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	text := openText(t, m, vocab)
	for _, mode := range []string{"lazy", "bounded"} {
		for _, curve := range []string{"article", "crossfade"} {
			p, alpha := sampler.Defaults(), -1.0
			p.Alpha, p.Curve, p.Lookahead = &alpha, curve, mode
			e := lookaheadtest.New(m, text, 4)
			eog := someEOG(e, 1)
			plain := p
			plain.TopK, plain.MinP = p.LookaheadK, p.LookaheadMinP
			law := map[int32]float64{}
			s := sampler.New(vocab)
			for i := range 200000 {
				d, err := s.Choose(e.Row(), nil, plain.Cut(), (float64(i)+0.5)/200000)
				if err != nil {
					t.Fatal(err)
				}
				if eog.Has(d.Token) {
					d.Token = sampler.EndToken
				}
				law[d.Token] += 1.0 / 200000
			}
			follows(t, mode+" "+curve, count(t, e, text, vocab, p, eog), law)
			for g, n := range e.Decoded {
				if g != 1 && n != 0 {
					t.Errorf("%s: %d batches of %d at alpha -1", mode, n, g)
				}
			}
		}
	}
}

// The token of the one-number modes moves monotonely with the number: first the end of the text, then candidates by probability.
func TestInverseIsMonotone(t *testing.T) {
	const vocab = 60
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	rapid.Check(t, func(t *rapid.T) {
		text, alpha := rapid.Uint64Range(0, 500).Draw(t, "text"), rapid.Float64Range(-1, 1).Draw(t, "alpha")
		p := sampler.Defaults()
		p.Alpha, p.Lookahead = &alpha, sampler.ModeBounded
		e := lookaheadtest.New(m, text, 4)
		eog := someEOG(e, 1)
		logits := append([]float32(nil), e.Row()...)
		d, err := lookahead.New(vocab, lookahead.Config{})
		if err != nil {
			t.Fatal(err)
		}
		last := math.Inf(1)
		for i := range 64 {
			e.Restart(text)
			st := lookahead.Step{Row: e.Row(), Params: &p, Noise: fixed((float64(i) + 0.5) / 64), Eval: e, EOG: eog}
			out, err := d.Next(context.Background(), &st)
			if err != nil {
				t.Fatal(err)
			}
			at := math.MaxFloat64
			if !out.End {
				at = float64(logits[out.Token])
			}
			if at > last {
				t.Fatalf("number %d of 64: logit %v after %v", i, at, last)
			}
			last = at
		}
	})
}

// fixed is noise that is the same number always.
type fixed float64

func (f fixed) One(context.Context, int) (float64, error) { return float64(f), nil }
func (f fixed) Each(_ context.Context, _ int, _ []int32, u []float64) error {
	for i := range u {
		u[i] = float64(f)
	}
	return nil
}
func (f fixed) Info() (source, uSource string, bytes int64) { return "", "", 0 }
func (f fixed) Last() *sampler.Evidence                     { return nil }

// silent is noise that must not be asked.
type silent struct{}

var errAsked = errors.New("noise was drawn")

func (silent) One(context.Context, int) (float64, error)           { return 0, errAsked }
func (silent) Each(context.Context, int, []int32, []float64) error { return errAsked }
func (silent) Info() (source, uSource string, bytes int64)         { return "", "", 0 }
func (silent) Last() *sampler.Evidence                             { return nil }

func TestNoNoiseWhereNothingIsDrawn(t *testing.T) {
	const vocab = 60
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	for name, set := range map[string]func(*sampler.Params){
		"argmax":        func(p *sampler.Params) { p.LookaheadChoice = sampler.ChoiceArgmax },
		"temperature 0": func(p *sampler.Params) { p.Temperature = 0 },
		"one candidate": func(p *sampler.Params) { p.LookaheadK = 1 },
	} {
		p, alpha := sampler.Defaults(), 0.3
		p.Alpha = &alpha
		set(&p)
		e := lookaheadtest.New(m, 1, 4)
		d, err := lookahead.New(vocab, lookahead.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Next(context.Background(), &lookahead.Step{Row: e.Row(), Params: &p, Noise: silent{}, Eval: e}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
