package worker

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

var memories = []engine.Memory{
	engine.MemoryAttention, engine.MemorySlidingWindow, engine.MemoryHybrid, engine.MemoryRecurrent,
}

func fakeMemory(m engine.Memory) *fakeCache {
	return newFakeCache(m == engine.MemoryHybrid || m == engine.MemoryRecurrent)
}

// prompt is n tokens that depend on seed.
func prompt(n, seed int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(10 + (i*i*31+seed*17+i)%(fakeVocab-10))
	}
	return tokens
}

// seeded is a job of plain decoding.
func seeded(tokens []int32, seed int64, most int) *Job {
	p := sampler.Defaults()
	p.Seed = &seed
	return &Job{ID: "test", Tokens: tokens, MaxTokens: most, Params: p}
}

// looking makes a job look ahead.
func looking(j *Job, mode, choice string, alpha float64) *Job {
	j.Params.Alpha, j.Params.Lookahead, j.Params.LookaheadChoice = &alpha, mode, choice
	return j
}

// answered is what came of a job.
type answered struct {
	tokens  []int32
	text    string
	events  int
	cached  int
	content int // bytes that the tokens of a run before have made
	*backends.Result
}

// doer is a worker or a pool.
type doer interface {
	Do(context.Context, *Job, func(backends.Event) error) (*backends.Result, error)
}

func do(t testing.TB, w doer, job *Job) answered {
	t.Helper()
	a, err := try(t.Context(), w, job)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(ctx context.Context, w doer, job *Job) (a answered, err error) {
	var text strings.Builder
	a.Result, err = w.Do(ctx, job, func(e backends.Event) error {
		a.events++
		if e.Started != nil {
			a.cached, a.content = e.Started.CachedTokens, e.Started.Content
		}
		a.tokens = append(a.tokens, e.Tokens...)
		text.WriteString(e.Content)
		return nil
	})
	a.text = text.String()
	return a, err
}

// reference decides the same tokens on an evaluator that has no sequences to get wrong.
func reference(t *testing.T, job *Job) []int32 {
	t.Helper()
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: fakeVocab})
	eval := lookaheadtest.New(m, fakeSeed, 4)
	for _, token := range job.Tokens {
		if _, err := eval.Commit(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	eval.Tokens = nil
	dec, err := lookahead.New(fakeVocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dec.Reset()
	lang := NewLanguage(fakeVocabulary())
	step := lookahead.Step{
		Row: eval.Row(), Params: &job.Params, Noise: sampler.NewSeeded(*job.Params.Seed), Eval: eval, Ban: lang.Think, EOG: lang.EOG,
	}
	for step.Index = range job.MaxTokens {
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

// checkSettled fails unless the cache holds one sequence: the tokens that the worker believes it holds.
func checkSettled(t *testing.T, w *Worker, c *fakeCache) {
	t.Helper()
	for id, tokens := range c.seqs {
		if id != w.main && len(tokens) > 0 {
			t.Errorf("sequence %d still holds %d tokens", id, len(tokens))
		}
	}
	if diff := cmp.Diff(w.held.tokens, c.seqs[w.main]); diff != "" && len(w.held.tokens)+len(c.seqs[w.main]) > 0 {
		t.Errorf("main sequence (-believed +held):\n%s", diff)
	}
}

func TestForksDecideAsTheReference(t *testing.T) {
	for _, memory := range memories {
		for _, mode := range []string{"lazy", "full", "full_inverse", "bounded"} {
			for _, choice := range []string{"sample", "argmax"} {
				for _, alpha := range []float64{-1, 0.3, 1} {
					c := fakeMemory(memory)
					w := newFakeWorker(t, c, fakeConfig(memory))
					job := looking(seeded(prompt(100, 1), 5, 25), mode, choice, alpha)
					got := do(t, w, job)
					if diff := cmp.Diff(reference(t, job), got.tokens); diff != "" {
						t.Errorf("%s %s %s %v: (-reference +forks)\n%s", memory, mode, choice, alpha, diff)
					}
					checkSettled(t, w, c)
				}
			}
		}
	}
}

func TestInPlaceDecidesAsTheReference(t *testing.T) {
	for _, mode := range []string{"lazy", "full", "bounded"} {
		c, cfg := newFakeCache(false), fakeConfig(engine.MemoryAttention)
		cfg.ForkOK = false
		w := newFakeWorker(t, c, cfg)
		job := looking(seeded(prompt(100, 1), 5, 40), mode, "sample", 0.3)
		if diff := cmp.Diff(reference(t, job), do(t, w, job).tokens); diff != "" {
			t.Errorf("%s: (-reference +in place)\n%s", mode, diff)
		}
		checkSettled(t, w, c)
	}
}

func TestNoForksNoLookahead(t *testing.T) {
	cfg := fakeConfig(engine.MemoryRecurrent)
	cfg.ForkOK = false
	w := newFakeWorker(t, newFakeCache(true), cfg)
	_, err := try(t.Context(), w, looking(seeded(prompt(9, 1), 5, 4), "lazy", "sample", 0.3))
	var e *backends.Error
	if !errors.As(err, &e) || e.Code != "lookahead_unavailable" {
		t.Errorf("got %v", err)
	}
	if got := do(t, w, seeded(prompt(9, 1), 5, 4)); got.Usage.CompletionTokens != 4 {
		t.Errorf("plain decoding gave %+v", got.Usage)
	}
}

func TestSeededRequestsRepeat(t *testing.T) {
	for _, memory := range memories {
		c := fakeMemory(memory)
		w := newFakeWorker(t, c, fakeConfig(memory))
		job := looking(seeded(prompt(150, 1), 5, 30), "lazy", "sample", 0.3)
		want := do(t, w, job)
		for name, before := range map[string]*Job{
			"after itself": job, "after another": seeded(prompt(90, 2), 3, 20),
			"after half of it": looking(seeded(prompt(100, 1), 8, 20), "lazy", "argmax", 0.7),
		} {
			do(t, w, before)
			got := do(t, w, job)
			if diff := cmp.Diff(want.tokens, got.tokens); diff != "" {
				t.Errorf("%s, %s: (-first +now)\n%s", memory, name, diff)
			}
			if got.cached%64 != 0 {
				t.Errorf("%s, %s: %d tokens reused, want a multiple of 64", memory, name, got.cached)
			}
			checkSettled(t, w, c)
		}
	}
}

func TestPrefixIsReused(t *testing.T) {
	for _, memory := range memories {
		c := fakeMemory(memory)
		w := newFakeWorker(t, c, fakeConfig(memory))
		first := seeded(prompt(90, 1), 5, 20)
		first.Params.Seed = nil
		turn := do(t, w, first)
		// The next turn of a conversation: all of the last one, and more.
		next := seeded(append(append(prompt(90, 1), turn.tokens...), 3, 4, 5), 5, 20)
		next.Params.Seed = nil
		got := do(t, w, next)
		// The last token of the first turn was chosen but nothing followed it, so it was not decoded.
		if want := 90 + len(turn.tokens) - 1; got.cached != want || got.Usage.CachedTokens != want {
			t.Errorf("%s: %d tokens reused, want %d", memory, got.cached, want)
		}
		checkSettled(t, w, c)
	}
}

func TestWindowThatIsGoneIsNotReused(t *testing.T) {
	c := newFakeCache(false)
	w := newFakeWorker(t, c, fakeConfig(engine.MemorySlidingWindow))
	do(t, w, seeded(prompt(200, 1), 5, 5))
	c.window = 10
	if got := do(t, w, seeded(prompt(180, 1), 5, 5)); got.cached != 0 {
		t.Errorf("seeded: %d tokens reused of a cache that has only 10", got.cached)
	}
	job := seeded(prompt(180, 1)[:150], 5, 5)
	job.Params.Seed = nil
	if got := do(t, w, job); got.cached != 0 {
		t.Errorf("unseeded: %d tokens reused of a cache that has only 10", got.cached)
	}
}

func TestEndings(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	whole := do(t, w, seeded(prompt(20, 1), 5, 60))
	if !utf8.ValidString(whole.text) || whole.Reason != backends.ReasonLength || whole.Usage.CompletionTokens != 60 {
		t.Errorf("whole answer: %q, %s, %+v", whole.text, whole.Reason, whole.Usage)
	}
	stop := regexp.MustCompile(`\d w\d`).FindString(whole.text[100:]) // over the border of two tokens
	job := seeded(prompt(20, 1), 5, 60)
	job.Stops = []string{stop}
	cut := do(t, w, job)
	if want, _, _ := strings.Cut(whole.text, stop); cut.text != want || cut.Reason != backends.ReasonStop {
		t.Errorf("stopped at %q: got %q, %s; want %q", stop, cut.text, cut.Reason, want)
	}
	job.IncludeStop = true
	if cut = do(t, w, job); !strings.HasSuffix(cut.text, stop) {
		t.Errorf("with its stop string: %q", cut.text)
	}
	rest := do(t, w, seeded(prompt(390, 1), 5, 1000))
	if rest.Reason != backends.ReasonLength || rest.Usage.CompletionTokens != 10 {
		t.Errorf("rest of the context: %s, %+v", rest.Reason, rest.Usage)
	}
	_, err := try(t.Context(), w, seeded(prompt(400, 1), 5, 1))
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.KindTooLong {
		t.Errorf("a prompt as long as the context: %v", err)
	}
}

func TestEndOfGenerationIsNoText(t *testing.T) {
	for _, mode := range []string{"", "lazy", "bounded"} {
		c := newFakeCache(false)
		w := newFakeWorker(t, c, fakeConfig(engine.MemoryAttention))
		ended := 0
		for seed := int64(0); seed < 40 && ended < 2; seed++ {
			job := seeded(prompt(30, int(seed)), seed, 300)
			if mode != "" {
				job = looking(job, mode, "sample", 0.3)
			}
			got := do(t, w, job)
			if got.Reason == backends.ReasonStop {
				ended++
			}
			if strings.Contains(got.text, "<eog>") || got.Usage.CompletionTokens != len(got.tokens) {
				t.Errorf("%s: %q, %+v", mode, got.text, got.Usage)
			}
			checkSettled(t, w, c)
		}
		if ended == 0 {
			t.Errorf("%q: no text ended by itself: the test shows nothing", mode)
		}
	}
}

func TestThinkBan(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	yes, no := true, false
	for name, c := range map[string]struct {
		job  *Job
		want bool
	}{
		"plain":              {seeded(nil, 1, 1), false},
		"plain, asked for":   {&Job{Params: sampler.Params{Decoder: "plain", ThinkBan: &yes}}, true},
		"lookahead":          {looking(seeded(nil, 1, 1), "lazy", "sample", 0), true},
		"lookahead, refused": {&Job{Params: sampler.Params{Decoder: "lookahead", ThinkBan: &no}}, false},
		"part of the format": {&Job{Params: sampler.Params{Decoder: "lookahead"}, Allow: []int32{fakeThink}}, false},
		"told to think":      {&Job{Params: sampler.Params{Decoder: "lookahead"}, Thinking: true}, false},
	} {
		if got := w.ban(c.job).Has(fakeThink); got != c.want {
			t.Errorf("%s: banned is %v, want %v", name, got, c.want)
		}
	}
	if w.lang.Think.Has(fakeEOG) {
		t.Error("the end of a text is banned")
	}
}

func TestEntropyThatFails(t *testing.T) {
	deps := fakeDeps(t, newFakeCache(false))
	deps.Entropy = &randomBytes{err: errors.New("device unplugged")}
	w, err := New(fakeConfig(engine.MemoryAttention), deps)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, w.Run)
	job := seeded(prompt(20, 1), 0, 5)
	job.Params.Seed = nil
	_, err = try(t.Context(), w, job)
	var e *backends.Error
	if !errors.As(err, &e) || e.Kind != backends.KindEntropy || !strings.Contains(e.Message, "device unplugged") {
		t.Errorf("got %v", err)
	}
}

func TestStatsOfAnAnswer(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	job := looking(seeded(prompt(20, 1), 5, 30), "lazy", "sample", 0.3)
	s := do(t, w, job).Stats
	if s.Decoder != "lookahead" || s.Mode != "lazy" || s.Peeks < 30 || *s.AlphaMin != 0.3 || *s.AlphaMax != 0.3 || s.EntropySource != "seed" {
		t.Errorf("got %+v", s)
	}
	job.Params.Seed = nil
	s = do(t, w, job).Stats
	if s.EntropySource != "test" || s.USource != "zscore_mean" || s.EntropyBytes == 0 {
		t.Errorf("got %+v", s)
	}
}
