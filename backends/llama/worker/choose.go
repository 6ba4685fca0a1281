package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// chooser decides one token after another. It never decodes a token that nothing follows.
type chooser interface {
	// next returns the token at place step of the answer. An end-of-generation token is never committed.
	next(ctx context.Context, step int) (int32, error)
	// end leaves the committed tokens in the main sequence, alone in the cache.
	end() error
	// stats adds what the choices took.
	stats(*backends.DecodeStats)
}

// plain chooses from one row at a time.
type plain struct {
	w       *Worker
	params  *sampler.Params
	noise   sampler.Noise
	ban     *sampler.Mask
	row     []float32
	pending int32 // chosen, not yet decoded; negative: none
}

func (c *plain) next(ctx context.Context, step int) (int32, error) {
	if c.pending >= 0 {
		row, err := c.w.extend(ctx, c.pending)
		if err != nil {
			return 0, err
		}
		c.row = row
	}
	u := 0.0
	if c.params.Cut().NeedsU() {
		var err error
		if u, err = c.noise.One(ctx, step); err != nil {
			return 0, fmt.Errorf("draw number: %w", err)
		}
	}
	draw, err := c.w.sampler.Choose(c.row, c.ban, c.params.Cut(), u)
	if err != nil {
		return 0, fmt.Errorf("choose token: %w", err)
	}
	c.pending = draw.Token
	return draw.Token, nil
}

func (c *plain) end() error { return nil }

func (c *plain) stats(s *backends.DecodeStats) { s.Decoder = "plain" }

// brancher is an evaluator with a life of one request.
type brancher interface {
	lookahead.Evaluator
	// begin takes over main, a sequence of past tokens that is alone in the cache.
	begin(main, past int) error
	// end leaves one sequence, with the committed tokens, and returns its id.
	end() (main int, err error)
}

// ahead chooses by what follows the candidates.
type ahead struct {
	w        *Worker
	step     lookahead.Step
	peeks    int
	tokens   int
	min, max float64 // of alpha
}

func (c *ahead) next(ctx context.Context, step int) (int32, error) {
	c.step.Index = step
	out, err := c.w.decoder.Next(ctx, &c.step)
	if err != nil {
		return 0, fmt.Errorf("choose token: %w", err)
	}
	c.peeks += out.Peeks
	c.tokens++
	c.min, c.max = math.Min(c.min, out.Alpha), math.Max(c.max, out.Alpha)
	if !out.End {
		c.step.Row = out.Row
		c.w.note(out.Token)
	}
	return out.Token, nil
}

func (c *ahead) end() (err error) {
	c.w.main, err = c.w.branches.end()
	return err
}

func (c *ahead) stats(s *backends.DecodeStats) {
	p := c.step.Params
	s.Decoder, s.Curve, s.Mode, s.Choice = "lookahead", p.Curve, p.Lookahead, p.LookaheadChoice
	s.Peeks = c.peeks
	if c.tokens > 0 {
		s.AlphaMin, s.AlphaMax = &c.min, &c.max
		s.PeeksPerToken = float64(c.peeks) / float64(c.tokens)
	}
}

// chooser makes the chooser of a request whose prompt has been decoded; row follows it.
func (w *Worker) chooser(job *Job, noise sampler.Noise, row []float32) (chooser, error) {
	ban := w.ban(job)
	if !job.Params.UsesLookahead() {
		return &plain{w: w, params: &job.Params, noise: noise, ban: ban, row: row, pending: -1}, nil
	}
	if w.branches == nil {
		return nil, errNoForks
	}
	if err := w.branches.begin(w.main, len(w.held.tokens)); err != nil {
		return nil, err
	}
	c := &ahead{w: w, min: math.Inf(1), max: math.Inf(-1)}
	c.step = lookahead.Step{Row: row, Params: &job.Params, Noise: noise, Eval: w.branches, Ban: ban, EOG: w.lang.EOG}
	return c, nil
}

// ban is the set of tokens that the request may not choose.
func (w *Worker) ban(job *Job) *sampler.Mask {
	on := job.Params.UsesLookahead() && !job.Thinking
	if job.Params.ThinkBan != nil {
		on = *job.Params.ThinkBan
	}
	switch {
	case !on:
		return nil
	case len(job.Allow) == 0:
		return w.lang.Think
	}
	ids := slices.DeleteFunc(slices.Clone(w.lang.Think.IDs()), func(id int32) bool { return slices.Contains(job.Allow, id) })
	return sampler.NewMask(ids...)
}

// noise is where the request's numbers come from.
func (w *Worker) noise(p *sampler.Params) (sampler.Noise, error) {
	return sampler.NewNoise(p, source{w.deps.Entropy}, nil)
}

// source marks the errors of a byte source as such.
type source struct{ sampler.ByteSource }

// Fill implements sampler.ByteSource.
func (s source) Fill(ctx context.Context, buf []byte) (sampler.Block, error) {
	block, err := s.ByteSource.Fill(ctx, buf)
	if err == nil || (ctx.Err() != nil && errors.Is(err, ctx.Err())) {
		return block, err
	}
	return block, &backends.Error{
		Kind: backends.KindEntropy, Code: "entropy_unavailable", Err: err,
		Message: "the entropy source failed: " + err.Error(),
		Hint:    "try again, or give a seed",
	}
}
