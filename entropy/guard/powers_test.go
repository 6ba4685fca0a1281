package guard

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// able is a script with the optional powers.
type able struct {
	*script
	number  func() (entropy.Number, error)
	dropped int
}

func (a *able) Number(ctx context.Context, _ entropy.NumberRequest) (entropy.Number, error) {
	if err := ctx.Err(); err != nil {
		return entropy.Number{}, err
	}
	return a.number()
}

func (a *able) Begin(n int, nonce uint64) entropy.Ticket { return &slip{a, n, nonce, a.clock.Now()} }

type slip struct {
	a     *able
	n     int
	nonce uint64
	asked time.Time
}

func (s *slip) Redeem(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := s.a.Draw(ctx, buf)
	b.Pipelined, b.Nonce, b.Requested = true, s.nonce, s.asked
	return b, err
}

func (s *slip) Drop() { s.a.dropped++ }

// guarded puts src behind a guard with a second source.
func guarded(t *testing.T, src entropy.Source, c *clock, change func(*Config)) (*Guard, entropy.Source) {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	second := newScript(c)
	second.spoil = func(_ context.Context, _ []byte, b *entropy.Block) error { b.Source = "second"; return nil }
	g, err := New("first", src, cfg, Deps{Fallback: second, Now: c.Now, Jitter: func() float64 { return 0.5 }})
	if err != nil {
		t.Fatal(err)
	}
	return g, g.Source()
}

type onlyNumbers struct {
	entropy.Source
	entropy.Numberer
}

type onlyAhead struct {
	entropy.Source
	entropy.Ahead
}

func TestPowersPassThrough(t *testing.T) {
	c := newClock()
	a := &able{script: newScript(c)}
	for name, row := range map[string]struct {
		src            entropy.Source
		numbers, ahead bool
	}{
		"bytes":   {newScript(c), false, false},
		"numbers": {onlyNumbers{newScript(c), a}, true, false},
		"ahead":   {onlyAhead{newScript(c), a}, false, true},
		"both":    {a, true, true},
	} {
		_, s := guarded(t, row.src, c, nil)
		_, numbers := s.(entropy.Numberer)
		_, ahead := s.(entropy.Ahead)
		_, prober := s.(entropy.Prober)
		if numbers != row.numbers || ahead != row.ahead || !prober {
			t.Errorf("%s: numbers %v, ahead %v, probe %v", name, numbers, ahead, prober)
		}
		if _, err := s.Draw(t.Context(), make([]byte, 16)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumber(t *testing.T) {
	c := newClock()
	good := func() (entropy.Number, error) {
		now := c.Now()
		return entropy.Number{U: 0.25, Bytes: 10000, Block: entropy.Block{Source: "able", Device: "dev", Requested: now, Arrived: now.Add(time.Millisecond)}}, nil
	}
	a := &able{script: newScript(c), number: good}
	g, s := guarded(t, a, c, func(cfg *Config) { cfg.Policy, cfg.ExpectDevice = Fallback, "dev" })
	numbers := s.(entropy.Numberer)
	if n, err := numbers.Number(t.Context(), entropy.NumberRequest{}); err != nil || n.U != 0.25 || n.Block.Fallback {
		t.Fatalf("%+v, %v", n, err)
	}
	bad := map[Reason]func() (entropy.Number, error){
		ReasonProtocol: func() (entropy.Number, error) { n, _ := good(); n.U = 1; return n, nil },
		ReasonRefused:  func() (entropy.Number, error) { return entropy.Number{}, failing(entropy.KindRefused)(nil, nil, nil) },
		ReasonTimeout:  func() (entropy.Number, error) { return entropy.Number{}, failing(entropy.KindTimeout)(nil, nil, nil) },
	}
	for reason, answer := range bad {
		a.number = answer
		n, err := numbers.Number(t.Context(), entropy.NumberRequest{BlockBytes: 4096})
		if err != nil || !n.Block.Fallback || n.Block.Source != "second" || n.Bytes != 4096 || n.Integrator != "zscore_mean" || n.Block.Bytes != nil {
			t.Errorf("%v: %+v, %v", reason, n, err)
		}
		if want := 0.5 * math.Erfc(-n.Z/math.Sqrt2); n.U != want || math.Abs(n.Z) > 5 {
			t.Errorf("%v: u %v, z %v", reason, n.U, n.Z)
		}
		if g.State().Fallbacks[reason.String()] != 1 {
			t.Errorf("%v: %v", reason, g.State().Fallbacks)
		}
	}
	if !g.numbers.on.Load() || g.bytes.on.Load() {
		t.Error("an outage of numbers is told apart from one of bytes")
	}
	a.number = func() (entropy.Number, error) { n, err := good(); n.Block.Device = "other"; return n, err }
	if n, err := numbers.Number(t.Context(), entropy.NumberRequest{}); err != nil || !n.Block.Fallback || n.Bytes != standInBytes {
		t.Errorf("another device: %+v, %v", n, err)
	}
	if m := g.State().Mode; m != ModeAlarmed {
		t.Errorf("another device: mode %s", m)
	}
}

func TestNumberStrict(t *testing.T) {
	c := newClock()
	a := &able{script: newScript(c), number: func() (entropy.Number, error) { return entropy.Number{U: math.NaN()}, nil }}
	_, s := guarded(t, a, c, nil)
	if _, err := s.(entropy.Numberer).Number(t.Context(), entropy.NumberRequest{}); entropy.KindOf(err) != entropy.KindProtocol {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.(entropy.Numberer).Number(ctx, entropy.NumberRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAhead(t *testing.T) {
	c := newClock()
	a := &able{script: newScript(c)}
	g, s := guarded(t, a, c, func(cfg *Config) { cfg.Policy = Fallback })
	ahead := s.(entropy.Ahead)
	b, err := ahead.Begin(64, 9).Redeem(t.Context(), make([]byte, 64))
	if err != nil || !b.Pipelined || b.Nonce != 9 || b.Fallback {
		t.Fatalf("%+v, %v", b, err)
	}
	ahead.Begin(64, 10).Drop()
	if a.dropped != 1 {
		t.Error("Drop does not reach the source")
	}
	a.set(stuck)
	on := ahead.Begin(64, 11)
	if b, err := on.Redeem(t.Context(), make([]byte, 64)); err != nil || !b.Fallback {
		t.Errorf("a stuck block: %+v, %v", b, err)
	}
	if ahead.Begin(64, 12) != nil {
		t.Error("a source that is out was asked ahead")
	}
	if s := g.State(); s.Alarms["repetition"] != 1 {
		t.Errorf("%+v", s)
	}
}

func TestStart(t *testing.T) {
	c := newClock()
	for name, row := range map[string]struct {
		bad      spoil
		required bool
		policy   Policy
		want     string // of the error; empty: it starts
		mode     Mode
	}{
		"good":                 {nil, true, Strict, "", ModeOK},
		"stuck":                {stuck, false, Strict, "", ModeAlarmed},
		"stuck, observed":      {stuck, false, Observe, "", ModeOK},
		"stuck and required":   {stuck, true, Strict, "required", ModeAlarmed},
		"unreachable":          {failing(entropy.KindTransport), false, Fallback, "", ModeAlarmed},
		"unreachable required": {failing(entropy.KindTransport), true, Fallback, "required", ModeOK},
		"refused":              {failing(entropy.KindRefused), false, Strict, "scripted", ModeOK},
		"wrong option":         {failing(entropy.KindConfig), false, Strict, "scripted", ModeOK},
	} {
		src := newScript(c)
		src.set(row.bad)
		g, _ := guarded(t, src, c, func(cfg *Config) { cfg.Policy, cfg.Required = row.policy, row.required })
		err := g.Start(t.Context())
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if s := g.State(); s.Mode != row.mode || s.DiscardedBytes != src.given || s.Draws != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestStartTestHangs: a source that never answers the start-up test holds the start up no longer than recover_timeout.
func TestStartTestHangs(t *testing.T) {
	c := newClock()
	src := newScript(c)
	src.set(func(ctx context.Context, _ []byte, _ *entropy.Block) error { <-ctx.Done(); return ctx.Err() })
	g, _ := guarded(t, src, c, func(cfg *Config) { cfg.RecoverTimeout = 20 * time.Millisecond })
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := g.State(); s.Mode != ModeAlarmed || !strings.Contains(s.LastError, "20ms") || s.Errors["timeout"] != 1 {
		t.Errorf("%+v", s)
	}
}

func TestHoldAlarm(t *testing.T) {
	r := newRig(t, func(c *Config) { c.HoldAlarm = true })
	r.src.set(stuck)
	if _, err := r.draw(t, 64); err == nil {
		t.Fatal("no alarm")
	}
	r.src.set(nil)
	r.clock.add(time.Hour)
	if _, err := r.draw(t, 64); err == nil || !strings.Contains(r.State().LastError, "kept out") {
		t.Errorf("it came back by itself: %v", err)
	}
	if err := r.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.draw(t, 64); err != nil {
		t.Error(err)
	}
}

func TestRefusedConfigs(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"policy":       func(c *Config) { c.Policy = "lenient" },
		"rate":         func(c *Config) { c.DeclaredRate = math.Inf(1) },
		"factor":       func(c *Config) { c.RateFactor = 0.5 },
		"ready":        func(c *Config) { c.ReadyBytes = -1 },
		"skew":         func(c *Config) { c.ClockSkew = -1 },
		"back-off":     func(c *Config) { c.RecoverMin = time.Hour },
		"timeout":      func(c *Config) { c.RecoverTimeout = 0 },
		"blocks":       func(c *Config) { c.CalibrationBlocks = 3 },
		"block bytes":  func(c *Config) { c.CalibrationBlockBytes = 0 },
		"two sources":  func(c *Config) { c.CalibrationFile, c.CalibrationBlocks = "x", 64 },
		"no such file": func(c *Config) { c.CalibrationFile = "/nowhere" },
		"no entropy":   func(c *Config) { c.ClaimedEntropy = 0 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := New("a", newScript(newClock()), cfg, Deps{}); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := DefaultConfig()
	cfg.Policy = Fallback
	if _, err := New("a", newScript(newClock()), cfg, Deps{}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("no second source: %v", err)
	}
}
