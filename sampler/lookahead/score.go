package lookahead

import (
	"math"

	"qr-gateway/sampler"
)

// Exponents returns the a and b of the score p^a H^b for a curve and an alpha between -1 and 1:
//
//	article    a = 1-max(0,alpha)   b = 1-max(0,-alpha)
//	crossfade  a = (1-alpha)/2      b = (1+alpha)/2
//	seed       a = 1-alpha          b = 1+alpha
//
// At alpha = -1 every curve has b = 0: what follows plays no part.
func Exponents(curve string, alpha float64) (a, b float64) {
	switch curve {
	case sampler.CurveCrossfade:
		return (1 - alpha) / 2, (1 + alpha) / 2
	case sampler.CurveSeed:
		return 1 - alpha, 1 + alpha
	}
	return 1 - max(0, alpha), 1 - max(0, -alpha)
}

// entropy is that of the topN largest logits of row, renormalised, divided by ln(topN), in [0,1]. The divisor stays even where fewer are
// finite. Bans have no part in it: the future is judged as the model sees it.
func (d *Decoder) entropy(row []float32) float64 {
	d.row.Reset(d.s.topN)
	d.row.Scan(0, row)
	keys := d.row.Keys()
	if len(keys) < 2 {
		return 0
	}
	largest := keys[0].Value()
	for _, k := range keys {
		largest = max(largest, k.Value())
	}
	var z, zx float64
	for _, k := range keys {
		x := float64(k.Value()) - float64(largest)
		q := math.Exp(x)
		z += q
		if q > 0 { // 0 * -Inf
			zx += q * x
		}
	}
	h := (math.Log(z) - zx/z) / math.Log(float64(d.s.topN))
	return min(max(h, 0), 1)
}
