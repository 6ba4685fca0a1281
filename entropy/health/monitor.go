package health

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"qr-gateway/entropy"
)

// Monitor runs the tests over the blocks of one source.
type Monitor struct {
	runs       runs
	proportion proportion
	duplicate  duplicate
}

// New returns a monitor that has seen nothing; cfg is valid.
func New(cfg Config) *Monitor {
	m := &Monitor{
		runs:       runs{cutoff: RepetitionCutoff(cfg.ClaimedEntropy, cfg.AlphaExponent)},
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
	r.Run, r.Ramp = m.runs.test(block)
	r.Count = m.proportion.test(block)
	if r.Run >= m.runs.cutoff || r.Ramp >= m.runs.cutoff {
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
	m.runs = runs{cutoff: m.runs.cutoff}
	m.proportion = proportion{cutoff: m.proportion.cutoff}
}

// Cutoffs are the limits in use.
func (m *Monitor) Cutoffs() (repetition, proportion int) {
	return m.runs.cutoff, m.proportion.cutoff
}

// Describe says in words what r found, for an error.
func (m *Monitor) Describe(r Result) string {
	var parts []string
	if r.Run >= m.runs.cutoff {
		parts = append(parts, fmt.Sprintf("repetition-count test: %d equal bytes in a row, the limit is %d", r.Run, m.runs.cutoff))
	}
	if r.Ramp >= m.runs.cutoff {
		parts = append(parts, fmt.Sprintf("repetition-count test of differences: %d equal in a row, the limit is %d", r.Ramp, m.runs.cutoff))
	}
	if r.Flags&entropy.FlagProportion != 0 {
		parts = append(parts, fmt.Sprintf("adaptive-proportion test: %d equal bytes of %d, the limit is %d", r.Count, Window, m.proportion.cutoff))
	}
	if r.Flags&entropy.FlagDuplicate != 0 {
		parts = append(parts, "the block begins like one that was seen before")
	}
	return strings.Join(parts, "; ")
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
