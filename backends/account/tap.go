// Package account draws the numbers of an answer and keeps account of them: a [Tap] is where the numbers of one request come from, a [Ledger]
// what became of each token. Whatever chooses tokens has both, so that statistics, records, logs and errors are the same everywhere. Both
// belong to one goroutine at a time.
package account

import (
	"context"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
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

// Tap is the noise of one request. It knows where its numbers come from and whether the token at hand took one, and says in its errors what
// failed and what to do about it.
type Tap struct {
	sampler.Noise
	from  supply.Opened
	amp   string // the amplifier asked for
	drawn bool   // since the last Take
}

// Open opens the source of a request in supplier and makes numbers of it as the request asks for. p is only read.
func Open(ctx context.Context, supplier Supplier, p *sampler.Params) (*Tap, error) {
	if p.Seed != nil {
		return &Tap{Noise: sampler.NewSeeded(*p.Seed), from: supply.Opened{Name: seedName, Policy: string(guard.Strict)}, amp: "seeded"}, nil
	}
	own := *p
	if p.Bypass {
		own.EntropySource, own.Amplifier, own.ZScoreCalibration, own.EntropyPrefetch = local.SystemName, amplify.Name, 0, false
		own.PopulationMean, own.PopulationStd = nil, nil
	}
	from, err := supplier.Open(ctx, own.EntropySource, supply.Calibration(&own))
	if err != nil {
		return nil, openError(ctx, own.EntropySource, err)
	}
	n, err := sampler.NewNoise(&own, from.Source, from.Calibration)
	if err != nil {
		return nil, Explain(ctx, err)
	}
	return &Tap{Noise: n, from: from, amp: own.Amplifier}, nil
}

// One implements [sampler.Noise].
func (t *Tap) One(ctx context.Context, step int) (float64, error) {
	t.drawn = true
	u, err := t.Noise.One(ctx, step)
	return u, t.failed(ctx, err)
}

// Each implements [sampler.Noise].
func (t *Tap) Each(ctx context.Context, step int, tokens []int32, u []float64) error {
	t.drawn = true
	return t.failed(ctx, t.Noise.Each(ctx, step, tokens, u))
}

// Policy is that of the source: strict, fallback or observe.
func (t *Tap) Policy() string { return t.from.Policy }

// Take is what the numbers of the token at hand were made of; nil where it took none.
func (t *Tap) Take() *sampler.Evidence {
	if !t.drawn {
		return nil
	}
	t.drawn = false
	return t.Last()
}

// Accepted implements [sampler.Pipelined].
func (t *Tap) Accepted(step int, token int32) {
	if p, ok := t.Noise.(sampler.Pipelined); ok {
		p.Accepted(step, token)
	}
}

// End implements [sampler.Pipelined].
func (t *Tap) End() {
	if p, ok := t.Noise.(sampler.Pipelined); ok {
		p.End()
	}
}

// thought is what an amplifier that adds all bytes up makes of them; nil for any other.
func (t *Tap) thought() *backends.Thought {
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
func (t *Tap) failed(ctx context.Context, err error) error {
	switch {
	case err == nil, ended(ctx, err):
		return err
	case isParam(err):
		return Explain(ctx, err)
	}
	return unavailable(t.from.Name, t.from.Policy, err)
}
