package worker

import (
	"context"
	"fmt"

	"qr-gateway/backends/account"
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

// byStep reports whether the tokens of the first run have to be decoded as they were then, one by one: where the strategy learns from each
// row, and where the text is to be the one that an undisturbed run gives, down to the noise of kernels that differ by the size of a batch.
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
