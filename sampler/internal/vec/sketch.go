package vec

import (
	"math"
	"runtime"
)

// A logit in fixed point counts units of 2^-31 nats. A float32 of 1/128 or more in absolute value is a whole number of them.
const (
	unitBits   = 31
	unit       = 1.0 / (1 << unitBits)
	cellBits   = 22 // units in a cell: it is 2^-9 nats wide
	cellMask   = 1<<cellBits - 1
	blockBits  = 6 // cells in a block: it is 1/8 nat wide
	blockCells = 1 << blockBits
	maxCells   = 1 << 15
	maxBlocks  = maxCells >> blockBits

	countBits = 44 // a cell's count stands above its sum of distances
	sumMask   = 1<<countBits - 1
	maxTokens = 1<<19 - 1 // as many squares of cell distances as have room in 63 bits

	headMost  = 4096 // tokens
	aboveMost = 1024 // tokens
	headroom  = 6    // nats of window above the largest of the sample
	runLen    = 16   // logits, a line of the cache: the sample is made of such runs,
	stride    = 61   // one in so many
	headRank  = 10   // the head goes down to the sample's logit of this rank
	largeAt   = 1e8  // logits of this size and more are not taken
)

// cell collects the logits of a stretch of 2^-9 nats: how many there are, and the sums of their distances from the stretch's upper end
// and of the distances' squares, in units. Whole numbers: the sums don't depend on the order of adding.
type cell struct {
	sum     uint64 // count<<countBits + sum of distances
	squares uint64
}

// Sketch is a row of logits summed up, so that its distribution at any temperature can be told without reading the row again. See design.md.
// It is made by [Sketch.Read] and good until the next, as long as the row stays as it was.
type Sketch struct {
	cells [maxCells]cell
	n     int   // cells in use
	top   int64 // upper end of the first cell, in units

	head   []Key   // the tokens of the first near units of the window
	near   uint64  // a whole number of blocks; 0 where the head is not kept
	above  []Key   // tokens above the window
	below  int     // tokens below it,
	lo, hi float32 // and the least and the largest of them
	fits   bool
	broken bool // a value was NaN or +Inf

	count  int // tokens of the head, even where it had no room for them
	sample []float32
	high   Top // its largest

	simd bool // kernels may be used
	skim skim

	one   uint64  // a count of 1
	scale float32 // logit to units, downwards
}

// NewSketch returns a sketch of nothing. Unless it is plain, it uses vector instructions where build and machine have them.
func NewSketch(plain bool) *Sketch {
	return &Sketch{simd: !plain && hasSIMD(), one: 1 << countBits, scale: -1 << unitBits, head: make([]Key, 0, headMost), above: make([]Key, 0, aboveMost)}
}

// Broken reports whether the row had a logit that is NaN or +Inf.
func (s *Sketch) Broken() bool { return s.broken }

// Read takes in row without the banned ids, which ascend. It reports false for a row that doesn't fit: too long, nothing finite in
// it, logits too large, or so far apart that the sample missed them.
func (s *Sketch) Read(row []float32, banned []int32) bool {
	s.reset()
	if len(row) > maxTokens || !s.aim(row) {
		return false
	}
	if s.simd {
		s.skim.room(row)
	}
	Segments(row, banned, s.add)
	if s.count > headMost {
		s.near, s.head = 0, s.head[:0]
	}
	return s.fits
}

func (s *Sketch) reset() {
	clear(s.cells[:s.n])
	s.head, s.above = s.head[:0], s.above[:0]
	s.n, s.count, s.below, s.fits, s.broken = 0, 0, 0, true, false
	s.lo, s.hi = float32(math.Inf(1)), float32(math.Inf(-1))
	s.skim.t = 0
}

// aim sets the window and the head's end by a sample of the row.
func (s *Sketch) aim(row []float32) bool {
	hi, lo := s.takeSample(row)
	if hi < lo { // nothing finite in the sample
		hi = MaxFinite(row)
		lo = hi
	}
	if !(math.Abs(float64(hi)) < largeAt) {
		return false
	}
	top := math.Ceil(float64(hi)) + headroom
	s.top, s.n = int64(top)<<unitBits, maxCells/4
	for s.n < maxCells && float64(s.n)*(1<<cellBits)*unit < top+1-float64(lo) {
		s.n *= 2
	}
	s.near = uint64(s.n) << cellBits
	if keys := s.high.Keys(); len(keys) == headRank && len(row) > headMost { // else all of it is the head
		s.near = min(s.near, (s.units(keys[0].Value())>>(cellBits+blockBits)+1)<<(cellBits+blockBits))
	}
	return true
}

// takeSample fills sample and returns its largest and least finite values.
func (s *Sketch) takeSample(row []float32) (hi, lo float32) {
	s.sample = s.sample[:0]
	for i := 0; i < len(row); i += stride * runLen {
		s.sample = append(s.sample, row[i:min(i+runLen, len(row))]...)
	}
	s.high.Reset(headRank)
	s.high.Scan(0, s.sample)
	hi, lo = float32(math.Inf(-1)), float32(math.Inf(1))
	for _, k := range s.high.Keys() {
		hi = larger(hi, k.Value())
	}
	for _, v := range s.sample {
		if v < lo && v >= -math.MaxFloat32 {
			lo = v
		}
	}
	return hi, lo
}

// units is how far v is below the top; over 2^62 where v is above it.
func (s *Sketch) units(v float32) uint64 { return uint64(int64(v*(-1<<unitBits)) + s.top) }

// nanIsZero says that a conversion may turn NaN into a number that looks good. On amd64 it becomes the least.
const nanIsZero = runtime.GOARCH != "amd64"

// add takes in a segment. Two sums and one comparison a value: what is in the head or outside of the window is set aside.
func (s *Sketch) add(base int32, seg []float32) {
	first := int(s.near >> cellBits)
	cells, end := s.cells[first:s.n], s.top-int64(s.near)
	one, scale := s.one, s.scale // variables, which stay in registers; a constant is loaded again and again
	for i, v := range seg {
		k := uint64(int64(v*scale) + end)
		at := k >> cellBits
		if at >= uint64(len(cells)) || nanIsZero && v != v {
			s.aside(base+int32(i), v)
			continue
		}
		c := &cells[at]
		k &= cellMask
		c.sum += k + one
		c.squares += k * k
	}
}

// aside is add for the head and for what is outside of the window.
func (s *Sketch) aside(id int32, v float32) {
	k := s.units(v)
	switch {
	case !(v <= math.MaxFloat32):
		s.broken = true
	case v < -math.MaxFloat32: // absent
	case k < s.near:
		s.addHead(id, v, k)
	case float64(v)*(1<<unitBits) < float64(s.top):
		s.below++
		s.lo, s.hi = -larger(-s.lo, -v), larger(s.hi, v)
	case len(s.above) < aboveMost:
		s.above = append(s.above, NewKey(v, id))
	default:
		s.fits = false
	}
}

// addHead notes a token of the head. The cells have it too, in case that the head becomes too long.
func (s *Sketch) addHead(id int32, v float32, k uint64) {
	c := &s.cells[k>>cellBits]
	k &= cellMask
	c.sum += k + s.one
	c.squares += k * k
	s.count++
	if len(s.head) < headMost {
		s.head = append(s.head, NewKey(v, id))
	}
}
