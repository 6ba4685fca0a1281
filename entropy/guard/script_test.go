package guard

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// script is a source whose next blocks a test can spoil. Its bytes are perfect otherwise.
type script struct {
	clock *clock
	mu    sync.Mutex
	rng   *rand.ChaCha8
	seq   uint64
	given uint64 // bytes
	asked int
	took  time.Duration
	spoil func(ctx context.Context, buf []byte, b *entropy.Block) error
}

func newScript(c *clock) *script {
	return &script{clock: c, rng: rand.NewChaCha8([32]byte{1}), took: time.Millisecond}
}

func (s *script) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.seq++
	_, _ = s.rng.Read(buf)
	now := s.clock.Now()
	b := entropy.Block{Bytes: buf, Source: "script", Device: "dev", Requested: now, Arrived: now.Add(s.took), Sequence: s.seq, Class: entropy.ClassJIT}
	if s.spoil != nil {
		return s.spoilt(ctx, buf, b)
	}
	s.given += uint64(len(buf))
	return b, nil
}

func (s *script) spoilt(ctx context.Context, buf []byte, b entropy.Block) (entropy.Block, error) {
	if err := s.spoil(ctx, buf, &b); err != nil {
		return entropy.Block{}, err
	}
	s.given += uint64(len(buf))
	return b, nil
}

func (s *script) set(spoil func(context.Context, []byte, *entropy.Block) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = spoil
}

func stuck(_ context.Context, buf []byte, _ *entropy.Block) error { clear(buf); return nil }

func failing(kind entropy.Kind) func(context.Context, []byte, *entropy.Block) error {
	return func(context.Context, []byte, *entropy.Block) error {
		return &entropy.Error{Kind: kind, Source: "script", Message: "scripted"}
	}
}

// rig is a guarded script.
type rig struct {
	*Guard
	clock *clock
	src   *script
	heard *events
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	c := newClock()
	r := &rig{clock: c, src: newScript(c), heard: &events{}}
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	second := newScript(c)
	second.rng = rand.NewChaCha8([32]byte{2})
	second.spoil = func(_ context.Context, _ []byte, b *entropy.Block) error { b.Source = "second"; return nil }
	g, err := New("first", r.src, cfg, Deps{Fallback: second, Events: r.heard, Now: c.Now, Jitter: func() float64 { return 0.5 }})
	if err != nil {
		t.Fatal(err)
	}
	r.Guard = g
	return r
}

func (r *rig) draw(t testing.TB, n int) (entropy.Block, error) {
	t.Helper()
	r.clock.add(time.Second)
	return r.Draw(t.Context(), make([]byte, n))
}

// events remembers what it was told.
type events struct {
	mu        sync.Mutex
	failing   []Outage
	recovered []Outage
}

func (e *events) Failing(o Outage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = append(e.failing, o)
}

func (e *events) Recovered(o Outage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recovered = append(e.recovered, o)
}

// shifted moves the byte mean by about 2 without leaving the tests anything to find.
func shifted(_ context.Context, buf []byte, _ *entropy.Block) error {
	for i := 0; i+64 <= len(buf); i += 64 {
		buf[i] |= 0x80
		buf[i+32] |= 0x80
	}
	return nil
}
