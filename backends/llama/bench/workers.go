package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"qr-gateway/backends/llama/worker"
	"qr-gateway/sampler"
)

// Throughput is what Workers measured: tokens per second of all workers together.
type Throughput struct {
	Config Config `json:"config"`
	Rows   []Load `json:"rows"`
}

// Load is one situation.
type Load struct {
	Disturbed bool    `json:"disturbed"`  // a process that never rests ran beside
	One       float64 `json:"one"`        // one worker alone
	All       float64 `json:"all"`        // all workers at once
	Ratio     float64 `json:"all_to_one"` // median over the rounds
}

// Workers compares all workers at once with one alone, quiet and beside a process that never rests.
func Workers(ctx context.Context, cfg Config, log *slog.Logger) (*Throughput, error) {
	cfg.Workers, cfg.K = max(cfg.Workers, 2), max(cfg.K, 1)
	b, err := open(cfg, log)
	if err != nil {
		return nil, err
	}
	defer b.close()
	t := &Throughput{Config: cfg}
	err = b.withWorkers(ctx, cfg.Workers, func(ctx context.Context, w []*worker.Worker) error {
		for _, disturbed := range []bool{false, true} {
			load, err := b.load(ctx, w, disturbed)
			if err != nil {
				return err
			}
			t.Rows = append(t.Rows, load)
		}
		return nil
	})
	return t, err
}

// load measures one situation.
func (b *bed) load(ctx context.Context, w []*worker.Worker, disturbed bool) (Load, error) {
	if disturbed {
		stop, err := disturb(ctx)
		if err != nil {
			return Load{}, err
		}
		defer stop()
	}
	var one, all, quotient []float64
	for round := range b.cfg.Rounds {
		a, err := b.throughput(ctx, w[:1], b.cfg.Tokens*len(w)/b.cfg.Rounds, round)
		if err != nil {
			return Load{}, err
		}
		z, err := b.throughput(ctx, w, b.cfg.Tokens/b.cfg.Rounds, round)
		if err != nil {
			return Load{}, err
		}
		one, all, quotient = append(one, a), append(all, z), append(quotient, z/a)
	}
	return Load{Disturbed: disturbed, One: median(one), All: median(all), Ratio: median(quotient)}, nil
}

// throughput is the tokens per second that workers make together.
func (b *bed) throughput(ctx context.Context, workers []*worker.Worker, tokens, round int) (float64, error) {
	for _, w := range workers { // the prompts are not to be measured
		if _, err := b.job(ctx, w, b.params(sampler.DecoderPlain, sampler.ModeLazy, sampler.ChoiceSample, 1), 1); err != nil {
			return 0, err
		}
	}
	counts := make([]int, len(workers))
	begun := time.Now()
	var g errgroup.Group
	for i, w := range workers {
		g.Go(func() error {
			t, err := b.job(ctx, w, b.params(sampler.DecoderPlain, sampler.ModeLazy, sampler.ChoiceSample, int64(round*100+i)), tokens)
			counts[i] = t.count
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(begun).Seconds(), nil
}

// disturb starts a process that never rests.
func disturb(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start the disturbing process: %w", err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}, nil
}

// Print writes the result as text.
func (t *Throughput) Print(w io.Writer) error {
	for _, r := range t.Rows {
		beside := "quiet"
		if r.Disturbed {
			beside = "beside a busy process"
		}
		if _, err := fmt.Fprintf(w, "%s: one worker %.1f tokens/s, %d workers %.1f tokens/s in all, ratio %.2f\n",
			beside, r.One, t.Config.Workers, r.All, r.Ratio); err != nil {
			return fmt.Errorf("print report: %w", err)
		}
	}
	return nil
}
