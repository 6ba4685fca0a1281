package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/sampler"
)

// upstream is a backend that passes requests on, to a script.
type upstream struct {
	params bool // it takes qr_ parameters
	chunks []string
	fail   error // after the chunks

	mu  sync.Mutex // guards got
	got *backends.Request
}

func (u *upstream) Prepare(_ context.Context, req *backends.Request) (*backends.Prepared, error) {
	return &backends.Prepared{Request: req, Estimate: 1, MaxTokens: 1}, nil
}

func (u *upstream) Generate(_ context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	u.mu.Lock()
	u.got = p.Request
	u.mu.Unlock()
	err := emit(backends.Event{Started: &backends.Started{}})
	for _, c := range u.chunks {
		err = errors.Join(err, emit(backends.Event{Raw: json.RawMessage(c)}))
	}
	if err = errors.Join(err, u.fail); err != nil {
		return nil, err
	}
	return &backends.Result{Reason: "stop", Usage: backends.Usage{PromptTokens: 3, CompletionTokens: 2}}, nil
}

func (u *upstream) Info() backends.Info {
	return backends.Info{Model: "far", Backend: "openai", Ready: true, State: "ready", Chat: true, Raw: true, PassParams: u.params}
}

// Backend and List make it the only model of a server.
func (u *upstream) Backend(id string) (backends.Backend, sampler.Params, bool) {
	return u, sampler.Defaults(), id == "far"
}

func (u *upstream) List() []backends.Info { return []backends.Info{u.Info()} }

// served puts the real queue, dispatcher, node and server before u. It returns what the server observed.
func (u *upstream) served(t *testing.T) (http.Handler, *outcomes) {
	t.Helper()
	q, err := memory.New(memory.DefaultConfig())
	must(t, err)
	d, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
	must(t, err)
	n, err := node.New(node.DefaultConfig(), []node.Model{{ID: "far", Backend: u, Workers: 2}}, node.Deps{Queue: q, Frames: node.Here(d), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	background(t, q.Run)
	background(t, n.Run)
	seen := &outcomes{one: make(chan struct{}, 64)}
	srv, err := gateway.New(gateway.DefaultConfig(), gateway.Deps{Models: u, Dispatcher: d, Observer: seen})
	must(t, err)
	return srv, seen
}

func send(h http.Handler, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

const farChat = `{"model":"far","messages":[{"role":"user","content":"<hi>\u2028"}],"top_n_sigma":12345678901234567890,"tools":[{"x":0.10}]`

// rawLines are the data lines of a stream.
func rawLines(t *testing.T, w *httptest.ResponseRecorder) (lines []string) {
	t.Helper()
	for part := range strings.SplitSeq(w.Body.String(), "\n\n") {
		if data, ok := strings.CutPrefix(part, "data: "); ok {
			lines = append(lines, data)
		}
	}
	return lines
}

// TestRawWay sends a request through edge, queue and node: body and answer are on both sides as they were on the other.
func TestRawWay(t *testing.T) {
	whole := `{ "id":"x","choices":[{"finish_reason":"stop","x_new":1.50}],"usage":{"prompt_tokens":3} }`
	chunks := []string{`{"id":"x", "choices":[{"delta":{"content":"<é>"}}],"n":9007199254740993}`, `{"choices":[],"usage":{"cost":0.10}}`}
	for _, c := range []struct {
		name, path, body string
		chunks           []string
	}{
		{"whole", chatPath, farChat + `}`, []string{whole}},
		{"stream", chatPath, farChat + `,"stream":true}`, chunks},
		{"text", textPath, `{"model":"far","prompt":[1,2],"echo":true}`, []string{whole}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := &upstream{chunks: c.chunks}
			h, seen := u.served(t)
			w := send(h, c.path, c.body)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			got, want := w.Body.String(), c.chunks[0]
			if c.name == "stream" {
				got, want = strings.Join(rawLines(t, w), "|"), strings.Join(append(c.chunks, "[DONE]"), "|")
			}
			if got != want {
				t.Errorf("the client got %s\nof %s", got, want)
			}
			if diff := cmp.Diff(numbers(t, c.body), numbers(t, string(u.got.Raw))); diff != "" {
				t.Errorf("the backend's request (-client's +got):\n%s", diff)
			}
			if strings.Contains(string(u.got.Raw), `\u003c`) {
				t.Errorf("%s was written anew", u.got.Raw)
			}
			out := seen.last(t)
			if out.Result == nil || out.Result.Usage.PromptTokens != 3 || out.FirstToken == 0 {
				t.Errorf("outcome %+v", out)
			}
		})
	}
}

// numbers reads JSON with its numbers as they are written.
func numbers(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	must(t, dec.Decode(&v))
	return v
}

// TestRawFails holds the form of errors: an HTTP status before the first chunk, the last event after it, and never [DONE].
func TestRawFails(t *testing.T) {
	broken := &backends.Error{Kind: backends.KindUpstream, Code: "upstream_error", Message: "the upstream of model far failed: no"}
	u := &upstream{fail: broken}
	h, _ := u.served(t)
	w := send(h, chatPath, farChat+`}`)
	if message, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusBadGateway || code != "upstream_error" || message != broken.Message {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	u = &upstream{fail: broken, chunks: []string{`{"choices":[]}`}}
	h, _ = u.served(t)
	lines := rawLines(t, send(h, chatPath, farChat+`,"stream":true}`))
	if len(lines) != 2 || lines[0] != u.chunks[0] {
		t.Fatalf("stream is %q", lines)
	}
	if _, code := envelope(t, []byte(lines[1])); code != "upstream_error" {
		t.Errorf("last event is %s", lines[1])
	}
	u = &upstream{}
	h, _ = u.served(t)
	if w := send(h, chatPath, farChat+`}`); w.Code != http.StatusInternalServerError {
		t.Errorf("no answer at all became %d %s", w.Code, w.Body)
	}
}

// TestRawParameters holds that parameters of ours are refused, and where they are known go on with the task.
func TestRawParameters(t *testing.T) {
	u := &upstream{chunks: []string{`{"choices":[]}`}}
	h, _ := u.served(t)
	w := send(h, chatPath, farChat+`,"qr_alpha":0.5}`)
	if message, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusBadRequest || code != "unsupported_parameter" || !strings.Contains(message, "qr_alpha") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	u = &upstream{params: true, chunks: u.chunks}
	h, _ = u.served(t)
	w = send(h, chatPath, strings.Replace(farChat, `"far"`, `"far:task"`, 1)+`,"qr_alpha":0.5,"qr_client":"c"}`)
	got, _ := numbers(t, string(u.got.Raw)).(map[string]any)
	if w.Code != http.StatusOK || got["model"] != "far" || got["qr_alpha"] != json.Number("0.5") || got["qr_client"] != "c" || got["qr_task"] != "alias" {
		t.Errorf("got %d, sent on %v", w.Code, got)
	}
}

// TestRawListed holds what the model list says of models whose requests are passed on.
func TestRawListed(t *testing.T) {
	for _, params := range []bool{false, true} {
		h, _ := (&upstream{params: params}).served(t)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models/far", nil))
		got := decode[struct {
			QR   struct{ Raw, Parameters bool }
			Info struct {
				Meta struct{ Capabilities map[string]bool }
			}
		}](t, w.Body.Bytes())
		if _, claimed := got.Info.Meta.Capabilities["vision"]; claimed || !got.QR.Raw || got.QR.Parameters != params {
			t.Errorf("listed as %s", w.Body)
		}
	}
}
