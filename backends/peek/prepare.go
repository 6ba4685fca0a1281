package peek

import (
	"context"
	"errors"
	"fmt"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
)

// Prepare has the server template and tokenise, and refuses what can't be chosen from the few tokens of a row.
func (b *Backend) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	if err := check(req); err != nil {
		return nil, err
	}
	if i := b.up.Info(); !i.Ready && i.State != "starting" {
		return nil, b.up.Fail(backends.KindUpstream, "upstream_unreachable", "is away: "+i.Reason, "try again later", errors.New(i.Reason))
	}
	tokens, most, err := b.tokens(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		return nil, &backends.Error{Kind: backends.KindInvalid, Code: "empty_prompt", Param: "prompt", Message: "the prompt has no tokens"}
	}
	if c := b.up.Info().Context; c > 0 && (most == 0 || c < most) {
		most = c
	}
	limit := max(req.MaxTokens, 0)
	if most > 0 {
		room := most - len(tokens)
		if room < 1 {
			return nil, backends.TooLong(len(tokens), most)
		}
		if limit == 0 || limit > room {
			limit = room
		}
	}
	if limit == 0 {
		limit = answerTokens
	}
	return &backends.Prepared{Request: req, Tokens: tokens, MaxTokens: limit, Stops: req.Stop}, nil
}

// answerTokens bounds an answer where neither the request nor the server has a limit.
const answerTokens = 512

// check refuses parameters that take a whole row.
func check(req *backends.Request) error {
	if req.Raw != nil {
		return &backends.Error{Kind: backends.KindInternal, Code: "internal_error", Message: "the request is in a form for passing on"}
	}
	if s := account.Strategy(&req.Params); s != account.Fixed {
		return &backends.Error{
			Kind: backends.KindInvalid, Code: "invalid_value", Param: "qr_temperature_strategy",
			Message: fmt.Sprintf("the strategy %s needs the probabilities of all tokens, and this model's server tells those of the most probable only", s),
			Hint:    "use qr_temperature_strategy fixed, or another model",
		}
	}
	return nil
}

func (b *Backend) tokens(ctx context.Context, req *backends.Request) (tokens []int32, most int, err error) {
	switch {
	case req.Chat != nil:
		return b.tokenise(ctx, chat(req.Chat))
	case req.Text != nil:
		return b.tokenise(ctx, map[string]any{"prompt": *req.Text})
	}
	for i, id := range req.Tokens {
		if id < 0 || int(id) >= b.cfg.Vocabulary {
			return nil, 0, &backends.Error{
				Kind: backends.KindInvalid, Code: "invalid_value", Param: "prompt",
				Message: fmt.Sprintf("prompt[%d] is token %d, but the model has none with that id", i, id),
			}
		}
	}
	return req.Tokens, 0, nil
}
