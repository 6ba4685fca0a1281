package sidecar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
)

const vocab = 1000

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// running is a sidecar in its own process, as far as plugins can tell.
type running struct {
	*Server
	cfg  Config
	stop func()
}

// start runs a sidecar until the test ends or stop is called.
func start(t testing.TB, change func(*Config, *Deps)) *running {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Socket, cfg.Version = filepath.Join(t.TempDir(), "s.sock"), "test"
	cfg.Deadline = 5 * time.Second // machines are busy
	deps := Deps{Sources: supply.New(nil)}
	if change != nil {
		change(&cfg, &deps)
	}
	return startWith(t, cfg, deps)
}

func startWith(t testing.TB, cfg Config, deps Deps) *running {
	t.Helper()
	s, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	r := &running{s, cfg, func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}}
	t.Cleanup(r.stop)
	return r
}

// dial connects a plugin.
func (r *running) dial(t testing.TB, change func(*sidecartest.Options)) *sidecartest.Plugin {
	t.Helper()
	o := sidecartest.Options{Vocab: vocab, MaxRows: 32}
	if change != nil {
		change(&o)
	}
	p, err := sidecartest.Dial(r.cfg.Socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Conn.SetDeadline(time.Now().Add(6 * patience)); err != nil {
		t.Fatal(err)
	}
	return p
}

// logits is the row of a step of a model that isn't there: a few tokens stand out.
func logits(n int, seed uint64, step int) []float32 {
	rng := rand.New(rand.NewPCG(seed, uint64(step)))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(rng.NormFloat64())
	}
	for range 8 {
		row[rng.IntN(n)] += float32(4 + 6*rng.Float64())
	}
	return row
}

func begin(t testing.TB, p *sidecartest.Plugin, rid, cfg string, history ...int32) uint32 {
	t.Helper()
	h, err := p.Begin(rid, cfg, []int32{1, 2, 3}, history)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// step shows one compact row, and the whole one if that is asked for.
func step(t testing.TB, p *sidecartest.Plugin, h uint32, at int, row []float32) wire.Answer {
	t.Helper()
	a := one(t, p, p.Compact(h, at, row))
	if choice.Status(a.Status) == choice.Whole {
		got, err := p.Rest(p.Shared(h, at, 0, row))
		if err != nil {
			t.Fatal(err)
		}
		a = got[0]
	}
	return a
}

// one shows a row.
func one(t testing.TB, p *sidecartest.Plugin, row wire.Shown) wire.Answer {
	t.Helper()
	got, err := p.Step(row)
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

// want fails unless an answer has that status.
func want(t testing.TB, a wire.Answer, s choice.Status) {
	t.Helper()
	if choice.Status(a.Status) != s {
		t.Fatalf("answer is %v (token %d), want %v", choice.Status(a.Status), a.Token, s)
	}
}

// next reads a choice.
func next(t testing.TB, f choice.Trail) choice.Choice {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := f.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func follow(t testing.TB, s interface {
	Follow(ctx context.Context, rid string, from int) (choice.Trail, error)
}, rid string,
) choice.Trail {
	t.Helper()
	f, err := s.Follow(context.Background(), rid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func finish(t testing.TB, f choice.Trail) *backends.DecodeStats {
	t.Helper()
	s, err := f.Finish(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func refusal(err error) string {
	if r, ok := errors.AsType[*wire.RefusedError](err); ok {
		return r.Code
	}
	return fmt.Sprint(err)
}

// otherUser makes connections seem another user's.
func (s *Server) otherUser(uid int) { s.user = func(*net.UnixConn) (int, error) { return uid, nil } }

var (
	negInf = float32(math.Inf(-1))
	_      = account.Fixed
)
