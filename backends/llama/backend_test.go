package llama

import (
	"strings"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
)

// TestIsABackend holds the client of a real engine to what every backend owes.
func TestIsABackend(t *testing.T) {
	cfg := testConfig(t)
	cfg.Workers = 2
	b, _ := start(t, cfg)
	backendtest.Run(t, backendtest.Subject{
		Backend: b,
		Request: func(string) *backends.Request { return ahead(request("once upon a time", 5, 40)) },
		TooLong: func(string) *backends.Request { return request(strings.Repeat("many words ", 600), 5, 40) },
		Wrong:   func(id string) *backends.Request { return &backends.Request{ID: id, Tokens: []int32{-1}} },
	})
}
