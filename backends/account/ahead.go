package account

import (
	"math"
	"time"

	"qr-gateway/backends"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// Ahead accounts for the tokens of one answer that were chosen by what follows them.
type Ahead struct {
	peeks    int
	tokens   int
	min, max float64 // of alpha
}

// NewAhead begins an account.
func NewAhead() *Ahead { return &Ahead{min: math.Inf(1), max: math.Inf(-1)} }

// Accept makes the token of out, decided at step, the next one of the answer, for all that want to know of it. begun is when its row was there.
func (a *Ahead) Accept(step int, out *lookahead.Outcome, s *sampler.Stream, t *Tap, l *Ledger, begun time.Time) {
	a.peeks += out.Peeks
	a.tokens++
	a.min, a.max = math.Min(a.min, out.Alpha), math.Max(a.max, out.Alpha)
	ev := t.Take()
	s.Accept(out.Token, ev)
	t.Accepted(step, out.Token)
	l.Count(ev)
	if l.Tells() {
		r := s.Record()
		out.Describe(&r)
		l.Tell(r, begun)
	}
}

// Stats adds the account of an answer that p asked for.
func (a *Ahead) Stats(s *backends.DecodeStats, p *sampler.Params) {
	s.Decoder, s.Curve, s.Mode, s.Choice = "lookahead", p.Curve, p.Lookahead, p.LookaheadChoice
	s.Peeks = a.peeks
	if a.tokens > 0 {
		s.AlphaMin, s.AlphaMax = &a.min, &a.max
		s.PeeksPerToken = float64(a.peeks) / float64(a.tokens)
	}
}
