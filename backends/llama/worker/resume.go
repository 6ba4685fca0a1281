package worker

import (
	"context"
	"fmt"

	"qr-gateway/backends/account"
	"qr-gateway/sampler"
)

// retell takes in the text of the tokens that the client has already, which is not sent again. It returns the length of it, and whether a
// stop string has ended it.
func (r *run) retell() (content, reasoning int, stopped bool) {
	for _, token := range r.job.Delivered {
		var more, thought string
		more, thought, stopped = r.answer.add(r.piece(token))
		content, reasoning = content+len(more), reasoning+len(thought)
		r.count++
	}
	return content, reasoning, stopped
}

// takeUp makes what chooses behind the tokens that are there. row follows the prompt and, unless the choices are repeated, what else prefill
// put behind it.
func (r *run) takeUp(ctx context.Context, row []float32, repeat bool) (chooser, error) {
	if repeat {
		c, same, err := r.repeat(ctx, row)
		if same || err != nil {
			return c, err
		}
		if row, err = r.restart(ctx); err != nil {
			return nil, err
		}
	}
	row, err := r.resume(ctx, row)
	if err != nil {
		return nil, err
	}
	return r.chooser(row)
}

// repeats reports whether the choices of the first run can be made again, so that what follows is what an undisturbed run gives: its rows came
// from batches of candidates, and have other digits than those of tokens that are decoded one by one. It takes a seed, or nothing that is
// left to chance. Plain decoding has no need of it.
func (r *run) repeats() bool {
	p := &r.job.Params
	if len(r.job.Delivered) == 0 || r.count >= r.limit || !p.UsesLookahead() {
		return false
	}
	return p.Seed != nil || p.Temperature <= 0 || p.LookaheadChoice == sampler.ChoiceArgmax
}

// repeat makes the choices of the first run again, and reports whether they came out the same. Another processor may compute other digits. Nobody is
// told of these choices and they are in no account; c goes on behind them with those of the run.
func (r *run) repeat(ctx context.Context, row []float32) (c *ahead, same bool, err error) {
	if c, err = r.ahead(row); err != nil {
		return nil, false, err
	}
	told := *c
	c.tap, c.ledger, c.tally = r.silence(), account.NewLedger(r.job.ID, &sampler.Params{}, r.w.deps.Log), account.NewAhead()
	c.step.Noise = c.tap
	for i, token := range r.job.Delivered {
		got, err := c.next(ctx, i)
		if err != nil {
			return nil, false, fmt.Errorf("take answer up at token %d: %w", i, err)
		}
		if got != token {
			r.w.deps.Log.Info("an answer that is taken up comes out otherwise here", "request", r.job.ID, "step", i, "token", got, "delivered", token)
			return nil, false, c.end()
		}
	}
	c.tap, c.ledger, c.tally, c.step.Noise = told.tap, told.ledger, told.tally, told.step.Noise
	last := len(r.job.Delivered) - 1
	r.tap.Accepted(last, r.job.Delivered[last])
	return c, true, nil
}

// silence is the noise of choices that are made again. It asks no source: without a seed nothing is drawn.
func (r *run) silence() *account.Tap {
	var seed int64
	if s := r.job.Params.Seed; s != nil {
		seed = *s
	}
	return &account.Tap{Noise: sampler.NewSeeded(seed)}
}

// restart goes back to the beginning, where choices that were made again came out otherwise. It returns the row that resume takes.
func (r *run) restart(ctx context.Context) ([]float32, error) {
	p := &r.job.Params
	if err := r.w.stream.Begin(p, r.job.Tokens); err != nil {
		return nil, account.Explain(ctx, err)
	}
	known := r.prefill()
	keep, err := r.w.rewind(known, p.Seed != nil)
	if err != nil {
		return nil, err
	}
	return r.w.prompt(ctx, known, keep)
}

// resume takes the answer up where another run of it ended: everything that depends on the tokens so far is brought to where it was. It
// returns the row that follows.
func (r *run) resume(ctx context.Context, row []float32) (_ []float32, err error) {
	for i, token := range r.job.Delivered {
		if r.byStep() {
			if row, err = r.retrace(ctx, row, token); err != nil {
				return nil, fmt.Errorf("take answer up at token %d: %w", i, err)
			}
		}
		r.w.stream.Accept(token, nil)
		r.tap.Accepted(i, token)
	}
	return row, nil
}

// byStep reports whether the tokens of the first run have to be decoded one by one: where the strategy learns from each row, and where the
// text is to be the one that an undisturbed run gives, down to the noise of kernels that differ by the size of a batch.
func (r *run) byStep() bool {
	p := &r.job.Params
	return p.Seed != nil || p.Temperature <= 0 || account.Strategy(p) != account.Fixed
}

// retrace decodes one token, and lets the strategy see the row that it was chosen from.
func (r *run) retrace(ctx context.Context, row []float32, token int32) ([]float32, error) {
	if _, err := r.w.stream.Plan(row, r.w.ban(r.job)); err != nil {
		return nil, account.Explain(ctx, err)
	}
	return r.w.extend(ctx, token)
}

// prefill is what is decoded before the first choice, but for tokens that are decoded one by one.
func (r *run) prefill() []int32 {
	if len(r.job.Delivered) == 0 || r.byStep() {
		return r.job.Tokens
	}
	return append(append(make([]int32, 0, len(r.job.Tokens)+len(r.job.Delivered)), r.job.Tokens...), r.job.Delivered...)
}
