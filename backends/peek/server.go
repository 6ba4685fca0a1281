package peek

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// Paths of the server, from its address.
const (
	completionsPath = "completions"
	tokenizePath    = "../tokenize"
	detokenizePath  = "../detokenize"
)

// idPrefix is what stands before the id where a token is told by its id.
const idPrefix = "token_id:"

// operator is a hint: who is to act.
const operator = "whoever runs the gateway has to look into it"

// likely is a token and the logarithm of its probability.
type likely struct {
	id int32
	lp float32
}

// completion is a call that asks what follows each of the prompts.
type completion struct {
	Model     string    `json:"model"`
	Prompt    [][]int32 `json:"prompt"`
	MaxTokens int       `json:"max_tokens"`
	Temp      float64   `json:"temperature"`
	Logprobs  int       `json:"logprobs"`
	ByID      bool      `json:"return_tokens_as_token_ids"`
}

type completed struct {
	Choices []struct {
		Index    int `json:"index"`
		Logprobs *struct {
			Top []map[string]*float64 `json:"top_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage struct {
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// follow asks what would follow each of prompts. Each answer has the most probable tokens, the most probable first, the lower id among equals.
func (b *Backend) follow(ctx context.Context, prompts [][]int32) (rows [][]likely, cached int, err error) {
	var out completed
	in := completion{Model: b.up.UpstreamModel(), Prompt: prompts, MaxTokens: 1, Logprobs: b.cfg.Logprobs, ByID: true}
	if err := b.up.Ask(ctx, completionsPath, in, &out); err != nil {
		return nil, 0, err
	}
	rows = make([][]likely, len(prompts))
	for _, c := range out.Choices {
		if c.Index < 0 || c.Index >= len(rows) || rows[c.Index] != nil {
			return nil, 0, b.nonsense(fmt.Errorf("it tells of choice %d of %d", c.Index, len(rows)))
		}
		if c.Logprobs == nil || len(c.Logprobs.Top) != 1 {
			return nil, 0, b.nonsense(errors.New("it tells no logprobs of the token asked for"))
		}
		if rows[c.Index], err = b.read(c.Logprobs.Top[0]); err != nil {
			return nil, 0, b.nonsense(err)
		}
	}
	if slices.ContainsFunc(rows, func(r []likely) bool { return r == nil }) {
		return nil, 0, b.nonsense(fmt.Errorf("it tells of %d choices of %d", len(out.Choices), len(rows)))
	}
	if d := out.Usage.Details; d != nil {
		cached = d.Cached
	}
	return rows, cached, nil
}

// lowest is what servers send in the place of minus infinity, which JSON lacks.
const lowest = -9999

func (b *Backend) read(top map[string]*float64) ([]likely, error) {
	row := make([]likely, 0, len(top))
	for key, lp := range top {
		digits, named := strings.CutPrefix(key, idPrefix)
		id, err := strconv.ParseInt(digits, 10, 32)
		switch {
		case !named || err != nil || id < 0:
			return nil, fmt.Errorf("it tells of token %q, and not of its id: it has to know return_tokens_as_token_ids", key)
		case int(id) >= b.cfg.Vocabulary:
			return nil, fmt.Errorf("it tells of token %d; set vocabulary, which is %d, to more than any id", id, b.cfg.Vocabulary)
		case lp == nil || math.IsNaN(*lp) || *lp > 0.001:
			return nil, fmt.Errorf("it tells of token %d with something that is no logarithm of a probability", id)
		case *lp > lowest:
			row = append(row, likely{int32(id), float32(*lp)})
		}
	}
	if len(row) == 0 {
		return nil, errors.New("it tells of no token that may follow")
	}
	slices.SortFunc(row, func(x, y likely) int { return cmp.Or(cmp.Compare(y.lp, x.lp), cmp.Compare(x.id, y.id)) })
	return row[:min(len(row), b.cfg.Logprobs)], nil // it may add the token that it chose
}

func (b *Backend) nonsense(err error) *backends.Error {
	return b.up.Fail(backends.KindUpstream, "upstream_protocol_error", "can't be looked ahead on: "+err.Error(), operator, err)
}

// tokenise asks for the token ids of what in has.
func (b *Backend) tokenise(ctx context.Context, in map[string]any) (tokens []int32, most int, err error) {
	in["model"] = b.up.UpstreamModel()
	var out struct {
		Tokens []int32 `json:"tokens"`
		Most   int     `json:"max_model_len"`
	}
	if err := b.up.Ask(ctx, tokenizePath, in, &out); err != nil {
		return nil, 0, err
	}
	for _, id := range out.Tokens {
		if id < 0 || int(id) >= b.cfg.Vocabulary {
			return nil, 0, b.nonsense(fmt.Errorf("it has a token %d; set vocabulary, which is %d, to more than any id", id, b.cfg.Vocabulary))
		}
	}
	return out.Tokens, out.Most, nil
}

// spell asks for the text of tokens.
func (b *Backend) spell(ctx context.Context, tokens []int32) (string, error) {
	var out struct {
		Prompt string `json:"prompt"`
	}
	err := b.up.Ask(ctx, detokenizePath, map[string]any{"model": b.up.UpstreamModel(), "tokens": tokens}, &out)
	return out.Prompt, err
}

// ends is the set of tokens that end an answer. It is asked for once.
func (b *Backend) ends(ctx context.Context) (*sampler.Mask, error) {
	b.mu.Lock()
	found := b.eog
	b.mu.Unlock()
	if found != nil {
		return found, nil
	}
	var ids []int32
	for _, text := range b.cfg.EndTokens {
		tokens, _, err := b.tokenise(ctx, map[string]any{"prompt": text, "add_special_tokens": false})
		if err != nil {
			return nil, err
		}
		if len(tokens) == 1 {
			ids = append(ids, tokens[0])
		}
	}
	found = sampler.NewMask(ids...)
	if found.Len() == 0 {
		b.deps.Log.WarnContext(ctx, "no token is known to end an answer of this model: answers end at max_tokens; name them with end_tokens", "model", b.cfg.Upstream.Model)
	}
	b.mu.Lock()
	b.eog = found
	b.mu.Unlock()
	return found, nil
}

// chat is the conversation as tokenize takes it.
func chat(c *backends.Chat) map[string]any {
	in := map[string]any{"messages": c.Messages, "add_generation_prompt": true}
	kwargs := map[string]any{"enable_thinking": c.Thinking}
	if len(c.Kwargs) > 0 {
		var more map[string]any
		if json.Unmarshal(c.Kwargs, &more) == nil {
			for k, v := range more {
				kwargs[k] = v
			}
		}
	}
	in["chat_template_kwargs"] = kwargs
	return in
}
