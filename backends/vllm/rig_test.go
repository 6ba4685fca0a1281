package vllm_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/backends/openai"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/vllmtest"
	"qr-gateway/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ interface {
	backends.Backend
	WaitReady(context.Context) error // for nodes
} = (*vllm.Backend)(nil)

// config is one for tests: short times, so that what is to time out does so soon.
func config(url string) vllm.Config {
	c := vllm.DefaultConfig()
	c.Model, c.UpstreamModel, c.URL, c.Workers = "here", "there", url, 4
	c.Health = openai.Health{Interval: 20 * time.Millisecond, Retry: 5 * time.Millisecond, Timeout: 5 * time.Second}
	return c
}

// rig is a backend with its server and sidecar.
type rig struct {
	*vllm.Backend
	far  *vllmtest.Server
	side *vllmtest.Sampler
	log  *syncBuffer
}

// start makes a rig and waits until requests can be sent. change may be nil.
func start(t *testing.T, o vllmtest.Options, change func(*vllm.Config)) *rig {
	t.Helper()
	o.Model = "there"
	r := &rig{side: vllmtest.NewSampler(), log: &syncBuffer{}}
	r.far = vllmtest.NewServer(t, o, r.side)
	c := config(r.far.URL)
	if change != nil {
		change(&c)
	}
	r.run(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.WaitReady(ctx); err != nil {
		t.Fatalf("the backend is not ready: %v; %+v", err, r.Info())
	}
	return r
}

// sampling starts a rig that samples.
func sampling(t *testing.T, o vllmtest.Options, change func(*vllm.Config)) *rig {
	t.Helper()
	o.Plugin = true
	r := start(t, o, change)
	if why := r.Info().Unsampled; why != "" {
		t.Fatalf("it does not sample: %s", why)
	}
	return r
}

func running(t *testing.T, b *vllm.Backend) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
}

// until waits for the backend to say something of itself.
func (r *rig) until(t *testing.T, what string, said func(backends.Info) bool) backends.Info {
	t.Helper()
	limit := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if i := r.Info(); said(i) {
			return i
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never %s; it is %+v\n%s", what, r.Info(), r.log)
		}
	}
}

const chatBody = `{"model":"here","messages":[{"role":"user","content":"<hi>"}],"temperature":0.7,"big":12345678901234567890`

// chat is a sampled request; more are further members of its body.
func chat(stream bool, more string) *backends.Request {
	r := &backends.Request{
		ID: "chatcmpl-1", Model: "here", Raw: json.RawMessage(chatBody + more + "}"), Path: "chat/completions", Stream: stream,
		Sampled: true, Params: sampler.Defaults(),
	}
	if stream {
		r.Raw = json.RawMessage(chatBody + `,"stream":true` + more + "}")
	}
	return r
}

// text is a sampled request for a completion.
func text(more string) *backends.Request {
	r := chat(false, "")
	r.Path, r.Raw = "completions", json.RawMessage(`{"model":"here"`+more+"}")
	return r
}

// outcome is what a request came to.
type outcome struct {
	raw     []string // what the client got, but for the last
	started int
	res     *backends.Result
	err     error
}

func ask(ctx context.Context, b backends.Backend, r *backends.Request) outcome {
	return askWith(ctx, b, r, func(backends.Event) error { return nil })
}

// askWith prepares and runs a request.
func askWith(ctx context.Context, b backends.Backend, r *backends.Request, emit func(backends.Event) error) (o outcome) {
	p, err := b.Prepare(ctx, r)
	if err != nil {
		return outcome{err: err}
	}
	o.res, o.err = b.Generate(ctx, p, func(e backends.Event) error {
		if e.Started != nil {
			o.started++
		} else {
			o.raw = append(o.raw, string(e.Raw))
		}
		return emit(e)
	})
	return o
}

// fails asserts how a request failed.
func (o outcome) fails(t *testing.T, kind backends.Kind, code string) {
	t.Helper()
	_ = o.failure(t, kind, code) // it is what was asserted
}

// failure asserts how a request failed.
func (o outcome) failure(t *testing.T, kind backends.Kind, code string) *backends.Error {
	t.Helper()
	var e *backends.Error
	if !errors.As(o.err, &e) || e.Kind != kind || e.Code != code {
		t.Fatalf("it came to %v (%+v), want %s %s", o.err, o.res, kind, code)
	}
	if o.res != nil {
		t.Errorf("it came to a result as well: %+v", o.res)
	}
	return e
}

// well asserts that it did not.
func (o outcome) well(t *testing.T) outcome {
	t.Helper()
	if o.err != nil {
		t.Fatalf("it came to %v", o.err)
	}
	return o
}

func (r *rig) logger() *slog.Logger { return slog.New(slog.NewTextHandler(r.log, nil)) }

// idle asserts that nothing is left behind.
func (r *rig) idle(t *testing.T) {
	t.Helper()
	r.until(t, "left by the sidecar", func(backends.Info) bool { return r.side.Live() == 0 }) // a probe may be under way
	if n := r.Info().Busy; n != 0 {
		t.Errorf("%d are busy after the end", n)
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex // guards out
	out strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// decode reads JSON.
func decode[T any](t *testing.T, raw string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
	return v
}
