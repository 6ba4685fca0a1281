package sidecar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/sampler"
)

// invalid is the error of a request that asks for what can't be done.
func invalid(code, param, hint, format string, args ...any) *backends.Error {
	return &backends.Error{Kind: backends.KindInvalid, Code: code, Param: param, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// asError puts any error of choosing the token of a step into the form that clients are told.
func asError(ctx context.Context, step int, err error) *backends.Error {
	err = account.Explain(ctx, err)
	if e, ok := errors.AsType[*backends.Error](err); ok {
		return e
	}
	if errors.Is(err, sampler.ErrHead) {
		return &backends.Error{
			Kind: backends.KindModel, Code: "broken_row", Err: err, Message: fmt.Sprintf("the plugin showed a row of token %d that can't be: %v", step, err),
			Hint: "install the plugin that comes with this version of the gateway",
		}
	}
	return &backends.Error{Kind: backends.KindInternal, Code: "internal", Err: err, Message: fmt.Sprintf("the sidecar could not choose token %d: %v", step, err)}
}

// late is the error of a number that wasn't there in time.
func late(source string, step int, after time.Duration) *backends.Error {
	if source == "" {
		source = "system"
	}
	return &backends.Error{
		Kind: backends.KindEntropy, Code: "entropy_unavailable", Param: "qr_entropy_source", Err: context.DeadlineExceeded,
		Message: fmt.Sprintf("the entropy source %s gave nothing for token %d within the deadline of a step, %v", source, step, after),
		Hint:    "choose a faster source with qr_entropy_source, or raise the sidecar's deadline",
	}
}

// openFailed is the error of a source that could not be opened.
func openFailed(ctx context.Context, source string, err error) *backends.Error {
	switch {
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return asError(ctx, 0, err)
	case errors.Is(err, context.DeadlineExceeded):
		e := late(source, 0, openTime)
		e.Message = fmt.Sprintf("the entropy source %s was not ready within %v", source, openTime)
		return e
	}
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "sidecar_lost", Err: err, Hint: "send the request again",
		Message: fmt.Sprintf("the connection ended while the entropy source %s was opened", source),
	}
}

var errWhole = &backends.Error{
	Kind: backends.KindInvalid, Code: "whole_rows_needed",
	Message: "these parameters need whole rows of logits, and the plugin shows the largest logits alone: it has no shared memory",
	Hint:    "lower qr_top_k, or start vLLM where the plugin may make a memfd",
}
