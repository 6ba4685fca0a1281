package worker

import "qr-gateway/backends/llama/engine"

const (
	// grid is what the start of a prompt piece is a multiple of wherever possible: the kernels work in tiles of at most
	// that many rows, so a row comes out the same to the last bit whatever piece of the grid it is in.
	grid = 32
	// seededGrid is what a seeded request rounds a reused prefix down to.
	seededGrid = 64
)

// residue is what the main sequence of an idle worker holds.
type residue struct {
	tokens []int32
	pure   int // that many of them were decoded as a prompt, from an empty cache and cut on the grid
}

// policy is how one model's prompts are cut and reused.
type policy struct {
	memory   engine.Memory
	chunk    int // tokens of a whole piece, a multiple of seededGrid
	minPiece int // smallest last piece that gives the same rows as a whole one; a multiple of grid
}

// reuse is how many of the tokens held can serve as the beginning of prompt. At least one token of the prompt is left.
func (p *policy) reuse(held residue, prompt []int32, seeded bool) int {
	n := min(commonPrefix(held.tokens, prompt), len(prompt)-1)
	if p.recurs() {
		// Such memory can't go back: it is of use only if the prompt goes on from all of it.
		if seeded || n < len(held.tokens) {
			return 0
		}
		return n
	}
	if !seeded {
		return n
	}
	n = min(n, held.pure) / seededGrid * seededGrid
	if len(prompt)-n < p.minPiece {
		n -= seededGrid
	}
	return max(n, 0)
}

// pure is how much of a prompt counts as decoded on the grid, when keep tokens of it were reused.
func (p *policy) pure(held residue, prompt []int32, keep int) int {
	onGrid := keep <= held.pure && keep%seededGrid == 0 && len(prompt)-keep >= p.minPiece
	if keep == 0 || onGrid {
		return len(prompt)
	}
	return min(held.pure, keep)
}

// pieceEnd is where the piece of the prompt that begins at start ends; n is the length of the prompt. Pieces end on
// multiples of chunk, but the last is never shorter than minPiece: it takes from the piece before.
func (p *policy) pieceEnd(start, n int) int {
	end := (start/p.chunk + 1) * p.chunk
	if end >= n {
		return n
	}
	if n-end >= p.minPiece {
		return end
	}
	if end = (n - p.minPiece) / grid * grid; end > start {
		return end
	}
	return n
}

// largestPiece is the most tokens that pieceEnd ever puts in one piece.
func (p *policy) largestPiece() int { return p.chunk + p.minPiece }

// recurs reports that the memory can't drop the newest tokens of a sequence.
func (p *policy) recurs() bool {
	return p.memory == engine.MemoryHybrid || p.memory == engine.MemoryRecurrent
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
