package fake

import (
	"context"
	"fmt"
	"strings"
	"time"

	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// Generate runs p on a worker, waiting for a free one.
func (m *Model) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	worker, err := m.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { m.slots <- worker }()
	began := time.Now()
	r := &run{p: p, state: start(p.Tokens, p.Request.Params.Seed)}
	text, stopped := r.resume()
	r.emit = emit
	if err := emit(backends.Event{Started: &backends.Started{Worker: worker, PromptTokens: len(p.Tokens), Content: text}}); err != nil {
		return nil, fmt.Errorf("emit start: %w", err)
	}
	reason := backends.ReasonStop
	if !stopped {
		if reason, err = m.loop(ctx, r); err != nil {
			return nil, err
		}
	}
	stats := describe(&p.Request.Params)
	stats.Tokens = r.tokens
	stats.Worker, stats.DecodeMS = worker, float64(time.Since(began).Microseconds())/1000
	usage := backends.Usage{PromptTokens: len(p.Tokens), CompletionTokens: r.tokens}
	return &backends.Result{Reason: reason, Usage: usage, Stats: stats}, nil
}

func (m *Model) take(ctx context.Context) (int, error) {
	select {
	case worker := <-m.slots:
		return worker, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (m *Model) loop(ctx context.Context, r *run) (string, error) {
	for step := r.tokens; step < r.p.MaxTokens; step++ {
		if err := m.pause(ctx, r.p.Request.ID, step); err != nil {
			return "", err
		}
		id, end := next(r.state, step)
		if end {
			return backends.ReasonStop, r.flush()
		}
		stopped, err := r.add(id)
		if stopped || err != nil {
			return backends.ReasonStop, err
		}
	}
	return backends.ReasonLength, r.flush()
}

func (m *Model) pause(ctx context.Context, id string, step int) error {
	if m.deps.Step != nil {
		if err := m.deps.Step(ctx, id, step); err != nil {
			return err
		}
	}
	if m.cfg.Delay == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(m.cfg.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is one answer in the making.
type run struct {
	p       *backends.Prepared
	emit    func(backends.Event) error
	state   uint64
	tokens  int
	held    string  // text that may be the beginning of a stop string
	heldIDs []int32 // its tokens
}

// resume takes in the tokens that the client has already. It returns the length of the text that they make, and whether they end it.
func (r *run) resume() (text int, stopped bool) {
	r.emit = func(e backends.Event) error { text += len(e.Content); return nil }
	for _, id := range r.p.Delivered {
		if stopped, _ = r.add(id); stopped { // its only error is that of emit
			return text, true
		}
	}
	return text, false
}

// add takes one token and emits what can't be part of a stop string any more.
func (r *run) add(id int32) (stopped bool, err error) {
	r.tokens++
	r.held += wordText(id)
	r.heldIDs = append(r.heldIDs, id)
	if at, stop := firstStop(r.held, r.p.Stops); at >= 0 {
		if r.p.Request.IncludeStop {
			at += len(stop)
		}
		r.held = r.held[:at]
		return true, r.flush()
	}
	keep := holdBack(r.held, r.p.Stops)
	if keep == len(r.held) {
		return false, nil
	}
	return false, r.release(len(r.held) - keep)
}

func (r *run) flush() error { return r.release(len(r.held)) }

func (r *run) release(n int) error {
	if n == 0 && len(r.heldIDs) == 0 {
		return nil
	}
	e := backends.Event{Content: r.held[:n], Tokens: r.heldIDs}
	r.held, r.heldIDs = r.held[n:], nil
	if err := r.emit(e); err != nil {
		return fmt.Errorf("emit text: %w", err)
	}
	return nil
}

func firstStop(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}

// holdBack is the length of the longest end of text that begins a stop string, down to a whole character.
func holdBack(text string, stops []string) int {
	for i := range text {
		for _, s := range stops {
			if strings.HasPrefix(s, text[i:]) {
				return len(text) - i
			}
		}
	}
	return 0
}

// describe says what the parameters ask for; the words are drawn the same way whatever that is.
func describe(p *sampler.Params) backends.DecodeStats {
	stats := backends.DecodeStats{
		Decoder: "plain", Preset: p.Preset, Strategy: p.Strategy, EntropySource: "none", Amplifier: "none", USource: "none",
	}
	if p.Seed != nil {
		stats.EntropySource, stats.Amplifier, stats.USource = "seed", "seeded", "seeded"
	}
	if !p.UsesLookahead() {
		return stats
	}
	low, high := p.AlphaAt(0), p.AlphaAt(0)
	for t := 1; t < int(p.WavePeriod); t++ {
		low, high = min(low, p.AlphaAt(t)), max(high, p.AlphaAt(t))
	}
	stats.Decoder, stats.Curve, stats.Mode, stats.Choice = "lookahead", p.Curve, p.Lookahead, p.LookaheadChoice
	stats.AlphaMin, stats.AlphaMax = &low, &high
	return stats
}
