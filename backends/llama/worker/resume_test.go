package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	"qr-gateway/sampler/temper"
)

// halves runs a job and then, for each place in it, takes it up there in a worker that knows nothing of the first run.
func halves(t *testing.T, w *Worker, other doer, job *Job, each int) {
	t.Helper()
	var before []string // text that the client has with so many tokens
	var tokens []int32
	text := ""
	_, err := w.Do(t.Context(), job, func(e backends.Event) error {
		text += e.Content
		for range e.Tokens {
			before = append(before, text)
		}
		tokens = append(tokens, e.Tokens...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= len(tokens); n += each {
		rest := *job
		rest.Delivered = tokens[:n]
		got, err := try(t.Context(), other, &rest)
		if err != nil {
			t.Fatalf("taken up at %d: %v", n, err)
		}
		if diff := cmp.Diff(tokens[n:], append([]int32{}, got.tokens...)); diff != "" {
			t.Fatalf("taken up at %d (-undisturbed +got)\n%s", n, diff)
		}
		if whole := text[:got.content] + got.text; got.content > len(before[n-1]) || whole != text || got.Usage.CompletionTokens != len(tokens) || got.Usage.PromptTokens != len(job.Tokens) {
			t.Fatalf("taken up at %d: %+v and the text %q, want %q", n, got.Usage, whole, text)
		}
	}
}

func TestAnswersAreTakenUp(t *testing.T) {
	for _, memory := range memories {
		w := newFakeWorker(t, fakeMemory(memory), fakeConfig(memory))
		other := newFakeWorker(t, fakeMemory(memory), fakeConfig(memory))
		greedy := seeded(prompt(40, 2), 5, 24)
		greedy.Params.Seed, greedy.Params.Temperature = nil, 0
		penalised := seeded(prompt(40, 3), 5, 24)
		penalised.Params.PresencePenalty, penalised.Params.RepetitionPenalty = 1.5, 1.3
		stopped := seeded(prompt(20, 1), 5, 60)
		stopped.Stops = []string{do(t, w, stopped).text[120:123]}
		for name, job := range map[string]*Job{
			"seeded": seeded(prompt(90, 1), 5, 30), "greedy": greedy, "penalised": penalised, "stopped": stopped,
			"looking ahead": looking(seeded(prompt(150, 1), 5, 20), "lazy", "sample", 0.3),
			"argmax":        looking(seeded(prompt(30, 1), 5, 20), "full", "argmax", 0.6),
		} {
			t.Run(string(memory)+", "+name, func(t *testing.T) { halves(t, w, other, job, 3) })
		}
	}
}

// TestStrategiesAreTakenUp: a strategy that learns from each row knows after all of them what it knew before.
func TestStrategiesAreTakenUp(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	other := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	for _, kind := range temper.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			job := seeded(prompt(40, 1), 5, 20)
			job.Params.Strategy = kind.Name
			halves(t, w, other, job, 7)
		})
	}
}

// TestTakenUpInOneGo: what no seed and no strategy depends on is decoded as a prompt is.
func TestTakenUpInOneGo(t *testing.T) {
	c := newFakeCache(false)
	w := newFakeWorker(t, c, fakeConfig(engine.MemoryAttention))
	job := seeded(prompt(40, 1), 5, 60)
	job.Params.Seed = nil
	job.Delivered = prompt(50, 4)
	before := c.decodes
	got := do(t, w, job)
	if n := c.decodes - before; n > 16 || len(got.tokens) != 10 || got.Usage.CompletionTokens != 60 {
		t.Errorf("%d decodes for %d tokens, %+v", n, len(got.tokens), got.Usage)
	}
	checkSettled(t, w, c)
}

func TestTakenUpTooLate(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	job := seeded(prompt(40, 1), 5, 10)
	job.Delivered = prompt(11, 1)
	if _, err := try(t.Context(), w, job); err == nil || !strings.Contains(err.Error(), "11 tokens") {
		t.Errorf("more than there may be: %v", err)
	}
	job.Delivered = do(t, w, seeded(prompt(40, 1), 5, 10)).tokens
	if got := do(t, w, job); len(got.tokens) != 0 || got.Reason != backends.ReasonLength || got.Usage.CompletionTokens != 10 {
		t.Errorf("all that there may be: %+v", got)
	}
}
