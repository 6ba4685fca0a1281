package sampler

import "fmt"

// penalties adjusts the logits of tokens that the text already holds, and of those that the request names. Only these are touched: the
// work of a token grows with the number of different tokens so far, not with the vocabulary. In this order, as other servers have it:
//
//   - repetition, over prompt and answer: a logit over 0 is divided by the penalty, any other multiplied
//   - frequency times the number of occurrences in the answer is taken off, and presence once
//   - the bias is added
type penalties struct {
	frequency, presence, repetition float64
	bias                            []TokenBias
	on                              bool     // any of the three penalties
	seen                            []uint32 // per token: 2 for each time in the answer, and 1 if it is in the prompt
	ids                             []int32  // of the tokens in seen, in order of appearance
}

// begin starts a new answer.
func (a *penalties) begin(p *Params, prompt []int32, nVocab int) error {
	for _, b := range p.LogitBias {
		if b.Token < 0 || int(b.Token) >= nVocab {
			return &ParamError{Key: "qr_logit_bias", Reason: fmt.Sprintf(
				"qr_logit_bias names token %d; the vocabulary has %d tokens, from 0 to %d", b.Token, nVocab, nVocab-1)}
		}
	}
	for _, id := range a.ids {
		a.seen[id] = 0
	}
	a.ids = a.ids[:0]
	a.frequency, a.presence, a.repetition, a.bias = p.FrequencyPenalty, p.PresencePenalty, p.RepetitionPenalty, p.LogitBias
	a.on = a.frequency != 0 || a.presence != 0 || a.repetition != 1
	if !a.on {
		return nil
	}
	if len(a.seen) < nVocab {
		a.seen, a.ids = make([]uint32, nVocab), make([]int32, 0, nVocab)
	}
	if a.repetition != 1 {
		for _, id := range prompt {
			a.mark(id, 1)
		}
	}
	return nil
}

// mark notes a token. One that is outside of the vocabulary has no logit to adjust.
func (a *penalties) mark(id int32, how uint32) {
	if id < 0 || int(id) >= len(a.seen) {
		return
	}
	n := a.seen[id]
	if n == 0 {
		a.ids = append(a.ids, id)
	}
	if how == 1 {
		a.seen[id] = n | 1
	} else {
		a.seen[id] = n + how
	}
}

// accept notes a token of the answer.
func (a *penalties) accept(id int32) {
	if a.on {
		a.mark(id, 2)
	}
}

// idle reports whether there is nothing to adjust.
func (a *penalties) idle() bool { return len(a.bias) == 0 && len(a.ids) == 0 }

// adjust changes row in place.
func adjust[T float32 | float64](a *penalties, row []T) {
	for _, id := range a.ids {
		row[id] = T(a.penalise(float64(row[id]), a.seen[id]))
	}
	for _, b := range a.bias {
		row[b.Token] += T(b.Bias)
	}
}

// penalise is the logit of a token that was seen as mark notes it.
func (a *penalties) penalise(logit float64, seen uint32) float64 {
	switch {
	case a.repetition == 1:
	case logit > 0:
		logit /= a.repetition
	default:
		logit *= a.repetition
	}
	if n := seen >> 1; n > 0 {
		logit -= float64(n)*a.frequency + a.presence
	}
	return logit
}
