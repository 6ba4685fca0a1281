package hub

import (
	"errors"

	"qr-gateway/entropy"
	"qr-gateway/entropy/hub/hubpb"
)

func packBlock(b *entropy.Block) *hubpb.Block {
	return &hubpb.Block{
		Source: b.Source, Device: b.Device, RequestedNs: nanos(b.Requested), ArrivedNs: nanos(b.Arrived), ServerNs: nanos(b.ServerTime),
		Sequence: b.Sequence, Echoed: b.Echoed, Freshness: string(b.Class), Shots: uint32(max(b.Shots, 0)), Fallback: b.Fallback,
		Flags: uint32(b.Flags), Pipelined: b.Pipelined, Nonce: b.Nonce, Salt: b.Salt, Discarded: uint32(max(b.Discarded, 0)),
	}
}

func unpackBlock(b *hubpb.Block) entropy.Block {
	return entropy.Block{
		Source: b.GetSource(), Device: b.GetDevice(), Requested: moment(b.GetRequestedNs()), Arrived: moment(b.GetArrivedNs()),
		ServerTime: moment(b.GetServerNs()), Sequence: b.GetSequence(), Echoed: b.GetEchoed(), Class: entropy.Class(b.GetFreshness()),
		Shots: int(b.GetShots()), Fallback: b.GetFallback(), Flags: entropy.Flags(b.GetFlags()), Pipelined: b.GetPipelined(),
		Nonce: b.GetNonce(), Salt: b.GetSalt(), Discarded: int(b.GetDiscarded()),
	}
}

func packNumber(n *entropy.Number) *hubpb.Number {
	return &hubpb.Number{
		U: n.U, Z: n.Z, SourceId: n.SourceID, Bytes: uint32(max(n.Bytes, 0)), Integrator: n.Integrator, Purity: n.Purity,
		CoherenceZ: n.CoherenceZ, CoherenceR: n.CoherenceR, Coherent: n.Coherent,
	}
}

func unpackNumber(n *hubpb.Number, b *hubpb.Block) entropy.Number {
	return entropy.Number{
		Block: unpackBlock(b), U: n.U, Z: n.Z, SourceID: n.SourceId, Bytes: int(n.Bytes), Integrator: n.Integrator, Purity: n.Purity,
		CoherenceZ: n.CoherenceZ, CoherenceR: n.CoherenceR, Coherent: n.Coherent,
	}
}

// packError makes the travelling form of err. What is none of a source counts as a broken connection.
func packError(source string, err error) *hubpb.Error {
	if e, ok := errors.AsType[*entropy.Error](err); ok {
		message := e.Message
		if e.Err != nil {
			message += ": " + e.Err.Error()
		}
		return &hubpb.Error{Kind: string(e.Kind), Source: e.Source, Message: message, Hint: e.Hint}
	}
	return &hubpb.Error{Kind: string(entropy.KindTransport), Source: source, Message: err.Error()}
}

func unpackError(e *hubpb.Error) error {
	return &entropy.Error{Kind: entropy.Kind(e.Kind), Source: e.Source, Message: e.Message, Hint: e.Hint}
}
