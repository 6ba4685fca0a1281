package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
)

// Generate sends p on and hands out what comes back.
func (b *Backend) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	if !p.Request.Sampled {
		b.plain.Add(1)
		defer b.plain.Add(-1)
		res, err := b.up.Generate(ctx, p, emit)
		return res, overloaded(err)
	}
	b.busy.Add(1)
	defer b.busy.Add(-1)
	if err := emit(backends.Event{Started: &backends.Started{}}); err != nil {
		return nil, fmt.Errorf("emit start: %w", err)
	}
	if err := b.able(); err != nil {
		return nil, err
	}
	parts, err := b.plan(p.Request)
	if err != nil {
		return nil, err
	}
	r, err := b.newRun(p.Request, parts)
	if err != nil {
		return nil, err
	}
	b.parts.Add(int64(len(parts)))
	defer b.parts.Add(-int64(len(parts)))
	results, err := r.all(ctx, emit)
	switch {
	case err == nil:
		return r.sum(results)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, overloaded(err)
}

// overloaded makes a limit of a server's own refusal: vLLM answers so while its queue is full, and one that is dead fails its checks.
func overloaded(err error) error {
	e, ok := errors.AsType[*backends.Error](err)
	if !ok || e.Code != "upstream_unavailable" {
		return err
	}
	out := *e
	out.Kind, out.Code = backends.KindLimited, "upstream_overloaded"
	return &out
}

// run is a sampled request under way.
type run struct {
	b     *Backend
	req   *backends.Request
	parts []part
	dress dress
	final *result // the part that ended last
}

func (b *Backend) newRun(req *backends.Request, parts []part) (*run, error) {
	o, err := members.Parse(req.Raw)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	var options struct {
		Usage bool `json:"include_usage"`
	}
	_ = json.Unmarshal(o.Get("stream_options"), &options) // the server refuses what can't be read
	return &run{b: b, req: req, parts: parts, dress: dress{
		id: []byte(members.Quote(req.ID)), created: strconv.AppendInt(nil, time.Now().Unix(), 10),
		ids: string(o.Get("return_token_ids")) == "true", usage: options.Usage, stream: req.Stream,
	}}, nil
}

// all runs every part at once, and hands out their chunks as they come. The first error ends all of them.
func (r *run) all(ctx context.Context, emit func(backends.Event) error) ([]*result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	chunks, ended := make(chan json.RawMessage), make(chan *result)
	send := func(raw json.RawMessage) error {
		select {
		case chunks <- raw:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var running sync.WaitGroup
	for i := range r.parts {
		running.Go(func() { ended <- r.one(ctx, &r.parts[i], send) })
	}
	defer running.Wait()
	var first error
	fail := func(err error) {
		if first == nil && err != nil {
			first = err
			cancel(err)
		}
	}
	results := make([]*result, len(r.parts))
	open := len(r.parts)
	for open > 0 {
		select {
		case raw := <-chunks:
			if first == nil {
				fail(emitted(emit, raw))
			}
		case res := <-ended:
			open--
			r.final = res
			results[res.part.index] = res
			fail(res.err)
			if first == nil && res.err == nil {
				fail(r.end(res, open == 0, emit))
			}
		}
	}
	return results, first
}

func emitted(emit func(backends.Event) error, raw json.RawMessage) error {
	if err := emit(backends.Event{Raw: raw}); err != nil {
		return fmt.Errorf("emit answer: %w", err)
	}
	return nil
}

// one runs a part.
func (r *run) one(ctx context.Context, p *part, send func(json.RawMessage) error) *result {
	req, several := *r.req, len(r.parts) > 1
	if several {
		req.ID += "-" + strconv.Itoa(p.index)
	}
	c := &call{b: r.b, part: p, rid: newRID(), dress: &r.dress, send: send}
	r.b.log.DebugContext(ctx, "sampled request", "model", r.b.cfg.Model, "request", req.ID, "rid", c.rid)
	return c.run(ctx, &req, several)
}

// end hands out the last chunk of a part that has ended, unless it is the last of all.
func (r *run) end(res *result, all bool, emit func(backends.Event) error) error {
	switch {
	case res.last == nil:
		return r.b.up.Nonsense(errors.New("the answer has no finish_reason"))
	case !r.dress.stream || all && !r.dress.usage:
		return nil
	}
	raw, err := r.dress.fit(res.last, res.part.index)
	if err != nil {
		return r.b.up.Nonsense(err)
	}
	return emitted(emit, raw)
}
