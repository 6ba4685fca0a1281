package hub

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a Provider of sources made by a test.
type shelf struct {
	sources map[string]entropy.Source
	mu      sync.Mutex // guards asked
	asked   []Blocks
	fails   error
}

func (s *shelf) Source(name string) (entropy.Source, bool) {
	src, ok := s.sources[name]
	return src, ok
}

func (s *shelf) Describe(_ context.Context, name string, ask Blocks) (Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, ask)
	d := Description{
		Type: "test", Policy: "strict",
		Can: entropy.Capabilities{
			Device: name, Class: entropy.ClassJIT, Rate: 1e6, MaxDraw: 1 << 20, Number: true, Details: map[string]string{"a": "b"},
		},
	}
	if ask.Count > 0 {
		sums := make([]uint64, ask.Count)
		for i := range sums {
			sums[i] = uint64(i * ask.Bytes)
		}
		var err error
		d.Calibration, err = guard.NewCalibration(name, "dev", time.Unix(0, 1234567890123456789), ask.Bytes, sums)
		s.fails = errors.Join(s.fails, err)
	}
	return d, s.fails
}

// rig is a server and a client of it.
type rig struct {
	dir    string
	client *Client
	stop   func() // the server's
}

// serve runs a server on a socket in dir and returns what stops it.
func serve(t testing.TB, dir string, p Provider) (*Server, func()) {
	t.Helper()
	s, err := New(t.Context(), Config{Dir: dir}, Deps{Sources: p, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func dial(t testing.TB, path string) (*Client, func()) {
	t.Helper()
	cfg := DefaultClientConfig()
	cfg.Socket, cfg.Wait, cfg.BackoffMax = path, 20*time.Second, 20*time.Millisecond
	c, err := NewClient(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run client: %v", err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

// socketDir is short, and this user's alone.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hub-") //nolint:usetesting // its paths have the test's name in them, and are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// open lends one source under the name of lent.
func open(t testing.TB, src entropy.Source) (*Source, *rig) {
	t.Helper()
	r := &rig{dir: socketDir(t)}
	s, stop := serve(t, r.dir, &shelf{sources: map[string]entropy.Source{"lent": src}})
	r.stop = stop
	r.client, _ = dial(t, s.Path())
	lent, err := r.client.Source(t.Context(), "lent")
	if err = errors.Join(err, r.client.connected(t.Context(), "lent")); err != nil {
		t.Fatal(err)
	}
	return lent, r
}

// scripted is a source that does as it is told.
type scripted struct {
	draw   func(ctx context.Context, buf []byte) (entropy.Block, error)
	number func(ctx context.Context, req entropy.NumberRequest) (entropy.Number, error)
	begin  func(n int, nonce uint64) entropy.Ticket
}

func (s *scripted) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	return s.draw(ctx, buf)
}

func (s *scripted) Number(ctx context.Context, req entropy.NumberRequest) (entropy.Number, error) {
	return s.number(ctx, req)
}

func (s *scripted) Begin(n int, nonce uint64) entropy.Ticket { return s.begin(n, nonce) }

// waiting is a source whose draws wait until they are let go or given up.
type waiting struct {
	begun chan int // of a draw: its length
	let   chan struct{}
	ended chan struct{}
}

func newWaiting() *waiting {
	return &waiting{begun: make(chan int), let: make(chan struct{}), ended: make(chan struct{})}
}

func (w *waiting) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	w.begun <- len(buf)
	select {
	case <-w.let:
		return local.NewSystem().Draw(ctx, buf)
	case <-ctx.Done():
		w.ended <- struct{}{}
		return entropy.Block{}, ctx.Err()
	}
}
