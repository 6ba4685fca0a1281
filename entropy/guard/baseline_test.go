package guard

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// secondAfter lets a later member serve every draw after the first n.
func secondAfter(n int) spoil {
	return func(_ context.Context, _ []byte, b *entropy.Block) error {
		b.Fallback = b.Sequence > uint64(n)
		return nil
	}
}

// TestCalibrationIsOfOneSource: blocks of a second choice, or of another device than the first block's, are of no use.
func TestCalibrationIsOfOneSource(t *testing.T) {
	for name, bad := range map[string]spoil{
		"second choice": secondAfter(20),
		"other device": func(_ context.Context, _ []byte, b *entropy.Block) error {
			if b.Sequence > 20 {
				b.Device = "other"
			}
			return nil
		},
	} {
		r := newRig(t, nil)
		r.src.set(bad)
		if c, err := r.Calibrate(t.Context(), 32, 64); err == nil || r.Calibration() != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// withBaseline is a guard whose frozen baseline is of device.
func withBaseline(t *testing.T, device string, policy Policy) *rig {
	t.Helper()
	c, err := NewCalibration("first", device, time.Unix(5, 6), 1024, someSums(64, 1024))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "base.json")
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	return newRig(t, func(cfg *Config) { cfg.CalibrationFile, cfg.Policy = path, policy })
}

// TestBaselineOfAnotherDevice: a source may tell its device with its blocks alone, as an entropy server does.
func TestBaselineOfAnotherDevice(t *testing.T) {
	r := withBaseline(t, "other", Strict)
	if err := r.Start(t.Context()); entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "calibration_file") {
		t.Errorf("at the start: %v", err)
	}
	r = withBaseline(t, "dev", Strict)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.draw(t, 64); err != nil {
		t.Fatal(err)
	}
	r.src.set(func(_ context.Context, _ []byte, b *entropy.Block) error { b.Device = "other"; return nil })
	if _, err := r.draw(t, 64); entropy.KindOf(err) != entropy.KindProtocol || !strings.Contains(err.Error(), "calibration_file") {
		t.Errorf("in use: %v", err)
	}
	r = withBaseline(t, "other", Observe)
	if b, err := r.draw(t, 64); err != nil || b.Flags&entropy.FlagOtherDevice == 0 {
		t.Errorf("observed: %+v, %v", b, err)
	}
}

// TestDriftIsOfTheSourceAlone: blocks of a second choice say nothing about the baseline of the first.
func TestDriftIsOfTheSourceAlone(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.Calibrate(t.Context(), 512, 4096); err != nil {
		t.Fatal(err)
	}
	r.src.set(func(ctx context.Context, buf []byte, b *entropy.Block) error {
		return errors.Join(shifted(ctx, buf, b), secondAfter(0)(ctx, buf, b))
	})
	for range 400 {
		if b, err := r.draw(t, 4096); err != nil || b.Flags != 0 {
			t.Fatalf("%v, %v", b.Flags, err)
		}
	}
}

// TestStandInIsCalibrated: the number that is made of a second source's bytes is made against that source's own baseline.
func TestStandInIsCalibrated(t *testing.T) {
	c := newClock()
	second := newScript(c)
	second.spoil = func(ctx context.Context, buf []byte, b *entropy.Block) error {
		b.Source = "second"
		for i := range buf {
			buf[i] |= 0x80
		}
		return nil
	}
	back, err := New("second", second, DefaultConfig(), Deps{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Calibrate(t.Context(), 256, 1024); err != nil {
		t.Fatal(err)
	}
	a := &able{script: newScript(c), number: func() (entropy.Number, error) {
		return entropy.Number{}, failing(entropy.KindTimeout)(nil, nil, nil)
	}}
	cfg := DefaultConfig()
	cfg.Policy = Fallback
	g, err := New("first", a, cfg, Deps{Fallback: back.Source(), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	n, err := g.Source().(entropy.Numberer).Number(t.Context(), entropy.NumberRequest{BlockBytes: 4096})
	if err != nil || math.Abs(n.Z) > 6 || !n.Block.Fallback {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestAheadTimes: a block that was asked for ahead can't have been asked for before that.
func TestAheadTimes(t *testing.T) {
	c := newClock()
	a := &able{script: newScript(c)}
	a.set(func(_ context.Context, _ []byte, b *entropy.Block) error { return nil })
	_, s := guarded(t, &early{a}, c, nil)
	if b, err := s.(entropy.Ahead).Begin(64, 3).Redeem(t.Context(), make([]byte, 64)); err == nil {
		t.Errorf("a block that was asked for an hour before: %+v", b)
	}
}

// early says that its blocks were asked for long ago.
type early struct{ *able }

func (e *early) Begin(n int, nonce uint64) entropy.Ticket {
	return &slip{e.able, n, nonce, e.clock.Now().Add(-time.Hour)}
}
