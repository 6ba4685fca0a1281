package guard

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"qr-gateway/entropy"
)

// machine runs a guard beside a model of its latch. See design.md for the rules.
type machine struct {
	*rig
	sick   bool
	broken bool // fails without an alarm

	out    bool
	wait   time.Duration
	until  time.Time
	passed time.Time
}

func (m *machine) set() {
	switch {
	case m.broken:
		m.src.set(failing(entropy.KindTransport))
	case m.sick:
		m.src.set(stuck)
	default:
		m.src.set(nil)
	}
}

// latch is the model's: it doubles after failed tests and quick relapses.
func (m *machine) latch() {
	now := m.clock.Now()
	if m.wait == 0 || !m.out && now.Sub(m.passed) > m.cfg.RecoverMax {
		m.wait = m.cfg.RecoverMin
	} else {
		m.wait = min(2*m.wait, m.cfg.RecoverMax)
	}
	m.out, m.until = true, now.Add(m.wait) // the jitter is fixed to its middle
}

// test is a start-up test of the model; it says whether the source is in.
func (m *machine) test() bool {
	if m.sick || m.broken {
		m.latch()
		return false
	}
	m.out, m.passed = false, m.clock.Now()
	return true
}

func (m *machine) draw(t *rapid.T) {
	asked := m.src.asked
	wantAsked, good := 0, false
	switch {
	case m.out && m.clock.Now().Before(m.until):
	case m.out:
		wantAsked = 1
		if m.test() {
			wantAsked, good = 2, true
		}
	default:
		wantAsked, good = 1, !m.sick && !m.broken
		if m.sick && !m.broken {
			m.latch()
		}
	}
	b, err := m.Draw(context.Background(), make([]byte, 64))
	switch {
	case m.cfg.Policy == Strict && (err == nil) != good:
		t.Fatalf("strict: want a block %v, got error %v", good, err)
	case m.cfg.Policy == Fallback && (err != nil || b.Fallback == good):
		t.Fatalf("fallback: want the first source %v, got %+v, error %v", good, b, err)
	case good && b.Source != "script":
		t.Fatalf("served by %s", b.Source)
	}
	if n := m.src.asked - asked; n != wantAsked {
		t.Fatalf("the source was asked %d times, want %d", n, wantAsked)
	}
}

func (m *machine) recheck(t *rapid.T) {
	was, healthy := m.out, !m.sick && !m.broken
	switch {
	case was:
		m.test()
	case m.sick && !m.broken:
		m.latch()
	}
	if err := m.Recheck(context.Background()); (err == nil) != healthy {
		t.Fatalf("recheck: %v", err)
	}
}

func (m *machine) leave(t *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Draw(ctx, make([]byte, 64)); err == nil {
		t.Fatal("a draw for nobody")
	}
}

func (m *machine) check(t *rapid.T) {
	s := m.State()
	if out := s.Mode == ModeAlarmed; out != m.out {
		t.Fatalf("mode is %s, want out %v", s.Mode, m.out)
	}
	if m.out && !s.RetryAt.Equal(m.until) {
		t.Fatalf("next test at %v, want %v", s.RetryAt, m.until)
	}
	if s.Bytes+s.DiscardedBytes != m.src.given {
		t.Fatalf("used %d and discarded %d of %d bytes", s.Bytes, s.DiscardedBytes, m.src.given)
	}
}

func TestMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom([]Policy{Strict, Fallback}).Draw(rt, "policy")
		m := &machine{rig: newRig(t, func(c *Config) { c.Policy = policy })}
		m.passed = time.Time{}
		rt.Repeat(map[string]func(*rapid.T){
			"draw":    m.draw,
			"recheck": m.recheck,
			"leave":   m.leave,
			"sicken":  func(*rapid.T) { m.sick = true; m.set() },
			"heal":    func(*rapid.T) { m.sick, m.broken = false, false; m.set() },
			"break":   func(*rapid.T) { m.broken = true; m.set() },
			"wait": func(t *rapid.T) {
				m.clock.add(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": m.check,
		})
	})
}
