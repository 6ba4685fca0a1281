package temper

import "math"

// The logarithm by a table: x = 2^k m with m in [1,2), and m = c(1+r), where c is the middle of one of 128 parts of [1,2) and |r| <= 1/256.
// The first missing term of the polynomial, r^7/7, is under 2e-18; r itself is exact to 1.2e-16, and so is the whole, up to the rounding
// of its value.
const (
	logBits   = 7
	mantissa  = 1<<52 - 1
	exponent0 = 1023
)

// inverses is 1/c and ln c for each part. It is never changed.
var inverses = makeInverses()

type inverse struct{ inv, ln float64 }

func makeInverses() (t [1 << logBits]inverse) {
	for i := range t {
		inv := 1 / (1 + (float64(i)+0.5)/(1<<logBits))
		t[i] = inverse{inv, -math.Log(inv)}
	}
	return t
}

// log returns ln x for a normal x over 0.
func log(x float64) float64 {
	b := math.Float64bits(x)
	c := &inverses[b>>(52-logBits)%(1<<logBits)]
	r := math.Float64frombits(b&mantissa|exponent0<<52)*c.inv - 1
	k := float64(int(b>>52) - exponent0)
	return k*math.Ln2 + (c.ln + r*(1-r*(1.0/2-r*(1.0/3-r*(1.0/4-r*(1.0/5-r*(1.0/6)))))))
}
