package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/sampler"
)

// catalog serves models in a fixed order.
type catalog []*fake.Model

func (c catalog) Backend(id string) (backends.Backend, sampler.Params, bool) {
	for _, m := range c {
		if m.Info().Model == id {
			return m, sampler.Defaults(), true
		}
	}
	return nil, sampler.Params{}, false
}

func (c catalog) List() []backends.Info {
	var out []backends.Info
	for _, m := range c {
		out = append(out, m.Info())
	}
	return out
}

// direct runs a job at once, on the goroutine that asks.
type direct struct {
	models catalog
	jobs   atomic.Int64
}

func (d *direct) Do(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
	d.jobs.Add(1)
	sink.Queued(0, 0)
	b, _, _ := d.models.Backend(job.Model)
	return b.Generate(ctx, job.Prepared, sink.Event)
}

// doFunc is a dispatcher for one test.
type doFunc func(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error)

func (f doFunc) Do(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
	return f(ctx, job, sink)
}

// outcomes keeps what the server observed.
type outcomes struct {
	mu  sync.Mutex // guards all
	all []gateway.Outcome
	one chan struct{} // gets a value for each, as far as there is room
}

func (o *outcomes) Observe(out gateway.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, out)
	select {
	case o.one <- struct{}{}:
	default:
	}
}

func (o *outcomes) last(t *testing.T) gateway.Outcome {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) == 0 {
		t.Fatal("nothing was observed")
	}
	return o.all[len(o.all)-1]
}

// rig is a server under test with what the tests look at.
type rig struct {
	cfg    gateway.Config
	model  fake.Config
	step   func(ctx context.Context, id string, step int) error
	do     gateway.Dispatcher // nil: direct
	limits memory.Config
	line   queue.Gauge // of queued

	records gateway.Records         // nil: none
	cards   map[string]gateway.Card // nil: none

	models catalog
	direct *direct
	seen   *outcomes
	logged *bytes.Buffer
	srv    *gateway.Server
	url    string
}

func newRig() *rig {
	r := &rig{cfg: gateway.DefaultConfig(), model: fake.DefaultConfig(), limits: memory.DefaultConfig(), seen: &outcomes{one: make(chan struct{}, 64)}, logged: &bytes.Buffer{}}
	r.cfg.Version = "test"
	return r
}

// build makes the server; tests without a connection call its ServeHTTP.
func (r *rig) build(t *testing.T) *rig {
	t.Helper()
	r.catalog(t)
	if r.do == nil {
		r.do = r.direct
	}
	srv, err := gateway.New(r.cfg, gateway.Deps{
		Models: r.models, Dispatcher: r.do, Observer: r.seen, Log: slog.New(slog.NewTextHandler(r.logged, nil)),
		Records: r.records, Cards: r.cards,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.srv = srv
	return r
}

func (r *rig) catalog(t *testing.T) {
	t.Helper()
	if r.models != nil {
		return
	}
	m, err := fake.New(r.model, fake.Deps{Step: r.step})
	if err != nil {
		t.Fatal(err)
	}
	r.models = catalog{m}
	r.direct = &direct{models: r.models}
}

// serve starts the server on a real port.
func (r *rig) serve(t *testing.T) *rig {
	t.Helper()
	r.build(t)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	background(t, func(ctx context.Context) error { return r.srv.Serve(ctx, ln) })
	return r
}

// queued puts the real queue, dispatcher and node under the server.
func (r *rig) queued(t *testing.T) *rig {
	t.Helper()
	r.catalog(t)
	q, err := memory.New(r.limits)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q, Log: q})
	if err != nil {
		t.Fatal(err)
	}
	hosted := []node.Model{{ID: r.model.Model, Backend: r.models[0], Workers: r.model.Workers}}
	n, err := node.New(node.DefaultConfig(), hosted, node.Deps{Queue: q, Logs: q, Frames: node.Here(d), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	background(t, q.Run)
	background(t, n.Run)
	r.do, r.line = d, q
	return r
}

// background runs what the test needs until it ends, and waits for it.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

const chatPath, textPath = "/v1/chat/completions", "/v1/completions"

// ask sends body without a connection.
func (r *rig) ask(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

func (r *rig) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
	return w
}

// reply is one that came over the network.
type reply struct {
	status int
	header http.Header
	close  bool // the server closes the connection after it
	body   []byte
}

func read(resp *http.Response) (reply, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, close: resp.Close, body: body}, err
}

// post sends body over the network. The client keeps no connection.
func (r *rig) post(path, contentType, body string) (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Close = true
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	return read(resp)
}

// tell is post for tests that expect a reply.
func (r *rig) tell(t *testing.T, path, body string) reply {
	t.Helper()
	got, err := r.post(path, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// receive reads a reply off a connection.
func receive(t *testing.T, in *bufio.Reader) reply {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(resp)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// connect opens a connection to the server.
func (r *rig) connect() (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(context.Background(), "tcp", strings.TrimPrefix(r.url, "http://"))
}

type errorReply struct {
	Error *struct {
		Message, Type string
		Param, Code   *string
	}
}

// envelope reads an error reply and holds its shape.
func envelope(t *testing.T, raw []byte) (message, code string) {
	t.Helper()
	var keys map[string]map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatalf("reply %.200s is no error envelope: %v", raw, err)
	}
	for _, key := range []string{"message", "type", "param", "code"} {
		if _, ok := keys["error"][key]; !ok {
			t.Fatalf("error %.200s has no %s", raw, key)
		}
	}
	var e errorReply
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	if e.Error.Code != nil {
		code = *e.Error.Code
	}
	return e.Error.Message, code
}

func decode[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decode %.300s: %v", raw, err)
	}
	return v
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
