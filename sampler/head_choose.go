package sampler

import (
	"math"

	"qr-gateway/sampler/internal/vec"
)

// headMargin is the share of a mass by which a limit must be away from a token's edge: far more than what the ways to decide by the whole row
// differ by.
const headMargin = 1e-9

// weigh gives the keys their weights and bounds the mass of the rest. It reports false where no number decides anything.
func (r *headScratch) weigh(h *Head, c Cut) bool {
	if len(r.keys) == 0 {
		return false
	}
	largest, t := float64(r.keys[0].Value()), c.t()
	r.prob, r.sure = r.prob[:0], len(r.keys)
	for i, k := range r.keys {
		if r.sure == len(r.keys) && k.Value() <= r.ceil {
			r.sure = i
		}
		r.prob = append(r.prob, math.Exp((float64(k.Value())-largest)/t))
	}
	if r.sure == 0 {
		return false
	}
	r.tail, r.most, r.covered = span{}, 0, 1
	if r.rest == 0 {
		return true
	}
	return r.weighRest(h, c, largest)
}

// weighRest bounds what is not shown.
func (r *headScratch) weighRest(h *Head, c Cut, largest float64) bool {
	b := 1 / c.t()
	mass, moment := r.shownMass(b)
	rest, ok := tailOf(h, r.edge, r.rest, mass, moment)
	if !ok {
		return false
	}
	r.covered = min(1, mass/math.Exp(float64(h.LSE)-float64(h.Max)))
	m := rest.at(b)
	if !(m.lo <= m.hi) { // no row has such an entropy
		return false
	}
	scale := math.Exp((float64(h.Max) - largest) * b)
	r.most = math.Exp((float64(r.ceil) - largest) * b)
	r.tail = span{scale * max(0, m.lo-r.loss), min(scale*(m.hi+r.gain), float64(r.rest)*r.most)}
	return r.tail.lo >= 0 && r.tail.hi < math.Inf(1)
}

// shownMass is the mass of the tokens shown, at temperature 1, and, unless b is 1, their sum of w x.
func (r *headScratch) shownMass(b float64) (mass, moment float64) {
	if b == 1 && !r.moved {
		for _, q := range r.prob {
			mass += q
		}
		return mass, 0
	}
	for _, e := range r.shown {
		x := float64(r.high) - float64(e.logit)
		w := math.Exp(-x)
		mass += w
		moment += w * x
	}
	return mass, moment
}

// first is the greedy choice.
func (r *headScratch) first() (Draw, bool) {
	return Draw{Token: r.keys[0].ID(), Prob: 1, Candidates: 1}, true // weigh has seen that it is over the rest
}

// kept is what the cuts leave of a row.
type kept struct {
	n     int  // of the keys: those known to be left
	mass  span // of all that is left
	whole bool // nothing but the n keys is left
}

// choose finds the token that u takes, if it is the same all over what the mass of the rest may be.
func (r *headScratch) choose(c Cut, u float64) (Draw, bool) {
	left, margin := r.cut(c), headMargin
	if left.whole && c.TopK > 0 && c.TopK <= smallSet || r.nVocab <= smallSet && left.whole {
		margin = 0 // the whole row would be decided on by this very arithmetic
	}
	left, ok := r.cutTopP(left, c.TopP, margin)
	if !ok {
		return Draw{}, false
	}
	at, ok := r.place(left, span{u * left.mass.lo, u * left.mass.hi}, margin*left.mass.hi)
	if !ok {
		return Draw{}, false
	}
	lo, hi := r.prob[at]/left.mass.hi, r.prob[at]/left.mass.lo
	d := Draw{Token: r.keys[at].ID(), Rank: at, Prob: lo/2 + hi/2, ProbErr: (hi - lo) / 2, U: u}
	switch {
	case left.whole:
		d.Candidates = left.n
	case c.TopP >= 1 && c.floor() <= 0 && c.TopK <= 0 && r.hidden == 0:
		d.Candidates = len(r.keys) + r.rest
	}
	return d, true
}

// cut applies top-k and min-p. What they leave are the first of the sure keys, and, unless these are all, up to so many more as have room: keys
// that others may have overtaken, and the rest.
func (r *headScratch) cut(c Cut) kept {
	room := r.nVocab
	if c.TopK > 0 {
		room = min(room, c.TopK)
	}
	floor, sum, n := c.floor(), 0.0, 0
	for n < min(r.sure, room) && r.prob[n] >= floor && !r.absent(n, c) {
		sum += r.prob[n]
		n++
	}
	if n < r.sure || n == room || n == len(r.keys) && r.rest == 0 || r.most < floor*(1-headMargin) {
		return kept{n: n, mass: span{sum, sum}, whole: true}
	}
	more := r.overtaken(floor, room-n)
	return kept{n: n, mass: span{sum + more.lo, sum + more.hi}}
}

// absent reports that a key is so far below the largest that it has no probability.
func (r *headScratch) absent(n int, c Cut) bool {
	return (float64(r.keys[n].Value())-float64(r.keys[0].Value()))/c.t() < vec.Floor
}

// overtaken bounds the mass of those of the keys behind the sure ones, and of the rest, that are over floor and among the first room of them.
func (r *headScratch) overtaken(floor float64, room int) span {
	behind := r.prob[r.sure:]
	var m span
	for i, q := range behind {
		if q >= floor*(1+headMargin) && i < room {
			m.lo += q
		}
		if q >= floor*(1-headMargin) {
			m.hi += q
		}
	}
	// Of the rest those over floor have at least this, and the first of them at least their share of it.
	if places := room - len(behind); places > 0 && r.rest > 0 {
		lo := max(0, r.tail.lo-float64(r.rest)*floor)
		m.lo += lo * min(1, float64(places)/float64(r.rest))
	}
	m.hi = min(m.hi+r.tail.hi, float64(room)*r.most)
	return span{min(m.lo, m.hi), m.hi}
}

// cutTopP applies top-p to what is left. It isn't sure where a key's edge is in doubt and nothing else is.
func (r *headScratch) cutTopP(left kept, p, margin float64) (kept, bool) {
	if p >= 1 {
		return left, true
	}
	doubt := margin * left.mass.hi
	if at, ok := r.place(left, span{p * left.mass.lo, p * left.mass.hi}, doubt); ok {
		sum := r.through(at)
		return kept{n: at + 1, mass: span{sum, sum}, whole: true}, true
	}
	return r.looseTopP(left, span{p*left.mass.lo - doubt, p*left.mass.hi + doubt}), true
}

// looseTopP is top-p where it isn't known at which token the mass reaches target.
func (r *headScratch) looseTopP(left kept, target span) kept {
	sum, n, lo := 0.0, 0, -1.0
	for n < left.n && sum < target.hi {
		sum += r.prob[n]
		n++
		if lo < 0 && sum >= target.lo {
			lo = sum
		}
	}
	hi := sum
	if sum < target.hi { // beyond the keys
		hi = min(left.mass.hi, target.hi+r.most)
	}
	if lo < 0 {
		lo = min(target.lo, left.mass.lo)
	}
	return kept{n: n, mass: span{lo, max(lo, hi)}}
}

// through is the mass of the first keys up to that at i.
func (r *headScratch) through(i int) (sum float64) {
	for _, q := range r.prob[:i+1] {
		sum += q
	}
	return sum
}

// place finds the key at which the running mass reaches target, if it is one for all of target and further than doubt from the key's edges.
func (r *headScratch) place(left kept, target span, doubt float64) (at int, ok bool) {
	before := 0.0
	for i, q := range r.prob[:left.n] {
		through := before + q
		last := left.whole && i == left.n-1
		if last || through >= target.lo {
			return i, (i == 0 || before+doubt < target.lo) && (last || target.hi+doubt <= through)
		}
		before = through
	}
	return 0, false
}
