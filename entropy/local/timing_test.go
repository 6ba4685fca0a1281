package local

import (
	"math"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

// lenient takes any rate: tests share the machine with others.
func lenient() TimingConfig {
	c := DefaultTimingConfig()
	c.MinRate = 0
	return c
}

func openTimingHere(t *testing.T, cfg TimingConfig) *Timing {
	t.Helper()
	s, err := OpenTiming(t.Context(), "timing", cfg)
	if err != nil {
		t.Skip(err) // the machine's clock is too coarse: the refusal is tested below
	}
	return s
}

func TestTiming(t *testing.T) {
	o := entropytest.Options{Largest: 2048, Rounds: 64}
	entropytest.RunWith(t, o, func(t *testing.T) entropy.Source { return openTimingHere(t, lenient()) })
}

func TestTimingRaw(t *testing.T) {
	cfg := lenient()
	cfg.Raw = true
	o := entropytest.Options{LowEntropy: true}
	entropytest.RunWith(t, o, func(t *testing.T) entropy.Source { return openTimingHere(t, cfg) })
}

// TestTimingIsUnbiased: what the published construction gets wrong, with a mean of 119.
func TestTimingIsUnbiased(t *testing.T) {
	s := openTimingHere(t, lenient())
	const n = 1 << 16
	began := time.Now()
	mean, _ := moments(fill(t, s, n))
	t.Logf("%.0f kB/s declared, %.0f kB/s now, %.2f bits a time difference at most", s.rate/1e3, n/1e3/time.Since(began).Seconds(), s.perBit)
	if z := (mean - 127.5) / (73.9 / math.Sqrt(n)); math.Abs(z) > 5 {
		t.Errorf("mean %v, z %.1f", mean, z)
	}
}

func TestTimingRefuses(t *testing.T) {
	fast := lenient()
	fast.MinRate = 1e12
	if _, err := OpenTiming(t.Context(), "tick", fast); entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "less than min_rate") && !strings.Contains(err.Error(), "bits a sample") {
		t.Errorf("too slow: %v", err)
	}
	ticks := map[string]func(i int64) int64{
		"steady":      func(i int64) int64 { return 40 * i },
		"stopped":     func(int64) int64 { return 0 },
		"alternating": func(i int64) int64 { return 40*i + i%2*7 },
	}
	for name, at := range ticks {
		i := int64(0)
		clock := func() int64 { i++; return at(i) }
		_, err := openTiming(t.Context(), "tick", lenient(), clock)
		if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "bits a sample at most") {
			t.Errorf("a %s clock: %v", name, err)
		}
	}
}

// TestTimingStops: a clock that freezes later is found by the tests on the differences; no hash of nothing is handed out.
func TestTimingStops(t *testing.T) {
	s := openTimingHere(t, lenient())
	s.clock = func() int64 { return 0 }
	entropytest.RunFailing(t, entropy.KindHealth, func(*testing.T) entropy.Source { return s })
}

func TestTimingConfig(t *testing.T) {
	for name, change := range map[string]func(*TimingConfig){
		"rate":   func(c *TimingConfig) { c.MinRate = math.NaN() },
		"claim":  func(c *TimingConfig) { c.ClaimedPerSample = 2 },
		"memory": func(c *TimingConfig) { c.MemoryBytes = 12345 },
	} {
		cfg := DefaultTimingConfig()
		change(&cfg)
		if _, err := OpenTiming(t.Context(), "tick", cfg); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}
