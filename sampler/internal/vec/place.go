package vec

import "math"

// Place is a token's place in a distribution.
type Place struct {
	Key             Key
	Rank            int
	Before, Through float64 // running mass without it and with it
}

// stretch is a part of a distribution, in which the tokens have no order yet.
type stretch struct {
	block, cell int // cell is -1 for the whole block; block 0 is what is above the window
	before      float64
	rank        int
}

// Total is the mass of all tokens, their number, and a bound of the error of any running mass.
func (d *Softmax) Total() (mass float64, count int, err float64) { return d.total, d.count, d.err }

// Find returns the first token at which the running mass reaches m, or the last in the window. row and banned are those of the sketch, keys is
// scratch memory, which is returned.
func (d *Softmax) Find(m float64, row []float32, banned []int32, keys []Key) (Place, []Key) {
	at := d.narrow(m)
	keys = d.tokens(at, row, banned, keys[:0])
	Sort(keys)
	p := Place{Rank: at.rank - 1, Through: at.before}
	for _, k := range keys {
		p = Place{Key: k, Rank: p.Rank + 1, Before: p.Through, Through: p.Through + d.Mass(k)}
		if p.Through >= m {
			break
		}
	}
	return p, keys
}

// narrow finds the block, and in the tail the cell, in which the running mass reaches m.
func (d *Softmax) narrow(m float64) (at stretch) {
	sum, rank := 0.0, 0
	for b, mass := range d.masses[:d.n] {
		if d.counts[b] == 0 {
			continue
		}
		at = stretch{block: b, cell: -1, before: sum, rank: rank}
		if sum+mass >= m {
			break
		}
		sum, rank = sum+mass, rank+d.counts[b]
	}
	if at.block == 0 || uint64(at.block) <= d.s.near>>(cellBits+blockBits) {
		return at
	}
	return d.narrowCell(at, m)
}

func (d *Softmax) narrowCell(at stretch, m float64) stretch {
	first := (at.block - 1) * blockCells
	sum, rank := at.before, at.rank
	scale := d.scale(at.block)
	for j := range blockCells {
		if d.s.cells[first+j].sum == 0 {
			continue
		}
		mass, n := d.sum(j, &d.s.cells[first+j])
		at.cell, at.before, at.rank = first+j, sum, rank
		if sum+mass*scale >= m {
			break
		}
		sum, rank = sum+mass*scale, rank+int(n)
	}
	return at
}

// tokens appends the tokens of a stretch.
func (d *Softmax) tokens(at stretch, row []float32, banned []int32, keys []Key) []Key {
	s := d.s
	switch {
	case at.block == 0:
		return append(keys, s.above...)
	case at.cell < 0:
		for _, k := range s.head {
			if d.block(k) == at.block {
				keys = append(keys, k)
			}
		}
		return keys
	}
	Segments(row, banned, func(base int32, seg []float32) { keys = s.members(keys, at.cell, base, seg) })
	return keys
}

// members appends the tokens of seg that are in a cell.
func (s *Sketch) members(keys []Key, cell int, base int32, seg []float32) []Key {
	upper := s.top - int64(cell)<<cellBits
	lower := upper - 1<<cellBits // not in the cell
	if upper >= 0 {
		lo := max(lower, 0)
		keys = s.between(keys, cell, base, seg, bitsBelow(lo), bitsBelow(upper+1)+2)
	}
	if lower < 0 {
		hi := max(-upper, 0)
		keys = s.between(keys, cell, base, seg, 1<<31|bitsBelow(hi), 1<<31|(bitsBelow(-lower)+2))
	}
	return keys
}

// bitsBelow are the bits of the largest float32 up to units, which is 0 or more, or of the one before it.
func bitsBelow(units int64) uint32 {
	b := math.Float32bits(float32(float64(units) * unit))
	return max(b, 1) - 1
}

// between is members where the bits of the values lie between lo and hi. That is one comparison for a value, and hardly ever true. Two, each true as
// often as not, are guessed wrong too often.
func (s *Sketch) between(keys []Key, cell int, base int32, seg []float32, lo, hi uint32) []Key {
	from, width := 0, hi-lo
	if s.simd {
		from = len(seg) &^ 15
		for _, o := range s.skim.odd[:runsWithin(seg[:from], lo, width, s.skim.odd)] {
			keys = s.within(keys, cell, base+o.at, seg[o.at:o.at+16], lo, width)
		}
	}
	return s.within(keys, cell, base+int32(from), seg[from:], lo, width)
}

func (s *Sketch) within(keys []Key, cell int, base int32, seg []float32, lo, width uint32) []Key {
	for i, v := range seg {
		if math.Float32bits(v)-lo < width && s.units(v)>>cellBits == uint64(cell) {
			keys = append(keys, NewKey(v, base+int32(i)))
		}
	}
	return keys
}
