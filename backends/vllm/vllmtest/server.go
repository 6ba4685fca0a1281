package vllmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options are how a server behaves.
type Options struct {
	Model   string
	Plugin  bool // the tokens of requests with a qr_rid are the sidecar's
	Length  int  // tokens of an answer, the end of the text among them; 0 is 6
	Group   int  // tokens in a chunk; 0 is 1
	NoIDs   bool // it names no tokens, as vLLM before 0.10.2
	Unnamed int  // tokens after which it names no more; 0 is never
	Unlog   bool // it gives no log-probabilities, as with --max-logprobs 0
	Silent  bool // it tells no usage
	More    int  // tokens that it says it made, above those that it did
	Ahead   bool // it shows one row more than the answer has tokens, as vLLM does where it schedules ahead
	Cut     int  // tokens after which the connection breaks; 0 is never
	Health  int  // status of /health; 0 is 200
	Metrics string
	// Processed makes log-probabilities those after the choice.
	Processed bool
	// Refuse answers a request in the place of the model; a status of 0 doesn't.
	Refuse func(body []byte) (status int, reply string)
	// Hold is called before each token, and may wait for r's context.
	Hold func(r *http.Request, step int)
}

// Server imitates vLLM's HTTP side.
type Server struct {
	*httptest.Server
	side Plugin

	mu     sync.Mutex // guards all below
	opts   Options
	bodies []string // of requests for completions, without probes
	left   int      // requests whose client left before the end
}

// NewServer starts a server until the test ends.
func NewServer(t testing.TB, o Options, side Plugin) *Server {
	t.Helper()
	s := &Server{opts: o, side: side}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"0.32.0"}`) })
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("POST /v1/chat/completions", s.complete)
	mux.HandleFunc("POST /v1/completions", s.complete)
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// Listen makes the server listen on a Unix socket as well, until the test ends.
func (s *Server) Listen(t testing.TB, path string) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: s.Config.Handler, ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = again.Serve(ln) }) // it ends when it is closed
	t.Cleanup(func() { _ = again.Close(); serving.Wait() })
}

// Set changes the options.
func (s *Server) Set(f func(*Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.opts)
}

func (s *Server) options() Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts
}

// Bodies are those of the requests so far, but for probes.
func (s *Server) Bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.bodies...)
}

// Left is how many requests were given up by their client.
func (s *Server) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","max_model_len":512}]}`, s.options().Model)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if status := s.options().Health; status != 0 {
		w.WriteHeader(status)
	}
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, s.options().Metrics)
}

// ask is what is read of a request.
type ask struct {
	Stream    bool
	MaxTokens int `json:"max_tokens"`
	N         int
	Options   struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	IDs      bool `json:"return_token_ids"`
	Logprobs json.RawMessage
	T        *float64 `json:"temperature"`
	TopP     *float64 `json:"top_p"`
	Xargs    struct {
		RID  string          `json:"qr_rid"`
		V    json.RawMessage `json:"qr_v"`
		Cfg  string          `json:"qr_cfg"`
		Fail string          `json:"qr_fail"`
	} `json:"vllm_xargs"`
	Messages json.RawMessage
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var a ask
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	o := s.options()
	s.note(raw)
	if err == nil {
		err = a.check(o)
	}
	status, reply := 0, ""
	if o.Refuse != nil {
		status, reply = o.Refuse(raw)
	}
	if err != nil {
		status, reply = http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":%q,"type":"BadRequestError","param":null,"code":400}}`, err)
	}
	if status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
		return
	}
	g := &generation{s: s, o: o, a: a, r: r, w: w, chat: strings.HasSuffix(r.URL.Path, "/chat/completions")}
	g.run()
	if r.Context().Err() != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left++
	}
}

// note keeps a body, unless it is a probe's.
func (s *Server) note(raw []byte) {
	if strings.Contains(string(raw), `"prompt":"Hello","max_tokens":1`) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, string(raw))
}

// check is what vLLM and the plugin refuse.
func (a *ask) check(o Options) error {
	if a.N > 1 && a.T != nil && *a.T == 0 {
		return fmt.Errorf("n must be 1 when using greedy sampling, got %d", a.N)
	}
	if a.TopP != nil && *a.TopP == 0 {
		return errors.New("top_p must be in (0, 1], got 0")
	}
	if o.Unlog && len(a.Logprobs) > 0 {
		return fmt.Errorf("requested sample logprobs of %s, which is greater than max allowed: 0", a.Logprobs)
	}
	if !o.Plugin || a.Xargs.RID == "" {
		return nil
	}
	var cfg map[string]any
	if string(a.Xargs.V) != "1" || json.Unmarshal([]byte(a.Xargs.Cfg), &cfg) != nil || a.Xargs.Fail != "stop" && a.Xargs.Fail != "native" {
		return fmt.Errorf("qr_v %s, qr_cfg %q, qr_fail %q", a.Xargs.V, a.Xargs.Cfg, a.Xargs.Fail)
	}
	return nil
}
