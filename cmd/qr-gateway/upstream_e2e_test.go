package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// echoServer is a server with OpenAI's API that sends requests back; the field user asks for something else.
type echoServer struct {
	*httptest.Server
	left chan struct{} // gets a value when a client leaves
}

func newEchoServer(t *testing.T) *echoServer {
	t.Helper()
	e := &echoServer{left: make(chan struct{}, 8)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"there"}]}`) })
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	mux.HandleFunc("GET /left", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-e.left:
			_, _ = io.WriteString(w, "left")
		case <-r.Context().Done():
		}
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *echoServer) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		User   string
		Stream bool
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch asked.User {
	case "limit":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}`)
	case "invalid":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no such user","type":"invalid_request_error","param":"user","code":"bad_user"}}`)
	case "key":
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"Incorrect API key provided: of-the-gateway"}}`)
	case "hang":
		<-r.Context().Done()
		e.left <- struct{}{}
	default:
		text, _ := json.Marshal(fmt.Sprintf(`{"authorization":%q,"body":%s}`, r.Header.Get("Authorization"), body)) // text can always be written
		e.answer(w, string(text), asked.Stream, asked.User == "cut")
	}
}

const echoRest = `"reasoning_content": "hm", "tool_calls": [{"index":0,"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"<Paris>\"}"}}]`

// answer sends text, which is JSON, with fields around it that nobody in between knows.
func (e *echoServer) answer(w http.ResponseWriter, text string, stream, cut bool) {
	const head = `{"id": "chatcmpl-echo", "created": 5, "model": "there", "system_fingerprint": "fp_far", "new": 12345678901234567890, "fraction": 0.10, `
	const usage = `"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cost": 0.10}`
	if !stream {
		_, _ = io.WriteString(w, head+`"object": "chat.completion", `+usage+
			`, "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": `+text+`, `+echoRest+`}}]}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(rest string) {
		_, _ = io.WriteString(w, "data: "+head+`"object": "chat.completion.chunk", `+rest+"}\r\n\r\n")
		w.(http.Flusher).Flush()
	}
	chunk(`"choices": [{"index": 0, "finish_reason": null, "delta": {"role": "assistant", "content": ` + text + `}}]`)
	if cut {
		panic(http.ErrAbortHandler)
	}
	chunk(`"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {` + echoRest + `}}]`)
	chunk(`"choices": [], ` + usage)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// llamaServer starts the peer that QR_TEST_LLAMA_SERVER names, on the model, and returns its address; it is empty where none is named.
func llamaServer(t *testing.T) string {
	t.Helper()
	program := os.Getenv("QR_TEST_LLAMA_SERVER")
	if program == "" {
		return ""
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(ln.Addr().String()) // an address of a listener has both
	ln.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-m", need(t, "QR_TEST_MODEL"), "-c", "1024", "-np", "1", "-t", "2", "--host", host, "--port", port, "--api-key", "of-the-gateway")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var run sync.WaitGroup
	run.Go(func() { _ = cmd.Wait() }) // it is killed
	t.Cleanup(func() { stop(); run.Wait() })
	return "http://" + net.JoinHostPort(host, port) + "/v1"
}

// upstreamConfig writes the configuration of a gateway that passes requests on to far, to echo and to llama, if there is one.
func upstreamConfig(t *testing.T, far, echo, llama string) string {
	t.Helper()
	dir := t.TempDir()
	models := fmt.Sprintf(`
models:
  - {id: far, backend: openai, url: %[1]s/v1, upstream_model: smollm2, qr: pass}
  - {id: farwords, backend: openai, url: %[1]s/v1, upstream_model: words, qr: pass}
  - {id: echo, backend: openai, url: %[2]s/v1, upstream_model: there, api_key_file: key}
`, far, echo)
	if llama != "" {
		models += fmt.Sprintf("  - {id: llama, backend: openai, url: %q, api_key: of-the-gateway}\n", llama)
	}
	for name, text := range map[string]string{"c.yaml": models, "key": "of-the-gateway\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "c.yaml")
}

// TestOpenAIPythonThroughUpstreams runs the stock client through a gateway to another gateway, to a server that sends requests back, and to
// llama-server where there is one.
func TestOpenAIPythonThroughUpstreams(t *testing.T) {
	t.Parallel()
	python := need(t, "QR_TEST_PYTHON")
	far, echo, llama := start(t, configFile(t, "    context: 1024\n  - {id: words, backend: fake}\n")), newEchoServer(t), llamaServer(t)
	s := start(t, upstreamConfig(t, far.url, echo.URL, llama))
	cmd := exec.Command(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "testdata/upstream")
	cmd.Env = append(os.Environ(), "QR_URL="+s.url, "QR_ECHO="+echo.URL, "PYTHONDONTWRITEBYTECODE=1")
	if llama != "" {
		cmd.Env = append(cmd.Env, "QR_LLAMA=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	if log := s.log.String(); strings.Contains(log, "of-the-gateway") || strings.Contains(log, "of-the-client") {
		t.Errorf("the log shows a key:\n%s", log)
	}
}

// TestUpstreamComesBack stops the server that requests are passed on to, and starts it again.
func TestUpstreamComesBack(t *testing.T) {
	t.Parallel()
	address := freeAddr(t)
	file := filepath.Join(t.TempDir(), "c.yaml")
	words := "models: [{id: smollm2, backend: fake}]\n"
	if err := os.WriteFile(file, []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	far := start(t, file, "--listen", address)
	s := start(t, upstreamConfig(t, far.url, far.url, ""))
	body := chat("Hello", 8, map[string]any{"model": "far"})
	want := s.text(t, body)
	far.stop(t)
	status, reply, err := s.post(t.Context(), body)
	if err != nil || status != http.StatusBadGateway && status != http.StatusServiceUnavailable || !strings.Contains(string(reply), "far") {
		t.Errorf("without the server: %d %s %v", status, reply, err)
	}
	start(t, file, "--listen", address)
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := s.answer(t.Context(), body)
		if err == nil && got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server is back, but an answer is %q, %v; want %q", got, err, want)
		}
		<-time.NewTimer(100 * time.Millisecond).C
	}
}
