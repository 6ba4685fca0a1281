package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
)

// BenchmarkEdge is what the edge itself costs: the dispatcher answers at once, with one token or with a hundred.
func BenchmarkEdge(b *testing.B) {
	m, err := fake.New(fake.DefaultConfig(), fake.Deps{})
	must(b, err)
	for _, c := range []struct {
		name, body string
		tokens     int
	}{{"whole", hello, 1}, {"stream", streamingHello, 100}} {
		b.Run(c.name, func(b *testing.B) {
			do := doFunc(func(_ context.Context, _ dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
				sink.Queued(0, 0)
				for range c.tokens {
					if err := sink.Event(backends.Event{Content: " token"}); err != nil {
						return nil, err
					}
				}
				return &backends.Result{Reason: backends.ReasonLength}, nil
			})
			srv, err := gateway.New(gateway.DefaultConfig(), gateway.Deps{Models: catalog{m}, Dispatcher: do})
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				srv.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, chatPath, strings.NewReader(c.body)))
				if w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
