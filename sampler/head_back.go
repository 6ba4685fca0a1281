package sampler

import (
	"fmt"

	"qr-gateway/sampler/temper"
)

// held is a number that was drawn for a step and has not decided it yet.
type held struct {
	ok bool
	u  float64
	ev *Evidence
}

// back is what Accept changes and nothing else remembers.
type back struct {
	ok    bool
	gate  temper.Evidence
	gated bool
}

// mark has the strategy note its state, once a step.
func (s *Stream) mark() {
	if s.marked {
		return
	}
	s.marked = true
	if m, ok := s.strategy.(temper.Marker); ok {
		m.Mark()
	}
}

// Void makes step the next one, as if its row had never been seen: for engines that drop a step and come back to it with another row. For the
// step that is under way it forgets the number that is held; for the one before it takes its token back as well: the history of the penalties, the
// strategy's state and the token before are as they were. The number is spent; the step draws anew. No other step can be voided, and no
// [Stream.Record] made until the next token.
func (s *Stream) Void(step int) error {
	_, hasState := s.strategy.(temper.Marker)
	switch {
	case s.p == nil:
		return fmt.Errorf("void token %d: no answer was begun", step)
	case step == s.step:
		s.rewind()
		return nil
	case step != s.step-1 || !s.back.ok:
		return fmt.Errorf("void token %d: the answer is at token %d, and only the one before can be taken back, once", step, s.step)
	case s.marked && hasState:
		return fmt.Errorf("void token %d: the strategy has seen the row of token %d already", step, s.step)
	}
	s.marked = true // by what Accept left
	s.rewind()
	s.penalties.forget(s.previous)
	s.gate, s.gated, s.previous = s.back.gate, s.back.gated, s.last.prev
	s.step--
	s.back, s.last = back{}, chosen{draw: Draw{Token: -1}, step: s.step, prev: s.previous}
	return nil
}

// rewind takes the strategy back to before the step and forgets its number.
func (s *Stream) rewind() {
	if m, ok := s.strategy.(temper.Marker); ok && s.marked {
		m.Rewind()
	}
	s.marked, s.held = false, held{}
}

// forget takes back the token that was accepted last.
func (a *penalties) forget(id int32) {
	if !a.on || id < 0 || int(id) >= len(a.seen) {
		return
	}
	if a.seen[id] -= 2; a.seen[id] == 0 {
		a.ids = a.ids[:len(a.ids)-1]
	}
}
