package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
)

// TestOpenAIPython runs the stock client's tests against the real server on the real model.
func TestOpenAIPython(t *testing.T) {
	t.Parallel()
	python := need(t, "QR_TEST_PYTHON")
	empty := filepath.Join(t.TempDir(), "empty") // a record of nothing: its source never serves
	if err := os.WriteFile(empty, []byte{1}, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, entropyConfig(t, fmt.Sprintf(`  sources:
    - {name: computed, type: mock, seed: 7}
    - {name: replaced, type: replay, path: %q, policy: fallback, fallback: system}
`, empty)))
	cmd := exec.Command(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "testdata/e2e")
	cmd.Env = append(os.Environ(), "QR_URL="+s.url, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestCrossTalk sends eight marked conversations at once over four workers: each must read as it does alone.
func TestCrossTalk(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 2048\n"))
	bodies := make([]map[string]any, 8)
	alone := make([]string, len(bodies))
	for i := range bodies {
		more := map[string]any{"seed": i}
		if i%2 == 0 {
			more["qr_alpha"] = 0.3
		}
		marked := fmt.Sprintf("My name is Marker%d. %s Say my name and tell me a story.", i, strings.Repeat("I like boats. ", 5*i))
		bodies[i] = chat(marked, 20, more)
		alone[i] = s.text(t, bodies[i])
	}
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			got, err := s.answer(t.Context(), body)
			if err != nil || got != alone[i] {
				t.Errorf("conversation %d in company:\n%q, %v\nalone:\n%q", i, got, err, alone[i])
			}
		})
	}
	wg.Wait()
}

// TestCancelledRequestsLeaveNothing drops requests at random moments: queued, in the prompt, while decoding, between peeks.
func TestCancelledRequestsLeaveNothing(t *testing.T) {
	t.Parallel()
	total := 120
	if os.Getenv("QR_VERIFY") != "" {
		total = 1000
	}
	s := start(t, configFile(t, "    context: 2048\n"))
	probe := chat("Name a colour.", 16, map[string]any{"seed": 1, "qr_alpha": 0.3})
	want := s.text(t, probe)
	before := s.gauges(t)
	rng := rand.New(rand.NewPCG(1, 2))
	slots := make(chan struct{}, 12)
	var wg sync.WaitGroup
	for i := range total {
		body := chat(strings.Repeat(fmt.Sprintf("word%d ", i), 1+rng.IntN(300)), 200, map[string]any{"stream": i%2 == 0})
		if i%3 != 0 {
			body["qr_alpha"] = 0.5
		}
		after := time.Duration(rng.IntN(900)) * time.Millisecond
		slots <- struct{}{}
		wg.Go(func() { defer func() { <-slots }(); s.drop(t, body, after) })
	}
	wg.Wait()
	for range 4 {
		if got := s.text(t, probe); got != want {
			t.Errorf("after %d cancelled requests the probe says %q, before %q", total, got, want)
		}
	}
	s.settle(t, before)
}

// drop starts a request and leaves after a while.
func (s *server) drop(t *testing.T, body map[string]any, after time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	res, err := s.open(ctx, body)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("request: %v", err)
		}
		return
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		t.Errorf("status %d: %s", res.StatusCode, b)
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
}

// gauges are the numbers that must come back to where they were.
func (s *server) gauges(t *testing.T) map[string]float64 {
	t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := map[string]float64{}
	sc := bufio.NewScanner(res.Body)
	for sc.Scan() {
		name, value, ok := strings.Cut(sc.Text(), " ")
		var v float64
		if _, err := fmt.Sscan(value, &v); ok && err == nil && !strings.HasPrefix(name, "#") {
			got[name] = v
		}
	}
	return got
}

// settle waits until goroutines, running and waiting jobs and busy workers are as before.
func (s *server) settle(t *testing.T, before map[string]float64) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		now, bad := s.gauges(t), ""
		for name, was := range before {
			watched := name == "go_goroutines" || strings.Contains(name, "busy") || strings.Contains(name, "queue_depth") || strings.Contains(name, "running")
			slack := 0.0
			if name == "go_goroutines" {
				slack = 8 // idle HTTP connections of this test
			}
			if watched && now[name] > was+slack {
				bad += fmt.Sprintf(" %s %v -> %v", name, was, now[name])
			}
		}
		if bad == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not back to the start:%s", bad)
		}
	}
}

// TestEngineKilled kills the engine in mid-stream: the client gets one unbroken answer, the one that nothing happened to, and is told that it
// was taken up; those who wait are served after the restart, and the gateway answers all the while.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 2048\n    workers: 1\n"))
	story := chat("Tell a long story.", 90, map[string]any{"qr_decoder": "plain", "temperature": 0, "seed": 3})
	want := s.text(t, story)
	story["stream"] = true
	res, err := s.open(t.Context(), story)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := newChunks(res.Body)
	for range 20 {
		got.next(t)
	}
	waiting := make(chan string, 1)
	go func() {
		got, err := s.answer(t.Context(), chat("Name a colour.", 8, map[string]any{"seed": 1}))
		if err != nil {
			t.Errorf("waiting request: %v", err)
		}
		waiting <- got
	}()
	s.killEngine(t, len(s.enginePIDs(t))-1)
	health, err := http.Get(s.url + "/healthz")
	if err != nil || health.StatusCode != http.StatusOK {
		t.Fatalf("healthz while the engine restarts: %v", err)
	}
	health.Body.Close()
	for got.next(t) {
	}
	if got.text.String() != want {
		t.Errorf("got the answer\n%q, want\n%q", got.text.String(), want)
	}
	if at := got.qr.ContinuedAt; len(at) != 1 || at[0] < 10 || at[0] > 89 {
		t.Errorf("taken up at %v", at)
	}
	if text := <-waiting; text == "" {
		t.Error("the waiting request got nothing")
	}
}

// chunks reads a chat's stream.
type chunks struct {
	lines *bufio.Scanner
	text  strings.Builder
	qr    backends.DecodeStats
}

func newChunks(r io.Reader) *chunks { return &chunks{lines: bufio.NewScanner(r)} }

// next takes one chunk, and reports whether there was one.
func (c *chunks) next(t *testing.T) bool {
	t.Helper()
	for c.lines.Scan() {
		data, ok := strings.CutPrefix(c.lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return false
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			QR      *backends.DecodeStats
			Error   any
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || chunk.Error != nil {
			t.Fatalf("chunk %s: %v", data, err)
		}
		for _, choice := range chunk.Choices {
			c.text.WriteString(choice.Delta.Content)
		}
		if chunk.QR != nil {
			c.qr = *chunk.QR
		}
		return true
	}
	t.Fatalf("the stream ended without its end: %v", c.lines.Err())
	return false
}

// TestStartFailsWithTheReason holds that a bad model or configuration is named before anything is served.
func TestStartFailsWithTheReason(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := os.ReadFile(need(t, "QR_TEST_MODEL"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cases := map[string]struct{ path, want string }{
		"missing":   {filepath.Join(dir, "none.gguf"), "none.gguf"},
		"not GGUF":  {write("text.gguf", []byte(strings.Repeat("hello ", 100))), "text.gguf.*GGUF"},
		"truncated": {write("short.gguf", whole[:len(whole)/2]), "short.gguf"},
		"empty":     {write("empty.gguf", nil), "empty.gguf"},
		"folder":    {dir, regexp.QuoteMeta(filepath.Base(dir))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(need(t, "QR_TEST_GATEWAY"), "serve", "--config", configFile(t, ""), "--listen", "127.0.0.1:0", "--model", "smollm2="+c.path)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("exit: %v, want status 1", err)
			}
			line := regexp.MustCompile(`(?m)^error: .*` + c.want)
			if !line.Match(out) {
				t.Errorf("no line matches %s in:\n%s", line, out)
			}
		})
	}
}
