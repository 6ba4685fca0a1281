package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

const streamingHello = `{"model":"fake","stream":true,"messages":[{"role":"user","content":"hi"}],"seed":7}`

func TestEngineDiesInMidStream(t *testing.T) {
	r := newRig()
	r.step = func(_ context.Context, _ string, step int) error {
		if step == 3 {
			return fake.Lost()
		}
		return nil
	}
	r.build(t)
	w := r.ask(chatPath, streamingHello)
	lines := dataLines(t, w.Body.String())
	if w.Code != 200 || len(lines) != 5 { // the role, three tokens and the error
		t.Fatalf("got %d and %d events: %q", w.Code, len(lines), lines)
	}
	if message, code := envelope(t, []byte(lines[4])); code != "engine_lost" || !strings.Contains(message, "send the request again") {
		t.Errorf("got %s: %s", code, message)
	}
	if o := r.seen.last(t); o.Status != 500 || o.Code != "engine_lost" || o.Result != nil {
		t.Errorf("it was seen as %+v", o)
	}
	whole := r.ask(chatPath, hello)
	if _, code := envelope(t, whole.Body.Bytes()); whole.Code != 500 || code != "engine_lost" || whole.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("in one piece: got %d %s, headers %v", whole.Code, code, whole.Header())
	}
}

// TestTextIsNotMadeAgain: whatever ends a whole reply that had begun to be made, clients do not have it made again by themselves.
func TestTextIsNotMadeAgain(t *testing.T) {
	for at, want := range map[int]string{0: "", 3: "false"} {
		r := newRig()
		r.step = func(_ context.Context, _ string, step int) error {
			if step == at {
				return &backends.Error{Kind: backends.KindEntropy, Code: "entropy_unavailable", Message: "device unplugged"}
			}
			return nil
		}
		w := r.build(t).ask(chatPath, hello)
		if _, code := envelope(t, w.Body.Bytes()); w.Code != 503 || code != "entropy_unavailable" || w.Header().Get("X-Should-Retry") != want {
			t.Errorf("at token %d: got %d %s, headers %v; want X-Should-Retry %q", at, w.Code, code, w.Header(), want)
		}
	}
}

// An error before anything was queued is a plain HTTP error, also for a stream.
func TestErrorsBeforeQueueing(t *testing.T) {
	full := &queue.FullError{Limit: queue.LimitJobs, Depth: 2, Max: 2, RetryAfter: 3 * time.Second}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{full, 429, "queue_full"},
		{&backends.Error{Kind: backends.KindUnavailable, Code: "engine_unavailable", Message: "restarting"}, 503, "engine_unavailable"},
		{errors.New("secret"), 500, "internal_error"},
	} {
		for _, body := range []string{hello, streamingHello} {
			r := newRig()
			r.do = doFunc(func(context.Context, dispatch.Job, dispatch.Sink) (*backends.Result, error) { return nil, c.err })
			w := r.build(t).ask(chatPath, body)
			message, code := envelope(t, w.Body.Bytes())
			if w.Code != c.status || code != c.code || strings.Contains(message, "secret") {
				t.Errorf("%v: got %d %s %s", c.err, w.Code, code, message)
			}
			if errors.Is(c.err, full) && w.Header().Get("Retry-After") != "3" {
				t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
			if c.code == "internal_error" && !strings.Contains(r.logged.String(), "secret") {
				t.Errorf("the log does not show the cause: %s", r.logged)
			}
		}
	}
}

func TestPrepareHasATimeLimit(t *testing.T) {
	r := newRig()
	r.cfg.PrepareTimeout = time.Nanosecond
	w := r.build(t).ask(chatPath, hello)
	if _, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusGatewayTimeout || code != "timeout" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// The caller's key tells callers apart and holds no secret.
func TestJobKeys(t *testing.T) {
	var keys []string
	r := newRig()
	r.do = doFunc(func(_ context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
		keys = append(keys, job.Key)
		return &backends.Result{Reason: backends.ReasonStop}, nil
	})
	r.build(t)
	for _, auth := range []string{"Bearer secret-a", "Bearer secret-b", "Bearer secret-a", ""} {
		req := httptest.NewRequestWithContext(t.Context(), "POST", chatPath, strings.NewReader(hello))
		req.Header.Set("Authorization", auth)
		r.srv.ServeHTTP(httptest.NewRecorder(), req)
	}
	if keys[0] == keys[1] || keys[0] != keys[2] || keys[3] != "addr:192.0.2.1" || strings.Contains(strings.Join(keys, " "), "secret") {
		t.Errorf("keys are %q", keys)
	}
}
