package sampler

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"qr-gateway/sampler/internal/vec"
)

// headScratch is a head made ready for a choice. Weights are relative to the largest logit, as the temperature has them.
type headScratch struct {
	nVocab int
	shown  []shown
	bits   []uint64 // one per token: it is shown
	edge   float32  // least logit shown
	high   float32  // largest one
	rest   int      // finite logits that are not shown

	keys  []vec.Key // of what may be chosen, adjusted, sorted
	moved bool      // keys are not the tokens shown, as they are shown
	// ceil is what no adjusted logit that isn't shown is over. loss and gain bound what adjusting takes from their mass and adds to it, in weights
	// relative to the unadjusted maximum.
	ceil       float32
	loss, gain float64
	hidden     int // banned ids that are not shown

	prob    []float64 // beside keys
	sure    int       // keys over ceil, which have their rank for certain
	tail    span      // mass of what is not shown,
	most    float64   // and the most that one of it has
	covered float64
}

// shown is an entry of a head.
type shown struct {
	id    int32
	logit float32
}

func newHeadScratch(nVocab int) *headScratch {
	return &headScratch{nVocab: nVocab, bits: make([]uint64, (nVocab+63)/64)}
}

// read checks h and takes in its entries.
func (r *headScratch) read(h *Head) error {
	for _, e := range r.shown {
		r.bits[e.id>>6] = 0
	}
	r.shown = r.shown[:0]
	r.edge, r.high = float32(math.Inf(1)), float32(math.Inf(-1))
	switch {
	case len(h.IDs) != len(h.Logits):
		return fmt.Errorf("%w: %d ids, but %d logits", ErrHead, len(h.IDs), len(h.Logits))
	case !(h.Max <= math.MaxFloat32 && h.LSE <= math.MaxFloat32):
		return ErrLogits
	}
	for i, id := range h.IDs {
		if err := r.enter(id, h.Logits[i]); err != nil {
			return err
		}
	}
	r.rest = h.Finite - len(r.shown)
	return r.fits(h)
}

// enter takes in one entry.
func (r *headScratch) enter(id int32, logit float32) error {
	switch {
	case !(logit <= math.MaxFloat32):
		return ErrLogits
	case id == -1:
		return nil
	case id < 0 || int(id) >= r.nVocab:
		return fmt.Errorf("%w: token %d, where the vocabulary has %d", ErrHead, id, r.nVocab)
	case logit < -math.MaxFloat32:
		return nil
	case r.has(id):
		return fmt.Errorf("%w: token %d is there twice", ErrHead, id)
	}
	r.bits[id>>6] |= 1 << (id & 63)
	r.shown = append(r.shown, shown{id, logit})
	r.edge, r.high = min(r.edge, logit), max(r.high, logit)
	return nil
}

func (r *headScratch) has(id int32) bool { return r.bits[id>>6]&(1<<(id&63)) != 0 }

// fits checks what h says about its row against its entries.
func (r *headScratch) fits(h *Head) error {
	switch n := len(r.shown); {
	case h.Finite < 0 || h.Finite > r.nVocab:
		return fmt.Errorf("%w: %d finite logits, where the vocabulary has %d", ErrHead, h.Finite, r.nVocab)
	case n > h.Finite:
		return fmt.Errorf("%w: it shows %d of %d finite logits", ErrHead, n, h.Finite)
	case h.Finite == 0:
		return ErrNoCandidates
	case n == 0:
		return fmt.Errorf("%w: it shows none of %d finite logits", ErrHead, h.Finite)
	case h.Max != r.high:
		return fmt.Errorf("%w: the row's largest logit is %v, the head's %v", ErrHead, h.Max, r.high)
	}
	return nil
}

// adjust applies penalties, bias and bans to what is shown, and bounds what they do to the rest at temperature 1/b.
func (r *headScratch) adjust(a *penalties, ban *Mask, b float64) {
	banned := 0
	for _, id := range ban.IDs() {
		if int(id) < r.nVocab && r.has(id) {
			banned++
		}
	}
	biased := slices.ContainsFunc(a.bias, func(t TokenBias) bool { return r.has(t.Token) })
	r.keys, r.moved = r.keys[:0], banned > 0 || biased
	penalised := 0
	for _, e := range r.shown {
		v := e.logit
		if len(a.ids) > 0 && a.seen[e.id] != 0 {
			v = float32(a.penalise(float64(v), a.seen[e.id]))
			penalised++
		}
		if biased {
			v = addBias(a.bias, e.id, v)
		}
		if finite32(v) && (banned == 0 || !ban.Has(e.id)) {
			r.keys = append(r.keys, vec.NewKey(v, e.id))
		}
	}
	r.moved = r.moved || penalised > 0
	vec.Sort(r.keys)
	r.adjustRest(a, len(a.ids)-penalised, b)
	r.hidden = ban.Len() - banned
	r.loss += float64(r.hidden) * r.weight(r.ceil, b)
}

func finite32(v float32) bool { return v-v == 0 }

// addBias adds what a list, ascending by token, has for id.
func addBias(bias []TokenBias, id int32, v float32) float32 {
	at := sort.Search(len(bias), func(i int) bool { return bias[i].Token >= id })
	for ; at < len(bias) && bias[at].Token == id; at++ {
		v += float32(bias[at].Bias)
	}
	return v
}

// weight is e^(logit-max) at temperature 1/b, about the unadjusted maximum.
func (r *headScratch) weight(logit float32, b float64) float64 {
	return math.Exp((float64(logit) - float64(r.high)) * b)
}

// rounding is more than a mass may change by where logits are rounded to float32.
const rounding = 1e-5

// adjustRest bounds what penalties on n tokens and the bias do to logits that are not shown. All that is known of them is that they are not
// over the edge.
func (r *headScratch) adjustRest(a *penalties, n int, b float64) {
	r.ceil, r.loss, r.gain = r.edge, 0, 0
	if r.rest == 0 {
		r.ceil = float32(math.Inf(-1))
		return
	}
	if n > 0 {
		r.penaliseRest(a, n, b)
	}
	from := r.ceil
	for _, t := range a.bias {
		switch {
		case r.has(t.Token) || t.Bias == 0:
		case t.Bias > 0:
			r.raise(from+float32(t.Bias), b)
		default:
			r.loss += r.weight(from, b) * (rounding - math.Expm1(t.Bias*b))
		}
	}
}

// raise notes a token that isn't shown and may now be as high as up.
func (r *headScratch) raise(up float32, b float64) {
	r.ceil = max(r.ceil, up)
	r.gain += r.weight(up, b) * (1 + rounding)
}

// penaliseRest is adjustRest for the penalties of n tokens.
func (r *headScratch) penaliseRest(a *penalties, n int, b float64) {
	edge := r.weight(r.edge, b)
	if a.repetition > 1 && a.frequency >= 0 && a.presence >= 0 {
		r.loss += float64(n) * edge
		return
	}
	var last uint32
	var lost float64
	for _, id := range a.ids {
		if r.has(id) {
			continue
		}
		seen := a.seen[id]
		off := a.off(seen)
		if off < 0 || a.repetition < 1 {
			r.raise(float32(a.penalise(float64(r.edge), seen)), b)
		}
		if seen != last {
			last, lost = seen, a.lost(off, b)
		}
		r.loss += edge * lost
	}
}

// off is what frequency and presence take off a token that was seen as mark notes it.
func (a *penalties) off(seen uint32) float64 {
	n := seen >> 1
	if n == 0 {
		return 0
	}
	return float64(n)*a.frequency + a.presence
}

// lost is the share of its weight that a token may lose.
func (a *penalties) lost(off, b float64) float64 {
	switch {
	case a.repetition > 1 || a.repetition < 1 && off > 0:
		return 1
	case off > 0:
		return min(1, rounding-math.Expm1(-off*b))
	}
	return rounding
}
