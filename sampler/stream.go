package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"qr-gateway/sampler/internal/vec"
	"qr-gateway/sampler/temper"
)

// ErrLogits says that a row has a logit that is NaN or +Inf: the model that computed it is broken, and so may be every other logit.
var ErrLogits = errors.New("row has a logit that is NaN or +Inf")

// fixedStrategy is the one strategy that doesn't look at the row.
const fixedStrategy = "fixed"

// Stream decides the tokens of one answer after another, each from the row of logits before it. It goes, for every token,
//
//	Plan, then Choose with a number where NeedsU says so, then Accept
//
// or [Stream.Next], which is all of it. It owns the history of the answer, the state of the temperature strategy and its scratch memory, allocates
// nothing per token, and belongs to one goroutine.
type Stream struct {
	nVocab  int
	sampler *Sampler
	exact   *Exact

	p         *Params
	penalties penalties
	kind      string // of the strategy
	strategy  temper.Strategy
	observe   bool
	hash      string // of p; empty: not worked out yet

	in    temper.Input
	out   temper.Output
	gate  temper.Evidence
	gated bool // gate is from the token before

	own32 []float32 // adjusted rows
	own64 []float64
	ban   *Mask
	cut   Cut
	plan  Plan

	step     int
	previous int32
	last     chosen

	head   *headScratch // nil before the first head
	held   held
	back   back
	marked bool // the strategy has marked its state before this step
}

// Plan is what was decided about a token before any number is drawn. Its slices are valid until the next Plan.
type Plan struct {
	Step        int // of the token within the answer, from 0
	Strategy    string
	Temperature float64 // 0 or below is greedy
	MinP        float64
	// H is the Shannon entropy of the adjusted row at temperature 1, in nats, VH its varentropy, in nats^2, and HNorm is H divided by the
	// logarithm of the vocabulary. NaN where neither the strategy nor [Stream.Observe] asked for them.
	H, VH, HNorm float64
	// Row has the logits to choose from, for decoders that look ahead: with penalties, bias, bans and what the strategy made of them. It is
	// the caller's own row where nothing was adjusted.
	Row   []float32
	Notes []temper.Note
}

// chosen is the latest token and what it was chosen by.
type chosen struct {
	draw Draw
	ev   *Evidence
	step int
	prev int32
}

// NewStream returns a stream for rows of nVocab logits. Nothing works before [Stream.Begin].
func NewStream(nVocab int) *Stream { return &Stream{nVocab: nVocab} }

// Use has the stream decide whole rows in scratch memory of own, which has its vocabulary and belongs to it until the next Use: some 2 MB for 150,000
// tokens, which many streams of which few decide at once can share. With nil, and where it is never called, the stream makes its own when it
// needs one.
func (s *Stream) Use(own *Sampler) { s.sampler = own }

// Begin starts a new answer and forgets the one before. prompt matters to the repetition penalty only; it is not kept. p has been validated
// and is only read, until the next Begin. A bias for a token outside of the vocabulary is a *[ParamError].
func (s *Stream) Begin(p *Params, prompt []int32) error {
	if err := s.penalties.begin(p, prompt, s.nVocab); err != nil {
		return fmt.Errorf("begin answer: %w", err)
	}
	name := p.Strategy
	if p.Bypass {
		name = fixedStrategy
	}
	kind, err := temper.Find(name)
	if err != nil {
		return fmt.Errorf("begin answer: %w", err)
	}
	if s.strategy, err = kind.New(p, s.nVocab); err != nil {
		return fmt.Errorf("begin answer: %w", err)
	}
	s.p, s.kind, s.hash = p, kind.Name, ""
	s.step, s.previous, s.gated, s.last = 0, -1, false, chosen{}
	s.held, s.back, s.marked = held{}, back{}, false
	return nil
}

// Observe has H and VH of every token worked out even where its strategy doesn't look at them, for records. It holds until it is changed.
func (s *Stream) Observe(on bool) { s.observe = on }

// Step is the index within the answer of the token that is decided next.
func (s *Stream) Step() int { return s.step }

// Plan takes in the row that the next token is chosen from, and decides its temperature. row has one logit per token and is not changed,
// but it is read again by Choose. Tokens of ban are never chosen.
//
// In this order: penalties and bias adjust logits, bans take them out, the strategy sets temperature and min-p, and may transform the
// row. A logit of -Inf is absent; NaN and +Inf are [ErrLogits].
func (s *Stream) Plan(row []float32, ban *Mask) (Plan, error) {
	if err := s.check(len(row), vec.Broken(row)); err != nil {
		return Plan{}, err
	}
	s.in.Row32, s.in.Row64, s.ban = row, nil, ban
	if s.adjusts() {
		s.own32 = append(s.own32[:0], row...)
		adjust(&s.penalties, s.own32)
		take(s.own32, ban)
		s.in.Row32, s.ban = s.own32, nil
	}
	if s.sampler == nil {
		s.sampler = New(s.nVocab)
	}
	if err := s.sampler.Load(s.in.Row32, s.ban); err != nil {
		return Plan{}, s.fail(err)
	}
	return s.decide()
}

// Plan64 is Plan for float64 rows. Its Plan has no Row.
func (s *Stream) Plan64(row []float64, ban *Mask) (Plan, error) {
	if err := s.check(len(row), broken(row)); err != nil {
		return Plan{}, err
	}
	s.in.Row32, s.in.Row64, s.ban = nil, row, ban
	if s.adjusts() {
		s.own64 = append(s.own64[:0], row...)
		adjust(&s.penalties, s.own64)
		take(s.own64, ban)
		s.in.Row64, s.ban = s.own64, nil
	}
	return s.decide()
}

// check refuses a row that nothing can be chosen from.
func (s *Stream) check(n int, broken bool) error {
	switch {
	case s.p == nil:
		return errors.New("plan token: no answer was begun")
	case n != s.nVocab:
		return s.fail(fmt.Errorf("row has %d logits, the vocabulary %d", n, s.nVocab))
	case broken:
		return s.fail(ErrLogits)
	}
	return nil
}

// broken reports a logit that is NaN or +Inf. A sum of eight, times 0, is 0 unless one of them is not finite, or the sum overflows; only
// then are all looked at one by one.
func broken[T float32 | float64](row []T) bool {
	var sum T
	y := row
	for ; len(y) >= 8; y = y[8:] {
		sum += (((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7]))) * 0
	}
	for _, v := range y {
		sum += v * 0
	}
	return sum != 0 && slices.ContainsFunc(row, func(v T) bool { return !(v < T(math.Inf(1))) })
}

// adjusts reports whether the row has to be copied: because logits change, or because a strategy, which may look at the row, must see the bans.
func (s *Stream) adjusts() bool {
	return !s.penalties.idle() || s.ban.Len() > 0 && (s.kind != fixedStrategy || s.in.Row64 != nil)
}

// take makes the banned logits absent.
func take[T float32 | float64](row []T, ban *Mask) {
	for _, id := range ban.IDs() {
		if int(id) >= len(row) {
			return
		}
		row[id] = T(math.Inf(-1))
	}
}

// decide runs the strategy on the adjusted row.
func (s *Stream) decide() (Plan, error) {
	s.fresh()
	if s.observe || s.kind != fixedStrategy {
		s.measure()
	}
	return s.settle()
}

// fresh forgets the plan before.
func (s *Stream) fresh() {
	nan := math.NaN()
	s.last.draw = Draw{Token: -1}
	s.plan = Plan{Step: s.step, Strategy: s.kind, H: nan, VH: nan, HNorm: nan}
	s.in.H, s.in.VH, s.in.HNorm, s.in.Gate = 0, 0, 0, nil
}

// settle runs the strategy on what was measured.
func (s *Stream) settle() (Plan, error) {
	s.mark()
	if s.gated {
		s.in.Gate = &s.gate
	}
	s.out = temper.Output{Row: s.out.Row[:0], Notes: s.out.Notes[:0]}
	if err := s.strategy.Plan(&s.in, &s.out); err != nil {
		return Plan{}, s.fail(err)
	}
	s.cut = s.p.Cut()
	s.cut.Temperature = s.out.Temperature
	if s.out.HasMinP {
		s.cut.MinP = s.out.MinP
	}
	s.plan.Temperature, s.plan.MinP, s.plan.Notes, s.plan.Row = s.cut.Temperature, s.cut.MinP, s.out.Notes, s.lookaheadRow()
	return s.plan, nil
}

func (s *Stream) fail(err error) error { return fmt.Errorf("plan token %d: %w", s.step, err) }

// measure sets entropy and varentropy.
func (s *Stream) measure() {
	var h, vh, norm float64
	if s.in.Row64 != nil {
		h, vh = temper.Moments(s.in.Row64)
	} else {
		m := s.sampler.Moments()
		h, vh = m.H, m.VH
	}
	if s.nVocab > 1 {
		norm = h / math.Log(float64(s.nVocab))
	}
	s.in.H, s.in.VH, s.in.HNorm = h, vh, norm
	s.plan.H, s.plan.VH, s.plan.HNorm = h, vh, norm
}

// lookaheadRow is the row in the form that the lookahead takes. A transformed row is turned into float32 only where it is used.
func (s *Stream) lookaheadRow() []float32 {
	if len(s.out.Row) == 0 || !s.p.UsesLookahead() {
		return s.in.Row32
	}
	s.own32 = slices.Grow(s.own32[:0], len(s.out.Row))[:len(s.out.Row)]
	for i, v := range s.out.Row {
		s.own32[i] = float32(v)
	}
	return s.own32
}

// NeedsU reports whether the last Plan leaves anything to chance: a greedy choice does not.
func (s *Stream) NeedsU() bool { return s.cut.NeedsU() }

// Choose picks the token of the last Plan, whose row must still be as it was. u lies in (0,1) and is not read where NeedsU is false. It
// may be called more than once.
func (s *Stream) Choose(u float64) (Draw, error) {
	var d Draw
	var err error
	switch {
	case len(s.out.Row) > 0:
		d, err = s.whole().Choose(s.out.Row, s.ban, s.cut, u)
	case s.in.Row64 != nil:
		d, err = s.whole().Choose(s.in.Row64, s.ban, s.cut, u)
	default:
		d, err = s.sampler.Pick(s.cut, u)
	}
	s.last.draw = d
	return d, err
}

// whole is the decoder for float64 rows.
func (s *Stream) whole() *Exact {
	if s.exact == nil {
		s.exact = NewExact(s.nVocab)
	}
	return s.exact
}

// Accept makes token the next one of the answer: penalties and strategy learn it. It is the one that Choose gave, or what another decoder made of
// the Plan. ev says what the number was made of; nil where none was drawn.
func (s *Stream) Accept(token int32, ev *Evidence) {
	if s.last.draw.Token != token {
		s.last.draw = Draw{Token: token, Rank: -1, Prob: math.NaN(), U: math.NaN()}
	}
	s.last.ev, s.last.step, s.last.prev = ev, s.step, s.previous
	s.mark()
	s.back = back{ok: true, gate: s.gate, gated: s.gated}
	s.held, s.marked = held{}, false
	s.penalties.accept(token)
	s.strategy.Chosen(token)
	s.gate.Z, s.gate.R, s.gate.Valid, s.gated = ev.coherence()
	s.step++
	s.previous = token
}

// Next decides the next token of the answer from row, with a number of noise, which is asked for only once the row is there and only where
// the choice needs one. It accepts the token; [Stream.Record] tells the rest. After [ErrWholeRow] it takes the number that was drawn for the head.
func (s *Stream) Next(ctx context.Context, row []float32, ban *Mask, noise Noise) (Draw, error) {
	if _, err := s.Plan(row, ban); err != nil {
		return Draw{}, err
	}
	u, ev, err := s.number(ctx, noise)
	if err != nil {
		return Draw{}, err
	}
	d, err := s.Choose(u)
	if err != nil {
		return Draw{}, err
	}
	s.take(d.Token, ev, noise)
	return d, nil
}

// number draws the number of the step, where it needs one that isn't held already.
func (s *Stream) number(ctx context.Context, noise Noise) (u float64, ev *Evidence, err error) {
	switch {
	case !s.NeedsU():
		return 0, nil, nil
	case s.held.ok:
		return s.held.u, s.held.ev, nil
	}
	if u, err = noise.One(ctx, s.step); err != nil {
		return 0, nil, fmt.Errorf("draw number of token %d: %w", s.step, err)
	}
	return u, noise.Last(), nil
}

// take accepts a token and tells noise.
func (s *Stream) take(token int32, ev *Evidence, noise Noise) {
	s.Accept(token, ev)
	if p, ok := noise.(Pipelined); ok {
		p.Accepted(s.step-1, token)
	}
}
