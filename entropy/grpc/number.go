package grpc

import (
	"context"
	"fmt"
	"math"
	"time"

	"qr-gateway/entropy"
)

// Number implements [entropy.Numberer].
func (s *Source) Number(ctx context.Context, req entropy.NumberRequest) (entropy.Number, error) {
	if err := s.admit(ctx, req.BlockBytes); err != nil {
		return entropy.Number{}, err
	}
	if s.numbers == nil || req.BlockBytes < 0 {
		return entropy.Number{}, &entropy.Error{
			Kind: entropy.KindConfig, Source: s.name, Message: fmt.Sprintf("no number of a block of %d bytes can be asked for", req.BlockBytes),
			Hint: "set draw_method_path or draw_stream_method_path",
		}
	}
	n := entropy.Number{Block: entropy.Block{Source: s.name, Class: s.cfg.Class, Echoed: true}}
	err := s.call(ctx, s.numbers, req.BlockBytes, func(seq int64) request {
		return request{seq: seq, msg: encodeDraw(seq, req.SourceID, req.BlockBytes), limit: 64 << 10}
	}, func(seq int64, a answer) error {
		return takeNumber(seq, req.SourceID, a, &n)
	})
	if err != nil {
		return entropy.Number{}, err
	}
	return n, nil
}

// takeNumber checks the answer and takes it over. source is the one that was asked for; empty is any.
func takeNumber(seq int64, source string, a answer, n *entropy.Number) error {
	r, err := decodeDraw(a.buf.ReadOnlyData())
	switch {
	case err != nil:
		return &protocolError{err.Error()}
	case r.echo != seq:
		return protocolf("the number is for request %d, asked was %d", r.echo, seq)
	case source != "" && r.sourceID != "" && r.sourceID != source:
		return protocolf("the number is of source %.100q, asked was %q", r.sourceID, source)
	}
	if err := r.check(); err != nil {
		return err
	}
	n.U, n.Z, n.SourceID, n.Bytes, n.Integrator, n.Purity = r.u, r.z, r.sourceID, int(r.bytes), r.integrator, r.purity
	n.CoherenceZ, n.CoherenceR, n.Coherent = r.coherenceZ, r.coherenceR, r.coherent
	n.Block.Requested = a.sent
	n.Block.Sequence, n.Block.Arrived, n.Block.Device = uint64(seq), a.at, r.sourceID
	if r.timeNS > 0 && r.timeNS <= math.MaxInt64 {
		n.Block.ServerTime = time.Unix(0, int64(r.timeNS))
	}
	return nil
}

// check refuses a u that selects nothing, and statistics that are no numbers.
func (r *drawReply) check() error {
	switch {
	case r.u == 0:
		return protocolf("the reply has no u")
	case !(r.u > 0 && r.u < 1): // NaN too
		return protocolf("u is %v: it must lie between 0 and 1, both excluded", r.u)
	case math.IsNaN(r.z):
		return protocolf("z is %v", r.z)
	}
	return nil
}
