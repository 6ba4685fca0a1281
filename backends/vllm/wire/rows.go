package wire

import (
	"encoding/binary"
	"math"
)

// Shown is a row as a plugin shows it: its head, and its logits unless they are in the memfd.
type Shown struct {
	Row
	IDs    []int32   // of a compact row, K of them
	Logits []float32 // as many, or the vocabulary's of an inline row
}

// AppendStep adds a step frame to b.
func AppendStep(b []byte, seq uint64, flags uint8, rows []Shown) []byte {
	return frame(b, Header{Kind: KindStep, Flags: flags, Count: uint16(len(rows)), Seq: seq}, func(b []byte) []byte {
		for i := range rows {
			b = rows[i].head(b)
		}
		for i := range rows {
			b = appendInts(b, rows[i].IDs)
		}
		for _, form := range []Form{Compact, Inline} {
			for i := range rows {
				if rows[i].Form == form {
					b = appendFloats(b, rows[i].Logits)
				}
			}
		}
		return b
	})
}

func (r *Row) head(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(le.AppendUint32(b, r.Handle), r.Step)
	b = append(le.AppendUint16(b, uint16(r.K)), byte(r.Form), 0)
	b = le.AppendUint32(b, uint32(r.Slot))
	return le.AppendUint32(appendFloats(b, []float32{r.Max, r.LSE, r.Entropy}), uint32(r.Finite))
}

func appendFloats(b []byte, v []float32) []byte {
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
