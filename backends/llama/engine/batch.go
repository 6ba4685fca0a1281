package engine

import (
	"fmt"
	"math"
)

// Batch is the tokens of one Decode. It lies in the context's C memory, so filling it neither allocates nor calls C.
// It belongs to the goroutine that owns the context.
type Batch struct {
	token, pos, seq []int32
	output          []int8
	n               int
}

// Len is the number of tokens added.
func (b *Batch) Len() int { return b.n }

// Cap is the number of tokens the batch can hold.
func (b *Batch) Cap() int { return len(b.token) }

// Reset empties the batch. Rows of the last Decode stay valid until the next.
func (b *Batch) Reset() { b.n = 0 }

// Add appends a token at position pos of sequence seq. output asks for its row of logits. Positions of one sequence
// must follow each other; Decode checks that, and the ids. It returns ErrBatchFull when there is no room.
func (b *Batch) Add(token int32, pos, seq int, output bool) error {
	i := b.n
	if i >= len(b.token) {
		return ErrBatchFull
	}
	if uint64(pos) > math.MaxInt32 || uint64(seq) > math.MaxInt32 {
		return fmt.Errorf("add token: position %d of sequence %d: %w", pos, seq, ErrBadBatch)
	}
	b.token[i], b.pos[i], b.seq[i], b.output[i] = token, int32(pos), int32(seq), 0
	if output {
		b.output[i] = 1
	}
	b.n++
	return nil
}
