package supply

import (
	"context"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// Source is an entropy source in the sampler's language. It belongs to one request, and so to one goroutine.
type Source struct {
	from   entropy.Source
	supply *Supply                         // knows the sources that may serve in its place; nil: none may
	second map[string]*amplify.Calibration // of those that did; nil where nothing was measured
}

// adapt gives a source of the hub's the powers that the source behind it has.
func adapt(src *hub.Source, d hub.Description, supply *Supply) sampler.ByteSource {
	s := &Source{from: src, supply: supply}
	switch {
	case d.Can.Number && d.Ahead:
		return struct {
			*Source
			numbers
			ahead
		}{s, numbers{src, d.Policy}, ahead{src, s}}
	case d.Can.Number:
		return struct {
			*Source
			numbers
		}{s, numbers{src, d.Policy}}
	case d.Ahead:
		return struct {
			*Source
			ahead
		}{s, ahead{src, s}}
	}
	return s
}

// Fill implements [sampler.ByteSource].
func (s *Source) Fill(ctx context.Context, buf []byte) (sampler.Block, error) {
	b, err := s.from.Draw(ctx, buf)
	return s.took(ctx, &b, err)
}

// took describes the block of a draw. What was measured of a second choice is asked for before its first bytes are used.
func (s *Source) took(ctx context.Context, b *entropy.Block, err error) (sampler.Block, error) {
	if err != nil {
		return sampler.Block{}, err
	}
	if _, known := s.second[b.Source]; b.Fallback && !known && s.supply != nil {
		c, err := s.supply.baseline(ctx, b.Source)
		if err != nil {
			return sampler.Block{}, err
		}
		if s.second == nil {
			s.second = map[string]*amplify.Calibration{}
		}
		s.second[b.Source] = c
	}
	return block(b), nil
}

// Calibration implements [sampler.Calibrated].
func (s *Source) Calibration(source string) *amplify.Calibration { return s.second[source] }

// block describes b without its bytes.
func block(b *entropy.Block) sampler.Block {
	return sampler.Block{
		Source: b.Source, Device: b.Device, Requested: b.Requested, Arrived: b.Arrived, ServerTime: b.ServerTime, Sequence: b.Sequence,
		Echoed: b.Echoed, Class: string(b.Class), Shots: b.Shots, Fallback: b.Fallback, Flags: b.Flags.Names(),
		Discarded: int64(b.Discarded),
	}
}

// numbers is the power of a source whose server makes numbers.
type numbers struct {
	from   entropy.Numberer
	policy string
}

// Number implements [sampler.NumberSource]. Under the policy fallback the gateway has made a number of the second choice's bytes already;
// a source that can't make any lets bytes take their place.
func (n numbers) Number(ctx context.Context, sourceID string, blockBytes int) (sampler.Number, error) {
	got, err := n.from.Number(ctx, entropy.NumberRequest{SourceID: sourceID, BlockBytes: blockBytes})
	if err != nil {
		if n.policy == string(guard.Fallback) && entropy.KindOf(err) == entropy.KindRefused {
			return sampler.Number{}, noNumberError{err}
		}
		return sampler.Number{}, err
	}
	return sampler.Number{
		Block: block(&got.Block), U: got.U, Z: got.Z, SourceID: got.SourceID, Bytes: got.Bytes, Integrator: got.Integrator,
		Purity: got.Purity, CoherenceZ: got.CoherenceZ, CoherenceR: got.CoherenceR, Coherent: got.Coherent,
	}, nil
}

// noNumberError says that bytes are to take the number's place.
type noNumberError struct{ error }

// Is reports that it is a [sampler.ErrNoNumber].
func (noNumberError) Is(target error) bool { return target == sampler.ErrNoNumber }

// Unwrap returns why.
func (n noNumberError) Unwrap() error { return n.error }

// ahead is the power of a source that can be asked before the logits exist.
type ahead struct {
	from entropy.Ahead
	of   *Source
}

// Begin implements [sampler.AheadSource].
func (a ahead) Begin(n int, nonce uint64) sampler.Ticket {
	if t := a.from.Begin(n, nonce); t != nil {
		return ticket{t, a.of}
	}
	return nil
}

type ticket struct {
	entropy.Ticket
	of *Source
}

// Redeem implements [sampler.Ticket].
func (t ticket) Redeem(ctx context.Context, buf []byte) (sampler.Block, error) {
	b, err := t.Ticket.Redeem(ctx, buf)
	return t.of.took(ctx, &b, err)
}
