package lookahead

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"qr-gateway/sampler"
	"qr-gateway/sampler/internal/vec"
)

// ErrEvaluator says that an evaluator broke its contract.
var ErrEvaluator = errors.New("evaluator broke its contract")

// Config holds what a decoder is tuned by. None of it changes which token is chosen.
type Config struct {
	// Cost is the time of one Peek of g tokens, at Cost[g-1], in units of a Peek of one. It must not fall as g grows. Empty:
	// the built-in table. A seeded request always uses the built-in table, since the last digits of a row depend on the batch it
	// was decoded in.
	Cost []float64
}

// Validate reports a cost table that can't be one.
func (c Config) Validate() error {
	last := 0.0
	for i, v := range c.Cost {
		if !(v > 0 && v >= last) || math.IsInf(v, 0) {
			return fmt.Errorf("cost of a peek of %d tokens is %v; it must be a number over 0 and not below the one before", i+1, v)
		}
		last = v
	}
	return nil
}

// Step is everything that decides one token.
type Step struct {
	Index  int             // of the token within the answer, from 0
	Row    []float32       // logits that follow the text so far
	Params *sampler.Params // as validated
	Plan   *sampler.Plan   // of the same row: what penalties, bias and the temperature strategy make of it; nil: nothing
	Noise  sampler.Noise
	Eval   Evaluator
	Ban    *sampler.Mask // never chosen
	EOG    *sampler.Mask // end the text
}

// row is what candidates are taken from.
func (s *Step) row() []float32 {
	if s.Plan != nil {
		return s.Plan.Row
	}
	return s.Row
}

// temperature divides ln s; 0 or below is argmax.
func (s *Step) temperature() float64 {
	if s.Plan != nil {
		return s.Plan.Temperature
	}
	return s.Params.Temperature
}

// Outcome is a chosen token and what it took.
type Outcome struct {
	Token      int32
	End        bool      // Token is an end-of-generation token; nothing was committed and Row is nil
	Row        []float32 // logits that follow Token, as Evaluator.Commit returned them
	Peeks      int       // candidates evaluated
	Rounds     int       // calls of Evaluator.Peek
	Candidates int       // tokens that could have been chosen, end-of-generation tokens included
	Rank       int       // of Token among them by probability; 0 is the most probable
	Prob       float64   // of Token among them, by probability alone
	Alpha      float64   // of this step
	Score      float64   // of Token, with p relative to the largest p of the row; NaN where it was not evaluated
	H          float64   // entropy that follows Token, in [0,1]; NaN where it was not evaluated
	Skipped    bool      // decided by the confidence threshold, as if alpha were -1
}

// Describe fills in what the outcome knows of a token that r is the record of.
func (o *Outcome) Describe(r *sampler.Record) {
	r.Rank, r.Prob, r.Candidates = o.Rank, sampler.Maybe(o.Prob), o.Candidates
	r.Lookahead = &sampler.Lookahead{
		Alpha: o.Alpha, Score: sampler.Maybe(o.Score), H: sampler.Maybe(o.H), Peeks: o.Peeks, Rounds: o.Rounds, Skipped: o.Skipped,
	}
}

// candidate is a token that may be chosen and what is known of it.
type candidate struct {
	id    int32
	lp    float64 // ln(p/p_max), at most 0
	bound float64 // a lp/T + Gumbel noise: the value at H = 1
	value float64 // bound + b ln(H)/T, once seen
	h     float64 // entropy that follows, once seen
	seen  bool
}

// state is what one step is decided by.
type state struct {
	alpha, a, b float64
	t           float64 // temperature; 1 for argmax
	argmax      bool
	inverse     bool    // one u and the inverse CDF, instead of one u per candidate
	u           float64 // for inverse, after the end of the text is taken out
	group       int
	topN        int
	skipped     bool
	peeks       int
	rounds      int
	visited     int // rows of the current Peek
	err         error
}

// Decoder chooses tokens by what follows them. It owns its scratch memory and belongs to one goroutine.
type Decoder struct {
	nVocab int
	top    vec.Top // candidates of the base row
	row    vec.Top // entropy of a peeked row
	hist   *vec.Hist
	visit  func(int, []float32) // d.take, made once

	s      state
	cands  []candidate // descending p, then ascending id
	ends   []candidate // the end-of-generation tokens among the top
	keys   []vec.Key
	order  []int // of cands, by descending bound, then ascending id
	batch  []int // of cands: the current Peek
	ids    []int32
	us     []float64
	plan   planner
	bounds interval
}

// New returns a decoder for rows of nVocab logits.
func New(nVocab int, cfg Config) (*Decoder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	if nVocab < 1 {
		return nil, fmt.Errorf("make decoder: vocabulary has %d tokens; it needs one", nVocab)
	}
	d := &Decoder{nVocab: nVocab, hist: vec.NewHist()}
	d.visit = d.take
	d.plan.builtin, d.plan.measured = builtinCost(), slices.Clone(cfg.Cost)
	d.Reset()
	return d, nil
}

// Reset forgets what was learnt from the request before. A step with Index 0 does so too.
func (d *Decoder) Reset() { d.plan.model.reset() }

// Next decides one token and, unless it ends the text, commits it. An error that is not of the evaluator, the noise or ctx is a misuse or
// [sampler.ErrNoCandidates]; after any, the evaluator is where its own error left it.
func (d *Decoder) Next(ctx context.Context, st *Step) (Outcome, error) {
	if err := d.begin(st); err != nil {
		return Outcome{}, fmt.Errorf("choose token: %w", err)
	}
	ended, err := d.settleEnd(ctx, st)
	if err != nil {
		return Outcome{}, fmt.Errorf("choose token: %w", err)
	}
	if ended {
		return d.outcome(&d.ends[0], nil), nil
	}
	at, err := d.choose(ctx, st)
	if err != nil {
		return Outcome{}, fmt.Errorf("choose token: %w", err)
	}
	c := &d.cands[at]
	next, err := st.Eval.Commit(ctx, c.id)
	if err != nil {
		return Outcome{}, fmt.Errorf("commit token %d: %w", c.id, err)
	}
	if len(next) != d.nVocab {
		return Outcome{}, fmt.Errorf("commit token %d: row has %d logits, the vocabulary %d: %w", c.id, len(next), d.nVocab, ErrEvaluator)
	}
	return d.outcome(c, next), nil
}

// begin reads the step's parameters and finds its candidates.
func (d *Decoder) begin(st *Step) error {
	if row := st.row(); len(row) != d.nVocab {
		return fmt.Errorf("row has %d logits, the vocabulary %d", len(row), d.nVocab)
	}
	if st.Index == 0 {
		d.Reset()
	}
	p := st.Params
	d.s = state{alpha: p.AlphaAt(st.Index), t: 1, topN: p.LookaheadN, group: max(1, st.Eval.Group())}
	t := st.temperature()
	d.s.argmax = p.LookaheadChoice == sampler.ChoiceArgmax || t <= 0
	if !d.s.argmax {
		d.s.t = max(t, 1e-6)
		d.s.inverse = p.Lookahead == sampler.ModeBounded || p.Lookahead == sampler.ModeFullInverse
	}
	d.plan.seeded = p.Seed != nil
	if err := d.collect(st); err != nil {
		return err
	}
	d.s.a, d.s.b = Exponents(p.Curve, d.s.alpha)
	if d.confident(st) {
		d.s.skipped = true
		d.s.a, d.s.b = Exponents(p.Curve, -1)
	}
	return nil
}

// choose returns the index of the candidate that wins.
func (d *Decoder) choose(ctx context.Context, st *Step) (int, error) {
	full := st.Params.Lookahead == sampler.ModeFull || st.Params.Lookahead == sampler.ModeFullInverse
	switch {
	case len(d.cands) == 1:
		return 0, nil
	case d.s.b == 0:
		return d.withoutPeek(), nil
	case full:
		return d.full(ctx, st)
	case d.s.inverse:
		return d.bounded(ctx, st)
	}
	return d.lazy(ctx, st)
}

// peek evaluates the candidates of d.batch.
func (d *Decoder) peek(ctx context.Context, st *Step) error {
	d.ids = d.ids[:0]
	for _, at := range d.batch {
		d.ids = append(d.ids, d.cands[at].id)
	}
	d.s.visited = 0
	if err := st.Eval.Peek(ctx, d.ids, d.visit); err != nil {
		return fmt.Errorf("look past %d candidates: %w", len(d.ids), err)
	}
	if d.s.err == nil && d.s.visited != len(d.batch) {
		d.s.err = fmt.Errorf("peek of %d tokens showed %d rows: %w", len(d.batch), d.s.visited, ErrEvaluator)
	}
	d.s.peeks += len(d.batch)
	d.s.rounds++
	return d.s.err
}

// take is called by the evaluator with each row of a Peek.
func (d *Decoder) take(i int, row []float32) {
	if i != d.s.visited || i >= len(d.batch) || len(row) != d.nVocab {
		d.s.err = fmt.Errorf("row %d of a peek has %d logits: %w", i, len(row), ErrEvaluator)
		return
	}
	d.s.visited++
	c := &d.cands[d.batch[i]]
	c.h, c.seen = d.entropy(row), true
	c.value = c.bound + d.s.b*math.Log(c.h)/d.s.t
	d.plan.model.learn(c.h)
}

func (d *Decoder) outcome(c *candidate, next []float32) Outcome {
	o := Outcome{
		Token: c.id, Row: next, End: next == nil,
		Peeks: d.s.peeks, Rounds: d.s.rounds, Candidates: len(d.cands) + len(d.ends),
		Alpha: d.s.alpha, Score: math.NaN(), H: math.NaN(), Skipped: d.s.skipped,
	}
	if c.seen {
		o.H = c.h
		o.Score = math.Exp(d.s.a*c.lp) * math.Pow(c.h, d.s.b)
	}
	o.Rank, o.Prob = d.place(c)
	return o
}

// place is the rank and the share of c among all candidates.
func (d *Decoder) place(c *candidate) (rank int, share float64) {
	all := 0.0
	for _, part := range [2][]candidate{d.cands, d.ends} {
		for i := range part {
			x := &part[i]
			all += math.Exp(x.lp)
			if x.lp > c.lp || x.lp == c.lp && x.id < c.id {
				rank++
			}
		}
	}
	return rank, math.Exp(c.lp) / all
}
