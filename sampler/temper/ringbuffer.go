package temper

import (
	"math"

	"qr-gateway/sampler/param"
)

func ringFields() []param.Field {
	n := number("rba_buffer_n", 1, 8192, 0, "ring_buffer_ar: how many of the last tokens of the answer are remembered; the prompt is not.")
	n.Type, n.Default, n.Unit = param.TypeInteger, 32, "tokens"
	return []param.Field{
		n,
		number("rba_lam", 0, 100, 2.5, "ring_buffer_ar: what a token loses per unit that its likeness is over the threshold, in logits."),
		number("rba_threshold", -1, 1, 0.65, "ring_buffer_ar: likeness from which a token loses; a remembered token's is 1, any other's 0."),
		number("rba_t", 0, 5, 1.0, "ring_buffer_ar: temperature of every token."),
		number("rba_min_p", 0, 0.15, 0.005, "ring_buffer_ar: min-p of every token."),
	}
}

// ring takes lam*(likeness-threshold) off the logits of tokens like those it remembers. Likeness is 1 for a remembered token and 0 for
// any other, so that a threshold under 0 also takes a constant off all of them.
type ring struct {
	known, other float64 // what a remembered and any other token loses
	t, minP      float64

	size int
	ids  []int32  // remembered tokens; once size is reached, next is the oldest
	next int      //
	seen []uint64 // one bit per token, all 0 between tokens

	marked ringMark
}

func newRing(v param.Values, nVocab int) (Strategy, error) {
	lam, threshold := v.Number("qr_rba_lam"), v.Number("qr_rba_threshold")
	size := max(int(v.Number("qr_rba_buffer_n")), 1)
	return &ring{
		known: lam * max(0, 1-threshold), other: lam * max(0, -threshold),
		t: v.Number("qr_rba_t"), minP: v.Number("qr_rba_min_p"),
		size: size, ids: make([]int32, 0, size), seen: make([]uint64, (nVocab+63)/64),
	}, nil
}

// Plan implements [Strategy].
func (s *ring) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	if err := out.decide(clamp(s.t, leastT, mostT)); err != nil {
		return err
	}
	out.MinP, out.HasMinP = clampMinP(s.minP), true
	penalized := 0
	if len(s.ids) > 0 && s.known > 0 {
		if in.Row32 != nil {
			penalized = penalize(s, in.Row32, out.row(len(in.Row32)))
		} else {
			penalized = penalize(s, in.Row64, out.row(len(in.Row64)))
		}
	}
	out.note("n_buffered", float64(len(s.ids)))
	out.note("n_penalized", float64(penalized))
	return nil
}

// penalize writes row into to with its penalties and returns how many tokens have one.
func penalize[F float32 | float64](s *ring, row []F, to []float64) int {
	for i, v := range row {
		x := float64(v) - s.other
		if !(x <= math.MaxFloat64) {
			x = math.Inf(-1)
		}
		to[i] = x
	}
	n := 0
	for _, id := range s.ids {
		if int(id) >= len(row) || s.mark(id) {
			continue
		}
		n++
		if v := float64(row[id]); finite(v) {
			to[id] = v - s.known
		}
	}
	s.unmark()
	if s.other > 0 {
		return len(row)
	}
	return n
}

// mark reports whether id was marked, and marks it.
func (s *ring) mark(id int32) bool {
	w, b := &s.seen[id>>6], uint64(1)<<(id&63)
	old := *w&b != 0
	*w |= b
	return old
}

func (s *ring) unmark() {
	for _, id := range s.ids {
		s.seen[id>>6] = 0
	}
}

// Chosen implements [Strategy]. An id outside the vocabulary is not remembered.
func (s *ring) Chosen(token int32) {
	if token < 0 || int(token)>>6 >= len(s.seen) {
		return
	}
	if len(s.ids) < s.size {
		s.ids = append(s.ids, token)
		return
	}
	s.ids[s.next] = token
	s.next = (s.next + 1) % s.size
}
