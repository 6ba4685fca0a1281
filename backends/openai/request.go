package openai

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"qr-gateway/backends"
)

const userAgent = "qr-gateway"

// Get asks the server for what is below its address; path may lead above it. The caller closes the reply's body.
func (b *Backend) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	b.dress(req)
	return b.client.Do(req)
}

// post sends a request on with its body as it is for the server.
func (b *Backend) post(ctx context.Context, r *backends.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base.JoinPath(r.Path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if r.Stream {
		req.Header.Set("Accept", eventStream)
	}
	req.Header.Set("X-Request-Id", r.ID)
	b.dress(req)
	return b.client.Do(req)
}

// dress adds what every request has. Of the client's headers none goes on.
func (b *Backend) dress(req *http.Request) {
	req.Header.Set("User-Agent", userAgent)
	if key := *b.key.Load(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for name, value := range b.cfg.Headers {
		req.Header.Set(name, value)
	}
}
