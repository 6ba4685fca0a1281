package service

import (
	"context"
	"fmt"
	"log/slog"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/llama/worker"
)

// builder makes the workers of a model, and remembers what is to be freed.
type builder struct {
	model   *engine.Model
	info    engine.ModelInfo
	plan    plan
	deps    worker.Deps // what all workers share
	gate    *worker.Gate
	shared  *engine.ThreadPool // nil on a GPU: each worker has its own
	pools   []*engine.ThreadPool
	caches  []worker.Cache
	workers []*worker.Worker
	cost    []float64 // of batches of candidates
}

// build makes the contexts, tests the first, and makes the workers.
func (b *builder) build(ctx context.Context, d Deps) (worker.Report, error) {
	b.deps = worker.Deps{
		Vocabulary: b.info.Vocabulary, Language: worker.NewLanguage(b.model.Vocab()), Parse: b.model.ParseChat,
		Entropy: d.Entropy, Log: d.Log,
	}
	if !b.plan.gpu && d.Processors != nil {
		d.Processors(1)
	}
	if err := b.makeThreads(); err != nil {
		return worker.Report{}, err
	}
	for range b.plan.workers {
		if err := b.makeCache(); err != nil {
			return worker.Report{}, err
		}
	}
	report, err := worker.SelfTest(ctx, b.caches[0], b.plan.group, b.ordinary())
	if err != nil {
		return worker.Report{}, err
	}
	if report.ForkOK {
		if b.cost, err = worker.MeasureCost(ctx, b.caches[0], b.plan.group, b.ordinary()); err != nil {
			return worker.Report{}, err
		}
		b.announceCost(d.Log)
	}
	return report, b.makeWorkers(report)
}

func (b *builder) announceCost(log *slog.Logger) {
	if b.cost == nil {
		log.Info("the machine is too busy to measure batches of candidates; the built-in cost table is used")
		return
	}
	log.Info("cost of a batch of candidates, in decodes of one", "cost", fmt.Sprintf("%.2f", b.cost))
}

// makeThreads makes the one pool of threads and the gate that CPU workers share. Workers of a GPU may decode at once.
func (b *builder) makeThreads() (err error) {
	if b.plan.gpu {
		return nil
	}
	b.gate = &worker.Gate{}
	if !b.plan.contexts.FlashAttention { // with it the last digits depend on the number of threads
		b.deps.Cores = worker.NewCores(b.plan.threads)
	}
	b.shared, err = b.newThreads()
	return err
}

func (b *builder) newThreads() (*engine.ThreadPool, error) {
	p, err := engine.NewThreadPool(b.plan.threads, b.plan.poll)
	if err != nil {
		return nil, fmt.Errorf("make thread pool: %w", err)
	}
	b.pools = append(b.pools, p)
	return p, nil
}

func (b *builder) makeCache() (err error) {
	threads := b.shared
	if threads == nil {
		if threads, err = b.newThreads(); err != nil {
			return err
		}
	}
	c, err := b.model.NewContext(b.plan.contexts, threads)
	if err != nil {
		return fmt.Errorf("make context %d of %d: %w", len(b.caches)+1, b.plan.workers, err)
	}
	b.caches = append(b.caches, worker.NewCache(c))
	return nil
}

// ordinary are the tokens that are text.
func (b *builder) ordinary() []int32 {
	v := b.model.Vocab()
	var ids []int32
	for id := range int32(v.Len()) {
		if !v.Control(id) && !v.EOG(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (b *builder) makeWorkers(report worker.Report) error {
	for i, c := range b.caches {
		d := b.deps
		d.Cache, d.Turn = c, b.gate.Join()
		w, err := worker.New(worker.Config{
			Index: i, Context: b.plan.context, Group: b.plan.group, Chunk: b.plan.chunk, MinPiece: b.plan.minPiece,
			Memory: b.info.Memory, Window: b.info.Window, ForkOK: report.ForkOK, Cost: b.cost, Canonical: b.plan.canonical,
		}, d)
		if err != nil {
			return err
		}
		b.workers = append(b.workers, w)
	}
	return nil
}

// free closes everything that was made. Closing twice does no harm.
func (b *builder) free() {
	for _, c := range b.caches {
		c.Close()
	}
	for _, p := range b.pools {
		p.Close()
	}
	b.model.Close()
}
