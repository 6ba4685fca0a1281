package llama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// recorder remembers the process it started last.
type recorder struct {
	Launcher
	mu    sync.Mutex // guards child
	child *child
}

func (r *recorder) Launch(socket string) (Process, error) {
	p, err := r.Launcher.Launch(socket)
	if err == nil {
		r.mu.Lock()
		r.child = p.(*child)
		r.mu.Unlock()
	}
	return p, err
}

func (r *recorder) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.child.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// env is a file that make test-env names.
func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: run `make test`, or eval \"$(make -s test-env)\" first", name)
	}
	return v
}

// testConfig serves a tiny model that has a tokenizer.
func testConfig(t *testing.T) Config {
	cfg := DefaultConfig()
	cfg.ID, cfg.Binary = "tiny", env(t, "QR_TEST_ENGINE")
	cfg.Model = filepath.Join(env(t, "QR_TEST_TINY"), "tiny-llama-tok.gguf")
	cfg.Context, cfg.Threads = 512, 1
	cfg.BackoffMin, cfg.BackoffMax, cfg.Grace = 20*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond
	return cfg
}

// start runs a backend with a real engine until the test ends.
func start(t *testing.T, cfg Config) (*Backend, *recorder) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	rec := &recorder{Launcher: &program{path: cfg.Binary, log: log, level: "warn"}}
	b, err := New(cfg, Deps{Log: log, Launcher: rec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	ready, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := b.WaitReady(ready); err != nil {
		t.Fatalf("wait for engine: %v", err)
	}
	return b, rec
}

// request is a seeded text completion.
func request(prompt string, seed int64, most int) *backends.Request {
	p := sampler.Defaults()
	p.Seed = &seed
	return &backends.Request{ID: prompt, Text: &prompt, MaxTokens: most, Params: p}
}

// ahead adds lookahead to a request.
func ahead(r *backends.Request) *backends.Request {
	alpha := 0.3
	r.Params.Alpha = &alpha
	return r
}

// answer prepares and generates, and returns the tokens and the text.
func answer(ctx context.Context, b *Backend, r *backends.Request) ([]int32, string, error) {
	p, err := b.Prepare(ctx, r)
	if err != nil {
		return nil, "", err
	}
	var tokens []int32
	var text strings.Builder
	res, err := b.Generate(ctx, p, func(e backends.Event) error {
		tokens = append(tokens, e.Tokens...)
		text.WriteString(e.Content)
		return nil
	})
	if err == nil && len(tokens) != res.Usage.CompletionTokens {
		err = fmt.Errorf("got %d tokens, usage says %d", len(tokens), res.Usage.CompletionTokens)
	}
	return tokens, text.String(), err
}

func TestCrossTalk(t *testing.T) {
	b, _ := start(t, testConfig(t))
	var requests []*backends.Request
	for i := range 8 {
		r := request(fmt.Sprintf("marked prompt number %d begins like this and goes on", i), int64(i), 40)
		if i%2 == 1 {
			r = ahead(r)
		}
		requests = append(requests, r)
	}
	var alone [8]string
	for i, r := range requests {
		var err error
		if _, alone[i], err = answer(t.Context(), b, r); err != nil {
			t.Fatal(err)
		}
	}
	var together [8]string
	var group sync.WaitGroup
	for i, r := range requests {
		group.Go(func() {
			var err error
			if _, together[i], err = answer(t.Context(), b, r); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if diff := cmp.Diff(alone, together); diff != "" {
		t.Errorf("texts change in company (-alone +together):\n%s", diff)
	}
}

func TestKilledEngineIsReplaced(t *testing.T) {
	b, rec := start(t, testConfig(t))
	want, _, err := answer(t.Context(), b, request("hello", 1, 20))
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Prepare(t.Context(), request("hello", 2, 450))
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	_, err = b.Generate(t.Context(), p, func(e backends.Event) error {
		if len(e.Tokens) > 0 && !killed {
			killed = true
			rec.signal(t, syscall.SIGKILL)
		}
		return nil
	})
	if !errors.Is(err, backends.ErrLost) {
		t.Fatalf("stream of a killed engine: got %v, want ErrLost", err)
	}
	got, _, err := answer(t.Context(), b, request("hello", 1, 20))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after the restart: %v (-want +got)\n%s", err, diff)
	}
	if b.Restarts() != 1 || !b.Info().Ready {
		t.Errorf("%d restarts, info %+v", b.Restarts(), b.Info())
	}
}

func TestStalledEngineIsReplaced(t *testing.T) {
	cfg := testConfig(t)
	cfg.StallTimeout = 400 * time.Millisecond
	b, rec := start(t, cfg)
	p, err := b.Prepare(t.Context(), request("hello", 2, 450))
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	_, err = b.Generate(t.Context(), p, func(e backends.Event) error {
		if len(e.Tokens) > 0 && !stopped {
			stopped = true
			rec.signal(t, syscall.SIGSTOP)
		}
		return nil
	})
	if !errors.Is(err, backends.ErrLost) {
		t.Fatalf("stream of a stalled engine: got %v, want ErrLost", err)
	}
	if _, _, err := answer(t.Context(), b, request("hello", 1, 20)); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestBadModelFiles(t *testing.T) {
	cfg := testConfig(t)
	whole, err := os.ReadFile(cfg.Model)
	if err != nil {
		t.Fatal(err)
	}
	// Not one layer: llama.cpp asserts, and its process is gone.
	asserts := bytes.Replace(whole, []byte("llama.block_count\x04\x00\x00\x00\x04"), []byte("llama.block_count\x04\x00\x00\x00\x00"), 1)
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"asserts": asserts,
		"missing": nil, "truncated": whole[:len(whole)/2], "garbage": []byte(strings.Repeat("not a model\n", 1000)), "empty": {},
	} {
		cfg.Model = filepath.Join(dir, name+".gguf")
		if data != nil {
			if err := os.WriteFile(cfg.Model, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err = b.Run(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), cfg.Model) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
		if name == "asserts" && !strings.Contains(fmt.Sprint(err), "GGML_ASSERT") {
			t.Errorf("%s: got %v, want the assertion", name, err)
		}
		if i := b.Info(); i.Ready || i.State != "failed" {
			t.Errorf("%s: info %+v", name, i)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	b, _ := start(t, testConfig(t))
	for name, c := range map[string]struct {
		change func(*backends.Request)
		kind   backends.Kind
		code   string
	}{
		"too long":       {func(r *backends.Request) { s := strings.Repeat("word ", 600); r.Text = &s }, backends.KindTooLong, "context_length_exceeded"},
		"token too high": {func(r *backends.Request) { r.Text, r.Tokens = nil, []int32{1, 49152} }, backends.KindInvalid, "invalid_token"},
		"token negative": {func(r *backends.Request) { r.Text, r.Tokens = nil, []int32{-1} }, backends.KindInvalid, "invalid_token"},
		"no token":       {func(r *backends.Request) { r.Text, r.Tokens = nil, []int32{} }, backends.KindInvalid, "empty_prompt"},
	} {
		r := request("x", 1, 5)
		c.change(r)
		_, err := b.Prepare(t.Context(), r)
		var e *backends.Error
		if !errors.As(err, &e) || e.Kind != c.kind || e.Code != c.code {
			t.Errorf("%s: got %v, want %s %s", name, err, c.kind, c.code)
		}
	}
}

func TestChat(t *testing.T) {
	b, _ := start(t, testConfig(t))
	r := request("", 3, 1000)
	r.Text = nil
	r.Chat = &backends.Chat{Messages: json.RawMessage(`[{"role":"user","content":"Grüße"}]`)}
	p, err := b.Prepare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if p.MaxTokens+len(p.Tokens) != 512 {
		t.Errorf("%d tokens asked of %d left", p.MaxTokens, 512-len(p.Tokens))
	}
	res, err := b.Generate(t.Context(), p, func(backends.Event) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if res.Reason != backends.ReasonLength && res.Reason != backends.ReasonStop {
		t.Errorf("ended with %q", res.Reason)
	}
}
