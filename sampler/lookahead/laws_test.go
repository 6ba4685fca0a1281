package lookahead_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// scene is a text to be decoded: a model, parameters and a seed.
type scene struct {
	shape lookaheadtest.Shape
	p     sampler.Params
	ban   *sampler.Mask
	eog   *sampler.Mask
	text  uint64
	steps int
}

func genScene(t *rapid.T) scene {
	v := rapid.SampledFrom([]int{1, 2, 5, 40, 300}).Draw(t, "vocabulary")
	s := scene{
		shape: lookaheadtest.Shape{
			Vocab: v,
			Zero:  rapid.SampledFrom([]float64{0, 0.2, 0.9, 1}).Draw(t, "zero"),
			Level: rapid.IntRange(0, 9).Draw(t, "level") == 0,
		},
		p:    sampler.Defaults(),
		text: rapid.Uint64().Draw(t, "text"), steps: 12,
	}
	alpha := rapid.SampledFrom([]float64{-1, -0.5, 0, 0.3, 0.5, 0.7, 1}).Draw(t, "alpha")
	seed := rapid.Int64().Draw(t, "seed")
	s.p.Alpha, s.p.Seed = &alpha, &seed
	s.p.Curve = rapid.SampledFrom([]string{"article", "crossfade", "seed"}).Draw(t, "curve")
	s.p.Temperature = rapid.SampledFrom([]float64{0, 1e-9, 0.5, 1, 1, 2}).Draw(t, "T")
	s.p.LookaheadChoice = rapid.SampledFrom([]string{"sample", "sample", "argmax"}).Draw(t, "choice")
	s.p.LookaheadK = rapid.SampledFrom([]int{1, 2, 8, 20, 256}).Draw(t, "k")
	s.p.LookaheadN = rapid.SampledFrom([]int{2, 30, 1000}).Draw(t, "n")
	s.p.LookaheadMinP = rapid.SampledFrom([]float64{0, 0.01, 0.05, 1}).Draw(t, "min-p")
	s.p.ConfidenceThreshold = rapid.SampledFrom([]float64{0, 0, 0.4}).Draw(t, "confidence")
	if v > 5 {
		s.ban = sampler.NewMask(rapid.SliceOfN(rapid.Int32Range(0, int32(v-1)), 0, 3).Draw(t, "ban")...)
		s.eog = sampler.NewMask(rapid.SliceOfN(rapid.Int32Range(0, int32(v-1)), 0, 3).Draw(t, "eog")...)
	}
	return s
}

// decode runs a scene in one mode and returns the tokens, the last being the end of the text if it came.
func (s scene) decode(t rapid.TB, mode string, group int) (tokens []int32, sum lookahead.Outcome) {
	t.Helper()
	p := s.p
	p.Lookahead = mode
	e := lookaheadtest.New(lookaheadtest.NewModel(s.shape), s.text, group)
	d, err := lookahead.New(s.shape.Vocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st := lookahead.Step{Row: e.Row(), Params: &p, Noise: sampler.NewSeeded(*p.Seed), Eval: e, Ban: s.ban, EOG: s.eog}
	for ; st.Index < s.steps; st.Index++ {
		out, err := d.Next(context.Background(), &st)
		if err != nil {
			t.Fatalf("%s, step %d: %v", mode, st.Index, err)
		}
		tokens = append(tokens, out.Token)
		sum.Peeks, sum.Rounds = sum.Peeks+out.Peeks, sum.Rounds+out.Rounds
		if st.Row = out.Row; out.End {
			break
		}
	}
	return tokens, sum
}

func TestLazyIsFull(t *testing.T) { sameText(t, sampler.ModeLazy, sampler.ModeFull) }

func TestBoundedIsFullInverse(t *testing.T) {
	sameText(t, sampler.ModeBounded, sampler.ModeFullInverse)
}

func sameText(t *testing.T, quick, all string) {
	rapid.Check(t, func(t *rapid.T) {
		s := genScene(t)
		a, quickSum := s.decode(t, quick, rapid.IntRange(1, 8).Draw(t, "group"))
		b, allSum := s.decode(t, all, rapid.IntRange(1, 8).Draw(t, "other group"))
		if diff := cmp.Diff(b, a); diff != "" {
			t.Fatalf("%s chose other tokens than %s:\n%s", quick, all, diff)
		}
		if quickSum.Peeks > allSum.Peeks {
			t.Fatalf("%s looked at %d candidates, %s at %d", quick, quickSum.Peeks, all, allSum.Peeks)
		}
	})
}

// TestBoundedAtEveryNumber walks through the unit interval, so that each edge between two tokens is met from both sides.
func TestBoundedAtEveryNumber(t *testing.T) {
	const vocab, grid = 60, 300
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})
	d, err := lookahead.New(vocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, alpha := sampler.Defaults(), 0.3
	p.Alpha = &alpha
	at := func(e *lookaheadtest.Evaluator, text uint64, mode string, u float64) int32 {
		e.Restart(text)
		p.Lookahead = mode
		out, err := d.Next(context.Background(), &lookahead.Step{Row: e.Row(), Params: &p, Noise: fixed(u), Eval: e})
		if err != nil {
			t.Fatal(err)
		}
		return out.Token
	}
	for text := range uint64(12) {
		e := lookaheadtest.New(m, text, 3)
		for i := range grid {
			u := (float64(i) + 0.5) / grid
			if a, b := at(e, text, sampler.ModeBounded, u), at(e, text, sampler.ModeFullInverse, u); a != b {
				t.Fatalf("text %d, number %v: bounded chose %d, full_inverse %d", text, u, a, b)
			}
		}
	}
}
