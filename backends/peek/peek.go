// Package peek looks ahead on a server that it can only ask: future-entropy decoding over the server's own HTTP API. For each token it asks
// what would follow the candidates, all of a round in one batched call of completions with prompts of token ids and one token to generate, and
// reads the logarithms of the probabilities that come back. It takes nothing of the server but that: no plug-in, no sampler of ours in it.
//
// The server has to speak vLLM's dialect: prompts of token ids, `return_tokens_as_token_ids`, /tokenize and /detokenize. With prefix caching a
// peek costs it one token; without, the whole prompt. It tells the most probable tokens only (20, where it is not asked to allow more), so
// rows here have that many tokens, and what is less probable can't be chosen.
//
// A [Backend] is safe for concurrent use.
package peek

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/openai"
	"qr-gateway/sampler"
)

// Config is one served model and the server that has it. Start from [DefaultConfig].
type Config struct {
	Upstream openai.Config
	// Logprobs is how many of the most probable tokens the server tells of: its --max-logprobs. More candidates than that, or more tokens under
	// the entropy of a candidate, can't be had: a request's k and n are cut to it.
	Logprobs int
	// Group is how many candidates are asked for in one call at most.
	Group int
	// Vocabulary is more than any token id of the model.
	Vocabulary int
	// EndTokens are the texts of tokens that end an answer; those that are not one token of the model are ignored.
	EndTokens []string
}

// DefaultConfig lacks the model and the address.
func DefaultConfig() Config {
	return Config{
		Upstream: openai.DefaultConfig(), Logprobs: 20, Group: 8, Vocabulary: 1 << 18,
		EndTokens: []string{
			"</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<eos>", "<|end|>",
			"<|return|>", "<|EOT|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "[EOS]", "<|user|>", "<|eos|>",
		},
	}
}

// Limits of a configuration.
const (
	mostLogprobs   = 256
	mostGroup      = 64
	mostVocabulary = 1 << 22
)

// Validate reports everything that can't be; each error is an *openai.FieldError.
func (c Config) Validate() error {
	bound := func(field string, value, least, most int) error {
		if value < least || value > most {
			return &openai.FieldError{Field: field, Message: fmt.Sprintf("is %d; it takes %d to %d", value, least, most)}
		}
		return nil
	}
	return errors.Join(c.Upstream.Validate(), bound("logprobs", c.Logprobs, 2, mostLogprobs), bound("group", c.Group, 1, mostGroup),
		bound("vocabulary", c.Vocabulary, 2, mostVocabulary))
}

// Deps is what a backend works with.
type Deps struct {
	Entropy account.Supplier
	Log     *slog.Logger // nil: nothing is logged
}

// Backend implements backends.Backend, and node.Readiness.
type Backend struct {
	cfg  Config
	deps Deps
	up   *openai.Backend
	busy atomic.Int64

	mu  sync.Mutex // guards eog
	eog *sampler.Mask
}

// New makes a backend. Nothing is sent before Run.
func New(cfg Config, deps Deps) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check model %s: %w", cfg.Upstream.Model, err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	up, err := openai.New(cfg.Upstream, openai.Deps{Log: deps.Log})
	if err != nil {
		return nil, err
	}
	cfg.EndTokens = slices.Clone(cfg.EndTokens)
	return &Backend{cfg: cfg, deps: deps, up: up}, nil
}

// Run looks after the server until ctx ends.
func (b *Backend) Run(ctx context.Context) error { return b.up.Run(ctx) }

// WaitReady returns when a request can be sent, or when ctx ends.
func (b *Backend) WaitReady(ctx context.Context) error { return b.up.WaitReady(ctx) }

// Info describes the model as of the latest check.
func (b *Backend) Info() backends.Info {
	i := b.up.Info()
	i.Backend, i.Raw, i.PassParams, i.Busy, i.Vocabulary = "peek", false, false, int(b.busy.Load()), b.cfg.Vocabulary
	return i
}
