package vec

import "math"

// Softmax is the distribution of a [Sketch] at one temperature, by descending probability: the masses of its blocks, relative to the
// largest logit, and how far they may be wrong.
type Softmax struct {
	exp     exponential
	s       *Sketch
	t       float64
	unit    float64             // in units of t
	largest float64             // logit of mass 1
	inside  [blockCells]float64 // mass at the middle of each cell, relative to the upper end of its block

	// Of the tokens above the window, then of each block.
	masses [1 + maxBlocks]float64
	counts [1 + maxBlocks]int
	n      int // of them

	total float64
	count int
	err   float64 // no running sum of masses is wrong by more
}

// NewSoftmax returns a distribution of nothing.
func NewSoftmax() *Softmax {
	d := new(Softmax)
	d.exp.fill()
	return d
}

// tooLow is the temperature from which on the least mass of a window is over the least float64.
const tooLow = 0.125

// Set makes d the distribution of s at temperature t. It reports false where the sums can't tell it.
func (d *Softmax) Set(s *Sketch, t float64) bool {
	d.n = 1 + s.n>>blockBits
	return t >= tooLow && d.start(s, t) && d.addTail()
}

// SetSkim is Set for what was skimmed of a row, at the temperature t, which is not over that of the sums. It knows no places beyond the head.
func (d *Softmax) SetSkim(s *Sketch, t float64) bool {
	d.n = 1 + int(s.near>>(cellBits+blockBits))
	if t > s.skim.t || !d.start(s, t) {
		return false
	}
	d.addHead()
	tail, err := s.skim.sums[0]*d.exp.at((s.skim.hi-d.largest)/t), skimErr
	if t < s.skim.t { // all distances from hi are 0 or below: the weights can only be smaller
		tail, err = tail/2, 1
	}
	d.total, d.count = tail, s.skim.count
	for b := range d.masses[:d.n] {
		d.total += d.masses[b]
		d.count += d.counts[b]
	}
	return d.bound(tail*err, s.skim.hi-depth)
}

// addHead sums up the blocks of the head and what is above the window.
func (d *Softmax) addHead() {
	s := d.s
	clear(d.masses[:d.n])
	clear(d.counts[:d.n])
	for _, k := range s.above {
		d.masses[0] += d.Mass(k)
	}
	d.counts[0] = len(s.above)
	for _, k := range s.head {
		b := d.block(k)
		d.masses[b] += d.Mass(k)
		d.counts[b]++
	}
}

// start sets the temperature.
func (d *Softmax) start(s *Sketch, t float64) bool {
	d.s, d.t, d.unit = s, t, unit/t
	for j := range d.inside {
		d.inside[j] = d.exp.at(-(float64(j) + 0.5) * (1 << cellBits) * d.unit)
	}
	return d.findLargest()
}

// findLargest sets the largest logit, or a little more where the head is not kept.
func (d *Softmax) findLargest() bool {
	best := Key(0)
	for _, k := range d.s.above {
		best = max(best, k)
	}
	if best == 0 {
		for _, k := range d.s.head {
			best = max(best, k)
		}
	}
	if best != 0 {
		d.largest = float64(best.Value())
		return true
	}
	for at := range d.s.cells[:d.s.n] {
		if d.s.cells[at].sum != 0 {
			d.largest = d.s.edge(at)
			return true
		}
	}
	return false
}

// edge is the upper end of a cell, as a logit.
func (s *Sketch) edge(cell int) float64 {
	return float64(s.top-int64(cell)<<cellBits) * unit
}

// block is the index of k's mass. k is in the head.
func (d *Softmax) block(k Key) int {
	return min(1+int(d.s.units(k.Value())>>(cellBits+blockBits)), int(d.s.near>>(cellBits+blockBits)))
}

// Mass is the mass of one token.
func (d *Softmax) Mass(k Key) float64 { return d.exp.at((float64(k.Value()) - d.largest) / d.t) }

// addTail sums up the blocks that are not in the head, and everything.
func (d *Softmax) addTail() bool {
	d.addHead()
	tail := 0.0
	for b := 1 + int(d.s.near>>(cellBits+blockBits)); b < d.n; b++ {
		m, n := 0.0, 0.0
		cells := (*[blockCells]cell)(d.s.cells[(b-1)*blockCells:])
		for j := range cells {
			if cells[j].sum != 0 {
				w, c := d.sum(j, &cells[j])
				m, n = m+w, n+c
			}
		}
		if n > 0 {
			d.masses[b], d.counts[b] = m*d.scale(b), int(n)
			tail += d.masses[b]
		}
	}
	d.total, d.count = 0, 0
	for b := range d.masses[:d.n] {
		d.total += d.masses[b]
		d.count += d.counts[b]
	}
	return d.bound(tail*d.cellErr(), d.s.edge(d.s.n))
}

// scale is the mass of a token at the upper end of a block.
func (d *Softmax) scale(block int) float64 {
	return d.exp.at((d.s.edge((block-1)*blockCells) - d.largest) / d.t)
}

// powers are the number of tokens of a cell and the sums of x and of x^2, their distances from the middle of the cell in units of the temperature.
func (d *Softmax) powers(c *cell) (n, x, xx float64) {
	const half = 1 << (cellBits - 1)
	count, sum := int64(c.sum>>countBits), int64(c.sum&sumMask)
	n = float64(count)
	x = float64(half*count-sum) * d.unit
	xx = float64(int64(c.squares)-2*half*sum+half*half*count) * (d.unit * d.unit)
	return n, x, xx
}

// sum is the mass of the cell at place j of a block, relative to the block's upper end. The sum of e^x is that of 1 + x + x^2/2, and at most
// |x|^3/6 a token more or less.
func (d *Softmax) sum(j int, c *cell) (mass, count float64) {
	n, x, xx := d.powers(c)
	return d.inside[j] * (n + x + xx/2), n
}

// cellErr is the most that the sum of a cell may be wrong by, as a share of it.
func (d *Softmax) cellErr() float64 {
	x := (1 << (cellBits - 1)) * d.unit
	return x*x*x/6*(1+x) + d.unit
}

// sumErr is the most that adding up to maxTokens weights may be wrong by, as a share of their sum, short of rows made to find the worst.
const sumErr = 1e-12

// bound works out err, of which err is known already, and whether what is below bottom, where the sums end, can be told.
func (d *Softmax) bound(err, bottom float64) bool {
	s := d.s
	d.err = err + sumErr*d.total
	if (bottom-d.largest)/d.t < Floor {
		return false
	}
	if s.below == 0 {
		return true
	}
	most := math.Exp((float64(s.hi) - d.largest) / d.t)
	d.err += most * float64(s.below)
	if math.Exp((float64(s.lo)-d.largest)/d.t) > 0 {
		d.count += s.below
		return true
	}
	return most == 0
}
