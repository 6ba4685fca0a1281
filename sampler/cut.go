package sampler

import "math"

// Cut is what is kept of a row before one token is chosen from it. The zero value is greedy.
type Cut struct {
	Temperature   float64 // 0 is greedy
	TopK          int     // 0 is off
	TopP          float64 // 1 is off
	MinP          float64 // share of the largest probability; 0 is off, over 1 only the largest is left
	TruncateFirst bool    // min-p looks at the probabilities at temperature 1
}

// Cut is what the parameters alone say; a strategy may replace the temperature and min-p for a token.
func (p *Params) Cut() Cut {
	return Cut{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, TruncateFirst: p.TruncateFirst}
}

// NeedsU reports whether [Sampler.Choose] reads its u: a greedy choice does not.
func (c Cut) NeedsU() bool { return c.Temperature > 0 && c.TopK != 1 && c.TopP > 0 && c.MinP <= 1 }

// minT is the lowest temperature; below it every choice is the largest.
const minT = 1e-12

// t is the temperature to divide by.
func (c Cut) t() float64 { return max(c.Temperature, minT) }

// floor is min-p as a share at temperature T: e^(x/T) >= floor says the same as e^x >= MinP. What has no probability at temperature 1 has
// none at a higher one either where it is truncated first.
func (c Cut) floor() float64 {
	switch {
	case !c.TruncateFirst:
		return c.MinP
	case c.MinP > 0:
		return math.Exp(math.Log(c.MinP) / c.t())
	case c.Temperature > 1:
		return math.Exp(math.Log(math.SmallestNonzeroFloat64) / c.t())
	}
	return 0
}
