package worker

import (
	"context"
	"fmt"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
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
	tap     *account.Tap
	ledger  *account.Ledger
	ban     *sampler.Mask
	row     []float32
	pending int32 // chosen, not yet decoded; negative: none
}

func (c *plain) next(ctx context.Context, _ int) (int32, error) {
	if c.pending >= 0 {
		row, err := c.w.extend(ctx, c.pending)
		if err != nil {
			return 0, err
		}
		c.row = row
	}
	begun := c.ledger.Clock()
	draw, err := c.w.stream.Next(ctx, c.row, c.ban, c.tap)
	if err != nil {
		return 0, fmt.Errorf("choose token: %w", account.Explain(ctx, err))
	}
	c.ledger.Count(c.tap.Take())
	if c.ledger.Tells() {
		c.ledger.Tell(c.w.stream.Record(), begun)
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
	w      *Worker
	tap    *account.Tap
	ledger *account.Ledger
	tally  *account.Ahead
	step   lookahead.Step
	plan   sampler.Plan
}

func (c *ahead) next(ctx context.Context, step int) (int32, error) {
	begun := c.ledger.Clock()
	var err error
	if c.plan, err = c.w.stream.Plan(c.step.Row, c.step.Ban); err != nil {
		return 0, fmt.Errorf("choose token: %w", account.Explain(ctx, err))
	}
	c.step.Index, c.step.Plan = step, &c.plan
	out, err := c.w.decoder.Next(ctx, &c.step)
	if err != nil {
		return 0, fmt.Errorf("choose token: %w", account.Explain(ctx, err))
	}
	c.tally.Accept(step, &out, c.w.stream, c.tap, c.ledger, begun)
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

func (c *ahead) stats(s *backends.DecodeStats) { c.tally.Stats(s, c.step.Params) }

// chooser makes the chooser of a request whose prompt has been decoded; row follows it.
func (r *run) chooser(row []float32) (chooser, error) {
	if r.job.Params.UsesLookahead() {
		return r.ahead(row)
	}
	return &plain{w: r.w, tap: r.tap, ledger: r.ledger, ban: r.w.ban(r.job), row: row, pending: -1}, nil
}

// ahead makes a chooser that looks ahead, and knows nothing of the request before.
func (r *run) ahead(row []float32) (*ahead, error) {
	w := r.w
	if w.branches == nil {
		return nil, errNoForks
	}
	if err := w.branches.begin(w.main, len(w.held.tokens)); err != nil {
		return nil, err
	}
	w.decoder.Reset()
	c := &ahead{w: w, tap: r.tap, ledger: r.ledger, tally: account.NewAhead()}
	c.step = lookahead.Step{Row: row, Params: &r.job.Params, Noise: r.tap, Eval: w.branches, Ban: w.ban(r.job), EOG: w.lang.EOG}
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
