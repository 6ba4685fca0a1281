package account

import (
	"context"
	"errors"
	"fmt"

	"qr-gateway/backends"
	"qr-gateway/entropy"
	"qr-gateway/sampler"
)

func ended(ctx context.Context, err error) bool { return ctx.Err() != nil && errors.Is(err, ctx.Err()) }

func isParam(err error) bool {
	_, ok := errors.AsType[*sampler.ParamError](err)
	return ok
}

// unavailable is the error of a source that failed, as its policy wants it.
func unavailable(name, policy string, err error) error {
	out := &backends.Error{
		Kind: backends.KindEntropy, Code: "entropy_unavailable", Param: "qr_entropy_source", Err: err,
		Message: fmt.Sprintf("the entropy source %s failed, and its policy is %s: %v", name, policy, err),
		Hint:    "try again later, or choose another source with qr_entropy_source",
	}
	if e, ok := errors.AsType[*entropy.Error](err); ok {
		out.Message = fmt.Sprintf("the entropy source %s failed, and its policy is %s: %s (%s)", name, policy, e.Message, e.Kind)
		if e.Hint != "" {
			out.Hint = e.Hint
		}
	}
	return out
}

// openError is the error of a source that can't be opened: a name or a calibration that was asked for wrongly, or a source that failed.
func openError(ctx context.Context, name string, err error) error {
	switch {
	case ended(ctx, err):
		return err
	case entropy.KindOf(err) == entropy.KindConfig:
		e, _ := errors.AsType[*entropy.Error](err)
		return &backends.Error{
			Kind: backends.KindInvalid, Code: "invalid_value", Param: "qr_entropy_source", Message: "the entropy source can't be used: " + e.Error(),
			Hint: e.Hint, Err: err,
		}
	}
	return unavailable(name, "not to answer without it", err)
}

// Explain says what an error of choosing means to a client.
func Explain(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*backends.Error](err); ok || err == nil || ended(ctx, err) {
		return err
	}
	if e, ok := errors.AsType[*sampler.ParamError](err); ok {
		return &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Param: e.Key, Message: e.Error(), Err: err}
	}
	switch {
	case errors.Is(err, sampler.ErrLogits):
		return &backends.Error{
			Kind: backends.KindModel, Code: "broken_logits", Err: err, Message: "the model gave logits that are not numbers: " + err.Error(),
			Hint: "the model's file, or the engine's build, is at fault",
		}
	case errors.Is(err, sampler.ErrNoCandidates):
		return &backends.Error{
			Kind: backends.KindInvalid, Code: "no_candidates", Err: err,
			Message: "there is no token left to choose: all are banned, biased away or cut off", Hint: "loosen logit_bias, top-k, top-p or min-p",
		}
	}
	return err
}
