package peek

import (
	"context"
	"math"
	"slices"
)

// row is the logarithms of probabilities of a few tokens, in the place of a row of logits: minus infinity elsewhere.
type row struct {
	values []float32
	set    []likely // what is not minus infinity
}

func newRow(vocabulary int) *row {
	r := &row{values: make([]float32, vocabulary)}
	for i := range r.values {
		r.values[i] = float32(math.Inf(-1))
	}
	return r
}

// take makes the row that of set, which it keeps.
func (r *row) take(set []likely) []float32 {
	for _, l := range r.set {
		r.values[l.id] = float32(math.Inf(-1))
	}
	r.set = set
	for _, l := range set {
		r.values[l.id] = l.lp
	}
	return r.values
}

// evaluator implements lookahead.Evaluator by asking the server. It belongs to one answer.
type evaluator struct {
	b     *Backend
	text  []int32 // the prompt and the answer so far
	base  *row    // follows text
	peek  *row    // scratch
	asked []int32
	seen  [][]likely // what follows each of asked

	held     int32 // -1: none
	heldRow  []likely
	requests int
}

func newEvaluator(b *Backend, prompt []int32) *evaluator {
	return &evaluator{b: b, text: slices.Clone(prompt), base: newRow(b.cfg.Vocabulary), peek: newRow(b.cfg.Vocabulary), held: -1}
}

// begin is the row that follows the prompt.
func (e *evaluator) begin(ctx context.Context) (first []float32, cached int, err error) {
	rows, cached, err := e.ask(ctx, [][]int32{e.text})
	if err != nil {
		return nil, 0, err
	}
	return e.base.take(rows[0]), cached, nil
}

func (e *evaluator) ask(ctx context.Context, prompts [][]int32) ([][]likely, int, error) {
	e.requests++
	return e.b.follow(ctx, prompts)
}

// Group implements lookahead.Evaluator.
func (e *evaluator) Group() int { return e.b.cfg.Group }

// Peek implements lookahead.Evaluator with one call.
func (e *evaluator) Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error {
	prompts := make([][]int32, len(tokens))
	for i, token := range tokens {
		prompts[i] = append(slices.Clip(e.text), token)
	}
	rows, _, err := e.ask(ctx, prompts)
	if err != nil {
		return err
	}
	e.asked, e.seen = append(e.asked[:0], tokens...), rows
	for i := range tokens {
		visit(i, e.peek.take(rows[i]))
	}
	return nil
}

// Hold implements lookahead.Evaluator.
func (e *evaluator) Hold(token int32) {
	if i := slices.Index(e.asked, token); i >= 0 {
		e.held, e.heldRow = token, e.seen[i]
	}
}

// Commit implements lookahead.Evaluator.
func (e *evaluator) Commit(ctx context.Context, token int32) ([]float32, error) {
	e.text = append(e.text, token)
	if token != e.held {
		rows, _, err := e.ask(ctx, [][]int32{e.text})
		if err != nil {
			return nil, err
		}
		e.heldRow = rows[0]
	}
	e.held, e.asked = -1, e.asked[:0]
	return e.base.take(e.heldRow), nil
}
