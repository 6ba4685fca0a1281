package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy"
	"qr-gateway/entropy/local"
)

var update = flag.Bool("update", false, "write golden files")

// perfect examines computed uniform bytes.
func perfect(t *testing.T, seed uint64, cfg Config) *Report {
	t.Helper()
	src, err := local.OpenMock(t.Context(), "perfect", local.MockConfig{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return examine(t, src, cfg)
}

func examine(t *testing.T, src entropy.Source, cfg Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), src, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func biased(t *testing.T, cfg local.BiasedConfig) entropy.Source {
	t.Helper()
	src, err := local.OpenBiased(t.Context(), "biased", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func small(blocks, size int) Config {
	c := DefaultConfig()
	c.Blocks, c.BlockBytes = blocks, size
	return c
}

// TestPerfectSourcesPass: of 1,000 perfect sources each test sends about 1 % to be looked at again, and fails none. Two-sided bounds at
// about 4 standard deviations.
func TestPerfectSourcesPass(t *testing.T) {
	sizes := []Config{small(100, 16), small(64, 512)}
	if os.Getenv("QR_VERIFY") != "" {
		sizes = append(sizes, small(200, 20480))
	}
	const sources = 1000
	for _, cfg := range sizes {
		again, ran := map[string]int{}, map[string]bool{}
		for seed := range uint64(sources) {
			for _, v := range perfect(t, seed, cfg).Verdicts {
				ran[v.Name] = true
				if v.Word == Again {
					again[v.Name]++
				}
				if v.Word == Bad {
					t.Errorf("%d x %d, seed %d: %s fails: %s", cfg.Blocks, cfg.BlockBytes, seed, v.Name, v.Value)
				}
			}
		}
		for _, name := range []string{"bytes uniform", "bits balanced", "lags 1 to 8", "byte mean", "spread of z", "u uniform"} {
			if n := again[name]; n < 1 || n > 23 || !ran[name] {
				t.Errorf("%d x %d: %s rejects %d of %d perfect sources at 0.01", cfg.Blocks, cfg.BlockBytes, name, n, sources)
			}
		}
		if n := again["min-entropy"]; n > 23 { // a bound, so it rejects fewer
			t.Errorf("%d x %d: min-entropy rejects %d", cfg.Blocks, cfg.BlockBytes, n)
		}
		t.Logf("%d x %d: looked at again %v", cfg.Blocks, cfg.BlockBytes, again)
	}
}

// TestFaultsAreFound: each fault of a mock fails the tests that are for it.
func TestFaultsAreFound(t *testing.T) {
	for name, row := range map[string]struct {
		cfg  local.BiasedConfig
		want []string
	}{
		"shift":     {local.BiasedConfig{Fault: local.FaultShift, Shift: 1}, []string{"byte mean", "bits balanced", "bytes uniform", "u uniform"}},
		"stuck":     {local.BiasedConfig{Fault: local.FaultStuck, Value: 127}, []string{"health tests", "duplicates", "bytes uniform", "min-entropy"}},
		"counter":   {local.BiasedConfig{Fault: local.FaultCounter}, []string{"health tests", "duplicates", "lags 1 to 8"}},
		"duplicate": {local.BiasedConfig{Fault: local.FaultDuplicate}, []string{"duplicates"}},
	} {
		r := examine(t, biased(t, row.cfg), small(200, 20480))
		failed := map[string]bool{}
		for _, v := range r.Verdicts {
			failed[v.Name] = v.Word == Bad
		}
		for _, want := range row.want {
			if !failed[want] {
				t.Errorf("%s: %q does not fail: %+v", name, want, r.Verdicts)
			}
		}
		if !r.Failed() {
			t.Errorf("%s passes", name)
		}
	}
}

// TestPlannedPower: a per-bit bias of 1e-3 needs 26 blocks of 20,480 bytes for power 0.8 at a one-sided 0.05.
func TestPlannedPower(t *testing.T) {
	sources := 50.0
	if os.Getenv("QR_VERIFY") != "" {
		sources = 200
	}
	found := 0
	for seed := range uint64(sources) {
		src := biased(t, local.BiasedConfig{Fault: local.FaultShift, Shift: 0.255, MockConfig: local.MockConfig{Seed: seed}})
		if examine(t, src, small(26, 20480)).MeanZ > 1.6449 {
			found++
		}
	}
	if power := float64(found) / sources; math.Abs(power-0.8) > 4*0.4/math.Sqrt(sources) {
		t.Errorf("power is %.3f, want 0.8", power)
	}
}

// TestBaselineOfARawSource: against its own baseline a source with a shifted mean is right, and its shape is for information.
func TestBaselineOfARawSource(t *testing.T) {
	src := biased(t, local.BiasedConfig{Fault: local.FaultShift, Shift: 30})
	first := examine(t, src, small(400, 1024))
	cfg := small(400, 1024)
	cfg.Mean, cfg.Std = first.Mean, first.Std
	cfg.Health.ClaimedEntropy = 5
	r := examine(t, src, cfg)
	if r.Failed() {
		t.Errorf("%+v", r.Verdicts)
	}
	for _, v := range r.Verdicts {
		if v.Name == "bytes uniform" && v.Word != Info {
			t.Errorf("a raw source need not be uniform: %+v", v)
		}
	}
}

func TestExactSums(t *testing.T) {
	for n, want := range map[int]map[int]float64{1: {0: 1.0 / 256, 127: 0.5, 255: 1}, 2: {0: 1.0 / 65536, 1: 3.0 / 65536, 510: 1}} {
		for s, p := range want {
			if got := exactSums(n)[s]; math.Abs(got-p) > 1e-12 {
				t.Errorf("%d bytes: P(S <= %d) is %v, want %v", n, s, got, p)
			}
		}
	}
}

// TestNormalSums compares the approximation with the exact distribution where it takes over.
func TestNormalSums(t *testing.T) {
	exact := newSums(small(8, exactBlocks))
	near := exact
	near.exact = nil
	worst := 0.0
	for s := range 255 * exactBlocks {
		worst = max(worst, math.Abs(exact.below(s)-near.below(s)))
	}
	if worst > 2e-6 {
		t.Errorf("the distributions differ by %g", worst)
	}
}

// TestBinsAreExact: the probabilities add up, and every sum lies in the bin of its u.
func TestBinsAreExact(t *testing.T) {
	for _, n := range []int{1, 2, 16, 512, 20480} {
		d := newSums(small(8, n))
		var all []uint64
		for range 1000 {
			sum := uint64(0)
			for range n {
				sum += rand.Uint64N(256)
			}
			all = append(all, sum)
		}
		count, expected := 0, 0.0
		for _, b := range d.bins(all, 20) {
			count, expected = count+b.count, expected+b.expected
		}
		if count != 1000 || math.Abs(expected-1000) > 1e-6 {
			t.Errorf("%d bytes: %d counted, %v expected", n, count, expected)
		}
	}
}

// late is a source with fixed bytes and times.
type late struct{ n int }

func (l *late) Draw(_ context.Context, buf []byte) (entropy.Block, error) {
	_, _ = rand.NewChaCha8([32]byte{byte(l.n)}).Read(buf)
	l.n++
	asked := time.Unix(1_700_000_000, 0).UTC()
	return entropy.Block{Bytes: buf, Source: "late", Device: "dev", Class: entropy.ClassJIT, Requested: asked, Arrived: asked.Add(time.Duration(l.n) * time.Millisecond), Flags: entropy.FlagDrift}, nil
}

func TestReport(t *testing.T) {
	r := examine(t, &late{}, small(100, 1024))
	if want := (Latency{0.051, 0.091, 0.1, 0.1}); r.Latency != want {
		t.Errorf("latency %+v, want %+v", r.Latency, want)
	}
	if want := 102400 / 5.05; math.Abs(r.Rate-want) > 1e-6*want {
		t.Errorf("rate %v, want %v", r.Rate, want)
	}
	if len(r.Series.Z) != 100 || len(r.Series.Latency) != 100 || len(r.Series.ByteCounts) != 256 || r.Flags["drift"] != 100 {
		t.Errorf("%+v", r)
	}
	var text bytes.Buffer
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", text.Bytes())
	js, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(js, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Error(diff)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// second serves in place of another.
type second struct{ late }

func (s *second) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := s.late.Draw(ctx, buf)
	b.Fallback = true
	return b, err
}

// changing has another device from its fifth block on.
type changing struct{ drawn int }

func (c *changing) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := local.NewSystem().Draw(ctx, buf)
	if c.drawn++; c.drawn > 4 {
		b.Device = "spare"
	}
	return b, err
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"blocks": func(c *Config) { c.Blocks = 1 }, "size": func(c *Config) { c.BlockBytes = 0 },
		"mean": func(c *Config) { c.Mean = 300 }, "std": func(c *Config) { c.Mean, c.Std = 1, math.NaN() }, "claim": func(c *Config) { c.Health.ClaimedEntropy = -1 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := Run(t.Context(), &late{}, cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := Run(t.Context(), &second{}, small(8, 16)); !errors.Is(err, ErrSecondChoice) || !strings.Contains(err.Error(), "late") {
		t.Errorf("a second choice: %v", err)
	}
	if _, err := Run(t.Context(), &changing{}, small(8, 16)); !errors.Is(err, ErrOtherDevice) || !strings.Contains(err.Error(), `block 5 of 8`) {
		t.Errorf("another device: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, local.NewSystem(), small(8, 16)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
