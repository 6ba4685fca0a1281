package worker

import (
	"context"
	"fmt"

	"qr-gateway/backends/llama/engine"
)

// prompt brings the main sequence to hold exactly tokens. It returns the row that follows and how many tokens were reused.
func (w *Worker) prompt(ctx context.Context, tokens []int32, keep int) ([]float32, error) {
	pure := w.policy.pure(w.held, tokens, keep)
	row := 0
	for start := keep; start < len(tokens); {
		end := w.policy.pieceEnd(start, len(tokens))
		if err := w.piece(ctx, tokens, start, end); err != nil {
			return nil, err
		}
		w.note(tokens[start:end]...)
		row, start = end-start-1, end
	}
	w.held.pure = pure
	logits, err := w.lane.Logits(row)
	if err != nil {
		return nil, fmt.Errorf("read prompt's row: %w", err)
	}
	return logits, nil
}

// piece decodes tokens[start:end]; the prompt's last token gets a row.
func (w *Worker) piece(ctx context.Context, tokens []int32, start, end int) error {
	w.lane.Reset()
	for i := start; i < end; i++ {
		if err := w.lane.Add(tokens[i], i, w.main, i == len(tokens)-1); err != nil {
			return fmt.Errorf("add prompt token %d: %w", i, err)
		}
	}
	return w.lane.decode(ctx)
}

// rewind cuts the main sequence back to what prompt can go on from, and returns its length.
func (w *Worker) rewind(prompt []int32, seeded bool) (int, error) {
	keep := w.policy.reuse(w.held, prompt, seeded)
	if keep == 0 || !w.windowHolds(keep, seeded) {
		w.empty()
		return 0, nil
	}
	if keep == len(w.held.tokens) {
		return keep, nil
	}
	ok, err := w.lane.SeqRemove(w.main, keep, -1)
	if err != nil {
		return 0, fmt.Errorf("cut prefix at %d: %w", keep, err)
	}
	if !ok || w.lane.PosMax(w.main) != keep-1 {
		w.empty()
		return 0, nil
	}
	w.held.tokens = w.held.tokens[:keep]
	w.held.pure = min(w.held.pure, keep)
	return keep, nil
}

// windowHolds reports whether a sliding-window model still has the cells that the token at keep looks back on: cells that
// left the window may have been used again. A seeded request needs all of them where they were.
func (w *Worker) windowHolds(keep int, seeded bool) bool {
	if w.cfg.Memory != engine.MemorySlidingWindow {
		return true
	}
	first := w.lane.PosMin(w.main)
	if seeded {
		return first == 0
	}
	return first >= 0 && first <= max(0, keep-w.cfg.Window)
}

// extend decodes one more token on the main sequence and returns the row that follows.
func (w *Worker) extend(ctx context.Context, token int32) ([]float32, error) {
	w.lane.Reset()
	if err := w.lane.Add(token, len(w.held.tokens), w.main, true); err != nil {
		return nil, fmt.Errorf("add token %d: %w", token, err)
	}
	if err := w.lane.decode(ctx); err != nil {
		return nil, err
	}
	w.note(token)
	return w.lane.Logits(0)
}
