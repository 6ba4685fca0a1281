// Package lookahead chooses tokens by what they would lead to: it looks one token past each candidate and prefers those that keep the
// future open. The score of a candidate is p^a H^b, where p is its probability and H the entropy of the most probable tokens that
// would follow it; design.md beside this file has the formulas and says why each mode gives exactly the answer of scoring
// every candidate.
//
// A [Decoder] holds no model. It reads rows of logits and asks an [Evaluator] to decode candidates. Decoder and Evaluator belong to one
// goroutine; the decoder keeps nothing of a row after a call returns and allocates nothing per token.
//
//	d, err := lookahead.New(nVocab, lookahead.Config{})
//	st := lookahead.Step{Row: row, Params: &p, Noise: noise, Eval: eval, EOG: eog}
//	for out := (lookahead.Outcome{}); !out.End && st.Index < n; st.Index++ {
//		plan, err := stream.Plan(st.Row, st.Ban) // penalties, bias and the temperature strategy; left out, none of these
//		st.Plan = &plan
//		if out, err = d.Next(ctx, &st); err != nil { ... }
//		stream.Accept(out.Token, noise.Last())
//		st.Row = out.Row
//	}
package lookahead
