package health

import "encoding/binary"

// runs is the repetition-count test of bytes, and the same test of the differences of neighbours, which finds counters. Whoever could
// foretell the next difference could foretell the next byte, so the claim for bytes, and with it the cut-off, holds for differences too.
type runs struct {
	cutoff int
	seen   int // bytes, up to 2
	last   byte
	step   byte // from the byte before last
	run    int  // bytes equal to last
	ramp   int  // differences equal to step
}

// test returns the longest runs that block has a part in: of bytes, from 1, and of differences.
func (r *runs) test(block []byte) (run, ramp int) {
	i := min(2, len(block)) // from there on the two bytes before are in block
	run, ramp = r.each(block[:i], 1, 0)
	behind := false // the runs were not followed up to i: they are 1
	for ; i+8 <= len(block); i += 8 {
		w := (*[10]byte)(block[i-2:])
		a, b, c := binary.LittleEndian.Uint64(w[0:]), binary.LittleEndian.Uint64(w[1:]), binary.LittleEndian.Uint64(w[2:])
		if !hasZero(b^c) && !hasZero(minus(b, a)^minus(c, b)) {
			behind = true
			continue
		}
		if behind {
			r.catchUp(block[i-2], block[i-1])
			behind = false
		}
		run, ramp = r.each(block[i:i+8], run, ramp)
	}
	if behind {
		r.catchUp(block[i-2], block[i-1])
	}
	return r.each(block[i:], run, ramp)
}

func (r *runs) catchUp(before, last byte) {
	r.last, r.step, r.run, r.ramp = last, last-before, 1, 1
}

// each follows the bytes one by one, and returns the longest runs if they are longer.
func (r *runs) each(part []byte, run, ramp int) (int, int) {
	for _, x := range part {
		r.next(x)
		run, ramp = max(run, r.run), max(ramp, r.ramp)
	}
	return run, ramp
}

func (r *runs) next(x byte) {
	step := x - r.last
	r.run++
	if r.seen == 0 || step != 0 {
		r.run = 1
	}
	r.ramp++
	if r.seen < 2 || step != r.step {
		r.ramp = min(r.seen, 1)
	}
	r.seen = min(r.seen+1, 2)
	r.last, r.step = x, step
}

// hasZero says whether one of the eight bytes is 0.
func hasZero(w uint64) bool {
	return (w-0x0101010101010101)&^w&0x8080808080808080 != 0
}

// minus subtracts the eight bytes of b from those of a.
func minus(a, b uint64) uint64 {
	const high = 0x8080808080808080
	return (a | high) - (b &^ high) ^ (a^^b)&high
}
