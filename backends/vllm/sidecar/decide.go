package sidecar

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/sampler"
)

func answer(s choice.Status) wire.Answer { return wire.Answer{Token: -1, Status: uint8(s)} }

// decide answers one row that s shows. One that panics ends its own answer alone.
func (r *request) decide(ctx context.Context, s *session, row *wire.Row) (a wire.Answer) {
	open := r.wait(ctx)
	r.work.Lock()
	defer r.work.Unlock()
	defer func() {
		if p := recover(); p != nil {
			s.srv.deps.Log.Error("choosing a token panicked", "request", r.rid, "step", row.Step, "panic", p, "stack", string(debug.Stack()))
			e := &backends.Error{Kind: backends.KindInternal, Code: "internal", Message: "the sidecar hit a defect of its own", Err: fmt.Errorf("panic: %v", p)}
			a = r.broke(s, int(row.Step), e)
		}
	}()
	r.seen.Store(s.now.UnixNano())
	step := int(row.Step)
	switch {
	case r.owner != s || r.handle != row.Handle:
		s.srv.reject(r.rid, "its rows come from another request now: a qr_rid is for one choice only")
		return answer(choice.Stop)
	case r.finished: // its client left, and vLLM is about to hear of it
		s.srv.deps.Log.Debug("row of a finished answer", "rid", r.rid, "step", step)
		return answer(choice.Stop)
	case !open:
		return r.late(ctx, s, step)
	case r.failed != nil:
		return r.refuse(s, step)
	}
	return r.step(ctx, s, row)
}

// wait waits until the source of the request is open.
func (r *request) wait(ctx context.Context) bool {
	select {
	case <-r.opened:
		return true
	default:
	}
	select {
	case <-r.opened:
		return true
	case <-ctx.Done():
		return false
	}
}

// step answers a row of a request that is well.
func (r *request) step(ctx context.Context, s *session, row *wire.Row) wire.Answer {
	step := int(row.Step)
	if r.first.IsZero() {
		r.first = s.now
	}
	r.latest = s.now
	whole, next := r.load(s, row)
	switch {
	case r.last.here && r.last.step == step:
		if r.last.same(&next, whole) {
			if r.last.decided || !r.last.asked || next.compact {
				return r.last.answer
			}
			next = r.last.with(next)
			break
		}
		if e := r.void(s, step); e != nil {
			return r.broke(s, step, e)
		}
	case step < r.stream.Step():
		return answer(choice.Unknown)
	case step-r.stream.Step() > s.maxGap():
		return r.broke(s, step, invalid("invalid_value", "qr_rid", "install the plugin that comes with this version of the gateway",
			"the plugin shows token %d after token %d", step, r.stream.Step()-1))
	default:
		r.gap(step, s.hello.Session)
		r.voids = 0
	}
	return r.choose(ctx, s, row, whole, next)
}

// maxGap is how many tokens in a row may be chosen by somebody else.
func (s *session) maxGap() int {
	if s.hello.MaxModelLen > 0 {
		return min(s.hello.MaxModelLen, longestGap)
	}
	return longestGap
}

const longestGap = 1 << 20

// with is the row as it is known after its whole form was shown too.
func (s *shown) with(next shown) shown {
	out := *s
	out.whole, out.wholeSum = true, next.wholeSum
	return out
}

// load reads a row: the entries of a compact one into ids and logits, and where a whole one is.
func (r *request) load(s *session, row *wire.Row) (whole []float32, next shown) {
	switch row.Form {
	case wire.Compact:
		s.step.Entries(row, r.ids, r.logits)
		next.ofCompact(row, r.ids, r.logits)
		return nil, next
	case wire.Shared:
		whole = s.shared.row(row.Slot, s.shape.Vocab)
	default:
		if len(r.whole) < s.shape.Vocab {
			r.whole = make([]float32, s.shape.Vocab)
		}
		whole = r.whole[:s.shape.Vocab]
		s.step.Whole(row, whole)
	}
	next.ofWhole(row, whole)
	return whole, next
}

// void takes back what was made of a row of this step: another one counts.
func (r *request) void(s *session, step int) *backends.Error {
	s.srv.counts.voids.Add(1)
	r.voids++
	if err := r.stream.Void(step); err != nil {
		return asError(context.Background(), step, err)
	}
	switch {
	case r.last.decided:
		r.ledger.Void()
		r.tokens = r.tokens[:len(r.tokens)-1]
	case r.last.native:
		r.native--
	}
	r.forgetRow()
	return nil
}

// forgetRow makes the row that was shown last one of the past. A number that was drawn for it, and that no token came of, counts as discarded.
func (r *request) forgetRow() {
	if r.last.asked && !r.last.decided {
		r.ledger.Spill(r.tap.Take())
	}
	r.last = shown{}
}

// choose decides.
func (r *request) choose(ctx context.Context, s *session, row *wire.Row, whole []float32, next shown) wire.Answer {
	begun := r.ledger.Clock()
	var d sampler.Draw
	var err error
	if whole == nil {
		r.head = sampler.Head{IDs: r.ids, Logits: r.logits, Max: row.Max, LSE: row.LSE, Entropy: row.Entropy, Finite: row.Finite}
		d, err = r.stream.NextHead(ctx, &r.head, nil, r.tap)
	} else {
		d, err = s.next(ctx, r, whole)
	}
	step := int(row.Step)
	switch {
	case err == nil:
		return r.chosen(s, d.Token, next, begun)
	case errors.Is(err, sampler.ErrWholeRow):
		return r.askWhole(s, step, next)
	case errors.Is(err, sampler.ErrNoCandidates):
		return r.illegal(ctx, s, step, next, err)
	case tooLate(ctx, err):
		return r.lateNumber(ctx, s, step, next)
	}
	return r.broke(s, step, asError(ctx, step, err))
}

// chosen accounts for a token.
func (r *request) chosen(s *session, token int32, next shown, begun time.Time) wire.Answer {
	r.ledger.Count(r.tap.Take())
	c := choice.Choice{Step: next.step, Token: token, Status: choice.Token, Void: r.voids, Session: s.hello.Session}
	if r.ledger.Tells() {
		r.ledger.Tell(r.stream.Record(), begun)
	}
	r.trail.push(&c)
	r.tokens = append(r.tokens, token)
	next.decided, next.answer = true, wire.Answer{Token: token, Status: uint8(choice.Token)}
	r.last = next
	s.srv.counts.tokens.Add(1)
	return next.answer
}

// askWhole asks for the whole row.
func (r *request) askWhole(s *session, step int, next shown) wire.Answer {
	if !s.inline && s.shape.Slots == 0 {
		return r.broke(s, step, errWhole)
	}
	s.srv.counts.whole.Add(1)
	next.asked, next.answer = true, answer(choice.Whole)
	r.last = next
	return next.answer
}

// illegal tells that no token may be chosen from the row.
func (r *request) illegal(ctx context.Context, s *session, step int, next shown, err error) wire.Answer {
	r.ledger.Spill(r.tap.Take())
	next.asked, next.answer = false, answer(choice.Illegal)
	r.last = next
	r.trail.push(&choice.Choice{Step: step, Token: -1, Status: choice.Illegal, Void: r.voids, Err: asError(ctx, step, err), Session: s.hello.Session})
	return next.answer
}

// tooLate reports whether a number failed for want of time alone. A source that watches the deadline too may say so in its own words.
func tooLate(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || entropy.KindOf(err) == entropy.KindTimeout)
}

// lateNumber is a row whose number isn't there in time: vLLM chooses the token where the request lets it and the source's policy is not strict, and else
// the answer fails.
func (r *request) lateNumber(ctx context.Context, s *session, step int, next shown) wire.Answer {
	policy := guard.Policy(r.tap.Policy())
	if policy == guard.Fallback {
		s.srv.slow.tell(s.srv.deps.Log, r.params.EntropySource, s.srv.cfg.Deadline)
	}
	if r.fail != wire.FailNative || policy == guard.Strict || s.isOver(ctx) {
		return r.late(ctx, s, step)
	}
	s.srv.counts.late.Add(1)
	s.srv.counts.native.Add(1)
	r.tap.Take() // there is none
	r.native++
	e := late(r.params.EntropySource, step, s.srv.cfg.Deadline)
	r.trail.push(&choice.Choice{Step: step, Token: -1, Status: choice.Native, Void: r.voids, Err: e, Session: s.hello.Session})
	next.native, next.asked, next.answer = true, false, answer(choice.Native)
	r.last = next
	return next.answer
}

// isOver reports whether the time of a row is over because the connection's is.
func (s *session) isOver(ctx context.Context) bool {
	return s.ending.Load() || errors.Is(ctx.Err(), context.Canceled)
}

// late is a failure for want of time. A sidecar that ends says nothing: the plugin knows what to do alone.
func (r *request) late(ctx context.Context, s *session, step int) wire.Answer {
	if s.isOver(ctx) {
		return answer(choice.Unknown)
	}
	s.srv.counts.late.Add(1)
	return r.broke(s, step, late(r.params.EntropySource, step, s.srv.cfg.Deadline))
}

// broke ends the answer by an error.
func (r *request) broke(s *session, step int, e *backends.Error) wire.Answer {
	r.failed, r.told = e, false
	return r.refuse(s, step)
}

// refuse answers a row of a request that has failed, and tells the reason once.
func (r *request) refuse(s *session, step int) wire.Answer {
	if !r.told {
		r.told = true
		s.srv.counts.failed.Add(1)
		if !r.trail.followed() {
			s.srv.deps.Log.Warn("answer ended", "request", r.rid, "step", step, "kind", r.failed.Kind, "reason", r.failed.Error())
		}
		r.trail.push(&choice.Choice{Step: step, Token: -1, Status: choice.Stop, Void: r.voids, Err: r.failed, Session: s.hello.Session})
	}
	return answer(choice.Stop)
}

// again says how the answer goes on for a plugin that begins it again with step as the next one, and history before it: from where it stands, or
// from what the plugin knows. It reports whether the strategy's memory of the rows was lost.
func (r *request) again(g *wire.Begin, session string) (rebuilt bool, err error) {
	step := int(g.Step)
	if over := r.failed != nil || r.stream == nil; over {
		return false, nil
	}
	if step < r.stream.Step()-1 || r.differs(g.History) {
		history := r.fill(g.History, step)
		if err := r.stream.Begin(&r.params, g.Prompt); err != nil {
			return false, err
		}
		r.tokens = r.tokens[:0]
		r.forgetRow()
		r.replay(history, step)
		return true, nil
	}
	for at := r.stream.Step(); at < step; at = r.stream.Step() {
		token := int32(-1)
		if at < len(g.History) {
			token = g.History[at]
		}
		r.foreign(token, session)
	}
	return false, nil
}

// differs reports whether the plugin knows other tokens of the answer, and counts them.
func (r *request) differs(history []int32) bool {
	n := 0
	for i := range min(len(history), len(r.tokens)) {
		if history[i] >= 0 && r.tokens[i] >= 0 && history[i] != r.tokens[i] {
			n++
		}
	}
	r.wrong += n
	return n > 0
}

// fill is the history with what is known here where the plugin knows nothing.
func (r *request) fill(history []int32, step int) []int32 {
	out := make([]int32, step)
	for i := range out {
		out[i] = -1
		if i < len(history) {
			out[i] = history[i]
		}
		if out[i] < 0 && i < len(r.tokens) {
			out[i] = r.tokens[i]
		}
	}
	return out
}

// fits reports whether a begin's step can be.
func (s *session) fits(g *wire.Begin) bool {
	return int64(g.Step) <= int64(len(g.History)+s.maxGap())
}
