package wire

import (
	"encoding/binary"
	"math"
)

const rowSize = 32

// Form says where the logits of a row are.
type Form uint8

// The forms of rows.
const (
	Compact Form = iota // the largest, in the frame
	Shared              // all, in the memfd
	Inline              // all, in the frame: over gRPC
)

// Row is the head of one row of a step.
type Row struct {
	Handle, Step uint32
	K            int // entries of a compact row
	Form         Form
	Slot         int     // of a shared row
	Max          float32 // the largest logit; this and the following of compact rows only
	LSE          float32 // logarithm of the sum of the exponentials of all finite logits
	Entropy      float32 // nats, at temperature 1
	Finite       int     // logits that are finite
	at           int     // among the rows of its form
}

// Shape is what the rows of a session are like.
type Shape struct {
	K     int // entries of a compact row
	Vocab int // logits of a row
	Rows  int // of a step, at most
	Slots int // of the memfd; 0: there is none
}

// Step is a step frame. Its rows and their entries are read from the frame's body, which must stay as it was.
type Step struct {
	Rows                []Row
	k, vocab            int
	ids, logits, inline []byte
}

// Parse reads the body of a step frame into s, whose memory it uses again.
func (s *Step) Parse(h Header, body []byte, shape Shape) error {
	n := int(h.Count)
	switch {
	case n == 0 || n > shape.Rows:
		return refuse(CodeForm, "a step has %d rows; it takes 1 to %d", n, shape.Rows)
	case h.Flags&^FlagRest != 0:
		return refuse(CodeForm, "a step has flags %#x; there is only %#x", h.Flags, FlagRest)
	case len(body) < n*rowSize:
		return refuse(CodeTruncated, "a step of %d rows has %d bytes; their heads take %d", n, len(body), n*rowSize)
	}
	s.Rows, s.k, s.vocab = s.Rows[:0], shape.K, shape.Vocab
	var seen [Inline + 1]int
	for i := range n {
		r := parseRow(body[i*rowSize:])
		if err := r.check(shape, body[i*rowSize+11]); err != nil {
			return err
		}
		r.at = seen[r.Form]
		seen[r.Form]++
		s.Rows = append(s.Rows, r)
	}
	return s.cut(body[n*rowSize:], seen[Compact], seen[Inline])
}

// cut divides what follows the heads.
func (s *Step) cut(rest []byte, compact, inline int) error {
	size := 4 * compact * s.k
	if want := 2*size + 4*inline*s.vocab; len(rest) != want {
		return refuse(CodeForm, "the rows of a step have %d bytes; %d compact ones of %d entries and %d whole ones take %d", len(rest), compact, s.k, inline, want)
	}
	s.ids, s.logits, s.inline = rest[:size], rest[size:2*size], rest[2*size:]
	return nil
}

func parseRow(b []byte) Row {
	le := binary.LittleEndian
	return Row{
		Handle: le.Uint32(b), Step: le.Uint32(b[4:]), K: int(le.Uint16(b[8:])), Form: Form(b[10]), Slot: int(le.Uint32(b[12:])),
		Max: float(b[16:]), LSE: float(b[20:]), Entropy: float(b[24:]), Finite: int(le.Uint32(b[28:])),
	}
}

func (r *Row) check(s Shape, reserved byte) error {
	k := 0
	if r.Form == Compact {
		k = s.K
	}
	switch {
	case r.Form > Inline || reserved != 0:
		return refuse(CodeForm, "a row has form %d and %d behind it; there are forms 0, 1 and 2 with 0 behind them", r.Form, reserved)
	case r.K != k:
		return refuse(CodeForm, "a row of form %d has k %d; it takes %d", r.Form, r.K, k)
	case r.Form == Shared && r.Slot >= s.Slots:
		return refuse(CodeForm, "a row is in slot %d of the memfd; it has %d", r.Slot, s.Slots)
	}
	return nil
}

// Entries puts the entries of a compact row into ids and logits, which have room for K each.
func (s *Step) Entries(r *Row, ids []int32, logits []float32) {
	from := 4 * r.at * s.k
	a, b := s.ids[from:from+4*s.k], s.logits[from:from+4*s.k]
	ids, logits = ids[:s.k], logits[:s.k]
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(a[4*i:]))
		logits[i] = float(b[4*i:])
	}
}

// Raw is where the entries of a compact row are in the frame, for comparing.
func (s *Step) Raw(r *Row) (ids, logits []byte) {
	from := 4 * r.at * s.k
	return s.ids[from : from+4*s.k], s.logits[from : from+4*s.k]
}

// Whole puts the logits of an inline row into dst, which has room for the vocabulary.
func (s *Step) Whole(r *Row, dst []float32) {
	b := s.inline[4*r.at*s.vocab:]
	dst = dst[:s.vocab]
	for i := range dst {
		dst[i] = float(b[4*i:])
	}
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
