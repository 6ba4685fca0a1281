package llama

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "qr-gateway/backends/llama/enginepb"
)

func TestBackoff(t *testing.T) {
	o := backoff{least: 200 * time.Millisecond, most: 10 * time.Second, healthy: time.Minute}
	for i, want := range []int64{200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if got := o.next(time.Second, 1).Milliseconds(); got != want {
			t.Errorf("pause %d: %d ms, want %d", i, got, want)
		}
	}
	if got := o.next(time.Second, 0); got != 5*time.Second {
		t.Errorf("with the least jitter: %v", got)
	}
	if got := o.next(2*time.Minute, 1); got != 200*time.Millisecond {
		t.Errorf("after a healthy life: %v", got)
	}
}

func TestWatchdog(t *testing.T) {
	start := time.Unix(1000, 0)
	d := watchdog{limit: time.Minute, good: start}
	idle := func(s int64) *pb.StatsResponse { return &pb.StatsResponse{IdleMs: s * 1000} }
	for _, c := range []struct {
		after time.Duration
		st    *pb.StatsResponse
		want  bool
	}{
		{10 * time.Second, idle(0), false},
		{20 * time.Second, idle(59), false},
		{30 * time.Second, nil, false},
		{79 * time.Second, nil, false},
		{80 * time.Second, nil, true},
		{81 * time.Second, idle(60), true},
	} {
		if got := d.stuck(start.Add(c.after), c.st); got != c.want {
			t.Errorf("after %v: stuck is %v", c.after, got)
		}
	}
}

func TestParseLine(t *testing.T) {
	for in, want := range map[string]struct {
		level slog.Level
		msg   string
		attrs int
	}{
		`{"level":"WARN","source":"llama.cpp","msg":"slow","n":3}`:                            {slog.LevelWarn, "slow", 2},
		`{"level":"WARN","source":"llama.cpp","msg":"n_ctx_seq (8448) > n_ctx_train (8192)"}`: {slog.LevelDebug, "n_ctx_seq (8448) > n_ctx_train (8192)", 1},
		`{"level":"INFO","msg":"x","time":"2026-01-01T00:00:00Z"}`:                            {slog.LevelInfo, "x", 0},
		`GGML_ASSERT(n > 0) failed`:                                                           {slog.LevelError, "GGML_ASSERT(n > 0) failed", 1},
		`{"level":"odd","msg":"y"}`:                                                           {slog.LevelError, "y", 0},
		`{"broken`:                                                                            {slog.LevelError, `{"broken`, 1},
	} {
		level, msg, attrs := parseLine([]byte(in))
		if level != want.level || msg != want.msg || len(attrs) != want.attrs {
			t.Errorf("%s: got %v %q %v", in, level, msg, attrs)
		}
	}
}

// TestReasonOfAnEnd holds that what a crash says first is remembered, not the registers that it ends with.
func TestReasonOfAnEnd(t *testing.T) {
	for want, lines := range map[string][]string{
		"abort: GGML_ASSERT(x) failed": {`{"level":"ERROR","msg":"old"}`, `{"level":"ERROR","msg":"abort: GGML_ASSERT(x) failed"}`, "SIGABRT: abort", "gs 0x0"},
		"SIGSEGV: segmentation":        {`{"level":"ERROR","msg":"old"}`, `{"level":"INFO","msg":"well"}`, "SIGSEGV: segmentation", "PC=0x1", "gs 0x0"},
		"listen on x":                  {"odd line", `{"level":"ERROR","msg":"listen on x"}`},
	} {
		c := &child{log: slog.New(slog.DiscardHandler)}
		c.forward(strings.NewReader(strings.Join(lines, "\n")))
		if c.last != want {
			t.Errorf("remembered %q, want %q", c.last, want)
		}
	}
}
