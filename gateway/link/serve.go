package link

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// maxAsks is how many requests a worker prepares at once for one gateway. Gateways keep to less.
const maxAsks = 1024

// announcement says what the worker hosts now.
func (c *Client) announcement() (*linkpb.Announce, error) {
	if c.deps.Models == nil {
		return &linkpb.Announce{}, nil
	}
	data, err := packInfos(c.deps.Models.List())
	if err != nil {
		return nil, err
	}
	a := &linkpb.Announce{Models: data}
	if caches, ok := c.deps.Models.(Caches); ok {
		a.Warm = caches.Warm()
		for model, n := range caches.Free() {
			a.Cells = append(a.Cells, &linkpb.Cells{Model: model, Free: uint64(max(n, 0))})
		}
		slices.SortFunc(a.Cells, func(x, y *linkpb.Cells) int { return cmp.Compare(x.Model, y.Model) })
	}
	if err := checkSize("announcement of models", a, c.cfg.MaxMessage); err != nil {
		return nil, err
	}
	return a, nil
}

// prepare begins to prepare a request.
func (l *life) prepare(ctx context.Context, m *linkpb.Prepare) error {
	ctx, cancel := context.WithCancel(ctx)
	l.asking.Lock()
	defer l.asking.Unlock()
	if _, taken := l.asks[m.Number]; taken || len(l.asks) >= maxAsks {
		cancel()
		return fmt.Errorf("%w: request %d to be prepared came twice, or is one too many", errProtocol, m.Number)
	}
	l.asks[m.Number] = cancel
	l.work.Go(func() {
		defer l.drop(m.Number)
		answer := l.client.prepared(ctx, m, l.limit())
		if ctx.Err() == nil {
			l.post(&linkpb.FromWorker{What: &linkpb.FromWorker_Prepared{Prepared: answer}})
		}
	})
	return nil
}

// drop ends the preparing of a request, if it has not ended.
func (l *life) drop(number uint64) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if cancel := l.asks[number]; cancel != nil {
		cancel()
		delete(l.asks, number)
	}
}

// limit is what a message may have, in bytes.
func (c *conn) limit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// prepared makes the answer to a Prepare.
func (c *Client) prepared(ctx context.Context, m *linkpb.Prepare, limit int) *linkpb.Prepared {
	data, err := c.pack(ctx, m)
	out := &linkpb.Prepared{Number: m.Number, What: &linkpb.Prepared_Prepared{Prepared: data}}
	if err == nil {
		if err = checkSize("prepared request", out, limit); err == nil {
			return out
		}
		err = requestTooLarge(err)
	}
	e := asError(err)
	if e.Kind == backends.KindInternal {
		c.deps.Log.ErrorContext(ctx, "prepare request", "model", m.Model, "error", err)
	}
	if data, err = packError(e); err != nil {
		c.deps.Log.ErrorContext(ctx, "encode error", "error", err)
	}
	return &linkpb.Prepared{Number: m.Number, What: &linkpb.Prepared_Error{Error: data}}
}

// pack has the model prepare the request. A backend that panics fails this request alone.
func (c *Client) pack(ctx context.Context, m *linkpb.Prepare) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("prepare request to %s: panic: %v\n%s", m.Model, r, debug.Stack())
		}
	}()
	r, err := unpackRequest(m.Request)
	if err != nil {
		return nil, err
	}
	b, ok := c.backend(m.Model)
	if !ok {
		return nil, &backends.Error{
			Kind: backends.KindUnavailable, Code: "model_unavailable", Param: "model",
			Message: fmt.Sprintf("worker %s does not host model %s any more", c.cfg.Worker, m.Model), Hint: "try again in a while",
		}
	}
	p, err := b.Prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	return dispatch.Pack(p)
}

func (c *Client) backend(model string) (backends.Backend, bool) {
	if c.deps.Models == nil {
		return nil, false
	}
	return c.deps.Models.Backend(model)
}

// requestTooLarge tells a client that its request can't be sent to a worker.
func requestTooLarge(err error) *backends.Error {
	return &backends.Error{
		Kind: backends.KindInvalid, Code: "request_too_large", Message: "the request is too large to be sent to a worker",
		Hint: "send less, or have max_message of the links raised", Err: err,
	}
}
