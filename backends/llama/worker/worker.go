// Package worker runs requests on KV caches. A [Worker] owns one cache and one goroutine, locked to its thread; the
// [Pool] owns the workers and leases each request to one of them, preferring the one that already holds the beginning of
// its prompt. Decodes of all workers of a CPU engine take turns at a [Gate].
//
// A worker touches its cache in its own goroutine alone; others may only interrupt it. While a worker is idle, the pool
// reads which tokens it holds. See design.md for the life of a request and of a sequence.
package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/llama/engine"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// errNoForks refuses lookahead where the self-test found that it would give wrong numbers.
var errNoForks = &backends.Error{
	Kind: backends.KindInvalid, Code: "lookahead_unavailable", Param: "qr_decoder",
	Message: "this model's sequences can't be forked here: the engine's self-test failed",
	Hint:    "use qr_decoder plain",
}

// ErrStopped is returned by Do when the worker has ended.
var ErrStopped = &backends.Error{Kind: backends.KindLost, Code: "engine_lost", Message: "the engine is stopping"}

// Config sizes a worker.
type Config struct {
	Index    int           // for logs and statistics, from 0
	Context  int           // tokens of one request, prompt and answer together
	Group    int           // candidates decoded in one batch
	Chunk    int           // prompt tokens of one decode, a multiple of 64
	MinPiece int           // tokens of the last piece of a prompt, a multiple of 32
	Memory   engine.Memory // of the model
	Window   int           // tokens that sliding-window layers see
	ForkOK   bool          // the self-test found forks right
	// Canonical puts every token into the cell where it would be had no other been tried, at the price of decoding a winner again
	// that is elsewhere. Then how candidates were evaluated leaves hardly a trace in the logits that follow, if the build's batches
	// leave none either (GGML_LLAMAFILE=OFF, and weights of a type without repacked kernels).
	Canonical bool
	Cost      []float64 // as MeasureCost found it; empty: lookahead's own. Seeded requests always use its own
}

// Validate checks the sizes.
func (c *Config) Validate() error {
	switch {
	case c.Context < 1:
		return fmt.Errorf("context is %d tokens; it takes at least 1", c.Context)
	case c.Group < 1 || c.Group > MaxGroup:
		return fmt.Errorf("group is %d; it takes 1 to %d candidates", c.Group, MaxGroup)
	case c.Chunk < seededGrid || c.Chunk%seededGrid != 0:
		return fmt.Errorf("chunk is %d tokens; it takes a multiple of %d", c.Chunk, seededGrid)
	case c.MinPiece < grid || c.MinPiece%grid != 0 || c.MinPiece > c.Chunk:
		return fmt.Errorf("min_piece is %d tokens; it takes a multiple of %d up to the chunk", c.MinPiece, grid)
	}
	return nil
}

// cellGrain is what llama.cpp rounds a context up to a multiple of.
const cellGrain = 256

// Engine is the context that such a worker needs: cells for a whole request, one group of candidates and two tokens besides, and batches
// for the largest piece of a prompt.
func (c *Config) Engine(threads int, kv engine.KVType, flash bool) engine.ContextConfig {
	batch := (&policy{chunk: c.Chunk, minPiece: c.MinPiece}).largestPiece()
	cells := max(c.Context+c.Group+2, batch)
	sequences := SequencesFor(c.Group)
	return engine.ContextConfig{
		Context: (cells + cellGrain - 1) / cellGrain * cellGrain, Batch: batch, UBatch: batch,
		Sequences: sequences, Outputs: sequences, Threads: threads,
		FlashAttention: flash, KVType: kv, Unified: true, SWAFull: true,
	}
}

// MaxGroup keeps batches of candidates under 64 tokens, where the kernels change and with them the last digits.
const MaxGroup = 60

// Language is what the model's vocabulary says about tokens. It is shared by the workers and never changed.
type Language struct {
	Vocab *engine.Vocab
	EOG   *sampler.Mask // tokens that end a text
	Think *sampler.Mask // tokens that the think-ban takes away
}

// NewLanguage sorts the tokens of a vocabulary. The think-ban takes away control tokens that end no text, and the pieces
// <think> and </think>, which some models have as ordinary tokens.
func NewLanguage(v *engine.Vocab) Language {
	var eog, think []int32
	for id := range int32(v.Len()) {
		piece := string(v.SpecialPiece(id))
		switch {
		case v.EOG(id):
			eog = append(eog, id)
		case v.Control(id), piece == "<think>", piece == "</think>":
			think = append(think, id)
		}
	}
	return Language{Vocab: v, EOG: sampler.NewMask(eog...), Think: sampler.NewMask(think...)}
}

// Deps is what a worker works with.
type Deps struct {
	Cache      Cache  // owned by the worker
	Turn       *Turn  // nil: decodes don't wait
	Cores      *Cores // nil: decodes use the threads that the cache was made with
	Vocabulary int    // logits in a row
	Language   Language
	Parse      Parser
	Entropy    account.Supplier
	Log        *slog.Logger
}

// Worker is one KV cache and the goroutine that uses it.
type Worker struct {
	cfg      Config
	deps     Deps
	lang     Language
	policy   policy
	lane     *lane
	branches brancher // nil: no lookahead
	decoder  *lookahead.Decoder
	stream   *sampler.Stream
	progress Progress
	doing    atomic.Pointer[activity]
	used     atomic.Int64 // tokens in the cache, candidates not counted

	tasks chan func(context.Context)
	quit  chan struct{} // closed when Run has ended

	// main and held belong to the goroutine of Run while a request runs, else to the pool.
	main int // sequence id
	held residue
}

// New makes a worker; nothing runs before Run.
func New(cfg Config, d Deps) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure worker %d: %w", cfg.Index, err)
	}
	dec, err := lookahead.New(d.Vocabulary, lookahead.Config{Cost: cfg.Cost})
	if err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	w := &Worker{
		cfg: cfg, deps: d, lang: d.Language,
		policy:  policy{memory: cfg.Memory, chunk: cfg.Chunk, minPiece: cfg.MinPiece},
		decoder: dec, stream: sampler.NewStream(d.Vocabulary),
		tasks: make(chan func(context.Context)), quit: make(chan struct{}),
		held: residue{tokens: make([]int32, 0, cfg.Context)},
	}
	w.lane = &lane{Cache: d.Cache, turn: d.Turn, cores: d.Cores, progress: &w.progress}
	w.branches = newBrancher(w.lane, cfg, d.Vocabulary)
	w.doing.Store(&activity{state: stateIdle})
	return w, nil
}

// newBrancher chooses how candidates are evaluated; nil where they can't be.
func newBrancher(l *lane, cfg Config, nVocab int) brancher {
	if cfg.ForkOK {
		f := newForks(l, nVocab, cfg.Group)
		f.canonical = cfg.Canonical
		return f
	}
	if cfg.Memory == engine.MemoryAttention {
		return &inPlace{lane: l}
	}
	return nil
}

// Run works until ctx ends, which also cancels the request at hand, and then closes the cache.
func (w *Worker) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(w.quit)
	defer w.deps.Cache.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case task := <-w.tasks:
			task(ctx)
		}
	}
}

// Do runs a job and returns when the worker is free again. emit is called from the worker's goroutine, and what an event
// holds is valid during the call only. The error is ctx's when ctx ended first.
func (w *Worker) Do(ctx context.Context, job *Job, emit func(backends.Event) error) (*backends.Result, error) {
	var res *backends.Result
	var err error
	done := make(chan struct{})
	task := func(run context.Context) {
		defer close(done)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(run, cancel)()
		res, err = w.serve(ctx, job, emit)
	}
	select {
	case w.tasks <- task:
		<-done
		return res, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.quit:
		return nil, ErrStopped
	}
}

// serve runs a job, and empties the cache if anything went wrong: what it holds then is not known.
func (w *Worker) serve(ctx context.Context, job *Job, emit func(backends.Event) error) (res *backends.Result, err error) {
	w.progress.touch()
	w.doing.Store(&activity{state: statePrompt, request: job.ID})
	release := w.interruptOnEnd(ctx)
	defer func() {
		if r := recover(); r != nil {
			w.deps.Log.Error("request panicked", "request", job.ID, "panic", r, "stack", string(debug.Stack()))
			res, err = nil, &backends.Error{Kind: backends.KindInternal, Code: "internal", Message: "the engine hit a defect of its own"}
		}
		release()
		if err != nil {
			w.empty()
		}
		w.doing.Store(&activity{state: stateIdle})
	}()
	return w.generate(ctx, job, emit)
}

// interruptOnEnd makes the end of ctx stop a running decode. The function returned undoes it.
func (w *Worker) interruptOnEnd(ctx context.Context) (release func()) {
	raised := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		w.lane.Interrupt()
		close(raised)
	})
	return func() {
		if !stop() {
			<-raised
			w.lane.Resume()
		}
	}
}

// empty drops all that the cache holds.
func (w *Worker) empty() {
	w.lane.Clear()
	w.main, w.held.tokens, w.held.pure = 0, w.held.tokens[:0], 0
	w.used.Store(0)
}

// note records a token as part of the main sequence.
func (w *Worker) note(tokens ...int32) {
	w.held.tokens = append(w.held.tokens, tokens...)
	w.used.Store(int64(len(w.held.tokens)))
}
