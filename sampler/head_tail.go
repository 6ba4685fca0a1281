package sampler

import "math"

// span is an interval that a number lies in.
type span struct{ lo, hi float64 }

// by is where c times the number lies.
func (s span) by(c float64) span {
	if c < 0 {
		return span{c * s.hi, c * s.lo}
	}
	return span{c * s.lo, c * s.hi}
}

func (s span) plus(t span) span { return span{s.lo + t.lo, s.hi + t.hi} }

func (s span) middle() float64 { return s.lo/2 + s.hi/2 }

// tail is what is known of the tokens that a head doesn't show: n weights w = e^-x, each at most e^-x0, their sum, and where the row's entropy
// is known the sum of w x.
type tail struct {
	n, x0  float64
	sum    span
	moment span
	known  bool // moment is
}

// Errors that a head may have, see [Head].
const (
	lseError     = 1e-5
	lseDigits    = 0x1p-23
	entropyError = 3e-5
	entropyScale = 2e-6
)

// tailOf takes the shown tokens away from what h says about its row: mass is their sum of w, moment their sum of w x, with x the distance from
// h.Max. It reports false where h contradicts itself.
func tailOf(h *Head, edge float32, rest int, mass, moment float64) (tail, bool) {
	top := float64(h.Max)
	t := tail{n: float64(rest), x0: top - float64(edge)}
	lnZ := float64(h.LSE) - top
	z, rel := math.Exp(lnZ), lseError+lseDigits*math.Abs(float64(h.LSE))
	limit := t.n * math.Exp(-t.x0) * (1 + 1e-12)
	t.sum = span{max(0, z*(1-rel)-mass), min(z*(1+rel)-mass, limit)}
	if !(t.sum.lo <= t.sum.hi) {
		return t, false
	}
	// -sum p ln p = ln Z + (sum w x)/Z, with w, x and Z about the maximum.
	e := float64(h.Entropy)
	mean := e - lnZ
	off := z * (entropyError + entropyScale*(math.Abs(float64(h.LSE))+math.Abs(top)+e) + rel*(1+math.Abs(mean)))
	t.moment = span{max(z*mean-off-moment, t.x0*t.sum.lo), z*mean + off - moment}
	t.known = t.moment.lo <= t.moment.hi // not where the entropy is NaN
	return t, true
}

// at is the sum of w^b, the tail's mass at temperature 1/b. In terms of k = 1-b it is the sum of w e^(kx), the moment generating function of x
// under w. With only n and the sum known, all weights alike are one end, and all that are not 0 at the edge the other. With the sum of w x, e^(kx)
// lies over its tangent at the mean (Jensen), and under the combination of 1, x and e^x that meets it at x0 and touches it at a second place: of
// three moments these are the best bounds there are (Chebyshev-Markov-Krein). Any tangent and any second place give true bounds, so that a
// rounded place costs width and nothing else.
func (t *tail) at(b float64) span {
	if b == 1 {
		return t.sum
	}
	k := 1 - b
	near := math.Exp(k * t.x0)
	s := span{t.n * math.Pow(t.sum.lo/t.n, b), t.sum.hi * near}
	if k > 0 {
		s = span{t.sum.lo * near, t.n * math.Pow(t.sum.hi/t.n, b)}
	}
	sum := t.sum.middle()
	over := t.moment.middle()/sum - t.x0 // mean of x-x0
	if t.known && sum > 0 && over > 0 {
		s.lo = max(s.lo, near*t.tangent(k, over))
		if most, ok := t.chord(k, over, sum); ok {
			s.hi = min(s.hi, near*most)
		}
	}
	const slack = 1e-6
	return span{s.lo * (1 - slack), s.hi * (1 + slack)}
}

// linear bounds the sum of w (a + c (x-x0)). Its terms may cancel, and their last digits are not to be relied on.
func (t *tail) linear(a, c float64) span {
	const digits = 1e-13
	d := a - c*t.x0
	s := t.sum.by(d).plus(t.moment.by(c))
	off := digits * ((math.Abs(a)+math.Abs(c)*t.x0)*t.sum.hi + math.Abs(c)*t.moment.hi)
	return span{s.lo - off, s.hi + off}
}

// tangent is the sum of w times the tangent of e^(kz) at z, the distance from x0, at least.
func (t *tail) tangent(k, z float64) float64 {
	e := math.Exp(k * z)
	if lo := e * t.linear(1-k*z, k).lo; lo > 0 {
		return lo
	}
	return 0
}

// chord is the sum of w times a + c z + g e^z, which is e^(kz) at 0, touches it at d, and is over it elsewhere; at most. d is where two places, 0
// and d, have the moments over and n e^-x0/sum of z and e^z.
func (t *tail) chord(k, over, sum float64) (most float64, ok bool) {
	all := t.n * math.Exp(-t.x0)
	d := secondPlace((all/sum - 1) / over)
	if !(d > 1e-3 && d < 300) { // near 0 the differences below have no digits
		return 0, false
	}
	ed, ekd := math.Exp(d), math.Exp(k*d)
	g := (ekd*(1-k*d) - 1) / (ed*(1-d) - 1)
	c := k*ekd - g*ed
	return t.linear(1-g, c).hi + g*all*(1+1e-12), true
}

// secondPlace solves (e^d - 1)/d = ratio.
func secondPlace(ratio float64) float64 {
	d := math.Log1p(ratio * math.Log1p(ratio))
	for range 6 {
		d = math.Log1p(ratio * d)
	}
	return d
}
