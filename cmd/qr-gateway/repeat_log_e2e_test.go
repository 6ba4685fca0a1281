package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// words has the machines serve a model that says words, slowly; extra is for the top of the configuration.
func (m *machines) words(t *testing.T, extra string) {
	t.Helper()
	body := fmt.Sprintf(`
log: {level: info, format: json}
worker: {secret_file: secret}
models:
  - {id: words, backend: fake, workers: 1, delay: 30ms}
%s`, strings.ReplaceAll(extra, "SOCKET", filepath.Join(m.dir, "redis.sock")))
	m.file = filepath.Join(m.dir, "words.yaml")
	if err := os.WriteFile(m.file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

const linked = `
redis: {url: "unix://SOCKET", name: words}
link: {listen: "127.0.0.1:0", secret_file: secret}
`

const logged = `redis: {url: "unix://SOCKET", name: words, tokens: log}`

func (m *machines) wordsWorker(t *testing.T, name string) *server {
	t.Helper()
	t.Setenv("QR_WORKER_NAME", name)
	return launch(t, `"probes":"([^"]+)"`, "worker", "--config", m.file, "--listen", "127.0.0.1:0")
}

// story is a reply that has begun.
type story struct {
	status int
	header http.Header
	body   io.Reader
}

// say asks for words, with a key if there is one, and returns the reply once it begins.
func (s *server) say(ctx context.Context, t *testing.T, key, prompt string) story {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "words", "prompt": prompt, "max_tokens": 60, "stream": true})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return story{res.StatusCode, res.Header, res.Body}
}

// said is the text of a reply to its end, and the error that it ends with.
func said(t *testing.T, res story) (text, failure string) {
	t.Helper()
	body, err := io.ReadAll(res.body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		var chunk struct {
			Choices []struct{ Text string }
			Error   *struct{ Message string }
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || json.Unmarshal([]byte(data), &chunk) != nil {
			continue
		}
		for _, c := range chunk.Choices {
			text += c.Text
		}
		if chunk.Error != nil {
			failure = chunk.Error.Message
		}
	}
	return text, failure
}

// begins waits for the first text of a reply.
func begins(t *testing.T, res story) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(got.String(), `"text":"`) {
		n, err := res.body.Read(buf)
		if got.Write(buf[:n]); err != nil {
			t.Fatalf("%v after %s", err, got.String())
		}
	}
}

// submitted is how many requests a queue has seen, in words.
func (m *machines) submitted(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`(\d+) submitted`).FindString(m.run(t, "status"))
}

// flush has the server of the queue forget everything.
func (m *machines) flush(t *testing.T) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", filepath.Join(m.dir, "redis.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 16)
	if _, err := conn.Write([]byte("FLUSHALL\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "+OK") {
		t.Fatalf("FLUSHALL: %q, %v", answer[:n], err)
	}
}

// TestRepeatedElsewhere: a client loses its connection, and its gateway, in mid-answer. Another gateway gives it the whole answer, which is made once.
func TestRepeatedElsewhere(t *testing.T) {
	m := newMachines(t)
	m.words(t, linked)
	one, two := m.gateway(t), m.gateway(t)
	m.wordsWorker(t, "worker")
	want, failure := said(t, one.say(t.Context(), t, "", "a story"))
	if failure != "" || len(want) < 60 {
		t.Fatalf("undisturbed: %q, %s", want, failure)
	}

	ctx, leave := context.WithCancel(t.Context())
	begins(t, one.say(ctx, t, "k1", "a story"))
	leave()
	again := two.say(t.Context(), t, "k1", "a story")
	if got, failure := said(t, again); got != want || failure != "" || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("after the client left: %q, %s, headers %v; want %q", got, failure, again.header, want)
	}

	begins(t, one.say(t.Context(), t, "k2", "a story"))
	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-one.ended
	if got, failure := said(t, two.say(t.Context(), t, "k2", "a story")); got != want || failure != "" {
		t.Errorf("after the gateway died: %q, %s; want %q", got, failure, want)
	}
	if got, failure := said(t, two.say(t.Context(), t, "k2", "a story")); got != want || failure != "" {
		t.Errorf("once more: %q, %s; want %q", got, failure, want)
	}
	if n := m.submitted(t); n != "3 submitted" {
		t.Errorf("%s, want 3", n)
	}
	if other := two.say(t.Context(), t, "k2", "another story"); other.status != http.StatusUnprocessableEntity {
		t.Errorf("another request with the key: status %d", other.status)
	}
}

// TestLogAlone: a server and a worker that share a queue and nothing else. What the worker runs comes back through the queue; a client that
// leaves stops it; and the server is drained by a command.
func TestLogAlone(t *testing.T) {
	m := newMachines(t)
	m.words(t, logged)
	t.Setenv("QR_WORKER_NAME", "server")
	edge := launch(t, `serves \S+ at (http://127\.0\.0\.1:\d+)/v1`, "serve", "--config", m.file, "--listen", "127.0.0.1:0")
	worker := m.wordsWorker(t, "worker")
	var all sync.WaitGroup
	texts := make([]string, 6)
	for i := range texts {
		all.Go(func() {
			text, failure := said(t, edge.say(t.Context(), t, "", "a story"))
			if texts[i] = text; failure != "" {
				t.Error(failure)
			}
		})
	}
	all.Wait()
	for _, text := range texts {
		if text != texts[0] || len(text) < 60 {
			t.Errorf("got %q, want %q", text, texts[0])
		}
	}

	both := []story{edge.say(t.Context(), t, "", "a story"), edge.say(t.Context(), t, "", "a story")}
	for _, s := range both {
		begins(t, s)
	}
	m.flush(t)
	for _, s := range both {
		if text, failure := said(t, s); failure != "" || !strings.HasSuffix(texts[0], text) || len(text) < 60 {
			t.Errorf("after the queue forgot everything: %q, %s", text, failure)
		}
	}

	ctx, leave := context.WithCancel(t.Context())
	begins(t, edge.say(ctx, t, "", "one"))
	begins(t, edge.say(ctx, t, "", "two"))
	if !worker.running(t) {
		t.Error("two requests run, none of them on the worker")
	}
	leave()
	stopped := time.Now()
	for worker.running(t) {
		if time.Since(stopped) > time.Second {
			t.Fatal("the worker goes on for a client that left")
		}
		<-time.After(20 * time.Millisecond)
	}
	m.run(t, "worker", "drain", "--name", "server")
	select {
	case <-edge.ended:
	case <-time.After(20 * time.Second):
		t.Error("the drained server goes on")
	}
}
