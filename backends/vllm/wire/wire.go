// Package wire is the language of the vLLM plugin and its sidecar: frames with a fixed header over a stream, one step of the engine in each. It
// encodes and decodes, checks the form of what it reads, and does no I/O but on the reader it is given. See [Schema] for the formats and
// testdata for examples of each.
//
// What is wrong with a frame is a *[RefusedError]: it is what the other side is told before the connection is closed.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Kind says what a frame is.
type Kind uint8

// The kinds of frames.
const (
	KindHello Kind = iota + 1
	KindWelcome
	KindRefuse
	KindBegin
	KindEnd
	KindStep
	KindChoice
)

// String is the name of the kind in messages.
func (k Kind) String() string {
	switch k {
	case KindHello:
		return "hello"
	case KindWelcome:
		return "welcome"
	case KindRefuse:
		return "refuse"
	case KindBegin:
		return "begin"
	case KindEnd:
		return "end"
	case KindStep:
		return "step"
	case KindChoice:
		return "choice"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Sizes in bytes.
const (
	HeaderSize = 16
	MaxBody    = 64 << 20
	MaxHello   = 64 << 10 // body of the first frame
)

// FlagRest marks a step frame that brings the whole rows which the sidecar asked for in the step before.
const FlagRest = 1

// Header begins every frame.
type Header struct {
	Size  uint32 // of the body
	Kind  Kind
	Flags uint8
	Count uint16 // of handles or rows
	Seq   uint64 // of the step on the connection, from 1
}

// Append adds the header to b.
func (h Header) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, h.Size)
	b = append(b, byte(h.Kind), h.Flags)
	b = binary.LittleEndian.AppendUint16(b, h.Count)
	return binary.LittleEndian.AppendUint64(b, h.Seq)
}

// ParseHeader reads the first HeaderSize bytes of b, which has at least as many, and refuses sizes and kinds that there are none of.
func ParseHeader(b []byte) (Header, error) {
	h := Header{
		Size: binary.LittleEndian.Uint32(b), Kind: Kind(b[4]), Flags: b[5],
		Count: binary.LittleEndian.Uint16(b[6:]), Seq: binary.LittleEndian.Uint64(b[8:]),
	}
	switch {
	case h.Kind < KindHello || h.Kind > KindChoice:
		return h, refuse(CodeKind, "there is no frame of kind %d", h.Kind)
	case h.Size > MaxBody:
		return h, refuse(CodeOversized, "a %s frame has %d bytes; it takes at most %d", h.Kind, h.Size, MaxBody)
	}
	return h, nil
}

// frame adds a frame whose body fill appends.
func frame(b []byte, h Header, fill func([]byte) []byte) []byte {
	at := len(b)
	b = fill(h.Append(b))
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-HeaderSize))
	return b
}
