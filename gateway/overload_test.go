package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// ledger counts the runs of each request, and spoils each fourth of them.
type ledger struct {
	mu      sync.Mutex // guards what follows
	runs    map[string]int
	spoiled map[string]bool
}

// step is called before each token.
func (l *ledger) step(ctx context.Context, id string, step int) error {
	l.mu.Lock()
	if step == 0 {
		l.runs[id]++
		l.spoiled[id] = len(l.runs)%4 == 0
	}
	spoiled := step == 3 && l.spoiled[id]
	l.mu.Unlock()
	if spoiled {
		return &backends.Error{Kind: backends.KindModel, Code: "broken_logits", Message: "logits are not numbers"}
	}
	return wait(ctx, 20*time.Millisecond)
}

// TestRetriesNeverRunTwice: openai-python, which tries again by itself, on a gateway with little room and a model that often fails. What a
// client got an answer or a failure for was run once, and nothing else was run at all.
func TestRetriesNeverRunTwice(t *testing.T) {
	python := os.Getenv("QR_TEST_PYTHON")
	if python == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("QR_TEST_PYTHON is not set: run this through make test")
		}
		t.Skip("QR_TEST_PYTHON is not set: run this through make test")
	}
	runs := &ledger{runs: map[string]int{}, spoiled: map[string]bool{}}
	r := newRig()
	r.step, r.model.Workers, r.limits.Jobs = runs.step, 2, 3
	r.queued(t).serve(t)
	cmd := exec.CommandContext(t.Context(), python, "testdata/overload.py")
	cmd.Env = append(os.Environ(), "QR_URL="+r.url, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil {
		var text []byte
		if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it bare
			text = e.Stderr
		}
		t.Fatalf("client: %v\n%s", err, text)
	}
	var got struct{ Answered, Limited, Repeated, Failed int }
	must(t, json.Unmarshal(out, &got))
	t.Logf("%+v", got)
	if got.Answered == 0 || got.Failed == 0 || got.Answered+got.Limited+got.Repeated+got.Failed != 24 {
		t.Errorf("what became of 24 requests: %+v", got)
	}
	runs.mu.Lock()
	defer runs.mu.Unlock()
	for id, n := range runs.runs {
		if n != 1 {
			t.Errorf("%s was run %d times", id, n)
		}
	}
	if n := len(runs.runs); n != got.Answered+got.Failed {
		t.Errorf("%d runs for %d answers and %d failures", n, got.Answered, got.Failed)
	}
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	if len(r.seen.all) <= 24 {
		t.Errorf("%d requests came; nothing was tried again", len(r.seen.all))
	}
}

// askWith is ask with a header.
func (r *rig) askWith(body, header, value string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPost, chatPath, strings.NewReader(body))
	req.Header.Set(header, value)
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, req)
	return w
}

// TestQueueHeaders holds that each reply says where its request stood, and a refusal which limit it hit.
func TestQueueHeaders(t *testing.T) {
	wait := 1500 * time.Millisecond
	r := newRig()
	r.do = doFunc(func(_ context.Context, _ dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
		sink.Queued(3, wait)
		sink.Queued(1, 0)
		return &backends.Result{Reason: backends.ReasonStop}, nil
	})
	r.build(t)
	for _, body := range []string{hello, streamingHello} {
		h := r.ask(chatPath, body).Result().Header
		if h.Get("X-Queue-Position") != "3" || h.Get("X-Queue-Wait") != "2" {
			t.Errorf("%s: headers %v", body, h)
		}
	}
	wait = 0
	if h := r.ask(chatPath, hello).Header(); h.Get("X-Queue-Position") != "3" || h.Values("X-Queue-Wait") != nil {
		t.Errorf("with an unknown wait: headers %v", h)
	}
	for limit, kind := range map[string]string{queue.LimitJobsPerKey: "Requests", queue.LimitTokens: "Tokens", queue.LimitBytes: ""} {
		r := newRig()
		r.do = doFunc(func(context.Context, dispatch.Job, dispatch.Sink) (*backends.Result, error) {
			return nil, queue.Full(limit, 60, 64, 90*time.Second)
		})
		h := r.build(t).ask(chatPath, hello).Header()
		if kind != "" && (h.Get("X-Ratelimit-Limit-"+kind) != "64" || h.Get("X-Ratelimit-Remaining-"+kind) != "4" || h.Get("X-Ratelimit-Reset-"+kind) != "1m0s") {
			t.Errorf("%s: headers %v", limit, h)
		}
		if n := len(h) - 3; kind == "" && n != 1 { // X-Request-Id, Content-Type, Content-Length; Retry-After
			t.Errorf("%s: headers %v", limit, h)
		}
	}
}
