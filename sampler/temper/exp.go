package temper

import "math"

// The exponential of what is 0 or less, by a table: in units of ln2/256, s = n + d with n whole and |d| <= 1/2, and e^s =
// 2^(n/256) 2^(d/256). The second factor is a polynomial of degree 4, written so that few of its terms wait for another; its
// first missing term is under 4e-17. The relative error of the whole is under 5e-16 and, since s in units is rounded, 1.3e-16 |s| more.
const (
	tabBits = 8
	perNat  = (1 << tabBits) / math.Ln2
	e1      = 1 / perNat
	e2      = e1 * e1 / 2
	e3      = e1 * e1 * e1 / 6
	e4      = e1 * e1 * e1 * e1 / 24
	// rounder is added and taken away to round to a whole number: 1.5*2^52.
	rounder = 6755399441055744.0
	// deepest is where e^s ends: what is further below the largest has no probability.
	deepest = -700.0
)

// powers is 2^(i/256). It is never changed.
var powers = makePowers()

func makePowers() (t [1 << tabBits]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / (1 << tabBits))
	}
	return t
}

// exp returns e^s for s between deepest and 0.
func exp(s float64) float64 {
	s *= perNat
	f := s + rounder
	n := math.Float64bits(f)
	s -= f - rounder
	p := powers[n%(1<<tabBits)] * (1 + s*e1 + s*s*(e2+s*e3+s*s*e4))
	return math.Float64frombits(math.Float64bits(p) + n>>tabBits<<52)
}
