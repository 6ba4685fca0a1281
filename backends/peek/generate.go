package peek

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/text"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// run is a request while it runs. The goroutine that called Generate owns it.
type run struct {
	b        *Backend
	p        *backends.Prepared
	params   sampler.Params
	emit     func(backends.Event) error
	stream   *sampler.Stream
	decoder  *lookahead.Decoder
	tap      *account.Tap
	ledger   *account.Ledger
	ahead    *account.Ahead // nil: the request doesn't look ahead
	eval     *evaluator
	step     lookahead.Step
	plan     sampler.Plan
	speller  speller
	stops    *text.Stops
	one      [1]int32
	count    int
	cached   int
	begun    time.Time
	first    time.Time // when the prompt's row was there
	finished bool      // a stop string was found
}

// Generate runs p.
func (b *Backend) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	r := &run{b: b, p: p, params: p.Request.Params, emit: emit, begun: time.Now(), stops: text.NewStops(p.Stops, p.Request.IncludeStop)}
	r.params.LookaheadK, r.params.LookaheadN = min(r.params.LookaheadK, b.cfg.Logprobs), min(r.params.LookaheadN, b.cfg.Logprobs)
	reason, err := r.run(ctx)
	if r.tap != nil {
		r.tap.End()
	}
	switch {
	case err == nil:
		return r.result(reason), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, account.Explain(ctx, err)
}

func (r *run) run(ctx context.Context) (reason string, err error) {
	if err := r.open(ctx); err != nil {
		return "", err
	}
	if err := r.start(ctx); err != nil {
		return "", err
	}
	for r.count < r.p.MaxTokens {
		token, end, err := r.next(ctx)
		if err != nil {
			return "", fmt.Errorf("choose token %d: %w", r.count, err)
		}
		if end {
			return backends.ReasonStop, r.finish(ctx)
		}
		r.count++
		if err := r.tell(ctx, token); err != nil || r.finished {
			return backends.ReasonStop, err
		}
	}
	return backends.ReasonLength, r.finish(ctx)
}

// open makes ready what chooses.
func (r *run) open(ctx context.Context) (err error) {
	p := &r.params
	r.ledger = account.NewLedger(r.p.Request.ID, p, r.b.deps.Log)
	r.stream = sampler.NewStream(r.b.cfg.Vocabulary)
	if err := r.stream.Begin(p, r.p.Tokens); err != nil {
		return err
	}
	r.stream.Observe(r.ledger.Tells())
	if r.tap, err = account.Open(ctx, r.b.deps.Entropy, p); err != nil {
		return err
	}
	if p.UsesLookahead() {
		r.ahead = account.NewAhead()
		r.decoder, err = lookahead.New(r.b.cfg.Vocabulary, lookahead.Config{})
	}
	return err
}

// start has the server read the prompt.
func (r *run) start(ctx context.Context) error {
	eog, err := r.b.ends(ctx)
	if err != nil {
		return err
	}
	r.speller = speller{b: r.b}
	if err := r.speller.begin(ctx, r.p.Tokens); err != nil {
		return err
	}
	r.eval = newEvaluator(r.b, r.p.Tokens)
	first, cached, err := r.eval.begin(ctx)
	if err != nil {
		return err
	}
	r.cached, r.first = cached, time.Now()
	r.step = lookahead.Step{Row: first, Params: &r.params, Noise: r.tap, Eval: r.eval, EOG: eog}
	r.tap.Accepted(-1, -1)
	return r.emit(backends.Event{Started: &backends.Started{PromptTokens: len(r.p.Tokens), CachedTokens: cached}})
}

// next chooses a token. An end-of-generation token is never committed.
func (r *run) next(ctx context.Context) (token int32, end bool, err error) {
	if r.ahead == nil {
		return r.plain(ctx)
	}
	begun := r.ledger.Clock()
	if r.plan, err = r.stream.Plan(r.step.Row, nil); err != nil {
		return 0, false, err
	}
	r.step.Index, r.step.Plan = r.count, &r.plan
	out, err := r.decoder.Next(ctx, &r.step)
	if err != nil {
		return 0, false, err
	}
	r.ahead.Accept(r.count, &out, r.stream, r.tap, r.ledger, begun)
	r.step.Row = out.Row
	return out.Token, out.End, nil
}

// plain chooses from the row at hand.
func (r *run) plain(ctx context.Context) (token int32, end bool, err error) {
	begun := r.ledger.Clock()
	draw, err := r.stream.Next(ctx, r.step.Row, nil, r.tap)
	if err != nil {
		return 0, false, err
	}
	r.ledger.Count(r.tap.Take())
	if r.ledger.Tells() {
		r.ledger.Tell(r.stream.Record(), begun)
	}
	if end = r.step.EOG.Has(draw.Token); !end && r.count+1 < r.p.MaxTokens {
		r.step.Row, err = r.eval.Commit(ctx, draw.Token)
	}
	return draw.Token, end, err
}

// tell sends what token adds to the text.
func (r *run) tell(ctx context.Context, token int32) error {
	more, err := r.speller.add(ctx, token)
	if err != nil {
		return err
	}
	r.one[0] = token
	var ready []byte
	ready, r.finished = r.stops.Append(nil, []byte(more))
	return r.emit(backends.Event{Content: string(ready), Tokens: r.one[:]})
}

// finish sends what was held back.
func (r *run) finish(ctx context.Context) error {
	more, err := r.speller.end(ctx)
	if err != nil {
		return err
	}
	ready, found := r.stops.Append(nil, []byte(more))
	if !found {
		ready = r.stops.Flush(ready)
	}
	if len(ready) == 0 {
		return nil
	}
	return r.emit(backends.Event{Content: string(ready)})
}

func (r *run) result(reason string) *backends.Result {
	s := backends.DecodeStats{PromptMS: millis(r.begun, r.first), DecodeMS: millis(r.first, time.Now())}
	account.Describe(&s, &r.params, r.tap, r.ledger)
	s.Decoder = "plain"
	if r.ahead != nil {
		r.ahead.Stats(&s, &r.params)
	}
	usage := backends.Usage{PromptTokens: len(r.p.Tokens), CompletionTokens: r.count, CachedTokens: r.cached}
	return &backends.Result{Reason: reason, Usage: usage, Stats: s}
}

func millis(from, to time.Time) float64 { return float64(to.Sub(from).Microseconds()) / 1000 }
