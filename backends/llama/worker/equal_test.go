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
	rng   *rand.Rand
}

func newFresh(c Cache, nVocab int) *fresh {
	return &fresh{lane: &lane{Cache: c, progress: &Progress{}}, row: make([]float32, nVocab)}
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

// nearTie reports whether noise within the float noise of the model makes the reference choose token too.
func (f *fresh) nearTie(t *testing.T, dec *lookahead.Decoder, lang Language, job *Job, text []int32, step int, token int32) bool {
	defer func() { f.noise = 0 }()
	f.rng = rand.New(rand.NewPCG(1, uint64(step)))
	for _, noise := range []float64{0.002, 0.005, 0.01} {
		f.noise = noise
		for range 20 {
			if f.next(t, dec, lang, job, text, step) == token {
				return true
			}
		}
	}
	return false
}

// tally counts comparisons with the reference.
type tally struct{ tokens, ties, wrong int }

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
		f := newFresh(c, b.model.Info().Vocabulary)
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
					one := compareWithFresh(t, w, f, dec, job)
					sum.tokens, sum.ties, sum.wrong = sum.tokens+one.tokens, sum.ties+one.ties, sum.wrong+one.wrong
				}
			}
		}
		c.Close()
		t.Logf("%s: %v", name, sum)
	}
}

// pairs are the modes that decide alike.
var pairs = [][2]string{{"lazy", "full"}, {"bounded", "full_inverse"}}

func TestModesDecideAlike(t *testing.T) {
	models, prompts, tokens := append([]string{}, toys...), 2, 30
	curves, alphas := []string{"article", "crossfade", "seed"}, []float64{0.3}
	if os.Getenv("QR_VERIFY") != "" {
		models, prompts, alphas = append(models, "smollm2"), 20, []float64{-1, -0.5, 0, 0.3, 0.7, 1}
	}
	for _, name := range models {
		b := load(t, name, 256, 1, engine.F32)
		w := b.worker(t, 256)
		same, split := 0, 0
		for i := range prompts {
			for _, curve := range curves {
				for _, alpha := range alphas {
					for _, pair := range pairs {
						s := firstSplit(t, w, b.tokens(40+i, i), pair, curve, alpha, tokens)
						same += s
						if s < tokens {
							split++
							t.Logf("%s: prompt %d, %s, alpha %v: %v split at token %d", name, i, curve, alpha, pair, s)
						}
					}
				}
			}
		}
		runs := prompts * len(curves) * len(alphas) * len(pairs)
		t.Logf("%s: %d runs, %d tokens alike, %d runs split at a near tie", name, runs, same, split)
		if split*50 > runs {
			t.Errorf("%s: %d of %d runs split: more than near ties explain", name, split, runs)
		}
	}
}

// firstSplit is how many tokens the modes of a pair have in common.
func firstSplit(t *testing.T, w *Worker, tokens []int32, pair [2]string, curve string, alpha float64, most int) int {
	t.Helper()
	var out [2][]int32
	for i, mode := range pair {
		job := looking(seeded(tokens, 9, most), mode, "sample", alpha)
		job.Params.Curve = curve
		out[i] = do(t, w, job).tokens
	}
	if len(out[0]) == len(out[1]) && commonPrefix(out[0], out[1]) == len(out[0]) {
		return most
	}
	return commonPrefix(out[0], out[1])
}
