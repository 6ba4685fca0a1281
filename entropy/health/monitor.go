package health

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"qr-gateway/entropy"
)

// Monitor runs the tests over the blocks of one source.
type Monitor struct {
	repetition repetition
	proportion proportion
	duplicate  duplicate
}

// New returns a monitor that has seen nothing; cfg is valid.
func New(cfg Config) *Monitor {
	m := &Monitor{
		repetition: repetition{cutoff: RepetitionCutoff(cfg.ClaimedEntropy, cfg.AlphaExponent)},
		proportion: proportion{cutoff: ProportionCutoff(cfg.ClaimedEntropy, cfg.AlphaExponent, Window)},
	}
	if cfg.DuplicateWindow > 0 {
		bits := float64(cfg.AlphaExponent) + math.Log2(float64(cfg.DuplicateWindow))
		m.duplicate = duplicate{
			head: max(32, int(math.Ceil(bits/cfg.ClaimedEntropy))),
			seed: maphash.MakeSeed(), seen: make([]uint64, 0, cfg.DuplicateWindow),
		}
	}
	return m
}

// Test takes the next block of the source. It allocates nothing and keeps nothing of block.
func (m *Monitor) Test(block []byte) Result {
	var r Result
	if len(block) == 0 {
		return r
	}
	r.Run = m.repetition.test(block)
	r.Count = m.proportion.test(block)
	if r.Run >= m.repetition.cutoff {
		r.Flags |= entropy.FlagRepetition
	}
	if r.Count >= m.proportion.cutoff {
		r.Flags |= entropy.FlagProportion
	}
	if m.duplicate.test(block) {
		r.Flags |= entropy.FlagDuplicate
	}
	return r
}

// Restart forgets the runs and windows, as after a gap in the bytes. The blocks that were seen stay known.
func (m *Monitor) Restart() {
	m.repetition = repetition{cutoff: m.repetition.cutoff}
	m.proportion = proportion{cutoff: m.proportion.cutoff}
}

// Cutoffs are the limits in use.
func (m *Monitor) Cutoffs() (repetition, proportion int) {
	return m.repetition.cutoff, m.proportion.cutoff
}

// Describe says in words what r found, for an error.
func (m *Monitor) Describe(r Result) string {
	var parts []string
	if r.Flags&entropy.FlagRepetition != 0 {
		parts = append(parts, fmt.Sprintf("repetition-count test: %d equal bytes in a row, the limit is %d", r.Run, m.repetition.cutoff))
	}
	if r.Flags&entropy.FlagProportion != 0 {
		parts = append(parts, fmt.Sprintf("adaptive-proportion test: %d equal bytes of %d, the limit is %d", r.Count, Window, m.proportion.cutoff))
	}
	if r.Flags&entropy.FlagDuplicate != 0 {
		parts = append(parts, "the block begins like one that was seen before")
	}
	return strings.Join(parts, "; ")
}

// repetition is the repetition-count test.
type repetition struct {
	cutoff int
	last   byte
	run    int // of last, 0 before the first sample
}

// test returns the longest run up to each byte of block.
func (r *repetition) test(block []byte) int {
	longest := r.step(block[0])
	i := 1
	for ; i+8 <= len(block); i += 8 {
		pairs := binary.LittleEndian.Uint64(block[i-1:]) ^ binary.LittleEndian.Uint64(block[i:])
		if (pairs-0x0101010101010101)&^pairs&0x8080808080808080 == 0 { // no two neighbours are equal
			r.last, r.run = block[i+7], 1
			continue
		}
		for _, x := range block[i : i+8] {
			longest = max(longest, r.step(x))
		}
	}
	for _, x := range block[i:] {
		longest = max(longest, r.step(x))
	}
	return longest
}

func (r *repetition) step(x byte) int {
	if r.run > 0 && x == r.last {
		r.run++
	} else {
		r.last, r.run = x, 1
	}
	return r.run
}

// proportion is the adaptive-proportion test.
type proportion struct {
	cutoff int
	first  byte
	seen   int // samples of this window
	count  int // equal to first among them
}

// test returns the highest count of the windows that block has a part in.
func (p *proportion) test(block []byte) int {
	highest := 0
	for len(block) > 0 {
		if p.seen == 0 {
			p.first = block[0]
			p.count = 0
		}
		n := min(len(block), Window-p.seen)
		p.count += bytes.Count(block[:n], []byte{p.first})
		highest = max(highest, p.count)
		p.seen = (p.seen + n) % Window
		block = block[n:]
	}
	return highest
}

// duplicate knows the beginnings of the last blocks. A beginning is long enough that chance repeats none at the claimed entropy;
// shorter blocks are not looked at.
type duplicate struct {
	head int // bytes
	seed maphash.Seed
	seen []uint64 // digests, a ring once it is full
	next int
}

func (d *duplicate) test(block []byte) bool {
	if cap(d.seen) == 0 || len(block) < d.head {
		return false
	}
	sum := maphash.Bytes(d.seed, block[:d.head])
	again := slices.Contains(d.seen, sum)
	if len(d.seen) < cap(d.seen) {
		d.seen = append(d.seen, sum)
		return again
	}
	d.seen[d.next] = sum
	d.next = (d.next + 1) % len(d.seen)
	return again
}
