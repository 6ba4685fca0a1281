//go:build llama

package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// fresh is a lookahead.Evaluator that can't get a sequence wrong: it decodes every candidate behind the whole text in an empty
// cache. With noise, it shifts every logit by up to that much, as float noise does.
type fresh struct {
	lane  *lane
	text  []int32
	row   []float32
	noise float64
	most  float64 // the model's own noise
	rng   *rand.Rand
}

// newFresh makes the reference for a model. The noise of a quantised one is that of its kernels, which differ by the size of
// a batch: about 0.06 of a logit in the mean and 0.3 at most, as the self-test shows.
func newFresh(c Cache, b *bench) *fresh {
	f := &fresh{lane: &lane{Cache: c, progress: &Progress{}}, row: make([]float32, b.model.Info().Vocabulary), most: 0.01}
	if b.model.Info().HasTokenizer {
		f.most = 0.3
	}
	return f
}

func (f *fresh) Group() int { return 8 }
func (f *fresh) Hold(int32) {}

func (f *fresh) Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error {
	for i, token := range tokens {
		if err := f.decode(ctx, append(f.text, token)); err != nil {
			return err
		}
		visit(i, f.row)
	}
	return nil
}

func (f *fresh) Commit(ctx context.Context, token int32) ([]float32, error) {
	f.text = append(f.text, token)
	return f.row, f.decode(ctx, f.text)
}

// decode computes the row that follows text.
func (f *fresh) decode(ctx context.Context, text []int32) error {
	f.lane.Clear()
	p := policy{memory: engine.MemoryAttention, chunk: 256, minPiece: 32}
	last := 0
	for start := 0; start < len(text); {
		end := p.pieceEnd(start, len(text))
		f.lane.Reset()
		for i := start; i < end; i++ {
			if err := f.lane.Add(text[i], i, 0, i == len(text)-1); err != nil {
				return err
			}
		}
		if err := f.lane.decode(ctx); err != nil {
			return err
		}
		last, start = end-start-1, end
	}
	row, err := f.lane.Logits(last)
	if err != nil {
		return err
	}
	copy(f.row, row)
	for i := range f.row {
		if f.noise > 0 {
			f.row[i] += float32(f.noise * (2*f.rng.Float64() - 1))
		}
	}
	return nil
}

// next decides the token that follows text.
func (f *fresh) next(t *testing.T, dec *lookahead.Decoder, lang Language, job *Job, text []int32, step int) int32 {
	t.Helper()
	f.text = append(f.text[:0], text...)
	if err := f.decode(t.Context(), f.text); err != nil {
		t.Fatal(err)
	}
	dec.Reset()
	row := append([]float32(nil), f.row...)
	out, err := dec.Next(t.Context(), &lookahead.Step{
		Index: step, Row: row, Params: &job.Params, Noise: sampler.NewSeeded(*job.Params.Seed), Eval: f, Ban: lang.Think, EOG: lang.EOG,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Token
}

// nearTie reports whether a disturbance of the size of the model's float noise makes the reference choose token.
func (f *fresh) nearTie(t *testing.T, dec *lookahead.Decoder, lang Language, job *Job, text []int32, step int, token int32) bool {
	t.Helper()
	defer func() { f.noise = 0 }()
	f.rng = rand.New(rand.NewPCG(1, uint64(step)))
	for i, part := range []float64{0, 0.25, 0.5, 1} {
		f.noise = part * f.most
		for range 1 + 8*min(i, 1) {
			if f.next(t, dec, lang, job, text, step) == token {
				return true
			}
		}
	}
	return false
}

// tally counts comparisons with the reference.
type tally struct{ tokens, ties, wrong int }

func (c *tally) add(d tally) {
	c.tokens, c.ties, c.wrong = c.tokens+d.tokens, c.ties+d.ties, c.wrong+d.wrong
}

func (c tally) String() string {
	return fmt.Sprintf("%d tokens compared, %d near ties, %d wrong", c.tokens, c.ties, c.wrong)
}

// compareWithFresh decides each token of a run again from an empty cache.
func compareWithFresh(t *testing.T, w *Worker, f *fresh, dec *lookahead.Decoder, job *Job) (c tally) {
	t.Helper()
	got := do(t, w, job)
	text := append([]int32(nil), job.Tokens...)
	for step, token := range got.tokens {
		c.tokens++
		if want := f.next(t, dec, w.lang, job, text, step); want != token {
			if f.nearTie(t, dec, w.lang, job, text, step, token) {
				c.ties++
			} else {
				c.wrong++
				t.Errorf("token %d is %d; from a fresh context %d", step, token, want)
			}
		}
		text = append(text, token)
	}
	return c
}

func TestEqualsFreshContexts(t *testing.T) {
	tokens, alphas := 6, []float64{0.3}
	if os.Getenv("QR_VERIFY") != "" {
		tokens, alphas = 40, []float64{-1, -0.5, 0, 0.3, 0.7, 1}
	}
	for _, name := range toys {
		b := load(t, name, 256, 1, engine.F32)
		c := b.cache(t)
		f := newFresh(c, b)
		dec, err := lookahead.New(b.model.Info().Vocabulary, lookahead.Config{})
		if err != nil {
			t.Fatal(err)
		}
		w := b.worker(t, 256)
		var sum tally
		for i, mode := range []string{"lazy", "full", "bounded", "full_inverse"} {
			for _, choice := range []string{"sample", "argmax"} {
				for _, alpha := range alphas {
					job := looking(seeded(b.tokens(50+10*i, i), int64(i), tokens), mode, choice, alpha)
					sum.add(compareWithFresh(t, w, f, dec, job))
				}
			}
		}
		c.Close()
		t.Logf("%s: %v", name, sum)
	}
}

// openings are prompts for the real model, whose rows on random tokens are like no text's.
var openings = []string{
	"The capital of France is", "Once upon a time there was a", "To make bread you need", "def fibonacci(n):",
	"The moon is", "Dear Sir or Madam,", "In 1969, two men", "Q: What is a prime number?\nA:",
	"The best way to learn a language is", "She opened the door and", "1, 2, 3, 4,", "Water boils at",
	"My favourite colour is", "Es war einmal", "The city lay silent under", "import numpy as np\n",
	"A recipe for tomato soup:", "The old man looked at the sea and", "Physics is the study of", "List three fruits:\n1.",
}

// prompt is text for a model that knows some, else tokens.
func (b *bench) prompt(t *testing.T, i int) []int32 {
	t.Helper()
	if !b.model.Info().HasTokenizer {
		return b.tokens(40+i, i)
	}
	tokens, err := b.model.Tokenize(openings[i], true, false)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// pairs are the modes that decide alike.
var pairs = [][2]string{{"lazy", "full"}, {"bounded", "full_inverse"}}

// TestModesDecideAlike compares pairs of modes token for token. With QR_EXACT, for a build without batch-dependent kernels, workers
// put tokens in canonical cells and hardly a split is excused. Only there the real model is compared at length: with the ordinary kernels
// of a quantised model nobody can tell what a split comes from.
func TestModesDecideAlike(t *testing.T) {
	alphas := []float64{0.3}
	verify, exact := os.Getenv("QR_VERIFY") != "", os.Getenv("QR_EXACT") != ""
	if verify {
		alphas = []float64{-1, -0.5, 0, 0.3, 0.7, 1}
	}
	for _, name := range append([]string{"smollm2"}, toys...) {
		prompts, tokens := 1, 20
		switch {
		case exact && name == "smollm2":
			prompts, tokens = 20, 16
		case name == "smollm2" && !verify:
			prompts, tokens = 1, 6
		case name == "smollm2":
			prompts, tokens = 1, 10
		case verify:
			prompts, tokens = 20, 30
		}
		b := load(t, name, 256, 1, engine.F32)
		b.canonical = exact
		sum := modesAlike(t, b, prompts, tokens, alphas)
		t.Logf("%s: %v", name, sum)
		if exact && sum.ties > sum.tokens/1000 {
			t.Errorf("%s: %d splits where there is hardly any noise to blame", name, sum.ties)
		}
	}
}

// modesAlike runs each pair of modes on every prompt and looks into every split.
func modesAlike(t *testing.T, b *bench, prompts, tokens int, alphas []float64) (sum tally) {
	t.Helper()
	c := b.cache(t)
	defer c.Close()
	f, w := newFresh(c, b), b.worker(t, 256)
	dec, err := lookahead.New(b.model.Info().Vocabulary, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range prompts {
		for _, curve := range []string{"article", "crossfade", "seed"} {
			for _, alpha := range alphas {
				for _, pair := range pairs {
					jobs := [2]*Job{}
					for side, mode := range pair {
						jobs[side] = looking(seeded(b.prompt(t, i), 9, tokens), mode, "sample", alpha)
						jobs[side].Params.Curve = curve
					}
					sum.add(comparePair(t, w, f, dec, jobs))
				}
			}
		}
	}
	return sum
}

// comparePair runs two jobs that should choose alike. Where they split, both choices must be within noise of the reference.
func comparePair(t *testing.T, w *Worker, f *fresh, dec *lookahead.Decoder, jobs [2]*Job) (c tally) {
	t.Helper()
	a, b := do(t, w, jobs[0]).tokens, do(t, w, jobs[1]).tokens
	c.tokens = commonPrefix(a, b)
	if equalTokens(a, b) {
		return c
	}
	text := append(append([]int32(nil), jobs[0].Tokens...), a[:c.tokens]...)
	for _, side := range [][]int32{a, b} {
		// An answer that ended here chose a token that ends a text.
		if c.tokens < len(side) && !f.nearTie(t, dec, w.lang, jobs[1], text, c.tokens, side[c.tokens]) {
			c.wrong++
			p := jobs[0].Params
			t.Errorf("%s and %s, %s, alpha %v: split at token %d, and %d is not within noise", p.Lookahead, jobs[1].Params.Lookahead,
				p.Curve, *p.Alpha, c.tokens, side[c.tokens])
		}
	}
	c.ties++
	return c
}
