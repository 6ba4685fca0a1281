package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/gateway/config"
)

// inside serves a configuration in this process, on a free port, until the test ends.
func inside(t *testing.T, yaml string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("server: {listen: '127.0.0.1:0', drain_timeout: 1s}\nlog: {format: json}\n"+yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file, Backends: backendNames()})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{log: newTail()}
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { s.log.follow(r) })
	all.Go(func() {
		if err := serve(ctx, cfg, io.Discard, w); err != nil {
			t.Errorf("serve: %v", err)
		}
		w.Close()
	})
	t.Cleanup(func() { stop(); all.Wait() })
	limit, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := s.log.wait(limit, regexp.MustCompile(`"msg":"serving","address":"([^"]+)"`))
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + m[1]
	return s
}

// upstream is a server with OpenAI's API that a test can hang.
type upstream struct {
	*httptest.Server
	hang  atomic.Bool // answers for its health, but not to requests
	asked atomic.Int64
	gone  atomic.Int64 // requests that hung and whose client left
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", u.chat)
	u.Server = httptest.NewServer(mux)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) chat(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	u.asked.Add(1)
	if u.hang.Load() {
		<-r.Context().Done()
		u.gone.Add(1)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, chunk := range []string{
		`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}`,
		`{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`[DONE]`,
	} {
		fmt.Fprintf(w, "data: %s\n\n", chunk)
	}
}

// streamed sends a request for a stream and returns what came.
func (s *server) streamed(ctx context.Context, model string) (int, string, error) {
	status, body, err := s.post(ctx, map[string]any{
		"model": model, "stream": true, "messages": []any{map[string]any{"role": "user", "content": fmt.Sprint("hello ", time.Now())}},
	})
	return status, string(body), err
}

// TestHangingUpstream has one of two servers accept requests and say nothing: they go to the other one when the first byte is overdue,
// others don't wait, and soon nobody asks it any more.
func TestHangingUpstream(t *testing.T) {
	t.Parallel()
	good, bad := newUpstream(t), newUpstream(t)
	s := inside(t, fmt.Sprintf(`
models:
  - id: m
    backend: openai
    workers: 8
    timeouts: {first_byte: 300ms}
    route: {breaker: {failures: 3}}
    replicas: [{name: good, url: %q}, {name: bad, url: %q}]
`, good.URL+"/v1", bad.URL+"/v1"))
	s.waitReady(t, 2)
	bad.hang.Store(true)
	for range 30 {
		status, body, err := s.streamed(t.Context(), "m")
		if err != nil || status != http.StatusOK || strings.Count(body, "hello") != 1 || !strings.HasSuffix(strings.TrimSpace(body), "[DONE]") {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
	}
	if n, gone := bad.asked.Load(), bad.gone.Load(); n != 3 || gone != 3 {
		t.Errorf("the server that hangs was asked %d times and left %d times, want 3", n, gone)
	}
	if n := good.asked.Load(); n != 30 {
		t.Errorf("the other one was asked %d times, want 30", n)
	}
	_, all, _ := s.replicas(t)
	if all[1].State != "paused" || all[0].State != "ready" {
		t.Errorf("replicas %+v", all)
	}
	if !strings.Contains(s.log.String(), `"msg":"request goes to another replica"`) {
		t.Errorf("the log says nothing of it:\n%s", s.log)
	}
}

// TestDeadUpstreams has a server that is not there and one that takes connections and says nothing: the list says so at once, requests
// are refused, with what is wrong with each.
func TestDeadUpstreams(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	s := inside(t, fmt.Sprintf(`
engine: {wait_ready: 1s}
models:
  - id: m
    backend: openai
    replicas: [{name: silent, url: "http://%s/v1"}, {name: nobody, url: "http://%s/v1"}]
`, silent.Addr(), nobody.Addr()))
	var times []time.Duration
	for range 20 {
		ready, all, took := s.replicas(t)
		if times = append(times, took); ready || len(all) != 2 {
			t.Fatalf("replicas %+v, ready %t", all, ready)
		}
	}
	slices.Sort(times)
	if median := times[len(times)/2]; median > 50*time.Millisecond {
		t.Errorf("the list takes %s", median)
	}
	began := time.Now()
	status, body, err := s.post(t.Context(), chat("hello", 5, map[string]any{"model": "m"}))
	var refusal struct {
		Error struct{ Message, Code string }
	}
	if err == nil {
		err = json.Unmarshal(body, &refusal)
	}
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(refusal.Error.Message, "replica nobody is unreachable") {
		t.Errorf("status %d, %v: %s", status, err, body)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("refused after %s", d)
	}
}
