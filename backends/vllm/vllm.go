// Package vllm passes requests on to a vLLM server and has a sampler of ours choose their tokens there.
//
// A request without parameters of ours goes on and comes back untouched, as with package openai. One that is sampled
// ([backends.Request].Sampled) goes on with its own sampling made void and with the parameters for the plugin in vLLM, which asks the
// sidecar for each token. What comes back is compared with what the sidecar chose, token by token: an answer never passes off as ours what
// vLLM chose by itself. Several choices, and several prompts of a completion, become a request each.
//
// A [Backend] is safe for concurrent use. [Backend.Run] checks the server, reads its load, and finds out with a one-token completion whether its
// plugin and the sidecar reach each other, which a goroutine of its own asks for. In [Backend.Generate] each request to the server has a goroutine, and one that follows what the
// sidecar chooses for it; they have ended when Generate returns. What they hand out goes to the client from Generate's own goroutine.
package vllm

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"qr-gateway/backends"
	"qr-gateway/backends/openai"
	"qr-gateway/backends/vllm/choice"
)

// Choices tells what the sidecar chooses.
type Choices interface {
	// Follow is to be called before the request is sent; rid is then the request's own. Choices come from the step from on.
	Follow(ctx context.Context, rid string, from int) (Trail, error)
	// Engines are those connected now. It never waits.
	Engines() []choice.Engine
}

// Trail is what is chosen for one request.
type Trail = choice.Trail

// Deps is what a backend works with. All may be nil.
type Deps struct {
	Choices Choices // nil: nobody chooses, and the server's requests are passed on alone
	Log     *slog.Logger
}

// Backend implements backends.Backend, and node.Readiness.
type Backend struct {
	cfg     Config
	up      *openai.Backend
	choices Choices
	log     *slog.Logger
	prober  *prober

	sampling atomic.Pointer[sampling] // written by Run alone
	load     atomic.Pointer[load]     // written by Run alone; nil: not known
	doubt    atomic.Bool              // a request could not be sampled: Run is to probe again
	busy     atomic.Int64             // sampled requests under way
	parts    atomic.Int64             // what the server has of them: one for each choice
	plain    atomic.Int64             // others

	native, mismatched, probes atomic.Uint64
}

// Counts are what has happened since the start.
type Counts struct {
	Native     uint64 // tokens of sampled requests that vLLM chose itself, or nobody is known to have chosen
	Mismatched uint64 // tokens that were others than those chosen
	Probes     uint64 // completions of one token that were asked for to see whether the server samples
}

// New makes a backend. Nothing is sent before Run.
func New(cfg Config, deps Deps) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check model %s: %w", cfg.Model, err)
	}
	b := &Backend{cfg: cfg, choices: deps.Choices, log: deps.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.sampling.Store(&sampling{reason: "nothing is known of it yet"})
	if !cfg.Probe {
		b.sampling.Store(&sampling{})
	}
	var err error
	b.prober = newProber(b)
	if b.up, err = openai.New(cfg.upstream(), openai.Deps{Log: b.log, Also: b.prober.check}); err != nil {
		return nil, err
	}
	return b, nil
}

// Run checks the server until ctx ends.
func (b *Backend) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var probing sync.WaitGroup
	probing.Go(func() { b.prober.run(ctx) })
	defer probing.Wait()
	defer cancel()
	return b.up.Run(ctx)
}

// WaitReady returns when a request can be sent, or when ctx ends.
func (b *Backend) WaitReady(ctx context.Context) error { return b.up.WaitReady(ctx) }

// Info describes the model as of the latest check.
func (b *Backend) Info() backends.Info {
	i := b.up.Info()
	i.Backend, i.Samples = "vllm", b.choices != nil
	i.Busy = int(b.busy.Load() + b.plain.Load())
	if i.Samples {
		i.Unsampled = b.sampling.Load().reason
	}
	if l := b.load.Load(); l != nil {
		i.Load = max(l.score+float64(b.underWay()-l.busy)/float64(b.cfg.Workers), 0)
	}
	return i
}

// underWay are the requests that the server has from here.
func (b *Backend) underWay() int { return int(b.parts.Load() + b.plain.Load()) }

// Counts returns what has happened since the start.
func (b *Backend) Counts() Counts {
	return Counts{Native: b.native.Load(), Mismatched: b.mismatched.Load(), Probes: b.probes.Load()}
}

// Prepare guesses what the request may take, and refuses what can't be done.
func (b *Backend) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	p, err := b.up.Prepare(ctx, req)
	if err != nil || !req.Sampled {
		return p, err
	}
	parts, err := b.plan(req)
	if err != nil {
		return nil, err
	}
	if err := fits(&req.Params); err != nil {
		return nil, err
	}
	if err := b.able(); err != nil {
		return nil, err
	}
	p.MaxTokens *= max(parts[len(parts)-1].prompt+1, 1)
	return p, nil
}

// able refuses what can't be sampled now.
func (b *Backend) able() error {
	reason := b.sampling.Load().reason
	if b.choices == nil {
		reason = "it is served without a sidecar"
	}
	if reason == "" {
		return nil
	}
	return b.unsampled("can't choose tokens by qr_ parameters now: "+reason, nil)
}

// unsampled is the error of a request whose tokens could not be chosen.
func (b *Backend) unsampled(what string, cause error) *backends.Error {
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: backends.CodeUnsampled, Message: "the upstream of model " + b.cfg.Model + " " + what,
		Hint: "try again in a while, or leave the qr_ parameters out", Err: cause,
	}
}
