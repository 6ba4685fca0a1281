package sidecar

import (
	"fmt"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecarpb"
	"qr-gateway/backends/vllm/wire"
)

// toFrame reads a frame that came over gRPC, and refuses what there can't be.
func toFrame(m *sidecarpb.Frame) (wire.Frame, error) {
	if m.Kind > 255 || m.Flags > 255 || m.Count > 65535 || len(m.Body) > wire.MaxBody {
		return wire.Frame{}, &wire.RefusedError{Code: wire.CodeForm, Message: fmt.Sprintf("a frame has kind %d, flags %d, count %d and %d bytes", m.Kind, m.Flags, m.Count, len(m.Body))}
	}
	h := wire.Header{Size: uint32(len(m.Body)), Kind: wire.Kind(m.Kind), Flags: uint8(m.Flags), Count: uint16(m.Count), Seq: m.Seq}
	if _, err := wire.ParseHeader(h.Append(nil)); err != nil {
		return wire.Frame{}, err
	}
	return wire.Frame{Header: h, Body: m.Body}, nil
}

// fromFrame takes the header of a whole frame apart. It copies: gRPC may read the body later.
func fromFrame(frame []byte) *sidecarpb.Frame {
	h, _ := wire.ParseHeader(frame) // our own
	return &sidecarpb.Frame{
		Kind: uint32(h.Kind), Flags: uint32(h.Flags), Count: uint32(h.Count), Seq: h.Seq, Body: append([]byte(nil), frame[wire.HeaderSize:]...),
	}
}

func fromChoice(c *choice.Choice) *sidecarpb.Choice {
	m := &sidecarpb.Choice{Step: int64(c.Step), Token: c.Token, Status: uint32(c.Status), Void: uint32(c.Void), Session: c.Session}
	if e := c.Err; e != nil {
		m.Error = &sidecarpb.Error{Kind: string(e.Kind), Code: e.Code, Param: e.Param, Message: e.Message, Hint: e.Hint}
	}
	return m
}

func toChoice(m *sidecarpb.Choice) choice.Choice {
	c := choice.Choice{Step: int(m.Step), Token: m.Token, Status: choice.Status(m.Status), Void: int(m.Void), Session: m.Session}
	if e := m.Error; e != nil {
		c.Err = &backends.Error{Kind: backends.Kind(e.Kind), Code: e.Code, Param: e.Param, Message: e.Message, Hint: e.Hint}
	}
	return c
}

func fromEngines(all []choice.Engine) *sidecarpb.EnginesReply {
	m := &sidecarpb.EnginesReply{}
	for _, e := range all {
		m.Engines = append(m.Engines, &sidecarpb.Engine{
			Session: e.Session, Vllm: e.VLLM, Runner: e.Runner, Rows: e.Rows, Model: e.Model,
			Vocab: int64(e.Vocab), MaxModelLen: int64(e.MaxModelLen), DpRank: int64(e.DPRank), Live: int64(e.Live),
		})
	}
	return m
}

func toEngines(m *sidecarpb.EnginesReply) []choice.Engine {
	var all []choice.Engine
	for _, e := range m.Engines {
		all = append(all, choice.Engine{
			Session: e.Session, VLLM: e.Vllm, Runner: e.Runner, Rows: e.Rows, Model: e.Model,
			Vocab: int(e.Vocab), MaxModelLen: int(e.MaxModelLen), DPRank: int(e.DpRank), Live: int(e.Live),
		})
	}
	return all
}
