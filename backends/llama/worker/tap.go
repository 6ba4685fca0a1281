package worker

import (
	"context"
	"errors"
	"fmt"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/entropy/local"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// Supplier opens entropy sources by name, as [supply.Supply.Open] does. It is safe for concurrent use.
type Supplier interface {
	Open(ctx context.Context, name string, ask hub.Blocks) (supply.Opened, error)
}

// seedName and none are what statistics call the source of a seeded request, and what there was no need of.
const (
	seedName = "seed"
	none     = "none"
)

// tap is the noise of one request. It knows where its numbers come from and whether the token at hand took one, and says in its errors what
// failed and what to do about it.
type tap struct {
	sampler.Noise
	from  supply.Opened
	amp   string // the amplifier asked for
	drawn bool   // since the last take
}

// tap opens the source of a request and makes numbers of it as the request asks for.
func (w *Worker) tap(ctx context.Context, p *sampler.Params) (*tap, error) {
	if p.Seed != nil {
		return &tap{Noise: sampler.NewSeeded(*p.Seed), from: supply.Opened{Name: seedName, Policy: string(guard.Strict)}, amp: "seeded"}, nil
	}
	own := *p
	if p.Bypass {
		own.EntropySource, own.Amplifier, own.ZScoreCalibration, own.EntropyPrefetch = local.SystemName, amplify.Name, 0, false
		own.PopulationMean, own.PopulationStd = nil, nil
	}
	from, err := w.deps.Entropy.Open(ctx, own.EntropySource, supply.Calibration(&own))
	if err != nil {
		return nil, openError(ctx, own.EntropySource, err)
	}
	n, err := sampler.NewNoise(&own, from.Source, from.Calibration)
	if err != nil {
		return nil, explain(ctx, err)
	}
	return &tap{Noise: n, from: from, amp: own.Amplifier}, nil
}

// One implements [sampler.Noise].
func (t *tap) One(ctx context.Context, step int) (float64, error) {
	t.drawn = true
	u, err := t.Noise.One(ctx, step)
	return u, t.failed(ctx, err)
}

// Each implements [sampler.Noise].
func (t *tap) Each(ctx context.Context, step int, tokens []int32, u []float64) error {
	t.drawn = true
	return t.failed(ctx, t.Noise.Each(ctx, step, tokens, u))
}

// take is what the numbers of the token at hand were made of; nil where it took none.
func (t *tap) take() *sampler.Evidence {
	if !t.drawn {
		return nil
	}
	t.drawn = false
	return t.Last()
}

// Accepted implements [sampler.Pipelined].
func (t *tap) Accepted(step int, token int32) {
	if p, ok := t.Noise.(sampler.Pipelined); ok {
		p.Accepted(step, token)
	}
}

// End implements [sampler.Pipelined].
func (t *tap) End() {
	if p, ok := t.Noise.(sampler.Pipelined); ok {
		p.End()
	}
}

// thought is what an amplifier that adds all bytes up makes of them; nil for any other.
func (t *tap) thought() *backends.Thought {
	n, ok := t.Noise.(interface{ Total() (amplify.Total, bool) })
	if !ok {
		return nil
	}
	total, ok := n.Total()
	if !ok {
		return nil
	}
	return &backends.Thought{Bytes: total.Bytes, Mean: total.Mean, Bias: total.Bias, Z: total.Z, U: total.U}
}

// failed marks the error of a draw.
func (t *tap) failed(ctx context.Context, err error) error {
	switch {
	case err == nil, ended(ctx, err):
		return err
	case isParam(err):
		return explain(ctx, err)
	}
	return unavailable(t.from.Name, t.from.Policy, err)
}

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

// explain says what an error of choosing means to a client.
func explain(ctx context.Context, err error) error {
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
