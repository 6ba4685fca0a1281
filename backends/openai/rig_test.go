package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
)

var _ interface {
	backends.Backend
	WaitReady(context.Context) error // for nodes
} = (*Backend)(nil)

const modelList = `{"object":"list","data":[{"id":"there","object":"model"}]}`

// far is a server under the test's control.
type far struct {
	*httptest.Server

	mu     sync.Mutex // guards all below
	chat   http.HandlerFunc
	models http.HandlerFunc
	asked  []*http.Request // without their bodies
	bodies [][]byte
	conns  int // opened
}

// newFar starts a server that lists its one model and answers requests by chat.
func newFar(t *testing.T, chat http.HandlerFunc) *far {
	t.Helper()
	f := &far{chat: chat, models: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, modelList) }}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.conns++
		}
	}
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.Start()
	t.Cleanup(f.Close)
	return f
}

func (f *far) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	f.mu.Lock()
	chat, models := f.chat, f.models
	if !strings.HasSuffix(r.URL.Path, "/models") {
		f.asked, f.bodies = append(f.asked, r), append(f.bodies, body)
	}
	f.mu.Unlock()
	switch {
	case err != nil:
	case strings.HasSuffix(r.URL.Path, "/models"):
		models(w, r)
	default:
		chat(w, r)
	}
}

// lists changes the answer to checks.
func (f *far) lists(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.models = h
}

func (f *far) last() (*http.Request, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1], f.bodies[len(f.bodies)-1]
}

// streams answers with events, one write each.
func streams(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	}
}

// answers answers with a whole reply.
func answers(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const secret = "sk-very-secret"

// config is one for tests: short times, so that what is to time out does so soon.
func config(url string) Config {
	c := DefaultConfig()
	c.Model, c.UpstreamModel, c.URL, c.APIKey = "here", "there", url, secret
	c.Health = Health{Interval: 20 * time.Millisecond, Retry: 5 * time.Millisecond, Timeout: 2 * time.Second}
	return c
}

// start makes a backend and runs it until the test ends.
func start(t *testing.T, c Config) *Backend {
	t.Helper()
	return startLogged(t, c, io.Discard)
}

func startLogged(t *testing.T, c Config, log io.Writer) *Backend {
	t.Helper()
	b, err := New(c, Deps{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	running(t, b)
	return b
}

// running runs b until the test ends.
func running(t *testing.T, b *Backend) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
}

// ready starts a backend and waits for it.
func ready(t *testing.T, c Config) *Backend {
	t.Helper()
	b := start(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.WaitReady(ctx); err != nil {
		t.Fatalf("the backend is not ready: %v; %+v", err, b.Info())
	}
	return b
}

// until waits for the backend to say something of itself.
func until(t *testing.T, b *Backend, what string, said func(backends.Info) bool) backends.Info {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s := b.now.Load()
		if i := b.Info(); said(i) {
			return i
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("never %s; it is %+v", what, b.Info())
		}
	}
}

const chatBody = `{"model":"here","messages":[{"role":"user","content":"<hi>"}],"big":12345678901234567890,"small":0.10}`

func request(stream bool) *backends.Request {
	r := &backends.Request{ID: "chatcmpl-1", Model: "here", Raw: json.RawMessage(chatBody), Path: "chat/completions", Stream: stream}
	if stream {
		r.Raw = append(bytes.TrimSuffix([]byte(chatBody), []byte("}")), `,"stream":true}`...)
	}
	return r
}

// outcome is what a request came to.
type outcome struct {
	raw     []string // what the client got
	started int
	res     *backends.Result
	err     error
}

// ask prepares and runs a request.
func ask(ctx context.Context, b *Backend, r *backends.Request) (o outcome) {
	p, err := b.Prepare(ctx, r)
	if err != nil {
		return outcome{err: fmt.Errorf("prepare: %w", err)}
	}
	o.res, o.err = b.Generate(ctx, p, func(e backends.Event) error {
		if e.Started != nil {
			o.started++
		} else {
			o.raw = append(o.raw, string(e.Raw))
		}
		return nil
	})
	return o
}

// fails asserts how a request failed.
func (o outcome) fails(t *testing.T, kind backends.Kind, code string) {
	t.Helper()
	_ = o.failure(t, kind, code) // it is what was asserted
}

// failure asserts how a request failed, and that nothing secret is in the error.
func (o outcome) failure(t *testing.T, kind backends.Kind, code string) *backends.Error {
	t.Helper()
	var e *backends.Error
	if !errors.As(o.err, &e) || e.Kind != kind || e.Code != code {
		t.Fatalf("it came to %v (%+v), want %s %s", o.err, o.res, kind, code)
	}
	for err := error(e); err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("error %q shows the key", err)
		}
	}
	if strings.Contains(e.Error(), "127.0.0.1") {
		t.Errorf("error %q shows the address", e)
	}
	return e
}

// chunkThen takes an answer and calls then for each chunk.
func chunkThen(then func()) func(backends.Event) error {
	return func(e backends.Event) error {
		if e.Raw != nil {
			then()
		}
		return nil
	}
}
