package guard

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy"
)

func someSums(blocks, n int) []uint64 {
	rng, buf, sums := rand.NewChaCha8([32]byte{3}), make([]byte, n), make([]uint64, blocks)
	for i := range sums {
		_, _ = rng.Read(buf)
		sums[i] = sum(buf)
	}
	return sums
}

func TestSum(t *testing.T) {
	rng := rand.NewChaCha8([32]byte{4})
	for n := range 3000 {
		buf := make([]byte, n)
		_, _ = rng.Read(buf)
		if n%3 == 0 {
			for i := range buf {
				buf[i] = 255
			}
		}
		want := uint64(0)
		for _, x := range buf {
			want += uint64(x)
		}
		if got := sum(buf); got != want {
			t.Fatalf("%d bytes: got %d, want %d", n, got, want)
		}
	}
}

func TestCalibrationOfUniformBytes(t *testing.T) {
	r := newRig(t, nil)
	c, err := r.Calibrate(t.Context(), 2000, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.Mean-uniformMean) > 4*c.MeanError || math.Abs(c.MeanError-uniformStd/math.Sqrt(2000*1024)) > 0.05*c.MeanError {
		t.Errorf("mean %v, error %v", c.Mean, c.MeanError)
	}
	if math.Abs(c.Std/uniformStd-1) > 4/math.Sqrt(2*2000) {
		t.Errorf("std %v", c.Std)
	}
	if c.Device != "dev" || c.Source != "first" || math.Abs(c.HalvesZ) > 4 || r.Calibration() != c || r.State().Calibration != c.Hash {
		t.Errorf("%+v", c)
	}
	again, err := r.Calibrate(t.Context(), 16, 1024)
	if err != nil || r.Calibration() != c || again == c {
		t.Errorf("a baseline was replaced: %v", err)
	}
}

func TestCalibrationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base.json")
	c, err := NewCalibration("a", "d", time.Unix(5, 6), 1024, someSums(64, 1024))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a baseline file was replaced: %v", err)
	}
	back, err := LoadCalibration(path)
	if diff := cmp.Diff(c, back); err != nil || diff != "" {
		t.Fatalf("error %v\n%s", err, diff)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"device":"d"`, `"device":"e"`, 1)
	if _, err := parseCalibration([]byte(changed)); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("a changed file: %v", err)
	}
	if _, err := LoadCalibration(filepath.Dir(path)); err == nil {
		t.Error("a directory is loaded")
	}
}

func TestCalibrationRefused(t *testing.T) {
	steady := make([]uint64, 64)
	for i := range steady {
		steady[i] = 1000
	}
	if _, err := NewCalibration("a", "", time.Now(), 16, steady); !errors.Is(err, ErrConstant) {
		t.Errorf("stuck: %v", err)
	}
	drifting := someSums(64, 1024)
	for i := range drifting {
		drifting[i] += uint64(i * 300)
	}
	c, err := NewCalibration("a", "", time.Now(), 1024, drifting)
	if err != nil || !errors.Is(c.Stable(), ErrUnstable) {
		t.Errorf("drifting: %v", err)
	}
	for name, bad := range map[string]func() error{
		"few":     func() error { _, err := NewCalibration("a", "", time.Now(), 16, steady[:1]); return err },
		"too big": func() error { _, err := NewCalibration("a", "", time.Now(), 2, steady); return err },
		"empty":   func() error { _, err := NewCalibration("a", "", time.Now(), 0, steady); return err },
	} {
		if bad() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestDriftIsFlaggedAndNeverActedOn shifts the byte mean by 2 after the baseline was taken.
func TestDriftIsFlaggedAndNeverActedOn(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.Calibrate(t.Context(), 512, 4096); err != nil {
		t.Fatal(err)
	}
	drawn := func() (flagged int) {
		for range 400 {
			b, err := r.draw(t, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if b.Flags&entropy.FlagDrift != 0 {
				flagged++
			}
		}
		return flagged
	}
	if n := drawn(); n != 0 {
		t.Errorf("%d of 400 good blocks are flagged", n)
	}
	r.src.set(shifted)
	if n := drawn(); n < 300 {
		t.Errorf("%d of 400 shifted blocks are flagged", n)
	}
	if m := r.State().Mode; m != ModeOK {
		t.Errorf("mode is %s", m)
	}
}

func FuzzCalibration(f *testing.F) {
	c, err := NewCalibration("a", "d", time.Unix(5, 6), 1024, someSums(16, 1024))
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "c")
	if err := c.Save(path); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"block_bytes":1,"sums":[1,2]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseCalibration(text)
		if err == nil && (c.Hash != c.digest() || math.IsNaN(c.Mean) || !(c.Std > 0)) {
			t.Errorf("accepted %+v", c)
		}
	})
}
