// Package bench measures decoding on a real model: plain, lazy, full and bounded as the workers run them, and the classic
// method (a divided cache, a fork per candidate, the winner decoded again) as a yardstick. All run in one process on one
// set of weights, in interleaved rounds, so that whatever else the machine does falls on all of them alike: the ratios
// are what to read.
//
// Run owns the model and its contexts from start to end; nothing here is safe for concurrent use.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/llama/worker"
	"qr-gateway/backends/supply"
	"qr-gateway/sampler"
)

// Config says what to measure. It travels to the engine process as JSON.
type Config struct {
	Model   string   `json:"model"`   // GGUF file
	K       int      `json:"k"`       // candidates
	Alpha   float64  `json:"alpha"`   //
	MinP    float64  `json:"min_p"`   // relative cut before looking ahead
	Tokens  int      `json:"tokens"`  // per mode, all rounds together
	Rounds  int      `json:"rounds"`  // of Tokens/Rounds tokens each
	Context int      `json:"context"` // tokens of the prompt
	Group   int      `json:"group"`   // candidates in one batch
	Threads int      `json:"threads"` //
	Poll    int      `json:"poll"`    // busy-wait level, 0..100
	Flash   bool     `json:"flash_attention"`
	Canon   bool     `json:"canonical_cells"`
	Classic bool     `json:"classic"` // measure the classic method too; its cache is k+1 times as large
	Workers int      `json:"workers"` // for Workers only
	Only    []string `json:"only"`    // measure these modes alone, if any
	Seeded  bool     `json:"seeded"`  // false: the numbers come from the system's entropy, as by default
}

// Validate reports the first value out of range.
func (c *Config) Validate() error {
	switch {
	case c.Model == "":
		return errors.New("model is missing: name a GGUF file")
	case c.K < 1 || c.K > 256:
		return fmt.Errorf("k is %d; it takes 1 to 256", c.K)
	case c.Tokens < 1 || c.Rounds < 1 || c.Tokens < c.Rounds:
		return fmt.Errorf("%d tokens in %d rounds: each round takes one token at least", c.Tokens, c.Rounds)
	case c.Context < 1:
		return fmt.Errorf("context is %d; it takes at least 1 token", c.Context)
	case c.Threads < 1:
		return fmt.Errorf("threads is %d; it takes at least 1", c.Threads)
	}
	return nil
}

// Prompt tokens of one decode, and of the last one at least, as the engine has them.
const chunk, minPiece = 256, 32

// bed is a loaded model and all that the measured modes share.
type bed struct {
	cfg    Config
	log    *slog.Logger
	model  *engine.Model
	pool   *engine.ThreadPool
	lang   worker.Language
	prompt []int32
}

// open loads the model. The caller closes the bed.
func open(cfg Config, log *slog.Logger) (*bed, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := engine.Init(slog.LevelWarn); err != nil {
		return nil, fmt.Errorf("start llama.cpp: %w", err)
	}
	model, err := engine.LoadModel(engine.ModelConfig{Path: cfg.Model, GPULayers: -1, MMap: true})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	pool, err := engine.NewThreadPool(cfg.Threads, cfg.Poll)
	if err != nil {
		model.Close()
		return nil, fmt.Errorf("make threads: %w", err)
	}
	b := &bed{cfg: cfg, log: log, model: model, pool: pool, lang: worker.NewLanguage(model.Vocab())}
	if b.prompt, err = prompt(model, cfg.Context); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bed) close() {
	b.pool.Close()
	b.model.Close()
}

// worker makes one worker as the engine process does.
func (b *bed) worker(index int, turn *worker.Turn, cores *worker.Cores) (*worker.Worker, error) {
	info := b.model.Info()
	cfg := worker.Config{
		Index: index, Context: len(b.prompt) + b.cfg.Tokens + 1, Group: b.cfg.Group, Chunk: chunk, MinPiece: minPiece,
		Memory: info.Memory, Window: info.Window, ForkOK: true, Canonical: b.cfg.Canon,
	}
	c, err := b.model.NewContext(cfg.Engine(b.cfg.Threads, engine.F16, b.cfg.Flash), b.pool)
	if err != nil {
		return nil, fmt.Errorf("make context: %w", err)
	}
	return worker.New(cfg, worker.Deps{
		Cache: worker.NewCache(c), Turn: turn, Cores: cores, Vocabulary: info.Vocabulary, Language: b.lang,
		Entropy: supply.New(nil), Log: b.log,
	})
}

// withWorkers runs f while n workers run.
func (b *bed) withWorkers(ctx context.Context, n int, f func(context.Context, []*worker.Worker) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gate, cores := &worker.Gate{}, worker.NewCores(b.cfg.Threads)
	var g errgroup.Group
	workers := make([]*worker.Worker, n)
	for i := range workers {
		w, err := b.worker(i, gate.Join(), cores)
		if err != nil {
			cancel()
			return errors.Join(err, g.Wait())
		}
		workers[i] = w
		g.Go(func() error { return w.Run(ctx) })
	}
	err := f(ctx, workers)
	cancel()
	return errors.Join(err, g.Wait())
}

// params are the values of one mode.
func (b *bed) params(decoder, mode, choice string, seed int64) sampler.Params {
	p := sampler.Defaults()
	p.Decoder, p.Lookahead, p.LookaheadChoice = decoder, mode, choice
	p.LookaheadK, p.LookaheadMinP, p.Alpha = b.cfg.K, b.cfg.MinP, &b.cfg.Alpha
	if b.cfg.Seeded {
		p.Seed = &seed
	}
	return p
}
