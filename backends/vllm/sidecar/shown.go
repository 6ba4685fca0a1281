package sidecar

import (
	"math"

	"qr-gateway/backends/vllm/wire"
)

// probes is how many entries of a row are kept to know it again.
const probes = 8

// shown is the row that was shown last and what came of it.
type shown struct {
	here    bool
	step    int
	decided bool // the stream is one step further
	asked   bool // the whole row was asked for
	native  bool // vLLM was left to choose, which is counted
	answer  wire.Answer

	compact, whole       bool // it was seen in that form, with that
	compactSum, wholeSum uint64
	ids                  [probes]int32 // of the compact row
	logits               [probes]float32
}

// same reports whether a row of the same step is the one that was shown. A compact row tells what a whole one must have.
func (s *shown) same(next *shown, row []float32) bool {
	switch {
	case next.compact && s.compact:
		return s.compactSum == next.compactSum
	case next.whole && s.whole:
		return s.wholeSum == next.wholeSum
	case next.whole && s.compact:
		return s.within(row)
	}
	return false
}

// within reports whether a whole row has the entries of the compact one.
func (s *shown) within(row []float32) bool {
	for i, id := range s.ids {
		if id >= 0 && (int(id) >= len(row) || math.Float32bits(row[id]) != math.Float32bits(s.logits[i])) {
			return false
		}
	}
	return true
}

// mix is a step of a fingerprint: a multiplication by an odd number, and the high bits brought down.
func mix(sum, v uint64) uint64 {
	sum = (sum ^ v) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

// ofCompact is the fingerprint of a compact row.
func (s *shown) ofCompact(r *wire.Row, ids []int32, logits []float32) {
	s.here, s.step, s.compact = true, int(r.Step), true
	sum := mix(uint64(r.Finite), uint64(math.Float32bits(r.Max))<<32|uint64(math.Float32bits(r.LSE)))
	for i := range s.ids {
		s.ids[i] = -1
		if i < len(ids) {
			s.ids[i], s.logits[i] = ids[i], logits[i]
			sum = mix(sum, uint64(uint32(ids[i]))<<32|uint64(math.Float32bits(logits[i])))
		}
	}
	s.compactSum = sum
}

// strides is how many logits of a whole row its fingerprint is made of.
const strides = 128

// ofWhole is the fingerprint of a whole row: of logits spread over it.
func (s *shown) ofWhole(r *wire.Row, row []float32) {
	s.here, s.step, s.whole = true, int(r.Step), true
	by, sum := max(1, len(row)/strides), uint64(len(row))
	for i := 0; i < len(row); i += by {
		sum = mix(sum, uint64(math.Float32bits(row[i])))
	}
	s.wholeSum = sum
}
