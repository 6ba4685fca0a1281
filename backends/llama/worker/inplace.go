package worker

import (
	"context"
	"errors"
	"fmt"
)

// inPlace is the lookahead.Evaluator for a model whose forks failed the self-test but whose memory can drop its newest
// token exactly: one candidate at a time, on the main sequence. A winner that is not the latest candidate is decoded again.
type inPlace struct {
	lane  *lane
	main  int
	past  int
	token int32
	dirty bool // main ends with token, a candidate
}

// begin takes over main, a sequence of past tokens.
func (p *inPlace) begin(main, past int) error {
	p.main, p.past, p.dirty = main, past, false
	return nil
}

// end leaves the committed tokens and returns the sequence that holds them.
func (p *inPlace) end() (int, error) { return p.main, p.undo() }

// Group implements lookahead.Evaluator.
func (p *inPlace) Group() int { return 1 }

// Peek implements lookahead.Evaluator.
func (p *inPlace) Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error {
	if len(tokens) != 1 {
		return fmt.Errorf("peek %d tokens: this model takes one at a time", len(tokens))
	}
	row, err := p.decode(ctx, tokens[0])
	if err != nil {
		return err
	}
	p.lane.progress.peeks.Add(1)
	visit(0, row)
	return nil
}

// Hold implements lookahead.Evaluator. Only the latest candidate can be kept, and it is.
func (p *inPlace) Hold(int32) {}

// Commit implements lookahead.Evaluator.
func (p *inPlace) Commit(ctx context.Context, token int32) (row []float32, err error) {
	if p.dirty && p.token == token {
		row, err = p.lane.Logits(0)
	} else {
		row, err = p.decode(ctx, token)
	}
	if err != nil {
		return nil, err
	}
	p.dirty = false
	p.past++
	return row, nil
}

// decode replaces the latest candidate by token.
func (p *inPlace) decode(ctx context.Context, token int32) ([]float32, error) {
	if err := p.undo(); err != nil {
		return nil, err
	}
	p.lane.Reset()
	if err := p.lane.Add(token, p.past, p.main, true); err != nil {
		return nil, fmt.Errorf("add token %d: %w", token, err)
	}
	if err := p.lane.decode(ctx); err != nil {
		return nil, err
	}
	p.token, p.dirty = token, true
	return p.lane.Logits(0)
}

// undo drops the latest candidate.
func (p *inPlace) undo() error {
	if !p.dirty {
		return nil
	}
	ok, err := p.lane.SeqRemove(p.main, p.past, -1)
	if err == nil && !ok {
		err = errors.New("the memory refused")
	}
	if err != nil {
		return fmt.Errorf("drop candidate %d: %w", p.token, err)
	}
	p.dirty = false
	return nil
}
