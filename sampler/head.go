package sampler

import (
	"context"
	"errors"
	"math"
)

// Head is a compact row: the largest logits of a row and what is known of the rest. It tells most choices as surely as the row itself, at a
// hundredth of its size. The caller owns it; it is only read, and not kept.
type Head struct {
	// IDs and Logits are the tokens shown, in any order, as the model gave them: before penalties, bias and bans. No logit that isn't shown is over
	// the least one that is; of equal ones at that edge any may be shown. An id of -1 or a logit of -Inf is an absent entry.
	IDs    []int32
	Logits []float32
	Max    float32 // largest finite logit of the row
	// LSE is ln(sum e^logit) over the finite logits of the row. Its error is at most 1e-5 + 2^-23 |LSE|, as float32 sums have it.
	LSE float32
	// Entropy is the Shannon entropy of the finite logits at temperature 1, in nats; NaN where it isn't known. Its error is at most
	// 3e-5 + 2e-6 (|LSE| + |Max| + Entropy). It matters at other temperatures only: with it fewer tokens need the whole row.
	Entropy float32
	Finite  int // finite logits of the row
}

// ErrWholeRow says that a head doesn't decide the token: the whole row is needed. Nothing has changed: [Stream.Next], with the whole row, takes
// the number that was drawn, if any was.
var ErrWholeRow = errors.New("head does not decide: the whole row is needed")

// ErrHead says that a head can't be one of a row of the stream's vocabulary.
var ErrHead = errors.New("head is not of one row of this vocabulary")

// TakesHead reports whether [Stream.NextHead] can decide anything for the answer that was begun: a strategy that looks at the whole row needs it
// for every token.
func (s *Stream) TakesHead() bool { return s.p != nil && s.kind == fixedStrategy }

// NextHead is [Stream.Next] for a row of which only the head is there. It gives the very token that Next would give for the whole row and the same
// number, or [ErrWholeRow], never a guess; the error bounds of h are part of that. The number is asked for only once the head is there, and only
// where it may decide. While it is not used, it is held for the step: the next call of Next or NextHead takes it, unless [Stream.Void] forgets it.
//
// A NaN or +Inf in h is [ErrLogits], a head that can't be one is [ErrHead], and no finite logit that isn't banned [ErrNoCandidates].
//
// Of the Draw, Token, Rank and U are those of Next. Prob is the middle of what the head allows and ProbErr half its width, 0 where the head tells
// it exactly. Candidates counts every finite logit where nothing is cut off, be it under e^-700 of the largest, and is 0 where the cut lies in the part that
// isn't shown.
// AfterTopK and AfterMinP are 0. Where the stream observes, H is h's and VH isn't known.
func (s *Stream) NextHead(ctx context.Context, h *Head, ban *Mask, noise Noise) (Draw, error) {
	if err := s.planHead(h, ban); err != nil {
		return Draw{}, err
	}
	u, ev, err := s.number(ctx, noise)
	if err != nil {
		return Draw{}, err
	}
	d, sure := s.head.first()
	if s.NeedsU() {
		s.held = held{ok: true, u: u, ev: ev}
		d, sure = s.head.choose(s.cut, u)
	}
	if !sure {
		return Draw{}, ErrWholeRow
	}
	d.Covered = s.head.covered
	s.last.draw = d
	s.take(d.Token, ev, noise)
	return d, nil
}

// planHead takes in a head. It leaves it as far prepared that only a number is missing, or says what stands against that.
func (s *Stream) planHead(h *Head, ban *Mask) error {
	if s.p == nil {
		return errors.New("plan token: no answer was begun")
	}
	if !s.TakesHead() {
		return ErrWholeRow
	}
	if s.head == nil {
		s.head = newHeadScratch(s.nVocab)
	}
	if err := s.head.read(h); err != nil {
		return s.fail(err)
	}
	s.in.Row32, s.in.Row64 = nil, nil
	s.fresh()
	if _, err := s.settle(); err != nil {
		return err
	}
	s.head.adjust(&s.penalties, ban, 1/s.cut.t())
	if s.observe && !s.head.moved && h.Entropy == h.Entropy {
		s.plan.H, s.plan.HNorm = float64(h.Entropy), float64(h.Entropy)/math.Log(float64(s.nVocab))
	}
	switch {
	case len(s.head.keys) == 0 && s.head.rest == 0:
		return s.fail(ErrNoCandidates)
	case !s.head.weigh(h, s.cut):
		return ErrWholeRow
	}
	return nil
}
