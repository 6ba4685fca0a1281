//go:build llama

package worker

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/backends/llama/engine"
)

// toys are the models of the four memory types, without a tokenizer, in F32.
var toys = []string{"tiny-llama", "tiny-gemma3", "tiny-lfm2", "tiny-mamba"}

// bench is a loaded model and how its workers are made.
type bench struct {
	model   *engine.Model
	threads *engine.ThreadPool
	gate    Gate
	config  engine.ContextConfig

	canonical bool
}

// envPath is a path that make test-env names.
func envPath(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: run `make test`, or eval \"$(make -s test-env)\" first", name)
	}
	return v
}

// load loads a toy by name, or the small real model as "smollm2".
func load(t testing.TB, name string, context, threads int, kv engine.KVType) *bench {
	t.Helper()
	var path string
	if name == "smollm2" {
		path = envPath(t, "QR_TEST_MODEL")
	} else {
		path = filepath.Join(envPath(t, "QR_TEST_TINY"), name+".gguf")
	}
	if err := engine.Init(slog.LevelError); err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	var err error
	if b.model, err = engine.LoadModel(engine.ModelConfig{Path: path, MMap: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.model.Close)
	if b.threads, err = engine.NewThreadPool(threads, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.threads.Close)
	group := 8
	cells := (context + group + 2 + 255) / 256 * 256
	b.config = engine.ContextConfig{
		Context: max(cells, 512), Batch: 288, UBatch: 288, Sequences: SequencesFor(group), Outputs: SequencesFor(group),
		Threads: threads, KVType: kv, Unified: true, SWAFull: true,
	}
	return b
}

// cache makes a cache of its own.
func (b *bench) cache(t testing.TB) Cache {
	t.Helper()
	c, err := b.model.NewContext(b.config, b.threads)
	if err != nil {
		t.Fatal(err)
	}
	return NewCache(c)
}

// worker makes a worker that runs until the test ends.
func (b *bench) worker(t testing.TB, context int) *Worker {
	t.Helper()
	w := b.idleWorker(t, context)
	runUntilEnd(t, w.Run)
	return w
}

func (b *bench) idleWorker(t testing.TB, context int) *Worker {
	t.Helper()
	info := b.model.Info()
	w, err := New(Config{
		Context: context, Group: 8, Chunk: 256, MinPiece: 32, Memory: info.Memory, Window: info.Window, ForkOK: true, Canonical: b.canonical,
	}, Deps{
		Cache: b.cache(t), Turn: b.gate.Join(), Vocabulary: info.Vocabulary, Language: NewLanguage(b.model.Vocab()), Parse: b.model.ParseChat,
		Entropy: &randomBytes{rng: rand.NewChaCha8([32]byte{1})}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tokens is a prompt of n tokens.
func (b *bench) tokens(n, seed int) []int32 {
	vocab := b.model.Info().Vocabulary
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(20 + (i*i*31+seed*1009+i*7)%(vocab-20))
	}
	return out
}

func TestSelfTestOnModels(t *testing.T) {
	for _, name := range append(toys, "tiny-llama-tok", "tiny-gemma3-tok", "tiny-lfm2-tok", "tiny-mamba-tok", "smollm2") {
		for _, kv := range []engine.KVType{engine.F16, engine.F32} {
			b := load(t, name, 256, 1, kv)
			c := b.cache(t)
			r, err := SelfTest(t.Context(), c, 8, b.tokens(400, 1))
			c.Close()
			if err != nil || !r.ForkOK {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s kv %d:\n\t%s", name, kv, strings.Join(r.Lines, "\n\t"))
		}
	}
}

func TestSeededRequestsRepeatOnModels(t *testing.T) {
	for _, name := range append(toys, "tiny-llama-tok", "tiny-gemma3-tok", "tiny-lfm2-tok", "tiny-mamba-tok", "smollm2") {
		t.Run(name, func(t *testing.T) { repeats(t, load(t, name, 512, 1, engine.F16), answerLength(name)) })
	}
}

// answerLength keeps the one model of real size from taking all the time there is.
func answerLength(name string) int {
	switch {
	case os.Getenv("QR_VERIFY") != "":
		return 30
	case name == "smollm2":
		return 6
	}
	return 16
}

// repeats runs seeded jobs fresh, after other requests, and with a reused prefix; each gives n tokens.
func repeats(t *testing.T, b *bench, n int) {
	w := b.worker(t, 512)
	plain := seeded(b.tokens(170, 1), 5, n)
	ahead := looking(seeded(b.tokens(170, 1), 6, n), "lazy", "sample", 0.3)
	other := looking(seeded(b.tokens(150, 1), 8, n), "bounded", "sample", 0.5)
	chat := looking(seeded(b.tokens(130, 1), 8, n+10), "lazy", "argmax", 0.3)
	chat.Params.Seed = nil
	for i, job := range []*Job{plain, ahead} {
		fresh := do(t, b.worker(t, 512), job)
		reused := 0
		for step, before := range []*Job{job, other, chat, plain, seeded(b.tokens(77, 2), 1, 5)} {
			do(t, w, before)
			got := do(t, w, job)
			reused += got.cached
			if got.text != fresh.text || !equalTokens(got.tokens, fresh.tokens) {
				t.Errorf("job %d after request %d, %d tokens reused: another text\n%v\n%v", i, step, got.cached, fresh.tokens, got.tokens)
			}
		}
		if reused == 0 && !w.policy.recurs() {
			t.Errorf("job %d: no prefix was ever reused", i)
		}
	}
}

func equalTokens(a, b []int32) bool { return len(a) == len(b) && commonPrefix(a, b) == len(a) }

// TestAnswersAreTakenUpOnModels: a seeded or greedy answer that another worker takes up is the one that an undisturbed run gives, on every kind
// of memory and on a quantised model, whose kernels differ by the size of a batch. That worker has run something else before.
func TestAnswersAreTakenUpOnModels(t *testing.T) {
	for _, name := range append(toys, "smollm2") {
		t.Run(name, func(t *testing.T) {
			b := load(t, name, 512, 2, engine.F16)
			w, other := b.worker(t, 512), b.worker(t, 512)
			n := answerLength(name)
			greedy := seeded(b.tokens(70, 1), 5, n)
			greedy.Params.Seed, greedy.Params.Temperature = nil, 0
			do(t, other, looking(seeded(b.prompt(t, 4), 8, 5), "bounded", "sample", 0.9))
			jobs := []*Job{seeded(b.tokens(90, 1), 5, n), greedy, looking(seeded(b.tokens(90, 1), 5, n), "full", "argmax", 0.6)}
			for i := range takenUp(name) {
				jobs = append(jobs, looking(seeded(b.prompt(t, i), int64(i), 3*n), "lazy", "sample", 0.3))
			}
			for i, job := range jobs {
				t.Log(i)
				halves(t, w, other, job, max(n/2, job.MaxTokens/3))
			}
		})
	}
}

// takenUp is how many answers that look ahead are taken up.
func takenUp(name string) int {
	switch {
	case name != "smollm2":
		return 3
	case os.Getenv("QR_VERIFY") != "":
		return 10
	}
	return 1
}
