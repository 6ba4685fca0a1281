package wire

import "encoding/binary"

const answerSize = 8

// Answer is what came of one row.
type Answer struct {
	Token  int32 // -1 for none
	Status uint8 // a choice.Status
}

// AppendChoice adds a choice frame to b: the answers to the step of that seq, in the order of its rows.
func AppendChoice(b []byte, seq uint64, answers []Answer) []byte {
	b = Header{Size: uint32(answerSize * len(answers)), Kind: KindChoice, Count: uint16(len(answers)), Seq: seq}.Append(b)
	for _, a := range answers {
		b = binary.LittleEndian.AppendUint32(b, uint32(a.Token))
		b = append(b, a.Status, 0, 0, 0)
	}
	return b
}

// ParseChoice adds the answers of a choice frame to dst.
func ParseChoice(dst []Answer, h Header, body []byte) ([]Answer, error) {
	if len(body) != answerSize*int(h.Count) {
		return dst, refuse(CodeForm, "a choice frame of %d rows has %d bytes; it takes %d", h.Count, len(body), answerSize*int(h.Count))
	}
	for ; len(body) > 0; body = body[answerSize:] {
		dst = append(dst, Answer{Token: int32(binary.LittleEndian.Uint32(body)), Status: body[4]})
	}
	return dst, nil
}
