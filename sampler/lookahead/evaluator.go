package lookahead

import "context"

// Evaluator shows the distribution that follows a candidate, and moves on to the candidate chosen. One step goes
//
//	Peek* (Hold)* Commit
//
// and every call is made from one goroutine. Rows hold one logit per vocabulary entry.
type Evaluator interface {
	// Peek decodes each of tokens as the next one, as siblings in one batch, and calls visit(i, row) once for each in order.
	// row is valid during the call only. The same token is not peeked twice in a step. len(tokens) is at least 1 and at most Group().
	Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error
	// Hold marks a token of the latest Peek as the best so far: its state and its row are kept until the next Hold or
	// Commit, and the one held before is let go. Between a Peek and the Hold that follows it no other call is made.
	Hold(token int32)
	// Commit makes token the next one and returns the row that follows it, valid until the next call of Peek or Commit. A held
	// token costs no decode; any other is decoded now.
	Commit(ctx context.Context, token int32) ([]float32, error)
	// Group is the largest number of tokens in one Peek.
	Group() int
}
