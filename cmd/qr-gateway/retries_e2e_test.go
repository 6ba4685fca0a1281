package main

import (
	"encoding/json"
	"fmt"
	"io"
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

// countServer is a server with OpenAI's API that counts what it runs.
type countServer struct {
	mu  sync.Mutex     // guards ran
	ran map[string]int // by the field user
}

func newCountServer(t *testing.T) *httptest.Server {
	t.Helper()
	c := &countServer{ran: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"there"}]}`) })
	mux.HandleFunc("POST /v1/chat/completions", c.chat)
	mux.HandleFunc("GET /ran", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(c.ran) // the client sees what is missing
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// chat takes a while, as models do, so that others wait.
func (c *countServer) chat(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		User   string
		Stream bool
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.ran[asked.User]++
	c.mu.Unlock()
	<-time.After(100 * time.Millisecond)
	if strings.HasPrefix(asked.User, "broke") {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"out of memory"}}`)
		return
	}
	text, kind := fmt.Sprintf(`{"role":"assistant","content":%q}`, "echo of "+asked.User), "message"
	head, tail, reason := `{"id":"x","object":"chat.completion","created":5,"model":"there","choices":[{"index":0,"finish_reason":`, `}]}`, `"stop"`
	if strings.HasPrefix(asked.User, "cut") {
		reason = "null" // there is more to come
	}
	if asked.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		head, tail, kind = "data: "+strings.Replace(head, "completion", "completion.chunk", 1), tail+"\n\n", "delta"
	}
	_, _ = io.WriteString(w, head+reason+`,"`+kind+`":`+text+tail)
	if strings.HasPrefix(asked.User, "cut") {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if asked.Stream {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

// TestRetriesRunNothingTwice has the stock client with its own retries ask a gateway whose queue is full and whose servers fail.
func TestRetriesRunNothingTwice(t *testing.T) {
	t.Parallel()
	python := need(t, "QR_TEST_PYTHON")
	far := newCountServer(t)
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, fmt.Sprintf(`
log: {level: info, format: json}
queue: {jobs: 8, jobs_per_key: 8}
models:
  - {id: far, backend: openai, url: %s/v1, upstream_model: there, workers: 4}
  - {id: gone, backend: openai, url: "http://127.0.0.1:1/v1"}
`, far.URL))
	s := launch(t, `(?s)"address":"([^"]+)".*upstream is ready`, "serve", "--config", file, "--listen", "127.0.0.1:0")
	s.url = "http://" + s.url
	cmd := exec.Command(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "testdata/retries")
	cmd.Env = append(os.Environ(), "QR_URL="+s.url, "QR_UPSTREAM="+far.URL, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pytest: %v\n%s\n%s", err, out, s.log)
	}
	statuses := map[int]int{}
	for line := range strings.Lines(s.log.String()) {
		var l struct {
			Msg    string
			Status int
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "request" {
			statuses[l.Status]++
		}
	}
	if statuses[http.StatusOK] < 24 || statuses[http.StatusTooManyRequests] == 0 || statuses[http.StatusBadGateway] != 3+2 {
		t.Errorf("the gateway answered %v; want 24 answers, some refusals for a full queue, three for a server that is not there, and one for each of the two that failed", statuses)
	}
	t.Logf("%s%v", out, statuses)
}
