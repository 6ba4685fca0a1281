package sampler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"qr-gateway/sampler/amplify"
)

// NewNoise returns the noise that a request's validated parameters ask for: keyed by its seed, or made of bytes of src by its amplifier. cal is what was
// measured of src, or nil. The bytes are taken to have the mean and the standard deviation that the request gives; what it doesn't give is
// taken from cal, else from uniform bytes. Errors about parameters are *[ParamError].
//
// Bytes of a second choice ([Block].Fallback) are amplified by what src, if it is [Calibrated], knows of it.
func NewNoise(p *Params, src ByteSource, cal *amplify.Calibration) (Noise, error) {
	if p.Seed != nil {
		return NewSeeded(*p.Seed), nil
	}
	if src == nil {
		return nil, errors.New("make noise: there is no entropy source")
	}
	kind, err := amplify.Find(p.Amplifier)
	if err != nil {
		return nil, fmt.Errorf("make noise: %w", err)
	}
	if kind.PerToken && p.numberPerCandidate() {
		return nil, onePerToken(kind.Name)
	}
	if kind.Server {
		return newServerNoise(p, src, cal)
	}
	return newByteNoise(p, kind, src, cal)
}

// numberPerCandidate reports whether the decoder that p asks for needs a number for every candidate of a token.
func (p *Params) numberPerCandidate() bool {
	return p.UsesLookahead() && p.LookaheadChoice == ChoiceSample && (p.Lookahead == ModeLazy || p.Lookahead == ModeFull)
}

func newByteNoise(p *Params, kind amplify.Kind, src ByteSource, cal *amplify.Calibration) (*EntropyNoise, error) {
	cfg := amplifierConfig(p.ClampEpsilon, cal)
	cfg.BlockBytes = p.SampleCount
	if p.PopulationMean != nil {
		cfg.Mean = *p.PopulationMean
	}
	if p.PopulationStd != nil {
		cfg.Std = *p.PopulationStd
	}
	amp, err := kind.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make noise: %w", err)
	}
	if p.PopulationMean != nil && p.PopulationStd != nil && kind.Name != amplify.NameECDF {
		cal = nil // what was measured plays no part
	}
	ec := EntropyConfig{Source: p.EntropySource, Amplifier: kind.Name, Bytes: p.SampleCount, PerToken: kind.PerToken, Calibration: cal}
	if p.EntropyPrefetch {
		ec.Salt = new([SaltSize]byte)
		if _, err := rand.Read(ec.Salt[:]); err != nil {
			return nil, fmt.Errorf("make salt: %w", err)
		}
	}
	n := NewEntropyNoise(ec, src, amp)
	n.second = &secondChoice{kind: kind, epsilon: p.ClampEpsilon, bytes: p.SampleCount, src: src}
	return n, nil
}

// serverNoise takes numbers that a server made. Where it gives none and the source's policy allows, bytes take their place: amplified by the
// z-score of their mean, and marked as a second choice whatever source they came from.
type serverNoise struct {
	src        NumberSource
	name       string // of the amplifier
	sourceID   string
	blockBytes int
	bytes      *EntropyNoise
	taken      int64
	number     Number
	own        Evidence
	last       *Evidence
}

func newServerNoise(p *Params, src ByteSource, cal *amplify.Calibration) (*serverNoise, error) {
	numbers, ok := src.(NumberSource)
	if !ok {
		return nil, &ParamError{Key: "qr_amplifier", Reason: fmt.Sprintf(
			"qr_amplifier is %s, but the entropy source has no server that makes numbers; use %s", p.Amplifier, amplify.Name)}
	}
	kind, err := amplify.Find(amplify.Name)
	if err != nil {
		return nil, fmt.Errorf("make noise: %w", err)
	}
	q := *p
	q.EntropyPrefetch = false
	bytes, err := newByteNoise(&q, kind, src, cal)
	if err != nil {
		return nil, err
	}
	return &serverNoise{src: numbers, name: p.Amplifier, sourceID: p.DrawSourceID, blockBytes: p.DrawBlockBytes, bytes: bytes}, nil
}

// One implements [Noise].
func (n *serverNoise) One(ctx context.Context, step int) (float64, error) {
	number, err := n.src.Number(ctx, n.sourceID, n.blockBytes)
	if errors.Is(err, ErrNoNumber) {
		return n.instead(ctx, step)
	}
	if err != nil {
		return 0, fmt.Errorf("draw number: %w", err)
	}
	if err := inside(number.U, "the server of "+number.Source); err != nil {
		return 0, err
	}
	n.number = number
	n.taken += int64(number.Bytes)
	n.own = Evidence{Block: number.Block, Reading: noReading(), Bytes: number.Bytes, Amplifier: n.name, Number: &n.number}
	n.own.U, n.own.Z = number.U, number.Z
	if number.Fallback && number.Integrator != "" {
		n.own.Amplifier = number.Integrator // the source made it of a second choice's bytes
	}
	n.last = &n.own
	return number.U, nil
}

// instead lets bytes take the number's place.
func (n *serverNoise) instead(ctx context.Context, step int) (float64, error) {
	u, err := n.bytes.One(ctx, step)
	if err != nil {
		return 0, err
	}
	n.bytes.ev.Fallback = true
	n.taken += int64(n.bytes.ev.Bytes)
	n.last = &n.bytes.ev
	return u, nil
}

// Each implements [Noise]: a server makes one number per token.
func (n *serverNoise) Each(context.Context, int, []int32, []float64) error {
	return onePerToken(n.name)
}

// Info implements [Noise].
func (n *serverNoise) Info() (source, uSource string, bytes int64) {
	if n.last == nil {
		return n.bytes.cfg.Source, n.name, 0
	}
	return n.last.Source, n.last.Amplifier, n.taken
}

// Last implements [Noise].
func (n *serverNoise) Last() *Evidence { return n.last }
