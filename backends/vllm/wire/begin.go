package wire

import (
	"encoding/binary"
)

const beginSize = 24

// Fail is what a row comes to whose number is late.
type Fail uint16

// What the plugin may be told of such a row.
const (
	FailStop   Fail = iota // the answer ends, with an error
	FailNative             // vLLM chooses the token
)

// Begin gives a request a handle. What it holds besides its lengths is for the sidecar to judge: what is wrong with one request ends no other's.
type Begin struct {
	Handle  uint32 // never used twice on a connection
	Step    uint32 // of the next token within the answer
	Fail    Fail
	RID     string
	Config  []byte  // JSON
	Prompt  []int32 // token ids
	History []int32 // of the answer so far; -1 where the token is not known
}

// Append adds the frame to b.
func (g *Begin) Append(b []byte) []byte {
	return frame(b, Header{Kind: KindBegin}, func(b []byte) []byte {
		for _, v := range []int{int(g.Handle), int(g.Step), len(g.Prompt), len(g.History)} {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(g.RID)))
		b = binary.LittleEndian.AppendUint16(b, uint16(g.Fail))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(g.Config)))
		b = append(append(b, g.RID...), g.Config...)
		return appendInts(appendInts(b, g.Prompt), g.History)
	})
}

// ParseBegin reads the body of a begin. It keeps nothing of it.
func ParseBegin(body []byte) (*Begin, error) {
	if len(body) < beginSize {
		return nil, refuse(CodeTruncated, "a begin frame has %d bytes; it takes at least %d", len(body), beginSize)
	}
	le := binary.LittleEndian
	nPrompt, nHistory := uint64(le.Uint32(body[8:])), uint64(le.Uint32(body[12:]))
	nRID, nConfig := uint64(le.Uint16(body[16:])), uint64(le.Uint32(body[20:]))
	if want := beginSize + nRID + nConfig + 4*(nPrompt+nHistory); want != uint64(len(body)) {
		return nil, refuse(CodeForm, "a begin frame has %d bytes; its lengths add up to %d", len(body), want)
	}
	g := &Begin{Handle: le.Uint32(body), Step: le.Uint32(body[4:]), Fail: Fail(le.Uint16(body[18:]))}
	if g.Fail > FailNative {
		return nil, refuse(CodeForm, "a begin frame has fail %d; it takes %d and %d", g.Fail, FailStop, FailNative)
	}
	rest := body[beginSize:]
	g.RID, rest = string(rest[:nRID]), rest[nRID:]
	g.Config, rest = append([]byte(nil), rest[:nConfig]...), rest[nConfig:]
	g.Prompt, g.History = ints(rest[:4*nPrompt]), ints(rest[4*nPrompt:])
	return g, nil
}

// AppendEnd adds an end frame for handles to b.
func AppendEnd(b []byte, handles ...uint32) []byte {
	b = Header{Size: uint32(4 * len(handles)), Kind: KindEnd, Count: uint16(len(handles))}.Append(b)
	for _, h := range handles {
		b = binary.LittleEndian.AppendUint32(b, h)
	}
	return b
}

// ParseEnd adds the handles of an end frame to dst.
func ParseEnd(dst []uint32, h Header, body []byte) ([]uint32, error) {
	if len(body) != 4*int(h.Count) {
		return dst, refuse(CodeForm, "an end frame of %d handles has %d bytes; it takes %d", h.Count, len(body), 4*int(h.Count))
	}
	for ; len(body) > 0; body = body[4:] {
		dst = append(dst, binary.LittleEndian.Uint32(body))
	}
	return dst, nil
}

func appendInts(b []byte, ids []int32) []byte {
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}

func ints(b []byte) []int32 {
	if len(b) == 0 {
		return nil
	}
	out := make([]int32, len(b)/4)
	for i := range out {
		out[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
