package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/sampler"
)

func kind(k backends.Kind) error {
	return fmt.Errorf("run job: %w", &backends.Error{Kind: k, Code: "c", Param: "p", Message: "it broke", Hint: "mend it", Err: errors.New("secret")})
}

func TestFromError(t *testing.T) {
	cases := []struct {
		name    string
		err     error
		status  int
		code    string
		message string
		noRetry bool
	}{
		{"own", api.Invalid("x", "x is bad"), 400, "invalid_value", "x is bad", false},
		{"invalid", kind(backends.KindInvalid), 400, "c", "it broke (mend it)", false},
		{"too long", backends.TooLong(3000, 2048), 400, "context_length_exceeded", "3000 tokens, but a request to this model may use 2048", false},
		{"unavailable", kind(backends.KindUnavailable), 503, "c", "it broke", false},
		{"entropy", kind(backends.KindEntropy), 503, "c", "it broke", false},
		{"lost", kind(backends.KindLost), 500, "c", "it broke", true},
		{"upstream", kind(backends.KindUpstream), 502, "c", "it broke", false},
		{"upstream that had it", &backends.Error{Kind: backends.KindUpstream, Code: "c", Message: "it broke", MayHaveRun: true}, 502, "c", "it broke", true},
		{"source of an answer", &backends.Error{Kind: backends.KindEntropy, Code: "c", Message: "it broke", MayHaveRun: true}, 503, "c", "it broke", true},
		{"time-out", kind(backends.KindTimeout), 504, "c", "it broke", true},
		{"limited", kind(backends.KindLimited), 429, "c", "it broke", false},
		{"internal", kind(backends.KindInternal), 500, "internal_error", "request id r-1", true},
		{"parameter", &sampler.ParamError{Key: "qr_alpha", Value: "2", Allowed: "a number from -1 to 1"}, 400, "invalid_value", "qr_alpha is 2", false},
		{"full", &queue.FullError{Limit: "jobs", Depth: 3, Max: 3, RetryAfter: 1500 * time.Millisecond}, 429, "queue_full", "3 of 3 jobs", false},
		{"repeated", &dispatch.RepeatError{First: "a", State: queue.StateQueued}, 409, "idempotency_in_progress", "is a and still under way (queued)", true},
		{"repeated late", &dispatch.RepeatError{First: "a", State: queue.StateDone}, 409, "idempotency_ended", "is a and has ended (done)", true},
		{"repeated in vain", &dispatch.RepeatError{First: "a", State: queue.StateDone, Why: errors.New("gone")}, 409, "idempotency_ended", "its answer can't be had: gone", true},
		{"not repeated", &dispatch.RepeatError{First: "a", State: queue.StateDone, Other: true}, 422, "idempotency_mismatch", "another request with this Idempotency-Key was sent before, a;", true},
		{"closed", queue.ErrClosed, 503, "shutting_down", "shutting down", false},
		{"shutdown", api.ErrShutdown, 503, "shutting_down", "shutting down", false},
		{"deadline", context.DeadlineExceeded, 504, "timeout", "longer", true},
		{"cancelled", fmt.Errorf("do: %w", context.Canceled), 499, "client_closed", "cancelled", false},
		{"unknown", errors.New("secret"), 500, "internal_error", "request id r-1", true},
		{"panic", api.Panicked("r-1"), 500, "internal_error", "request id r-1", true},
		{"model", api.UnknownModel("x", []string{"a", "b"}), 404, "model_not_found", `model "x" does not exist; served here: a, b`, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e := api.FromError(c.err, "r-1")
			if e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.message) || e.NoRetry != c.noRetry {
				t.Errorf("got %d %s %q (no retry: %t)", e.Status, e.Code, e.Message, e.NoRetry)
			}
			if strings.Contains(e.Message, "secret") {
				t.Errorf("message %q shows the cause", e.Message)
			}
		})
	}
}

func TestWriteError(t *testing.T) {
	w := httptest.NewRecorder()
	must(t, api.WriteError(w, api.FromError(&queue.FullError{Limit: "jobs", Depth: 3, Max: 3, RetryAfter: 1500 * time.Millisecond}, "")))
	if got := w.Header().Get("Retry-After"); w.Code != 429 || got != "2" {
		t.Errorf("got %d with Retry-After %q, want 429 and 2", w.Code, got)
	}
	want := `{"error":{"message":"queue is full: 3 of 3 jobs are waiting (try again in 1.5s)","type":"rate_limit_error","param":null,"code":"queue_full"}}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w = httptest.NewRecorder()
	must(t, api.WriteError(w, api.Panicked("r")))
	if got := w.Header().Get("X-Should-Retry"); got != "false" {
		t.Errorf("X-Should-Retry is %q, want false", got)
	}
}
