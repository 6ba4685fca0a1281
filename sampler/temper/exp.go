package temper

import "math"

// The exponential of what is 0 or less, by a table: s = (n + d) ln2/256 with n whole and |d| <= 1/2, so e^s = 2^(n/256) e^r with
// |r| <= 0.00136, and the first missing term of the polynomial, r^5/120, is under 4e-17. ln2/256 is split in two so that n times its
// first part is exact. The relative error of the whole is under 5e-16.
const (
	tabBits = 8
	perNat  = (1 << tabBits) / math.Ln2
	ln2Hi   = 6.93147180369123816490e-01 / (1 << tabBits)
	ln2Lo   = 1.90821492927058770002e-10 / (1 << tabBits)
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
	f := s*perNat + rounder
	n := math.Float64bits(f)
	f -= rounder
	r := s - f*ln2Hi - f*ln2Lo
	p := 1 + r*(1+r*(0.5+r*(1.0/6+r*(1.0/24))))
	return math.Float64frombits(math.Float64bits(powers[n%(1<<tabBits)]*p) + n>>tabBits<<52)
}
