package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
)

const (
	eventStream = "text/event-stream"
	replyLimit  = 64 << 20 // bytes of a whole reply
	linger      = 100 * time.Millisecond
)

// Generate sends p on and hands out what comes back.
func (b *Backend) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	if err := emit(backends.Event{Started: &backends.Started{}}); err != nil {
		return nil, fmt.Errorf("emit start: %w", err)
	}
	return b.Exchange(ctx, p.Request, p.Request.Raw, func(raw json.RawMessage) error { return emit(backends.Event{Raw: raw}) })
}

// Exchange sends body, a JSON object, in the place of r's own, with the model's name as the server has it, and hands out what comes back: each
// chunk of a stream or the whole reply, checked, and with the served id for its model. The error is send's, ctx's or a *backends.Error.
func (b *Backend) Exchange(ctx context.Context, r *backends.Request, body []byte, send func(json.RawMessage) error) (*backends.Result, error) {
	body, err := rename(body, b.cfg.upstreamModel())
	if err != nil {
		return nil, fmt.Errorf("name model: %w", err)
	}
	timed, w := b.follow(ctx, r.Stream)
	defer w.stop()
	c := &call{b: b, w: w, request: r, send: whileLive(ctx, send), answer: newAnswer(r, time.Now())}
	err = c.run(timed, body)
	switch cause := context.Cause(timed); {
	case err == nil:
		return &c.answer.result, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case cause != nil:
		err = cause // the time-out, rather than what it broke
	}
	var e *backends.Error
	if errors.As(err, &e) && e.Kind != backends.KindInvalid && e.Kind != backends.KindTooLong {
		b.suspect()
	}
	return nil, err
}

// rename is the object raw with another model.
func rename(raw []byte, model string) ([]byte, error) {
	o, err := members.Parse(raw)
	if err != nil {
		return nil, err
	}
	return o.Edit(map[string][]byte{"model": []byte(members.Quote(model))}, nil), nil
}

// whileLive is send until ctx ends: what has come by then and is not read yet is for nobody.
func whileLive(ctx context.Context, send func(json.RawMessage) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := send(raw); err != nil {
			return fmt.Errorf("emit answer: %w", err)
		}
		return nil
	}
}

// call is one request under way. The goroutine that called Exchange owns it.
type call struct {
	b       *Backend
	w       *watch
	request *backends.Request
	send    func(json.RawMessage) error
	answer  *answer
}

func (c *call) run(ctx context.Context, sent []byte) error {
	resp, err := c.b.post(ctx, c.request, sent)
	if err != nil {
		return c.b.broken(err, false)
	}
	defer resp.Body.Close()
	body := &watched{body: resp.Body, w: c.w, began: !c.request.Stream}
	if resp.StatusCode != http.StatusOK {
		return c.b.refused(resp, body)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // one that can't be read is none of those below
	if c.request.Stream && kind == eventStream {
		return c.stream(body)
	}
	return c.whole(body, kind)
}

// stream hands out chunks until the answer ends.
func (c *call) stream(body io.Reader) error {
	in := newEvents(body, eventLimit)
	for {
		data, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return c.cut()
		case errors.Is(err, errEventTooLong):
			return c.b.Nonsense(err)
		case err != nil:
			return c.b.broken(err, c.answer.chunks > 0)
		case string(bytes.TrimSpace(data)) == "[DONE]":
			return c.done(body)
		}
		if err := c.pass(data); err != nil {
			return err
		}
	}
}

// cut judges a stream that ended without the word for it.
func (c *call) cut() error {
	if c.answer.ended() {
		return nil
	}
	return c.b.broken(io.ErrUnexpectedEOF, c.answer.chunks > 0)
}

// done ends a stream. The connection can be used again if nothing is left on it.
func (c *call) done(body io.Reader) error {
	if c.answer.chunks == 0 {
		return c.b.Nonsense(errors.New("the stream ended without a chunk"))
	}
	end := time.AfterFunc(linger, func() { c.w.cancel(nil) })
	defer end.Stop()
	_, _ = io.CopyN(io.Discard, body, 4<<10) // if it fails the connection is closed, and that is all
	return nil
}

// whole hands out a reply in one piece.
func (c *call) whole(body io.Reader, kind string) error {
	raw, err := io.ReadAll(io.LimitReader(body, replyLimit+1))
	switch {
	case err != nil:
		return c.b.broken(err, false)
	case len(raw) > replyLimit:
		return c.b.Nonsense(errors.New("the reply is longer than 64 MiB"))
	case kind == "text/html":
		return c.b.Nonsense(errors.New("it answers with a page for browsers"))
	}
	out, err := c.answer.take(raw)
	var told *toldError
	switch {
	case errors.As(err, &told):
		return c.b.told(told.raw, false)
	case err != nil:
		return c.b.Nonsense(err)
	case c.request.Stream:
		return c.b.Nonsense(errors.New("it answered in one piece where a stream was asked for"))
	case len(c.answer.open) == 0:
		return c.b.Nonsense(errors.New("it has no choices"))
	}
	return c.send(out)
}

// pass hands out one chunk.
func (c *call) pass(data []byte) error {
	before := c.answer.chunks > 0
	out, err := c.answer.take(data)
	var told *toldError
	switch {
	case errors.As(err, &told):
		return c.b.told(told.raw, before)
	case err != nil:
		return c.b.Nonsense(err)
	}
	return c.send(out)
}
