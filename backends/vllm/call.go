package vllm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
)

// missedShare is how much shorter a choice is waited for behind one that never came: the sidecar may be gone for good.
const missedShare = 20

// finishTime bounds what the sidecar may take to say what it did, when the request has ended.
const finishTime = 2 * time.Second

// call is one part under way. The goroutine that runs it owns it.
type call struct {
	b     *Backend
	part  *part
	rid   string
	dress *dress
	send  func(json.RawMessage) error // to the client
	probe bool                        // what is amiss is only counted

	ledger   *ledger
	steps    int      // tokens that the server sent
	unnamed  int      // chunks with text of which it did not name the tokens
	chosen   int      // of the steps, tokens that the sidecar accounts for
	held     []*chunk // before the first token: nothing of the answer is the client's before it was found right
	last     *chunk   // of a stream the one with the finish reason, else the whole reply
	usage    *chunk   // of a stream
	missed   bool     // the choice of the latest token never came
	told     bool     // something was amiss, and it was logged
	sent     time.Time
	first    time.Time // when the first token was there
	native   int
	mismatch int
}

// result is what came of a part.
type result struct {
	part   *part
	last   *chunk
	count  *chunk // the usage in a stream
	usage  backends.Usage
	reason string
	stats  backends.DecodeStats
	err    error
}

// run sends the part on and checks what comes back. Whatever happens, the sidecar is told that the request has ended.
func (c *call) run(ctx context.Context, req *backends.Request, several bool) *result {
	body, err := c.b.wire(req, c.part, c.rid, several)
	if err != nil {
		return &result{part: c.part, err: err}
	}
	trail, err := c.b.choices.Follow(ctx, c.rid, 0)
	if err != nil {
		return &result{part: c.part, err: c.b.lost(ctx, err)}
	}
	live, cancel := context.WithCancelCause(ctx)
	c.ledger, c.sent = newLedger(), time.Now()
	var writing sync.WaitGroup
	writing.Go(func() {
		c.ledger.follow(live, trail, func(s *choice.Choice) { c.halt(live, s, cancel) })
	})
	res, err := c.b.up.Exchange(live, req, body, func(raw json.RawMessage) error { return c.take(live, raw) })
	if cause := context.Cause(live); err != nil && cause != nil && ctx.Err() == nil {
		err = cause // the sidecar's, rather than what it broke; what it stopped behind the end of the answer is nobody's
	}
	cancel(nil)
	writing.Wait()
	if err == nil {
		err = c.unseen(ctx, res.Usage.CompletionTokens)
	}
	if err == nil {
		err = c.flush()
	}
	stats := c.finish(ctx, trail)
	if err != nil {
		return &result{part: c.part, err: err}
	}
	return &result{part: c.part, last: c.last, count: c.usage, usage: res.Usage, reason: res.Reason, stats: stats}
}

// unseen judges tokens that the server says it made, 0 where it doesn't say, and named nowhere.
func (c *call) unseen(ctx context.Context, made int) error {
	n := made - c.steps
	if made == 0 {
		n = c.unnamed
	}
	if n <= 0 {
		return nil
	}
	c.labelled(n)
	c.b.log.WarnContext(ctx, "the server did not name all tokens", "model", c.b.cfg.Model, "rid", c.rid, "made", made, "named", c.steps)
	if !c.strict() {
		return nil
	}
	return c.amiss(fmt.Sprintf("did not name all tokens of the answer by token_ids: it named %d", c.steps), nil)
}

// strict says that a token that the sidecar did not choose ends the answer.
func (c *call) strict() bool { return !c.probe && c.b.cfg.Fail == FailStop }

// halt ends a request that the sidecar has stopped, should the server go on. What was made before that is on its way, and may be the whole answer:
// a server that schedules ahead shows a row behind the end.
func (c *call) halt(ctx context.Context, s *choice.Choice, cancel context.CancelCauseFunc) {
	grace := time.NewTimer(c.b.cfg.ChoiceWait)
	defer grace.Stop()
	select {
	case <-grace.C:
	case <-ctx.Done():
	}
	cancel(c.b.stopped(s))
}

// finish ends the trail, and sums up.
func (c *call) finish(ctx context.Context, t Trail) backends.DecodeStats {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	stats, err := t.Finish(ctx)
	if err != nil || stats == nil {
		c.b.log.WarnContext(ctx, "the sidecar does not say what it did", "model", c.b.cfg.Model, "rid", c.rid, "error", err)
		stats = &backends.DecodeStats{Decoder: "plain", EntropySource: c.part.params.EntropySource, Tokens: c.steps}
	}
	out := *stats
	trim(&out, c.chosen, c.steps)
	out.Native, out.Mismatched = c.native, c.mismatch
	if !c.first.IsZero() && out.PromptMS == 0 && out.DecodeMS == 0 {
		out.PromptMS, out.DecodeMS = millis(c.first.Sub(c.sent)), millis(time.Since(c.first))
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// take checks a chunk or a whole reply, and sends it on or keeps it.
func (c *call) take(ctx context.Context, raw json.RawMessage) error {
	k, err := readChunk(raw)
	if err != nil {
		return c.b.up.Nonsense(err)
	}
	if k.usage {
		c.usage = k // of the part alone; the request's own is made at the end
		return nil
	}
	if k.text && !k.named {
		if c.steps == 0 || c.strict() {
			return c.amiss("does not name its tokens by token_ids; take vLLM 0.10.2 or later", nil)
		}
		c.unnamed++
	}
	for _, token := range k.tokens {
		if c.first.IsZero() {
			c.first = time.Now()
		}
		if err := c.compare(ctx, token); err != nil {
			return err
		}
		c.steps++
	}
	return c.pass(k)
}

// pass sends on what is the client's by now.
func (c *call) pass(k *chunk) error {
	if c.last != nil {
		c.held, c.last = append(c.held, c.last), nil
	}
	if k.ended || !c.dress.stream {
		c.last = k
	} else {
		c.held = append(c.held, k)
	}
	if c.steps == 0 {
		return nil
	}
	return c.flush()
}

// flush sends what was held back.
func (c *call) flush() error {
	held := c.held
	c.held = nil
	for _, k := range held {
		raw, err := c.dress.fit(k, c.part.index)
		if err != nil {
			return c.b.up.Nonsense(err)
		}
		if err := c.send(raw); err != nil {
			return err
		}
	}
	return nil
}

// compare holds a token against what was chosen for its step.
func (c *call) compare(ctx context.Context, token int32) error {
	limit := c.b.cfg.ChoiceWait
	if c.missed {
		limit /= missedShare
	}
	e := c.ledger.at(ctx, c.steps, limit)
	c.missed = e.times == 0
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case e.times == 0:
		return c.missing(ctx)
	case e.status == choice.Stop:
		return c.b.stopped(c.ledger.stopped())
	case e.status != choice.Token:
		return c.left(e)
	}
	c.chosen++
	if e.token == token {
		return nil
	}
	if later, ok := c.ledger.again(ctx, c.steps, e, c.b.cfg.ChoiceWait); ok && later.status == choice.Token && later.token == token {
		return nil
	}
	return c.mismatched(ctx, token, e.token)
}

// labelled counts tokens that the server chose itself.
func (c *call) labelled(n int) {
	c.native += n
	if !c.probe {
		c.b.native.Add(uint64(n))
	}
}

// left judges a token that the sidecar left to the server, because it may not choose it or because there was none to choose.
func (c *call) left(e entry) error {
	c.labelled(1)
	switch {
	case !c.strict():
		return nil
	case e.err == nil:
		return c.amiss(fmt.Sprintf("chose token %d of the answer itself", c.steps), nil)
	case e.status == choice.Illegal:
		return e.err
	}
	return c.amiss(fmt.Sprintf("chose token %d of the answer itself: %s", c.steps, e.err.Message), e.err)
}

// missing judges a token that nobody is known to have chosen.
func (c *call) missing(ctx context.Context) error {
	c.labelled(1)
	if c.probe {
		return nil
	}
	c.b.doubt.Store(true)
	_, cause := c.ledger.from()
	if !c.told {
		c.told = true
		c.b.log.WarnContext(ctx, "the sidecar chose no token", "model", c.b.cfg.Model, "rid", c.rid, "step", c.steps, "error", cause)
	}
	if !c.strict() {
		return nil
	}
	return c.amiss(fmt.Sprintf("was not heard of by the sidecar at token %d of the answer", c.steps), cause)
}

// amiss is the error of an answer that the server made without the sidecar, or not provably with it. It says nothing of what else the server can do.
func (c *call) amiss(what string, cause error) error {
	c.b.doubt.Store(true)
	e := c.b.unsampled(what, cause)
	e.MayHaveRun = true
	return e
}

// mismatched judges a token that is another than was chosen.
func (c *call) mismatched(ctx context.Context, token, chosen int32) error {
	c.mismatch++
	if c.probe {
		return nil
	}
	c.b.mismatched.Add(1)
	if !c.told {
		c.told = true
		c.b.log.WarnContext(ctx, "a token is another than was chosen", "model", c.b.cfg.Model, "rid", c.rid, "step", c.steps, "token", token, "chosen", chosen)
	}
	if !c.b.cfg.strict() {
		return nil
	}
	c.b.doubt.Store(true)
	return &backends.Error{
		Kind: backends.KindUpstream, Code: backends.CodeMismatched,
		Message: fmt.Sprintf("the upstream of model %s put another token in the place of the one that was chosen, at token %d of the answer", c.b.cfg.Model, c.steps),
		Hint:    "whoever runs the gateway has to look into it: something behind the plugin changes tokens, such as a thinking budget, or the sidecar answers too late",
	}
}

// stopped is the error of an answer that the sidecar has ended. One that is about the sidecar is none about the server.
func (b *Backend) stopped(s *choice.Choice) error {
	switch {
	case s.Err == nil:
		return b.unsampled("was stopped by the sidecar, which gives no reason", nil)
	case s.Err.Kind != backends.KindUnavailable:
		return s.Err
	}
	out := *s.Err
	out.Code, out.Err = backends.CodeUnsampled, s.Err
	return &out
}

// lost is the error of a request that the sidecar could not be told of; ctx's own where that is why. Its words are for everybody: where the
// sidecar is, is for the log.
func (b *Backend) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.doubt.Store(true)
	e, ok := errors.AsType[*backends.Error](err)
	switch {
	case ok && e.Code == codeFull:
		return b.unsampled("can't be sampled: the sidecar has too many requests", err)
	case ok && e.Kind != backends.KindUnavailable:
		return e
	}
	return b.unsampled("can't be sampled: the sidecar can't be asked", err)
}

// codeFull is what a sidecar calls it that it takes no more requests.
const codeFull = "sidecar_full"

// newRID names a request to the sidecar. It is new for every try: the sidecar knows no request twice.
func newRID() string { return "qr-" + strings.ToLower(rand.Text()) }
