package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"qr-gateway/backends"
)

// Ask posts in, as JSON, to what is at path below the server's address ("../tokenize": beside it), and reads the reply into out. It is for calls
// that are no request of a client; the time for the first byte of a stream bounds each. Its error is a *backends.Error, or ctx's.
func (b *Backend) Ask(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	timed, w := b.follow(ctx, true)
	defer w.stop()
	err = b.ask(timed, w, path, body, out)
	switch cause := context.Cause(timed); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case cause != nil:
		return cause // the time-out, rather than what it broke
	}
	return err
}

func (b *Backend) ask(ctx context.Context, w *watch, path string, sent []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base.JoinPath(path).String(), bytes.NewReader(sent))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	b.dress(req)
	resp, err := b.client.Do(req)
	if err != nil {
		return b.broken(err, false)
	}
	defer resp.Body.Close()
	body := &watched{body: resp.Body, w: w}
	if resp.StatusCode != http.StatusOK {
		return b.refused(resp, body)
	}
	raw, err := io.ReadAll(io.LimitReader(body, replyLimit))
	if err != nil {
		return b.broken(err, false)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return b.Nonsense(err)
	}
	return nil
}

// Fail is an error about the server, which is named by its model alone; what says what it did.
func (b *Backend) Fail(kind backends.Kind, code, what, hint string, cause error) *backends.Error {
	return b.fail(kind, code, what, hint, cause)
}

// UpstreamModel is the model's name on the server.
func (b *Backend) UpstreamModel() string { return b.cfg.upstreamModel() }
