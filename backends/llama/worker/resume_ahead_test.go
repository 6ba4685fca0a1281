package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// batched makes rows depend on the batch that they are computed in, as those of real kernels do, only more so. Other processors have other kernels.
func batched(c *fakeCache, processor int) *fakeCache {
	c.spoil = func(_ int, row []float32) {
		size := min(len(c.batch), 8) // pieces of a prompt are all alike
		for i := range row {
			row[i] += float32(math.Sin(float64((i+1)*(size*7+processor*13)))) * 4
		}
	}
	return c
}

// aheadJobs are jobs whose answers come out the same every time.
func aheadJobs() map[string]*Job {
	greedy := looking(seeded(prompt(70, 2), 5, 24), "lazy", "sample", 0.3)
	greedy.Params.Seed, greedy.Params.Temperature = nil, 0
	argmax := looking(seeded(prompt(40, 3), 5, 24), "lazy", "argmax", 0.6)
	argmax.Params.Seed = nil
	strategy := looking(seeded(prompt(33, 4), 9, 24), "lazy", "sample", 0.5)
	strategy.Params.Strategy, strategy.Params.RepetitionPenalty = "edt", 1.3
	wave := looking(seeded(prompt(90, 5), 2, 24), "bounded", "sample", 0)
	wave.Params.WavePeriod, wave.Params.WaveAmplitude = 7, 0.8
	return map[string]*Job{
		"lazy": looking(seeded(prompt(150, 1), 5, 24), "lazy", "sample", 0.3), "full": looking(seeded(prompt(20, 1), 6, 24), "full", "sample", -0.4),
		"greedy": greedy, "argmax": argmax, "strategy": strategy, "wave": wave,
	}
}

// TestChoicesAreRepeated: what looks ahead is taken up by the same batches as those of the first run.
func TestChoicesAreRepeated(t *testing.T) {
	for _, memory := range memories {
		w := newFakeWorker(t, batched(fakeMemory(memory), 0), fakeConfig(memory))
		other := newFakeWorker(t, batched(fakeMemory(memory), 0), fakeConfig(memory))
		for name, job := range aheadJobs() {
			t.Run(string(memory)+", "+name, func(t *testing.T) {
				do(t, other, looking(seeded(prompt(31, 9), 8, 6), "bounded", "sample", 0.9))
				halves(t, w, other, job, 5)
			})
		}
	}
	cfg := fakeConfig(engine.MemoryAttention)
	cfg.ForkOK = false
	w, other := newFakeWorker(t, batched(newFakeCache(false), 0), cfg), newFakeWorker(t, batched(newFakeCache(false), 0), cfg)
	t.Run("in place", func(t *testing.T) { halves(t, w, other, aheadJobs()["lazy"], 5) })
}

// TestRepeatedChoicesAreNotCounted: every count is of what was chosen since.
func TestRepeatedChoicesAreNotCounted(t *testing.T) {
	w := newFakeWorker(t, batched(newFakeCache(false), 0), fakeConfig(engine.MemoryAttention))
	job := aheadJobs()["wave"]
	job.Params.DiagnosticMode = true
	whole := do(t, w, job)
	const n = 10
	rest := *job
	rest.Delivered = whole.tokens[:n]
	tokens := w.progress.tokens.Load()
	got := do(t, w, &rest)
	if more := w.progress.tokens.Load() - tokens; int(more) != len(got.tokens) {
		t.Errorf("%d tokens are counted as chosen, of %d", more, len(got.tokens))
	}
	peeks := 0
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range whole.Stats.Records[n:] {
		peeks += r.Lookahead.Peeks
		low, high = min(low, r.Lookahead.Alpha), max(high, r.Lookahead.Alpha)
	}
	s := got.Stats
	if s.Peeks != peeks || s.Tokens != whole.Stats.Tokens-n || *s.AlphaMin != low || *s.AlphaMax != high || s.PeeksPerToken != float64(peeks)/float64(s.Tokens) {
		t.Errorf("%d peeks, %d tokens, alpha from %v to %v; want %d, %d, %v to %v", s.Peeks, s.Tokens, *s.AlphaMin, *s.AlphaMax, peeks, whole.Stats.Tokens-n, low, high)
	}
	if diff := cmp.Diff(told(t, whole.Stats.Records[n:]), told(t, s.Records)); diff != "" {
		t.Errorf("records (-undisturbed +got)\n%s", diff)
	}
}

// told is what records say but for times.
func told(t *testing.T, all []sampler.Record) (out []string) {
	t.Helper()
	for _, r := range all {
		r.TotalMS, r.TimestampNS = 0, 0
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// TestNothingIsDrawnAgain: choices without a seed are repeated without their source.
func TestNothingIsDrawnAgain(t *testing.T) {
	deps := fakeDeps(t, newFakeCache(false))
	deps.Entropy = &randomBytes{err: errors.New("device unplugged")}
	w, err := New(fakeConfig(engine.MemoryAttention), deps)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, w.Run)
	other := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	for _, name := range []string{"greedy", "argmax"} {
		halves(t, other, w, aheadJobs()[name], 6)
	}
}

// rest is what the reference chooses behind tokens that are there.
func rest(t *testing.T, job *Job) []int32 {
	t.Helper()
	eval := lookaheadtest.New(lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: fakeVocab}), fakeSeed, 4)
	for _, token := range append(append([]int32(nil), job.Tokens...), job.Delivered...) {
		if _, err := eval.Commit(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	eval.Tokens = nil
	dec, err := lookahead.New(fakeVocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	lang := NewLanguage(fakeVocabulary())
	step := lookahead.Step{
		Row: eval.Row(), Params: &job.Params, Noise: sampler.NewSeeded(*job.Params.Seed), Eval: eval, Ban: lang.Think, EOG: lang.EOG,
	}
	for step.Index = len(job.Delivered); step.Index < job.MaxTokens; step.Index++ {
		out, err := dec.Next(t.Context(), &step)
		if err != nil {
			t.Fatal(err)
		}
		if out.End {
			break
		}
		step.Row = out.Row
	}
	return eval.Tokens
}

// TestOtherProcessor: tokens that this worker would not have chosen stand all the same, and the answer goes on behind them.
func TestOtherProcessor(t *testing.T) {
	for _, memory := range memories {
		c := fakeMemory(memory)
		w := newFakeWorker(t, c, fakeConfig(memory))
		for name, cached := range map[string]bool{"fresh": false, "cached": true} {
			job := looking(seeded(prompt(150, 1), 5, 30), "lazy", "sample", 0.3)
			own := do(t, w, job).tokens
			for same := range 4 {
				if !cached {
					do(t, w, seeded(prompt(60, 8), 1, 3))
				}
				job.Delivered = append(append([]int32(nil), own[:same*3]...), prompt(4, 3+same)...)
				got := do(t, w, job)
				if diff := cmp.Diff(rest(t, job), got.tokens); diff != "" {
					t.Errorf("%s, %s, after %d that are the same (-reference +got)\n%s", memory, name, same*3, diff)
				}
				n := len(got.tokens)
				if got.Usage.CompletionTokens != len(job.Delivered)+n || got.Usage.PromptTokens != 150 || got.Usage.CachedTokens != got.cached || got.Stats.Tokens < n || got.Stats.Tokens > n+1 {
					t.Errorf("%s, %s: %+v, %d tokens are counted of %d", memory, name, got.Usage, got.Stats.Tokens, n)
				}
				if reused := cached && memory == engine.MemoryAttention; reused != (got.cached > 0) && memory != engine.MemorySlidingWindow {
					t.Errorf("%s, %s: %d tokens of the prompt were reused", memory, name, got.cached)
				}
				checkSettled(t, w, c)
			}
		}
	}
}

// TestAnotherProcessorsDigits: where rows differ, the answer that another one began is gone on with to its end.
func TestAnotherProcessorsDigits(t *testing.T) {
	differ := 0
	for _, memory := range memories {
		w := newFakeWorker(t, batched(fakeMemory(memory), 0), fakeConfig(memory))
		c := batched(fakeMemory(memory), 1)
		other := newFakeWorker(t, c, fakeConfig(memory))
		for name, job := range aheadJobs() {
			whole := do(t, w, job)
			part := *job
			part.Delivered = whole.tokens[:len(whole.tokens)/2]
			got := do(t, other, &part)
			if want := len(part.Delivered) + len(got.tokens); got.Usage.CompletionTokens != want || got.Reason == backends.ReasonLength && want != job.MaxTokens {
				t.Errorf("%s, %s: %+v, %s", memory, name, got.Usage, got.Reason)
			}
			if fmt.Sprint(got.tokens) != fmt.Sprint(whole.tokens[len(part.Delivered):]) {
				differ++
			}
			checkSettled(t, other, c)
		}
	}
	if differ == 0 {
		t.Error("the processors agree: the test shows nothing")
	}
}

// TestNothingLeftToRepeat: an answer that is whole already costs no choices.
func TestNothingLeftToRepeat(t *testing.T) {
	c := newFakeCache(false)
	w := newFakeWorker(t, c, fakeConfig(engine.MemoryAttention))
	job := aheadJobs()["full"]
	job.Delivered = do(t, w, job).tokens
	before := w.progress.peeks.Load()
	if got := do(t, w, job); got.Reason != backends.ReasonLength || got.Usage.CompletionTokens != 24 || len(got.tokens) != 0 || w.progress.peeks.Load() != before {
		t.Errorf("%+v, %d peeks", got, w.progress.peeks.Load()-before)
	}
	checkSettled(t, w, c)
}

func TestCancelledWhileRepeating(t *testing.T) {
	for _, memory := range memories {
		c := fakeMemory(memory)
		w := newFakeWorker(t, c, fakeConfig(memory))
		job := aheadJobs()["lazy"]
		job.Delivered = do(t, w, job).tokens[:15]
		want := do(t, w, job).tokens
		for at := 1; at < 20; at += 4 {
			ctx, cancel := context.WithCancel(t.Context())
			left := at
			c.onDecode = func(int) error {
				if left--; left == 0 {
					cancel()
				}
				return nil
			}
			_, err := try(ctx, w, job)
			cancel()
			if !errors.Is(err, context.Canceled) || c.tokens() != 0 {
				t.Errorf("%s, cancelled at decode %d: %v, %d tokens are left in the cache", memory, at, err, c.tokens())
			}
			c.onDecode = nil
		}
		if diff := cmp.Diff(want, do(t, w, job).tokens); diff != "" {
			t.Errorf("%s: after the cancels (-before +after)\n%s", memory, diff)
		}
	}
}
