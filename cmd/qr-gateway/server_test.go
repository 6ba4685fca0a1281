package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a running `qr-gateway serve`, with its engine, on a free port.
type server struct {
	url string
	cmd *exec.Cmd
	log *tail

	ended chan struct{} // closed when the process has
	err   error         // of the process, once it has ended
}

// tail keeps what a process wrote, and lets a test wait for a line.
type tail struct {
	mu    sync.Mutex // guards the rest
	text  strings.Builder
	grown chan struct{} // closed and replaced on every line
}

func newTail() *tail { return &tail{grown: make(chan struct{})} }

func (l *tail) follow(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l.mu.Lock()
		l.text.WriteString(s.Text() + "\n")
		close(l.grown)
		l.grown = make(chan struct{})
		l.mu.Unlock()
	}
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait returns the submatches of re in the first text that has it.
func (l *tail) wait(ctx context.Context, re *regexp.Regexp) ([]string, error) {
	for {
		l.mu.Lock()
		m, grown := re.FindStringSubmatch(l.text.String()), l.grown
		l.mu.Unlock()
		if m != nil {
			return m, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s in the log: %w", re, ctx.Err())
		}
	}
}

// need returns the value of an environment variable that `make test` sets, or skips.
func need(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set: run this through make test", name)
		}
		t.Skipf("%s is not set: run this through make test", name)
	}
	return v
}

// configFile writes a configuration for tests; extra is appended to the model's entry, indented by four. An engine has one thread: some tests
// run at once, and two threads that wait for each other are slow where the cores are busy.
func configFile(t *testing.T, extra string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	body := fmt.Sprintf(`
log: {level: info, format: json}
engine: {binary: %q}
models:
  - id: smollm2
    backend: llama
    path: %q
    threads: 1
%s`, need(t, "QR_TEST_ENGINE"), need(t, "QR_TEST_MODEL"), extra)
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs the real binary and waits until it is ready.
func start(t *testing.T, file string, args ...string) *server {
	t.Helper()
	return launch(t, `serves \S+ at (http://127\.0\.0\.1:\d+)/v1`, append([]string{"serve", "--config", file, "--listen", "127.0.0.1:0"}, args...)...)
}

// launch runs the real binary and waits for what its log says when it is ready; that has the server's address.
func launch(t *testing.T, ready string, args ...string) *server {
	t.Helper()
	return launchWith(t, nil, ready, args...)
}

// launchWith is launch with more variables in its environment, each NAME=VALUE.
func launchWith(t *testing.T, env []string, ready string, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(need(t, "QR_TEST_GATEWAY"), args...), log: newTail(), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var wg sync.WaitGroup
	wg.Go(func() { s.log.follow(r) })
	wg.Go(func() { s.err = s.cmd.Wait(); close(s.ended) })
	t.Cleanup(func() { s.stop(t); wg.Wait(); r.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	wg.Go(func() {
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	})
	m, err := s.log.wait(ctx, regexp.MustCompile(ready))
	if err != nil {
		t.Fatalf("server did not start: %v\n%s", err, s.log)
	}
	s.url = m[1]
	return s
}

// stop ends the server as an operator would and fails the test when it doesn't leave cleanly.
func (s *server) stop(t *testing.T) {
	if s.cmd.Process.Signal(syscall.SIGTERM) != nil {
		return // it has ended, and its test knows how
	}
	select {
	case <-s.ended:
		if s.err != nil {
			t.Errorf("the server ended with %v on SIGTERM, want status 0", s.err)
		}
	case <-time.After(60 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
		t.Errorf("the server did not end within 60 s of SIGTERM\n%s", s.log)
	}
	if t.Failed() {
		t.Logf("log of the server:\n%s", s.log)
	}
}

// enginePID finds the engine in the log.
func (s *server) enginePIDs(t *testing.T) []string {
	t.Helper()
	var pids []string
	for _, m := range regexp.MustCompile(`"pid":(\d+)`).FindAllStringSubmatch(s.log.String(), -1) {
		pids = append(pids, m[1])
	}
	return pids
}

// post sends a chat request and returns the status and the body.
func (s *server) post(ctx context.Context, body map[string]any) (int, []byte, error) {
	res, err := s.open(ctx, body)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

func (s *server) open(ctx context.Context, body map[string]any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(string(b)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// chat is a request body with the fields every test sets.
func chat(content string, maxTokens int, more map[string]any) map[string]any {
	body := map[string]any{
		"model": "smollm2", "max_tokens": maxTokens,
		"messages": []any{map[string]any{"role": "user", "content": content}},
	}
	for k, v := range more {
		body[k] = v
	}
	return body
}

// text returns the answer of a non-streamed request that must succeed.
func (s *server) text(t *testing.T, body map[string]any) string {
	t.Helper()
	answer, err := s.answer(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// answer is text for goroutines, which must not end a test.
func (s *server) answer(ctx context.Context, body map[string]any) (string, error) {
	status, b, err := s.post(ctx, body)
	if err != nil || status != http.StatusOK {
		return "", fmt.Errorf("chat: status %d, error %w: %s", status, err, b)
	}
	var a struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(b, &a); err != nil || len(a.Choices) != 1 {
		return "", fmt.Errorf("answer %s: %w", b, err)
	}
	return a.Choices[0].Message.Content, nil
}
