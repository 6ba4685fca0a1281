package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// machines are a redis-server with the configuration that gateways and workers on it share.
type machines struct {
	file string
	dir  string
}

// newMachines starts a redis-server.
func newMachines(t *testing.T) *machines {
	t.Helper()
	dir, err := os.MkdirTemp("", "qr-m-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, need(t, "QR_TEST_REDIS"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	log := newTail()
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { defer close(read); log.follow(out) }()
	t.Cleanup(func() { stop(); <-read; _ = server.Wait() }) // it is killed
	if _, err := log.wait(t.Context(), regexp.MustCompile(`Ready to accept connections|ready to accept connections`)); err != nil {
		t.Fatalf("redis-server: %v\n%s", err, log)
	}
	return &machines{file: shared(t, dir, socket), dir: dir}
}

func shared(t *testing.T, dir, socket string) string {
	t.Helper()
	body := fmt.Sprintf(`
log: {level: info, format: json}
engine: {binary: %q}
redis: {url: "unix://%s", name: test}
link: {listen: "127.0.0.1:0", secret_file: secret}
worker: {secret_file: secret}
queue: {lease: 2s, heartbeat: 500ms}
models:
  - {id: smollm2, path: %q, context: 512, workers: 1, threads: 1}
`, need(t, "QR_TEST_ENGINE"), socket, need(t, "QR_TEST_MODEL"))
	file := filepath.Join(dir, "gateway.yaml")
	for name, text := range map[string]string{file: body, filepath.Join(dir, "secret"): "0123456789abcdef0123456789abcdef\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func (m *machines) gateway(t *testing.T) *server {
	t.Helper()
	return launch(t, `serves \S+ at (http://127\.0\.0\.1:\d+)/v1`, "gateway", "--config", m.file, "--listen", "127.0.0.1:0")
}

// worker starts a worker and waits until its model is ready.
func (m *machines) worker(t *testing.T, name string) *server {
	t.Helper()
	return launchWith(t, []string{"QR_WORKER_NAME=" + name}, `"msg":"(model ready)"`, "worker", "--config", m.file, "--listen", "127.0.0.1:0")
}

// run runs a command of the program on the shared queue.
func (m *machines) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(need(t, "QR_TEST_GATEWAY"), append(args, "--config", m.file)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// busy is the worker that runs a request now.
func busy(t *testing.T, workers map[string]*server) string {
	t.Helper()
	for name, w := range workers {
		if w.running(t) {
			return name
		}
	}
	t.Fatal("nobody is busy")
	return ""
}

// running asks a worker that may have ended.
func (s *server) running(t *testing.T) bool {
	t.Helper()
	probes := regexp.MustCompile(`"probes":"(\S+?)"`).FindStringSubmatch(s.log.String())
	if probes == nil {
		t.Fatalf("no address of probes in the log:\n%s", s.log)
	}
	res, err := http.Get("http://" + probes[1] + "/metrics")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return err == nil && strings.Contains(string(body), "vllm:num_requests_running 1\n")
}

// TestMachines: a gateway and two workers that share a queue. The worker of an answer is killed in mid-stream, and the other one goes on with it;
// then that one is drained in mid-stream, and finishes what it runs.
func TestMachines(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	edge := m.gateway(t)
	workers := map[string]*server{"one": m.worker(t, "one"), "two": m.worker(t, "two")}
	story := chat("Tell a long story.", 120, map[string]any{"qr_decoder": "plain", "temperature": 0, "seed": 3})
	want := edge.text(t, story)
	story["stream"] = true

	got := edge.streaming(t, story, 10)
	first := busy(t, workers)
	if err := workers[first].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-workers[first].ended
	for got.next(t) {
	}
	if got.text.String() != want || len(got.qr.ContinuedAt) != 1 {
		t.Errorf("taken up at %v, the answer is\n%q, want\n%q", got.qr.ContinuedAt, got.text.String(), want)
	}

	got = edge.streaming(t, story, 10)
	second := busy(t, workers)
	if second == first {
		t.Fatalf("worker %s is said to run a request, and is dead", first)
	}
	m.run(t, "worker", "drain", "--name", second)
	for got.next(t) {
	}
	if got.text.String() != want || got.qr.ContinuedAt != nil {
		t.Errorf("beside the drain, taken up at %v, the answer is\n%q, want\n%q", got.qr.ContinuedAt, got.text.String(), want)
	}
	select {
	case <-workers[second].ended:
	case <-time.After(20 * time.Second):
		t.Error("the drained worker goes on")
	}
	if list := m.run(t, "status"); slices.ContainsFunc(strings.Split(list, "\n"), func(l string) bool { return strings.HasPrefix(l, "worker") && strings.Contains(l, second) }) {
		t.Errorf("status shows the drained worker:\n%s", list)
	}
}

// streaming begins a stream and reads some chunks of it.
func (s *server) streaming(t *testing.T, body map[string]any, n int) *chunks {
	t.Helper()
	res, err := s.open(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	got := newChunks(res.Body)
	for range n {
		got.next(t)
	}
	return got
}
