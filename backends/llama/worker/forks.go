package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// errForgotten is returned when a step goes against the rules of lookahead.Evaluator.
var errForgotten = errors.New("token held was not in the latest peek")

// forks is the lookahead.Evaluator of every memory type; see design.md for the scheme. Between steps two sequences
// exist and hold the same tokens: main, which candidates extend in place, and shadow, which stays behind and is copied
// for further candidates. A candidate that loses is never cut off: its whole sequence is dropped.
type forks struct {
	lane      *lane
	group     int
	canonical bool // see Config.Canonical

	main, shadow int
	past         int   // tokens of main and shadow between steps
	free         []int // sequence ids that hold nothing

	peeked  bool     // main holds a candidate of this step, or did
	live    []branch // candidates of the latest peek
	best    branch
	hasBest bool
	saved   []float32 // the best one's row, once its batch has been overwritten
	isSaved bool
	err     error // a rule that was broken
}

// branch is a candidate and the sequence that ends with it.
type branch struct {
	token int32
	seq   int
	row   int // of the latest batch
}

// newForks makes an evaluator for rows of nVocab logits. It uses the ids from 0 to SequencesFor(group)-1.
func newForks(l *lane, nVocab, group int) *forks {
	return &forks{
		lane: l, group: group,
		free:  make([]int, 0, SequencesFor(group)),
		live:  make([]branch, 0, group),
		saved: make([]float32, nVocab),
	}
}

// SequencesFor is the number of sequence ids for peeks of group tokens: main, shadow, the best so far, and the group.
func SequencesFor(group int) int { return 3 + group }

// begin takes over main, a sequence of past tokens that is alone in the cache.
func (f *forks) begin(main, past int) error {
	f.main, f.past, f.free = main, past, f.free[:0]
	for id := range SequencesFor(f.group) {
		if id != main {
			f.free = append(f.free, id)
		}
	}
	f.reset()
	f.shadow = f.lease()
	if err := f.lane.SeqCopy(f.main, f.shadow, -1, -1); err != nil {
		return fmt.Errorf("copy main to its shadow: %w", err)
	}
	return nil
}

// end leaves one sequence in the cache, with the committed tokens and nothing else, and returns its id.
func (f *forks) end() (int, error) {
	if !f.peeked {
		return f.main, f.drop(f.shadow)
	}
	err := f.forget()
	if f.hasBest {
		err = errors.Join(err, f.drop(f.best.seq))
	}
	f.reset()
	return f.shadow, err
}

// Group implements lookahead.Evaluator.
func (f *forks) Group() int { return f.group }

// Peek implements lookahead.Evaluator.
func (f *forks) Peek(ctx context.Context, tokens []int32, visit func(i int, row []float32)) error {
	if f.err != nil {
		return f.err
	}
	if len(tokens) == 0 || len(tokens) > f.group {
		return fmt.Errorf("peek %d tokens: a group has 1 to %d", len(tokens), f.group)
	}
	if err := f.saveBest(); err != nil {
		return err
	}
	if err := f.forget(); err != nil {
		return err
	}
	if err := f.branch(tokens); err != nil {
		return err
	}
	if err := f.lane.decode(ctx); err != nil {
		return err
	}
	f.lane.progress.peeks.Add(uint64(len(tokens)))
	return f.show(visit)
}

// show calls visit for each candidate of the batch.
func (f *forks) show(visit func(i int, row []float32)) error {
	for i := range f.live {
		row, err := f.lane.Logits(f.live[i].row)
		if err != nil {
			return fmt.Errorf("read candidate %d: %w", f.live[i].token, err)
		}
		visit(i, row)
	}
	return nil
}

// Hold implements lookahead.Evaluator.
func (f *forks) Hold(token int32) {
	if f.hasBest && f.best.token == token {
		return
	}
	b, ok := f.find(token)
	if !ok {
		f.err = fmt.Errorf("hold token %d: %w", token, errForgotten)
		return
	}
	if f.hasBest && !f.isLive(f.best) {
		f.err = f.drop(f.best.seq)
	}
	f.best, f.hasBest, f.isSaved = b, true, false
}

// Commit implements lookahead.Evaluator.
func (f *forks) Commit(ctx context.Context, token int32) ([]float32, error) {
	if f.err != nil {
		return nil, f.err
	}
	win, ok := f.find(token)
	if !ok && f.hasBest && f.best.token == token {
		win, ok = f.best, true
	}
	if !ok || f.canonical && f.displaced(win) {
		var err error
		if win, err = f.decodeOne(ctx, token); err != nil {
			return nil, err
		}
	}
	row, err := f.row(win)
	if err != nil {
		return nil, err
	}
	return row, f.advance(win)
}

// displaced reports whether b lies in another cell than it would had nothing else been tried. Attention sums over cells, and
// sums in another order end in other digits.
func (f *forks) displaced(b branch) bool { return b.seq != f.main || b.row != 0 }

// decodeOne decodes a token that no living branch ends with, or does so in another cell than it should.
func (f *forks) decodeOne(ctx context.Context, token int32) (branch, error) {
	if f.hasBest && !f.isLive(f.best) {
		if err := f.drop(f.best.seq); err != nil {
			return branch{}, err
		}
	}
	f.hasBest = false
	if err := f.forget(); err != nil {
		return branch{}, err
	}
	if err := f.branch([]int32{token}); err != nil {
		return branch{}, err
	}
	return f.live[0], f.lane.decode(ctx)
}

// row is the row that follows b: in the engine's memory while its batch is the latest, else the copy.
func (f *forks) row(b branch) ([]float32, error) {
	if !f.isLive(b) {
		return f.saved, nil
	}
	row, err := f.lane.Logits(b.row)
	if err != nil {
		return nil, fmt.Errorf("read token %d: %w", b.token, err)
	}
	return row, nil
}

// advance makes win's sequence the main one, drops the others, and lets the shadow catch up by one cell.
func (f *forks) advance(win branch) error {
	for _, b := range f.live {
		if b.seq != win.seq {
			if err := f.drop(b.seq); err != nil {
				return err
			}
		}
	}
	if f.hasBest && !f.isLive(f.best) && f.best.seq != win.seq {
		if err := f.drop(f.best.seq); err != nil {
			return err
		}
	}
	f.main = win.seq
	if err := f.lane.SeqCopy(f.main, f.shadow, f.past, f.past+1); err != nil {
		return fmt.Errorf("copy token to the shadow: %w", err)
	}
	f.past++
	f.reset()
	return nil
}

// saveBest copies the best row out of the engine's memory, which the next decode overwrites. The usual step, one peek
// that settles it, never comes here with anything to copy.
func (f *forks) saveBest() error {
	if !f.hasBest || f.isSaved {
		return nil
	}
	row, err := f.row(f.best)
	if err != nil {
		return err
	}
	copy(f.saved, row)
	f.isSaved = true
	return nil
}

// forget drops the candidates of the latest peek, the best one excepted. Their ids are free then, main's own too.
func (f *forks) forget() error {
	for _, b := range f.live {
		if f.hasBest && b.seq == f.best.seq {
			continue
		}
		if err := f.drop(b.seq); err != nil {
			return err
		}
	}
	f.live = f.live[:0]
	return nil
}

// branch puts tokens into the batch: the step's first one on main, the others on copies of the shadow.
func (f *forks) branch(tokens []int32) error {
	f.lane.Reset()
	for i, token := range tokens {
		seq := f.main
		if f.peeked {
			seq = f.lease()
			if err := f.lane.SeqCopy(f.shadow, seq, -1, -1); err != nil {
				return fmt.Errorf("fork for token %d: %w", token, err)
			}
		}
		f.peeked = true
		f.live = append(f.live, branch{token: token, seq: seq, row: i})
		if err := f.lane.Add(token, f.past, seq, true); err != nil {
			return fmt.Errorf("add token %d: %w", token, err)
		}
	}
	return nil
}

// find looks for a candidate of the latest peek.
func (f *forks) find(token int32) (branch, bool) {
	for _, b := range f.live {
		if b.token == token {
			return b, true
		}
	}
	return branch{}, false
}

// isLive reports whether b is one of the latest peek.
func (f *forks) isLive(b branch) bool { return slices.Contains(f.live, b) }

// lease takes the lowest free id: which ids a request uses must not depend on the one before.
func (f *forks) lease() int {
	id := slices.Min(f.free)
	i := slices.Index(f.free, id)
	f.free = slices.Delete(f.free, i, i+1)
	return id
}

// drop removes a whole sequence and frees its id.
func (f *forks) drop(seq int) error {
	ok, err := f.lane.SeqRemove(seq, -1, -1)
	if err == nil && !ok {
		err = errors.New("the memory refused")
	}
	if err != nil {
		return fmt.Errorf("drop sequence %d: %w", seq, err)
	}
	f.free = append(f.free, seq)
	return nil
}

// reset forgets the step.
func (f *forks) reset() {
	f.peeked, f.hasBest, f.isSaved, f.err = false, false, false, nil
	f.live = f.live[:0]
}
