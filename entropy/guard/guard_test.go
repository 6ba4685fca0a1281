package guard

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/entropy"
)

type spoil = func(context.Context, []byte, *entropy.Block) error

// findings are every hard one, with what shows it.
func findings() map[Reason]spoil {
	var seen []byte
	return map[Reason]spoil{
		ReasonRepetition: stuck,
		ReasonProportion: func(_ context.Context, buf []byte, _ *entropy.Block) error {
			for i := 0; i < len(buf); i += 8 {
				buf[i] = 7
			}
			return nil
		},
		ReasonDuplicate: func(_ context.Context, buf []byte, _ *entropy.Block) error {
			if seen == nil {
				seen = bytes.Clone(buf)
			}
			copy(buf, seen)
			return nil
		},
		ReasonTooFast: func(_ context.Context, _ []byte, b *entropy.Block) error { b.Arrived = b.Requested; return nil },
		ReasonTimeOrder: func(_ context.Context, _ []byte, b *entropy.Block) error {
			b.ServerTime = b.Requested.Add(-time.Minute)
			return nil
		},
		ReasonOtherDevice: func(_ context.Context, _ []byte, b *entropy.Block) error { b.Device = "other"; return nil },
		ReasonLength: func(_ context.Context, buf []byte, b *entropy.Block) error {
			b.Bytes = buf[:len(buf)-1]
			return nil
		},
	}
}

func picky(p Policy) func(*Config) {
	return func(c *Config) { c.Policy, c.ExpectDevice, c.DeclaredRate = p, "dev", 10e6 }
}

// spoilt runs a finding against a policy. The second block is the bad one, which a duplicate needs.
func spoilt(t *testing.T, p Policy, bad spoil) (*rig, entropy.Block, error) {
	r := newRig(t, picky(p))
	r.src.took = time.Second
	r.src.set(bad)
	b, err := r.draw(t, 4096)
	if err == nil && b.Flags == 0 && !b.Fallback {
		b, err = r.draw(t, 4096)
	}
	return r, b, err
}

func TestStrict(t *testing.T) {
	for reason, bad := range findings() {
		r, _, err := spoilt(t, Strict, bad)
		e, ok := errors.AsType[*entropy.Error](err)
		if !ok || e.Kind != reason.kind() || e.Source != "first" || e.Message == "" {
			t.Errorf("%v: error %#v", reason, err)
			continue
		}
		before := r.src.asked
		if _, err := r.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindHealth || !strings.Contains(err.Error(), reason.String()) {
			t.Errorf("%v: the next draw gives %v", reason, err)
		}
		if r.src.asked != before {
			t.Errorf("%v: a source that is out was asked", reason)
		}
		s := r.State()
		if s.Mode != ModeAlarmed || s.Alarms[reason.String()] != 1 || s.Discarded != 1 || s.LastError == "" {
			t.Errorf("%v: %+v", reason, s)
		}
	}
}

func TestFallback(t *testing.T) {
	all := findings()
	for _, kind := range []entropy.Kind{entropy.KindTimeout, entropy.KindTransport, entropy.KindQuota, entropy.KindRefused, entropy.KindOpen, entropy.KindProtocol, entropy.KindHealth} {
		bad := failing(kind)
		all[reasonOfError(bad(t.Context(), nil, nil))] = bad
	}
	all[ReasonTransport] = func(context.Context, []byte, *entropy.Block) error { return errors.New("no error of ours") }
	for reason, bad := range all {
		r, b, err := spoilt(t, Fallback, bad)
		if err != nil || !b.Fallback || b.Source != "second" || b.Flags != 0 {
			t.Errorf("%v: block of %q, fallback %v, flags %b, error %v", reason, b.Source, b.Fallback, b.Flags, err)
		}
		if s := r.State(); s.Fallbacks[reason.String()] != 1 || len(s.Fallbacks) != 1 {
			t.Errorf("%v: counted %v", reason, s.Fallbacks)
		}
		if out := r.State().Mode == ModeAlarmed; out != reason.alarm() {
			t.Errorf("%v: out is %v", reason, out)
		}
	}
}

func TestObserve(t *testing.T) {
	for reason, bad := range findings() {
		r, b, err := spoilt(t, Observe, bad)
		if reason == ReasonLength {
			if entropy.KindOf(err) != entropy.KindProtocol {
				t.Errorf("a short block: %v", err)
			}
			continue
		}
		if err != nil || reasonOfFlags(b.Flags) != reason || b.Fallback || b.Source != "script" {
			t.Errorf("%v: flags %b, error %v", reason, b.Flags, err)
		}
		if len(r.heard.failing) != 1 || r.heard.failing[0].Reason != reason || len(r.heard.recovered) != 0 {
			t.Errorf("%v: told of %+v", reason, r.heard)
		}
		r.src.set(nil)
		if _, err := r.draw(t, 4096); err != nil || len(r.heard.recovered) != 1 {
			t.Errorf("%v: the end is told as %+v, error %v", reason, r.heard.recovered, err)
		}
		if s := r.State(); s.Mode != ModeOK || s.Alarms[reason.String()] != 1 || s.Discarded != 0 || s.Flags[reason.String()] != 1 {
			t.Errorf("%v: %+v", reason, s)
		}
	}
}

func TestGoodBlocksPass(t *testing.T) {
	for _, p := range []Policy{Strict, Fallback, Observe} {
		r := newRig(t, picky(p))
		for i := range uint64(100) {
			b, err := r.draw(t, 4096)
			if err != nil || b.Flags != 0 || b.Sequence != i+1 || b.Fallback {
				t.Fatalf("%s: block %+v, error %v", p, b, err)
			}
		}
		if s := r.State(); s.Draws != 100 || s.Bytes != 409600 || s.Discarded != 0 || s.Latency.SumSeconds < 0.0999 || len(s.Errors) != 0 {
			t.Errorf("%s: %+v", p, s)
		}
	}
}

func TestFallbackFailsToo(t *testing.T) {
	c := newClock()
	first, second := newScript(c), newScript(c)
	first.set(failing(entropy.KindTransport))
	second.set(failing(entropy.KindQuota))
	cfg := DefaultConfig()
	cfg.Policy = Fallback
	g, err := New("first", first, cfg, Deps{Fallback: second, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Draw(t.Context(), make([]byte, 16))
	if entropy.KindOf(err) != entropy.KindTransport || strings.Count(err.Error(), "scripted") != 2 {
		t.Errorf("want both causes: %v", err)
	}
	if n := g.State().Fallbacks; n != nil {
		t.Errorf("a fallback that failed is counted as one: %v", n)
	}
}

func TestCallerGoesAway(t *testing.T) {
	r := newRig(t, picky(Fallback))
	ctx, cancel := context.WithCancel(t.Context())
	r.src.set(func(context.Context, []byte, *entropy.Block) error { cancel(); return ctx.Err() })
	if _, err := r.Draw(ctx, make([]byte, 16)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s := r.State(); len(s.Errors)+len(s.Fallbacks)+len(r.heard.failing) != 0 {
		t.Errorf("counted against the source: %+v", s)
	}
}

// TestAlarmSpendsBlocksOnTheirWay: a good block that was asked for before an alarm is not used after it.
func TestAlarmSpendsBlocksOnTheirWay(t *testing.T) {
	r := newRig(t, picky(Strict))
	r.src.took = time.Second
	r.src.set(func(context.Context, []byte, *entropy.Block) error {
		r.raise(ReasonDuplicate, errors.New("found by another draw"))
		return nil
	})
	if _, err := r.draw(t, 64); entropy.KindOf(err) != entropy.KindHealth {
		t.Errorf("got %v", err)
	}
	if s := r.State(); s.Discarded != 1 || s.DiscardedBytes != 64 {
		t.Errorf("%+v", s)
	}
}

func TestServerTimeGoesBack(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ClockSkew = time.Hour })
	at := r.clock.Now()
	r.src.set(func(_ context.Context, _ []byte, b *entropy.Block) error { b.ServerTime = at; return nil })
	if _, err := r.draw(t, 64); err != nil {
		t.Fatal(err)
	}
	at = at.Add(-time.Nanosecond)
	if _, err := r.draw(t, 64); entropy.KindOf(err) != entropy.KindProtocol {
		t.Errorf("the server's clock went back: %v", err)
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t, picky(Fallback))
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.draw(t, 16); entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("got %v", err)
	}
	if m := r.State().Mode; m != ModeClosed {
		t.Errorf("mode is %s", m)
	}
}

// TestEventsDontFlood: the first failure, one a minute, and the end.
func TestEventsDontFlood(t *testing.T) {
	r := newRig(t, picky(Fallback))
	r.src.took = time.Second
	r.src.set(failing(entropy.KindTransport))
	for range 150 {
		if _, err := r.draw(t, 64); err != nil {
			t.Fatal(err)
		}
	}
	r.src.set(nil)
	for range 3 {
		if _, err := r.draw(t, 64); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.heard.failing); n != 3 {
		t.Errorf("150 failures in 150 s told %d times, want 3", n)
	}
	if len(r.heard.recovered) != 1 || r.heard.recovered[0].Failures != 150 || r.heard.recovered[0].Lasted != 150*time.Second {
		t.Errorf("recovered: %+v", r.heard.recovered)
	}
}

func TestManyAtOnce(t *testing.T) {
	r := newRig(t, picky(Fallback))
	r.src.took = time.Second
	var group sync.WaitGroup
	for u := range 8 {
		group.Go(func() {
			for i := range 200 {
				if u == 0 && i%40 == 0 {
					r.src.set(stuck)
					r.clock.add(time.Minute)
				} else if u == 0 && i%40 == 1 {
					r.src.set(nil)
				}
				b, err := r.Draw(t.Context(), make([]byte, 64))
				if err != nil || bytes.Equal(b.Bytes, make([]byte, 64)) {
					t.Errorf("block %x, error %v", b.Bytes, err)
				}
			}
		})
	}
	group.Wait()
	if s := r.State(); s.Bytes+s.DiscardedBytes != r.src.given {
		t.Errorf("used %d, discarded %d, given %d", s.Bytes, s.DiscardedBytes, r.src.given)
	}
}

func TestDrawAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, nil)
	c, err := NewCalibration("first", "dev", time.Now(), 4096, someSums(64, 4096))
	if err != nil {
		t.Fatal(err)
	}
	r.baseline.Store(c)
	buf, ctx := make([]byte, 20480), t.Context()
	if n := testing.AllocsPerRun(200, func() {
		if _, err := r.Draw(ctx, buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a draw", n)
	}
}
