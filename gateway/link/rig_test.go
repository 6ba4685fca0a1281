package link_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a-secret-of-these-tests-alone"

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// taker takes frames as the dispatcher does: it drops what it has seen.
type taker struct {
	mu       sync.Mutex // guards all below
	taken    map[string][]dispatch.Frame
	calls    int
	busy     map[string]bool // jobs with a Deliver under way
	stubborn bool            // what is held stays, whatever becomes of its stream
	twice    bool            // two of one job were, at the same time
	lag      time.Duration   // that each Deliver takes, whatever becomes of its stream
	gone     map[string]bool
	holds    map[string]chan struct{} // a job's frames wait until it is closed
	changed  chan struct{}
}

func newTaker() *taker {
	return &taker{
		taken: map[string][]dispatch.Frame{}, gone: map[string]bool{}, holds: map[string]chan struct{}{}, busy: map[string]bool{},
		changed: make(chan struct{}),
	}
}

func (k *taker) Deliver(ctx context.Context, f dispatch.Frame) error {
	hold, lag, ends := k.begin(ctx, f.Job)
	defer k.set(func(k *taker) { delete(k.busy, f.Job) })
	if lag > 0 {
		<-time.After(lag)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ends:
			return context.Cause(ctx)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.gone[f.Job] {
		return dispatch.ErrGone
	}
	if got := k.taken[f.Job]; len(got) == 0 || got[len(got)-1].Seq < f.Seq {
		k.taken[f.Job] = append(got, f)
	}
	close(k.changed)
	k.changed = make(chan struct{})
	return nil
}

// begin tells what a Deliver is to wait for, and what ends that.
func (k *taker) begin(ctx context.Context, job string) (hold chan struct{}, lag time.Duration, ends <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.twice = k.twice || k.busy[job]
	k.busy[job] = true
	if !k.stubborn {
		ends = ctx.Done()
	}
	return k.holds[job], k.lag, ends
}

// delivers reports that a frame of a job is being delivered.
func (k *taker) delivers(job string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy[job]
}

// set changes what the taker does.
func (k *taker) set(change func(k *taker)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

// hold makes a job's client slow until what it returns is called.
func (k *taker) hold(job string) (let func()) {
	c := make(chan struct{})
	k.set(func(k *taker) { k.holds[job] = c })
	return sync.OnceFunc(func() { close(c) })
}

// frames waits for a job's first n frames.
func (k *taker) frames(t testing.TB, job string, n int) []dispatch.Frame {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		k.mu.Lock()
		got, changed := k.taken[job], k.changed
		k.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-late.C:
			t.Fatalf("%d frames of %s came, want %d", len(got), job, n)
		}
	}
}

// running is something with a Run that runs.
type running struct {
	stop func()
	done chan struct{}
}

func start(t testing.TB, run func(ctx context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	r.stop = func() { cancel(); <-r.done }
	t.Cleanup(r.stop)
	return r
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve runs a gateway's end.
func serve(t testing.TB, k link.Frames, change func(c *link.Config)) (*link.Server, *running) {
	t.Helper()
	return serveWith(t, link.Deps{Frames: k, Log: quiet()}, change)
}

func serveWith(t testing.TB, deps link.Deps, change func(c *link.Config)) (*link.Server, *running) {
	t.Helper()
	cfg := link.DefaultConfig()
	cfg.Gateway, cfg.Version, cfg.Listen, cfg.Secret = "g", "v1.2.3", "127.0.0.1:0", secret
	if change != nil {
		change(&cfg)
	}
	s, err := link.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return s, start(t, s.Run)
}

// dial runs a worker's end.
func dial(t testing.TB, deps link.ClientDeps, change func(c *link.ClientConfig)) (*link.Client, *running) {
	t.Helper()
	cfg := link.DefaultClientConfig()
	cfg.Worker, cfg.Version, cfg.Secret = "w", "v1.9.0", secret
	cfg.Patience, cfg.BackoffMin, cfg.BackoffMax = patience, time.Millisecond, 10*time.Millisecond
	cfg.Pulse = 20 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	if deps.Log == nil {
		deps.Log = quiet()
	}
	c, err := link.NewClient(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return c, start(t, c.Run)
}

// pair is a worker linked to a gateway, with a proxy between them.
func pair(t testing.TB, change func(c *link.ClientConfig)) (*taker, *link.Client, *proxy) {
	t.Helper()
	k := newTaker()
	s, _ := serve(t, k, func(c *link.Config) { c.Silence = 300 * time.Millisecond })
	p := newProxy(t, s.Addr().String())
	c, _ := dial(t, link.ClientDeps{}, func(c *link.ClientConfig) {
		c.Silence = 300 * time.Millisecond
		if change != nil {
			change(c)
		}
	})
	return k, c, p
}

func content(job string, seq int) dispatch.Frame {
	return dispatch.Frame{Job: job, Epoch: 1, Seq: int64(seq), Event: backends.Event{Content: fmt.Sprint("text ", seq)}}
}

func last(job string, seq int) dispatch.Frame {
	return dispatch.Frame{Job: job, Epoch: 1, Seq: int64(seq), Result: &backends.Result{Reason: backends.ReasonStop}}
}

// within gives up what takes too long.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// send delivers frames from to last ones of a job, the last with a result.
func send(ctx context.Context, c *link.Client, owner, job string, n int) error {
	for seq := 1; seq < n; seq++ {
		if err := c.Deliver(ctx, owner, content(job, seq)); err != nil {
			return fmt.Errorf("frame %d: %w", seq, err)
		}
	}
	return c.Deliver(ctx, owner, last(job, n))
}

// whole asserts that frames 1 to n came, each once and in order.
func whole(t testing.TB, got []dispatch.Frame, n int) {
	t.Helper()
	if err := check(got, n); err != nil {
		t.Error(err)
	}
}

func check(got []dispatch.Frame, n int) error {
	if len(got) != n {
		return fmt.Errorf("%d frames came, want %d", len(got), n)
	}
	for i, f := range got {
		if f.Seq != int64(i+1) || f.Result == nil && f.Event.Content != fmt.Sprint("text ", i+1) {
			return fmt.Errorf("frame %d is %+v", i+1, f)
		}
	}
	return nil
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(2*time.Millisecond), time.NewTimer(patience)
	defer tick.Stop()
	defer late.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

func up(c *link.Client) func() bool {
	return func() bool {
		all := c.Gateways()
		return len(all) == 1 && all[0].Up
	}
}

// socket is the address of a Unix socket with a short path.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "link-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "s")
}

// as asserts an error that a client may see.
func as(t testing.TB, err error, kind backends.Kind) *backends.Error {
	t.Helper()
	e, ok := errors.AsType[*backends.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("the error is %v, want one of kind %s", err, kind)
	}
	return e
}
