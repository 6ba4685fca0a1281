package lookahead

import (
	"context"
	"errors"

	"qr-gateway/sampler"
)

// Config holds what a decoder is tuned by. None of it changes which token is chosen.
type Config struct {
	// Cost is the time of one Peek of g tokens, at Cost[g-1], in units of a Peek of one. It must not fall as g grows. A
	// seeded request always uses the built-in table, since the last digits of a row depend on the batch it was decoded in.
	Cost []float64
}

// Step is everything that decides one token.
type Step struct {
	Index  int             // of the token within the answer, from 0
	Row    []float32       // logits that follow the text so far
	Params *sampler.Params // as validated
	Noise  sampler.Noise
	Eval   Evaluator
	Ban    *sampler.Mask // never chosen
	EOG    *sampler.Mask // end the text
}

// Outcome is a chosen token and what it took.
type Outcome struct {
	Token      int32
	End        bool      // Token is an end-of-generation token; nothing was committed and Row is nil
	Row        []float32 // logits that follow Token, as Evaluator.Commit returned them
	Peeks      int       // candidates evaluated
	Rounds     int       // calls of Evaluator.Peek
	Candidates int       // tokens that could have been chosen, end-of-generation tokens included
	Alpha      float64   // of this step
	Score      float64   // of Token relative to p_max^a; NaN where it was not evaluated
	H          float64   // entropy that follows Token, in [0,1]; NaN where it was not evaluated
	Skipped    bool      // decided by the confidence threshold
}

// Decoder chooses tokens by what follows them. It owns its scratch memory and belongs to one goroutine.
type Decoder struct {
	nVocab int
	cfg    Config
}

// New returns a decoder for rows of nVocab logits.
func New(nVocab int, cfg Config) (*Decoder, error) { return &Decoder{nVocab: nVocab, cfg: cfg}, nil }

// Reset forgets what was learnt from the request before. Call it before the first step of each request.
func (d *Decoder) Reset() {}

// Next decides one token and commits it.
func (d *Decoder) Next(ctx context.Context, st *Step) (Outcome, error) {
	return Outcome{}, errors.New("not built yet")
}
