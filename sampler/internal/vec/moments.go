package vec

import "math"

// Moments tell a row at temperature 1. With s = logit - Max and Z = sum e^s: LogZ = ln Z, H = ln Z - (sum e^s s)/Z is the Shannon entropy in nats, and
// VH = (sum e^s s^2)/Z - ((sum e^s s)/Z)^2 the varentropy in nats^2.
type Moments struct {
	Max, LogZ, H, VH float64 // Max may be up to 2^-9 too large; the others are about it
	Count            int     // finite logits
	Broken           bool    // a logit was NaN or +Inf
}

// sums are those over the tokens other than the largest, so that their digits are kept where the largest has nearly everything.
type sums struct {
	peaks  float64 // tokens of the largest logit
	rest   float64 // sum of e^s
	s1, s2 float64 // sums of e^s s and e^s s^2
}

// add takes in a token of weight w = e^s.
func (a *sums) add(s, w float64) {
	if s == 0 {
		a.peaks++
		return
	}
	a.rest += w
	a.s1 += w * s
	a.s2 += w * s * s
}

func (a *sums) moments(m Moments) Moments {
	z := a.peaks + a.rest
	m.LogZ = math.Log(z)
	if a.peaks > 0 {
		m.LogZ = math.Log(a.peaks) + math.Log1p(a.rest/a.peaks)
	}
	m.H = m.LogZ - a.s1/z
	// About the mean, with the peaks at s = 0.
	mean := a.s1 / z
	m.VH = max(0, a.s2/z-mean*mean)
	return m
}

// MomentsOf reads a row of any kind, without the banned ids. For rows that a [Sketch] doesn't take.
func MomentsOf(row []float32, banned []int32) Moments {
	m, largest := Moments{}, float32(math.Inf(-1))
	Segments(row, banned, func(_ int32, seg []float32) { largest = larger(largest, MaxFinite(seg)) })
	m.Max = float64(largest)
	var a sums
	Segments(row, banned, func(_ int32, seg []float32) {
		for _, v := range seg {
			if math.Abs(float64(v)) <= math.MaxFloat32 {
				m.Count++
				x := float64(v) - m.Max
				a.add(x, math.Exp(x))
			} else if !(v < 0) {
				m.Broken = true
			}
		}
	})
	if m.Count == 0 {
		return m
	}
	return a.moments(m)
}

// Moments tells s. It reports false where s can't tell them to 1e-9.
func (d *Softmax) Moments(s *Sketch) (Moments, bool) {
	if !d.start(s, 1) {
		return Moments{}, false
	}
	d.n = 1 + s.n>>blockBits
	a, n := d.headMoments()
	head := a.rest
	for b := 1 + int(s.near>>(cellBits+blockBits)); b < d.n; b++ {
		n += d.addBlock(&a, b)
	}
	d.total, d.count = a.peaks+a.rest, int(n)
	if !d.bound((a.rest-head)*d.cellErr(), s.edge(s.n)) || d.err > 1e-9*d.total {
		return Moments{}, false
	}
	return a.moments(Moments{Max: d.largest, Count: d.count, Broken: s.broken}), true
}

// SkimMoments is Moments for what was skimmed of a row, at temperature 1 and with all sums.
func (d *Softmax) SkimMoments(s *Sketch) (Moments, bool) {
	if !d.start(s, 1) {
		return Moments{}, false
	}
	a, n := d.headMoments()
	k, below := &s.skim, s.skim.hi-d.largest
	scale := d.exp.at(below)
	a.rest += scale * k.sums[0]
	a.s1 += scale * (k.sums[1] + below*k.sums[0])
	a.s2 += scale * (k.sums[2] + below*(2*k.sums[1]+below*k.sums[0]))
	d.total, d.count = a.peaks+a.rest, int(n)+k.count
	if !d.bound(scale*k.sums[0]*skimErr, k.hi-depth) || d.err > 1e-8*d.total {
		return Moments{}, false
	}
	return a.moments(Moments{Max: d.largest, Count: d.count}), true
}

// headMoments adds up the head and what is above the window.
func (d *Softmax) headMoments() (a sums, n float64) {
	for _, keys := range [2][]Key{d.s.above, d.s.head} {
		t := sums{} // in registers
		for _, k := range keys {
			x := float64(k.Value()) - d.largest
			if x == 0 {
				t.peaks++
				continue
			}
			w := d.exp.at(x)
			t.rest += w
			t.s1 += w * x
			t.s2 += w * x * x
		}
		a = sums{a.peaks + t.peaks, a.rest + t.rest, a.s1 + t.s1, a.s2 + t.s2}
	}
	return a, float64(len(d.s.above) + len(d.s.head))
}

// addBlock adds a block of the tail and returns its number of tokens. With x from the middle c of a cell, e^(c+x) (c+x) and e^(c+x) (c+x)^2
// are told to the second power of x.
func (d *Softmax) addBlock(a *sums, b int) (count float64) {
	var z, s1, s2 float64
	c := d.s.edge((b-1)*blockCells) - (1<<(cellBits-1))*unit - d.largest
	cells := (*[blockCells]cell)(d.s.cells[(b-1)*blockCells:])
	for j := range cells {
		if cells[j].sum != 0 {
			n, x, xx := d.powers(&cells[j])
			w, m, x1 := d.inside[j], n+x+xx/2, x+xx
			count += n
			z += w * m
			s1 += w * (c*m + x1)
			s2 += w * (c*(c*m+2*x1) + xx)
		}
		c -= (1 << cellBits) * unit
	}
	if count > 0 {
		w := d.scale(b)
		a.rest, a.s1, a.s2 = a.rest+w*z, a.s1+w*s1, a.s2+w*s2
	}
	return count
}
