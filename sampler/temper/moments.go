package temper

import "math"

// Moments returns the Shannon entropy H of softmax(row) in nats and its varentropy, the sum of p (-ln p - H)^2, in nats^2, both exact
// to about 1e-13. A logit that is not finite is absent; a row with none that is present has neither. With s = logit - max and
// Z = sum e^s: H = ln Z - (sum e^s s)/Z and VH = (sum e^s s^2)/Z - ((sum e^s s)/Z)^2.
//
// The places of the largest logit are counted apart from the rest, so that both keep their digits where one token has nearly everything.
func Moments[F float32 | float64](row []F) (h, vh float64) {
	s := gather(row, math.Inf(-1))
	return s.entropy(), s.varentropy()
}

// sums are those of a row over the tokens that are not too far below the largest.
type sums struct {
	n       int     // tokens
	largest float64 // the largest logit, -Inf where none is present
	peaks   float64 // tokens that have it
	rest    float64 // sum of e^s over the others
	s1, s2  float64 // sums of e^s s and e^s s^2
}

// blockLen is how many terms are added up before they join the sum of the row: rounding grows with the length of a sum.
const blockLen = 1024

// gather sums over the tokens of row that are present and have s >= least.
func gather[F float32 | float64](row []F, least float64) sums {
	t := sums{largest: largest(row)}
	if math.IsInf(t.largest, -1) {
		return t
	}
	for len(row) > 0 {
		n := min(len(row), blockLen)
		t.add(gatherBlock(row[:n], t.largest, least))
		row = row[n:]
	}
	return t
}

// gatherBlock keeps its sums in variables of their own, which the compiler holds in registers.
func gatherBlock[F float32 | float64](row []F, top, least float64) sums {
	floor, n, peaks := max(least, deepest), len(row), 0
	var rest, s1, s2 float64
	for _, v := range row {
		s := float64(v) - top
		if !(s >= floor && s < 0) { // the largest, what is absent, and what is too small to count
			if s == 0 {
				peaks++
			} else if !(s < 0 && s >= least && s >= -math.MaxFloat64) {
				n--
			}
			continue
		}
		e := exp(s)
		es := e * s
		rest += e
		s1 += es
		s2 += es * s
	}
	return sums{n: n, peaks: float64(peaks), rest: rest, s1: s1, s2: s2}
}

func (t *sums) add(b sums) {
	t.n += b.n
	t.peaks += b.peaks
	t.rest += b.rest
	t.s1 += b.s1
	t.s2 += b.s2
}

// z is the sum of e^s.
func (t *sums) z() float64 { return t.peaks + t.rest }

// entropy is that of the tokens summed over, renormalised. Both terms are 0 or more: nothing cancels.
func (t *sums) entropy() float64 {
	if t.peaks == 0 {
		return 0
	}
	return math.Log(t.peaks) + math.Log1p(t.rest/t.peaks) - t.s1/t.z()
}

func (t *sums) varentropy() float64 {
	if t.peaks == 0 {
		return 0
	}
	mean := t.s1 / t.z()
	return max(0, t.s2/t.z()-mean*mean)
}

// largest returns the largest finite value of row, or -Inf.
func largest[F float32 | float64](row []F) float64 {
	m, infinity := F(math.Inf(-1)), F(math.Inf(1))
	for _, v := range row {
		if v > m && v < infinity {
			m = v
		}
	}
	return float64(m)
}
