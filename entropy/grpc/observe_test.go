package grpc_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/breaker"
)

// TestLogWithoutFlood: ten thousand failures in five minutes are an error, four reminders and a recovery.
func TestLogWithoutFlood(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	o := grpc.NewLogObserver(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	o.Drawn("lane", grpc.Report{Attempts: 1})
	for i := range 10_000 {
		kind := entropy.KindTimeout
		if i%2 == 1 {
			kind = entropy.KindOpen
		}
		o.Drawn("lane", grpc.Report{Kind: kind, Err: errors.New("down")})
		now = now.Add(30 * time.Millisecond)
	}
	o.Drawn("other", grpc.Report{Kind: entropy.KindQuota, Err: errors.New("used up")})
	o.Drawn("lane", grpc.Report{Attempts: 1})
	o.Drawn("lane", grpc.Report{Attempts: 1})
	text := out.String()
	for what, want := range map[string]int{"entropy source fails": 2, "still fails": 4, "recovered": 1, "source=lane": 6, "failures=10000": 1} {
		if got := strings.Count(text, what); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", what, got, want, text)
		}
	}
	out.Reset()
	o.Changed("lane", breaker.Event{From: breaker.Closed, To: breaker.Open})
	o.Changed("lane", breaker.Event{From: breaker.Open, To: breaker.HalfOpen})
	o.Changed("lane", breaker.Event{From: breaker.HalfOpen, To: breaker.Open})
	o.Changed("lane", breaker.Event{From: breaker.HalfOpen, To: breaker.Closed})
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("an outage with a failed trial is told in %d lines, want 2:\n%s", n, out.String())
	}
}
