package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/worker"
	"qr-gateway/sampler"
)

// Names of what Decode measures.
const (
	Plain         = "plain"
	LazySample    = "lazy sample"
	LazyArgmax    = "lazy argmax"
	BoundedSample = "bounded sample"
	FullSample    = "full sample"
	FullArgmax    = "full argmax"
	FullInverse   = "full_inverse sample"
	ClassicArgmax = "classic argmax"
	ClassicCut    = "classic argmax cut"
)

// measure is one way of decoding, and what it took so far.
type measure struct {
	name  string
	run   func(ctx context.Context, round, tokens int) (took, error)
	total took
	ms    []float64 // per token, by round
	texts [][]int32 // by round
}

// took is what some tokens took.
type took struct {
	ms     float64
	tokens []int32
	count  int
	peeks  int
}

// Decode measures all modes.
func Decode(ctx context.Context, cfg Config, log *slog.Logger) (*Report, error) {
	b, err := open(cfg, log)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var report *Report
	err = b.withWorkers(ctx, 1, func(ctx context.Context, w []*worker.Worker) error {
		measures := b.measures(w[0])
		if cfg.Classic && (cfg.wants(ClassicArgmax) || cfg.wants(ClassicCut)) {
			c, err := newClassic(b)
			if err != nil {
				return err
			}
			defer c.close()
			measures = append(measures,
				&measure{name: ClassicArgmax, run: classicRun{c, 0}.run},
				&measure{name: ClassicCut, run: classicRun{c, cfg.MinP}.run})
		}
		measures = slices.DeleteFunc(measures, func(m *measure) bool { return !cfg.wants(m.name) })
		if len(measures) == 0 {
			return fmt.Errorf("no mode is called %q", cfg.Only)
		}
		if err := b.rounds(ctx, measures); err != nil {
			return err
		}
		report = b.report(measures)
		return nil
	})
	return report, err
}

// wants reports whether a mode is to be measured.
func (c *Config) wants(mode string) bool { return len(c.Only) == 0 || slices.Contains(c.Only, mode) }

// measures lists what the workers can do.
func (b *bed) measures(w *worker.Worker) []*measure {
	mode := func(name, decoder, mode, choice string) *measure {
		run := func(ctx context.Context, round, tokens int) (took, error) {
			return b.job(ctx, w, b.params(decoder, mode, choice, int64(round)), tokens)
		}
		return &measure{name: name, run: run}
	}
	ahead := sampler.DecoderLookahead
	return []*measure{
		mode(Plain, sampler.DecoderPlain, sampler.ModeLazy, sampler.ChoiceSample),
		mode(LazySample, ahead, sampler.ModeLazy, sampler.ChoiceSample),
		mode(LazyArgmax, ahead, sampler.ModeLazy, sampler.ChoiceArgmax),
		mode(BoundedSample, ahead, sampler.ModeBounded, sampler.ChoiceSample),
		mode(FullSample, ahead, sampler.ModeFull, sampler.ChoiceSample),
		mode(FullArgmax, ahead, sampler.ModeFull, sampler.ChoiceArgmax),
		mode(FullInverse, ahead, sampler.ModeFullInverse, sampler.ChoiceSample),
	}
}

// job runs one request and returns what its decoding took, the prompt left out.
func (b *bed) job(ctx context.Context, w *worker.Worker, p sampler.Params, tokens int) (took, error) {
	t := took{tokens: make([]int32, 0, tokens)}
	res, err := w.Do(ctx, &worker.Job{ID: "bench", Tokens: b.prompt, MaxTokens: tokens, Params: p}, func(e backends.Event) error {
		t.tokens = append(t.tokens, e.Tokens...)
		return nil
	})
	if err != nil {
		return took{}, err
	}
	t.ms, t.count, t.peeks = res.Stats.DecodeMS, res.Usage.CompletionTokens, res.Stats.Peeks
	return t, nil
}

// rounds runs every measure in every round, each round beginning with another one. The first, short round is not counted.
func (b *bed) rounds(ctx context.Context, measures []*measure) error {
	each := b.cfg.Tokens / b.cfg.Rounds
	for _, m := range measures {
		if _, err := m.run(ctx, 0, min(each, 8)); err != nil {
			return fmt.Errorf("warm up %s: %w", m.name, err)
		}
	}
	for round := range b.cfg.Rounds {
		for i := range measures {
			m := measures[(i+round)%len(measures)]
			t, err := m.run(ctx, round+1, each)
			if err != nil {
				return fmt.Errorf("run %s: %w", m.name, err)
			}
			m.add(t)
		}
	}
	return nil
}

func (m *measure) add(t took) {
	m.total.ms += t.ms
	m.total.count += t.count
	m.total.peeks += t.peeks
	if t.count > 0 {
		m.ms = append(m.ms, t.ms/float64(t.count))
	}
	m.texts = append(m.texts, slices.Clone(t.tokens))
}
