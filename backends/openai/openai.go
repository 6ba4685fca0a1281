// Package openai passes requests on to a server with OpenAI's API: llama-server, Ollama, LiteLLM, vLLM, a hosted one, or another qr-gateway.
// The client's JSON goes there as it is but for the model's name, and what comes back goes to the client as it is but for that name, so fields
// that nobody here knows survive both ways.
//
// What comes back is checked: that it is JSON with choices, that a stream ends, that none is cut off. Connecting, the first byte, each further
// one and the whole have time-outs of their own. A failure becomes a *backends.Error that names the model, never the server or its key.
//
// A [Backend] is safe for concurrent use. [Backend.Run] asks the server for its models now and then; [Backend.Info] tells what it found and
// never waits. The goroutine that calls [Backend.Generate] reads the answer; when its context ends, the connection is closed at once.
package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
)

// Deps is what a backend works with. All may be nil.
type Deps struct {
	Log *slog.Logger // nil: nothing is logged
	// Also is a further check of a server whose list of models is well. Run calls it, one call at a time, and does nothing else meanwhile: it has
	// to bound itself. Its error is why the server is not ready, in words for everybody.
	Also func(ctx context.Context) error
}

// Backend implements backends.Backend, and node.Readiness.
type Backend struct {
	cfg    Config
	base   *url.URL
	client *http.Client
	log    *slog.Logger
	also   func(context.Context) error

	key  atomic.Pointer[string]
	now  atomic.Pointer[snapshot] // written by Run alone
	busy atomic.Int64
	poke chan struct{} // asks Run for a check
}

// New makes a backend. Nothing is sent before Run.
func New(cfg Config, deps Deps) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check model %s: %w", cfg.Model, err)
	}
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("check model %s: url: %w", cfg.Model, err)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	base.RawPath = ""
	key, err := cfg.keyOf()
	if err != nil {
		return nil, fmt.Errorf("check model %s: %w", cfg.Model, err)
	}
	b := &Backend{cfg: cfg, base: base, client: newClient(cfg), log: deps.Log, also: deps.Also, poke: make(chan struct{}, 1)}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.key.Store(&key)
	b.now.Store(&snapshot{state: stateStarting, changed: make(chan struct{})})
	return b, nil
}

// Info describes the model as of the latest check.
func (b *Backend) Info() backends.Info {
	s := b.now.Load()
	return backends.Info{
		Model: b.cfg.Model, Backend: "openai", Ready: s.state == stateReady, State: string(s.state), Reason: s.reason,
		Context: b.context(s), Workers: b.cfg.Workers, Busy: int(b.busy.Load()), Description: b.cfg.Description,
		Chat: true, Raw: true, PassParams: b.cfg.PassParams,
	}
}

func (b *Backend) context(s *snapshot) int {
	if b.cfg.Context > 0 {
		return b.cfg.Context
	}
	return s.context
}

// What a request may take is only guessed, for fairness.
const (
	bytesPerToken = 4
	answerTokens  = 512     // of a request that names no limit
	mostTokens    = 1 << 17 // of a context that nobody knows: images are long and take few tokens
	mostChoices   = 128
)

// Prepare guesses what the request may take. It refuses a request while the server is known to be away.
func (b *Backend) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	if req.Raw == nil {
		return nil, &backends.Error{Kind: backends.KindInternal, Code: "internal_error", Message: "the request is not in the form in which it can be passed on"}
	}
	if err := b.present(ctx); err != nil {
		return nil, err
	}
	most := b.context(b.now.Load())
	if most == 0 {
		most = mostTokens
	}
	return &backends.Prepared{
		Request: req, Estimate: min(len(req.Raw)/bytesPerToken, most), MaxTokens: min(answerLimit(req.Raw), most),
	}, nil
}

// answerLimit is how many tokens the answers to a request may have, all choices together.
func answerLimit(raw json.RawMessage) int {
	o, err := members.Parse(raw)
	if err != nil {
		return answerTokens // and the server will refuse it
	}
	limit := count(o.Get("max_completion_tokens"), count(o.Get("max_tokens"), answerTokens, mostTokens), mostTokens)
	return limit * count(o.Get("n"), 1, mostChoices)
}

// count reads a number that stands for itself if it is one that can be.
func count(raw json.RawMessage, otherwise, most int) int {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1 {
		return otherwise
	}
	return int(min(n, float64(most)))
}

// present refuses what can't be served now. While nothing is known yet it waits for the first check.
func (b *Backend) present(ctx context.Context) error {
	for {
		s := b.now.Load()
		switch s.state {
		case stateReady:
			return nil
		case stateStarting:
			select {
			case <-s.changed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		default:
			return b.fail(backends.KindUpstream, "upstream_unreachable", "is away: "+s.reason, tryLater, s.err)
		}
	}
}
