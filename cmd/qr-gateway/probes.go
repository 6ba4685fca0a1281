package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// probeTimeout is for a probe to send its request.
const probeTimeout = 10 * time.Second

// serveProbes serves what watches a process without the endpoint, until ctx ends.
func serveProbes(ctx context.Context, ln net.Listener, metrics http.Handler, ready func() bool) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready() {
			fmt.Fprintln(w, `{"status":"ready"}`)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, `{"status":"not ready"}`)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // a probe that is cut off comes again
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}
