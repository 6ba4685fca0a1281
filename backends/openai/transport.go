package openai

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"
)

func newClient(cfg Config) *http.Client {
	limit := cfg.Timeouts.Connect + time.Second // for what goes on behind a request that has given up: its own watch comes first
	return &http.Client{
		Transport: &http.Transport{
			Proxy: cfg.proxy(), DialContext: cfg.dial(limit), TLSHandshakeTimeout: limit,
			ForceAttemptHTTP2: true, MaxIdleConns: cfg.Workers + 2, MaxIdleConnsPerHost: cfg.Workers + 2, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a compressed stream comes in lumps
		},
		// The key is for one server: whoever moved has to be named anew.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c Config) dial(limit time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: limit, KeepAlive: 30 * time.Second}
	if c.Socket == "" {
		return dialer.DialContext
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", c.Socket)
	}
}

func (c Config) proxy() func(*http.Request) (*url.URL, error) {
	if c.Socket != "" {
		return nil
	}
	return http.ProxyFromEnvironment
}
