package lookaheadtest

import (
	"context"
	"fmt"
	"slices"
)

// Evaluator is a lookahead.Evaluator over a Model. It returns an error for every call that breaks the contract.
type Evaluator struct {
	model *Model
	group int
	state uint64
	row   []float32 // of the last Commit
	spare []float32 // of the token held
	peek  []float32

	peeked  []int32 // in this step
	last    []int32 // the latest Peek
	held    int32
	hasHeld bool
	misuse  error

	// Decoded counts batches by size, commits that had to decode included: Decoded[g] batches of g tokens.
	Decoded []int
	// Tokens are those committed.
	Tokens []int32
	// OnPeek, if set, is called before each Peek; its error is returned.
	OnPeek func(tokens []int32) error
}

// New returns an evaluator at the start of a text, for groups of at most group tokens.
func New(m *Model, seed uint64, group int) *Evaluator {
	n := m.shape.Vocab
	e := &Evaluator{
		model: m, group: group, Decoded: make([]int, group+1),
		row: make([]float32, n), spare: make([]float32, n), peek: make([]float32, n),
	}
	e.Restart(seed)
	return e
}

// Restart goes back to the start of a text. Counts stay.
func (e *Evaluator) Restart(seed uint64) {
	e.state = Start(seed)
	e.peeked, e.last, e.hasHeld, e.Tokens = e.peeked[:0], e.last[:0], false, e.Tokens[:0]
	e.model.Row(e.state, e.row)
}

// Row is the row that follows what was committed.
func (e *Evaluator) Row() []float32 { return e.row }

// After is a fresh copy of the row that would follow token.
func (e *Evaluator) After(token int32) []float32 {
	row := make([]float32, e.model.shape.Vocab)
	e.model.Row(Next(e.state, token), row)
	return row
}

// Group implements lookahead.Evaluator.
func (e *Evaluator) Group() int { return e.group }

// Peek implements lookahead.Evaluator.
func (e *Evaluator) Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error {
	if err := e.check(ctx, tokens); err != nil {
		return err
	}
	if e.OnPeek != nil {
		if err := e.OnPeek(tokens); err != nil {
			return err
		}
	}
	e.Decoded[len(tokens)]++
	e.last = append(e.last[:0], tokens...)
	for i, t := range tokens {
		e.peeked = append(e.peeked, t)
		e.model.Row(Next(e.state, t), e.peek)
		visit(i, e.peek)
	}
	return nil
}

func (e *Evaluator) check(ctx context.Context, tokens []int32) error {
	if e.misuse != nil {
		return e.misuse
	}
	if len(tokens) < 1 || len(tokens) > e.group {
		return fmt.Errorf("peek of %d tokens, group %d", len(tokens), e.group)
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= e.model.shape.Vocab || slices.Contains(e.peeked, t) || slices.Contains(tokens[:i], t) {
			return fmt.Errorf("peek of token %d, seen or out of range", t)
		}
	}
	return ctx.Err()
}

// Hold implements lookahead.Evaluator.
func (e *Evaluator) Hold(token int32) {
	if !slices.Contains(e.last, token) {
		e.misuse = fmt.Errorf("hold of token %d, which the latest peek %v has not", token, e.last)
	}
	e.held, e.hasHeld = token, true
	e.model.Row(Next(e.state, token), e.spare)
}

// Commit implements lookahead.Evaluator.
func (e *Evaluator) Commit(ctx context.Context, token int32) ([]float32, error) {
	if e.misuse != nil {
		return nil, e.misuse
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.hasHeld && e.held == token {
		e.row, e.spare = e.spare, e.row
	} else {
		e.Decoded[1]++
		e.model.Row(Next(e.state, token), e.row)
	}
	e.state = Next(e.state, token)
	e.peeked, e.last, e.hasHeld = e.peeked[:0], e.last[:0], false
	e.Tokens = append(e.Tokens, token)
	return e.row, nil
}

// Cost adds up the batches decoded, given the cost of a batch of g.
func (e *Evaluator) Cost(batch func(g int) float64) float64 {
	sum := 0.0
	for g, n := range e.Decoded {
		if n > 0 {
			sum += float64(n) * batch(g)
		}
	}
	return sum
}
