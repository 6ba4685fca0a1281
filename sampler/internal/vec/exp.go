package vec

import "math"

// exponential works out e^x as [Hist] does, for any x.
type exponential struct {
	tab [1 << tabBits]float64
}

func (e *exponential) fill() {
	for i := range e.tab {
		e.tab[i] = math.Exp2(float64(i) / (1 << tabBits))
	}
}

// at returns e^x, for -700 < x < 700 from the table.
func (e *exponential) at(x float64) float64 {
	if !(math.Abs(x) < -Floor) {
		return math.Exp(x)
	}
	y := x * perNat
	f := y + round
	n := math.Float64bits(f)
	d := y - (f - round)
	t := math.Float64frombits(math.Float64bits(e.tab[n&(1<<tabBits-1)]) + n>>tabBits<<52)
	return t + t*(d*(c1+d*(c2+d*c3)))
}
