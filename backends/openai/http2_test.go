package openai

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHTTP2 streams over TLS and HTTP/2, where requests share a connection, and leaves there.
func TestHTTP2(t *testing.T) {
	left := make(chan time.Time, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ProtoMajor != 2:
			http.Error(w, "not HTTP/2", http.StatusUpgradeRequired)
		case strings.HasSuffix(r.URL.Path, "/models"):
			_, _ = io.WriteString(w, modelList)
		case r.Header.Get("X-Request-Id") == "hang":
			streams(someChunk)(w, r)
			<-r.Context().Done()
			left <- time.Now()
		default:
			streams(someChunk, lastChunk, done)(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	b, err := New(config(server.URL+"/v1"), Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	b.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	run, stop := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() { _ = b.Run(run) })
	defer runs.Wait()
	defer stop()
	if o := ask(t.Context(), b, request(true)); o.err != nil || len(o.raw) != 2 {
		t.Fatalf("it came to %+v", o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := request(true)
	r.ID = "hang"
	p, err := b.Prepare(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = b.Generate(ctx, p, chunkThen(func() { began = time.Now(); cancel() }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Generate = %v", err)
	}
	if took := (<-left).Sub(began); took > 200*time.Millisecond {
		t.Errorf("the server saw it after %s", took)
	}
}
