package vec

import (
	"math"
	"math/bits"
)

// lanes is how many values the kernels take at a time: lengths are multiples of it.
const lanes = 64

// power has the coefficients of 2^x for |x| <= 1/2, by interpolation at Chebyshev points. They are right to 1.1e-7, and to 1.6e-7 in float32.
var power = [6]float64{1.00000007550023, 0.6931471880307138, 0.24022107267654952, 0.05550357092688647, 0.009676043527416087, 0.0013390874847882665}

// skimErr is the most that a weight may be wrong by, as a share of it: the coefficients, and the rounding of x, of the polynomial and of a sum
// of four weights.
const skimErr = 5e-7

// skimBias is how much too large the coefficients make a weight on average, x being as likely anywhere.
const skimBias = 4.686e-8

// skimArgs say what a kernel sums up. With v clamped to lo and hi, n the whole number next to -(c+cc) v and x = n + (c+cc) v, the weight is 2^n
// times the polynomial a in x: 2^-m e^(v/T).
type skimArgs struct {
	hi, lo float32
	c, cc  float32 // -1/(T ln 2), and what is missing to it
	a      [6]float32
	m      float64
}

// oddRun is a run of 16 values with those of mask outside of the limits of a kernel.
type oddRun struct {
	at   int32
	mask uint16
}

// skim is what is known of a row whose head was kept and whose tail was only summed up, at one temperature.
type skim struct {
	args     skimArgs
	t        float64    // 0: the row was not skimmed
	hi       float64    // upper end of the tail
	sums     [3]float64 // of e^((v-hi)/T), and, of kernels that tell them, times (v-hi) and its square
	full     bool       // all of sums
	count    int        // tokens of the tail
	high     int        // values over hi, and
	low      int        // below lo, among those that the kernels saw
	leftover []float32  // tail tokens that they did not see
	odd      []oddRun   // scratch
	w        []float32  // weights of a part of the row, scratch
}

// depth is how far down the tail goes, in nats; what is lower is counted only.
const depth = 100

// Skim takes in row without the banned ids at temperature t: the head, and no more of the rest than its sums. full asks for the sums that
// moments need. It reports false where that can't be told, and where the machine or the build have no vector instructions. The row may be the same
// as in the last call, which again says.
func (s *Sketch) Skim(row []float32, banned []int32, t float64, full, again bool) bool {
	k := &s.skim
	again = again && k.t > 0
	if again && k.t == t && (k.full || !full) {
		return true
	}
	if !s.simd || t < tooLow || len(row) > maxTokens || !again && !s.aimSkim(row) {
		k.t = 0
		return false
	}
	k.t, k.full, k.sums = t, full, [3]float64{}
	if !k.set(t) || !again && !s.headHeavy() {
		k.t = 0
		return false
	}
	Segments(row, banned, func(base int32, seg []float32) { s.skimSegment(base, seg, again) })
	s.settleSkim()
	if !s.fits || s.broken {
		k.t = 0
		return false
	}
	return true
}

// aimSkim empties s and finds the head's end.
func (s *Sketch) aimSkim(row []float32) bool {
	s.reset()
	k := &s.skim
	k.room(row)
	k.count, k.high, k.low, k.leftover = 0, 0, 0, k.leftover[:0]
	if !s.aim(row) || s.near == uint64(s.n)<<cellBits {
		return false
	}
	k.hi = s.edge(int(s.near >> cellBits))
	k.args.hi, k.args.lo = float32(k.hi), float32(k.hi-depth)
	return float64(k.args.hi) == k.hi
}

// set makes the kernels' arguments for temperature t. It reports false where a weight may be too large for them.
func (k *skim) set(t float64) bool {
	c, p := -1/(t*math.Ln2), &k.args
	p.c = float32(c)
	p.cc = float32(c - float64(p.c))
	p.m = min(max(math.Round(-c*k.hi), -mostShift), mostShift)
	for i, sign := range [6]float64{1, -1, 1, -1, 1, -1} {
		p.a[i] = float32(math.Ldexp(sign*power[i], -int(p.m)))
	}
	return math.Abs(-c*k.hi-p.m) < mostShift
}

// mostShift is how far a coefficient may be scaled by powers of two.
const mostShift = 100

// sum adds up the weights of x, whose length is a multiple of lanes, and notes its odd values.
func (k *skim) sum(x []float32) (sums [3]float64, odd []oddRun) {
	var parts [3][8]float64
	n := 0
	for i := 0; i < len(x); i += len(k.w) {
		part := x[i:min(i+len(k.w), len(x))]
		w := k.w[:len(part)]
		n += weigh(part, w, &k.args, i, k.odd[n:])
		if k.full {
			addMoments(part, w, &k.args, &parts)
		} else {
			addWeights(w, &parts[0])
		}
	}
	for i := range parts {
		for _, p := range parts[i] {
			sums[i] += p
		}
	}
	return sums, k.odd[:n]
}

// skimSegment adds a segment. Where it is seen again, the odd values are known.
func (s *Sketch) skimSegment(base int32, seg []float32, again bool) {
	k := &s.skim
	n := len(seg) &^ (lanes - 1)
	sums, odd := k.sum(seg[:n])
	for i := range sums {
		k.sums[i] += sums[i]
	}
	if again {
		return
	}
	k.count += len(seg)
	top := float32(float64(s.top) * unit)
	for _, o := range odd {
		for m := o.mask; m != 0; m &= m - 1 {
			at := o.at + int32(bits.TrailingZeros16(m))
			if v := seg[at]; v > k.args.hi && v < top && len(s.head) < cap(s.head) {
				s.head = append(s.head, NewKey(v, base+at)) // what most are, in short
				k.high, k.count = k.high+1, k.count-1
				continue
			}
			s.oddOne(base+at, seg[at])
		}
	}
	for i, v := range seg[n:] {
		if v <= k.args.hi && v >= k.args.lo {
			k.leftover = append(k.leftover, v)
			continue
		}
		high, low := k.high, k.low
		s.oddOne(base+int32(n+i), v)
		k.high, k.low = high, low
	}
}

// oddOne takes in a value outside of the tail.
func (s *Sketch) oddOne(id int32, v float32) {
	k := &s.skim
	k.count--
	switch {
	case v > k.args.hi && v <= math.MaxFloat32:
		k.high++
		s.keep(id, v)
	case v < k.args.lo:
		k.low++
		if v >= -math.MaxFloat32 {
			s.below++
			s.lo, s.hi = -larger(-s.lo, -v), larger(s.hi, v)
		}
	default:
		s.broken = true
	}
}

// room makes room for as many odd runs as a row may have.
func (k *skim) room(row []float32) {
	if need := len(row)/16 + 1; len(k.odd) < need {
		k.odd = make([]oddRun, need)
		k.w = make([]float32, 16*lanes)
	}
}

// keep adds a token of the head or above the window.
func (s *Sketch) keep(id int32, v float32) {
	to, most := &s.head, headMost
	if float64(v) > float64(s.top)*unit {
		to, most = &s.above, aboveMost
	}
	if s.fits = s.fits && len(*to) < most; s.fits {
		*to = append(*to, NewKey(v, id))
	}
}

// headHeavy guesses by the sample whether a choice from the head is likely.
func (s *Sketch) headHeavy() bool {
	k := &s.skim
	n := len(s.sample) &^ (lanes - 1)
	sums, odd := k.sum(s.sample[:n])
	high := 0
	for _, o := range odd {
		for m := o.mask; m != 0; m &= m - 1 {
			if s.sample[o.at+int32(bits.TrailingZeros16(m))] > k.args.hi {
				high++
			}
		}
	}
	tail := sums[0]*k.scale() - float64(high)
	return tail < 4*float64(high)
}

// scale makes sums of a kernel relative to hi.
func (k *skim) scale() float64 { return math.Exp(k.args.m*math.Ln2-k.hi/k.t) / (1 + skimBias) }

// settleSkim takes out of the sums what the kernel made of the odd values, puts in what it did not see, and makes them relative to hi.
func (s *Sketch) settleSkim() {
	k := &s.skim
	var edge [lanes]float32
	for _, e := range [2]struct {
		v float32
		n int
	}{{k.args.hi, k.high}, {k.args.lo, k.low}} {
		for i := range edge {
			edge[i] = e.v
		}
		sums, _ := k.sum(edge[:])
		for i := range sums {
			k.sums[i] -= sums[i] * float64(e.n) / lanes
		}
	}
	scale := k.scale()
	for i := range k.sums {
		k.sums[i] *= scale
	}
	for _, v := range k.leftover {
		x := float64(v) - k.hi
		w := math.Exp(x / k.t)
		k.sums[0] += w
		k.sums[1] += w * x
		k.sums[2] += w * x * x
	}
}
