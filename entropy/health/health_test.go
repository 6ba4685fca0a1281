package health

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/entropy"
)

// The cut-offs of 8-bit samples published with SP 800-90B's formulas, repetition and proportion at 2^-20, 2^-30 and 2^-40. Those of 1 and
// 0.5 bits are also the ones of Linux's jitterentropy and of Go's own entropy source.
var cutoffs = []struct {
	entropy float64
	want    [3][2]int
}{
	{8, [3][2]int{{4, 13}, {5, 16}, {6, 19}}},
	{7, [3][2]int{{4, 18}, {6, 22}, {7, 26}}},
	{6, [3][2]int{{5, 25}, {6, 31}, {8, 35}}},
	{5, [3][2]int{{5, 39}, {7, 46}, {9, 51}}},
	{4, [3][2]int{{6, 62}, {9, 71}, {11, 78}}},
	{3, [3][2]int{{8, 103}, {11, 114}, {15, 123}}},
	{2, [3][2]int{{11, 177}, {16, 190}, {21, 201}}},
	{1, [3][2]int{{21, 311}, {31, 325}, {41, 336}}},
	{0.5, [3][2]int{{41, 410}, {61, 422}, {81, 432}}},
}

func TestCutoffs(t *testing.T) {
	for _, row := range cutoffs {
		for i, alpha := range []int{20, 30, 40} {
			got := [2]int{RepetitionCutoff(row.entropy, alpha), ProportionCutoff(row.entropy, alpha, Window)}
			if got != row.want[i] {
				t.Errorf("H %v, alpha 2^-%d: got %v, want %v", row.entropy, alpha, got, row.want[i])
			}
		}
	}
	for i, want := range []int{589, 609, 625} { // binary samples
		if got := ProportionCutoff(1, 20+10*i, 1024); got != want {
			t.Errorf("binary, alpha 2^-%d: got %d, want %d", 20+10*i, got, want)
		}
	}
}

// plain is the tests as the standard writes them, sample by sample.
type plain struct {
	n, run, steps    int
	last, step       byte
	reference        byte
	window, count    int
	longest, longer2 int // of bytes, of differences
	highest          int
}

func (p *plain) next(x byte) {
	if p.n > 0 && x == p.last {
		p.run++
	} else {
		p.run = 1
	}
	if p.n > 1 && x-p.last == p.step {
		p.steps++
	} else if p.n > 0 {
		p.steps = 1
	}
	if p.window == 0 {
		p.reference, p.count = x, 0
	}
	if x == p.reference {
		p.count++
	}
	p.step, p.last = x-p.last, x
	p.window = (p.window + 1) % Window
	p.n++
	p.longest, p.longer2, p.highest = max(p.longest, p.run), max(p.longer2, p.steps), max(p.highest, p.count)
}

// TestMonitorIsThePlainTest cuts a stream in blocks of any size: what is found does not depend on the cuts.
func TestMonitorIsThePlainTest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]int{1, 2, 3, 7, 256}).Draw(t, "alphabet")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		m, p := New(Config{ClaimedEntropy: 8, AlphaExponent: 20}), &plain{}
		for range rapid.IntRange(1, 6).Draw(t, "blocks") {
			block := make([]byte, rapid.IntRange(0, 700).Draw(t, "length"))
			p.longest, p.longer2, p.highest = 0, 0, 0
			for i := range block {
				block[i] = byte(rng.IntN(alphabet))
				p.next(block[i])
			}
			r := m.Test(block)
			alarm := p.longest >= 4 || p.longer2 >= 4
			if r.Flags&entropy.FlagRepetition != 0 != alarm {
				t.Fatalf("repetition: got %+v, want run %d, differences %d", r, p.longest, p.longer2)
			}
			if r.Run != p.longest || p.longer2 > 1 && r.Ramp != p.longer2 {
				t.Fatalf("got %+v, want run %d, differences %d", r, p.longest, p.longer2)
			}
			if r.Count != p.highest || r.Flags&entropy.FlagProportion != 0 != (p.highest >= 13) {
				t.Fatalf("proportion: got %+v, want count %d", r, p.highest)
			}
		}
	})
}

func TestRunAcrossBlocks(t *testing.T) {
	m := New(DefaultConfig())
	head := []byte{1, 9, 200, 7, 7, 7}
	if r := m.Test(head); r.Flags != 0 {
		t.Errorf("a run of 3: %+v", r)
	}
	if r := m.Test([]byte{7, 7}); r.Flags != 0 {
		t.Errorf("a run of 5: %+v", r)
	}
	if r := m.Test([]byte{7, 1}); r.Flags != entropy.FlagRepetition || r.Run != 6 {
		t.Errorf("a run of 6 over three blocks: %+v", r)
	}
	m.Restart()
	if r := m.Test([]byte{1, 7, 7}); r.Flags != 0 {
		t.Errorf("after a restart: %+v", r)
	}
}

func TestCounterIsFound(t *testing.T) {
	for _, step := range []byte{1, 2, 7, 255} {
		block := make([]byte, 300)
		for i := range block {
			block[i] = byte(i) * step
		}
		if r := New(DefaultConfig()).Test(block); r.Flags != entropy.FlagRepetition {
			t.Errorf("step %d: %+v", step, r)
		}
	}
}

func TestDuplicates(t *testing.T) {
	cfg := DefaultConfig()
	cfg.DuplicateWindow = 4
	m := New(cfg)
	block := func(seed byte, n int) []byte {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
		return b
	}
	for i := range byte(4) {
		if r := m.Test(block(i, 64)); r.Flags != 0 {
			t.Fatalf("block %d: %+v", i, r)
		}
	}
	if r := m.Test(block(0, 48)); r.Flags != entropy.FlagDuplicate {
		t.Errorf("the beginning of the first block: %+v", r)
	}
	if r := m.Test(block(1, 64)); r.Flags != entropy.FlagDuplicate { // its first digest is the oldest one still kept
		t.Errorf("a block from before: %+v", r)
	}
	for i := range byte(4) {
		m.Test(block(10+i, 64))
	}
	if r := m.Test(block(0, 64)); r.Flags != 0 {
		t.Errorf("a block older than the window: %+v", r)
	}
	if r := m.Test([]byte{1, 2, 4}); r.Flags != 0 {
		t.Errorf("first short block: %+v", r)
	}
	if r := m.Test([]byte{1, 2, 4}); r.Flags != 0 {
		t.Errorf("chance repeats short blocks: %+v", r)
	}
}

// TestFalseAlarms runs perfect bytes at the customary 2^-20, where the expected rate is known: one run of 4 in 820 blocks.
func TestFalseAlarms(t *testing.T) {
	cfg := DefaultConfig()
	m, rng, block := New(cfg), rand.NewChaCha8([32]byte{7}), make([]byte, 20480)
	loose := New(Config{ClaimedEntropy: 8, AlphaExponent: 20})
	if raceEnabled {
		t.Skip("too many bytes for the race detector, and one goroutine")
	}
	const blocks = 8000
	alarms := 0
	for range blocks {
		_, _ = rng.Read(block)
		if r := m.Test(block); r.Flags != 0 {
			t.Fatalf("false alarm at 2^-40: %s", m.Describe(r))
		}
		if loose.Test(block).Flags&entropy.FlagRepetition != 0 {
			alarms++
		}
	}
	// Runs of bytes and runs of differences: 2 * blocks * 20480 * 2^-24 = 19.5 expected.
	if alarms < 6 || alarms > 40 {
		t.Errorf("%d alarms at 2^-20, 20 are expected", alarms)
	}
}

func TestMinEntropy(t *testing.T) {
	for n, want := range map[int]float64{10_000: 7.01, 20_480: 7.27, 102_400: 7.65, 1_000_000: 7.87} {
		mean := 0.0
		for seed := range byte(20) {
			var counts [256]uint64
			block := make([]byte, n)
			_, _ = rand.NewChaCha8([32]byte{seed, 1}).Read(block)
			for _, x := range block {
				counts[x]++
			}
			mean += MinEntropy(&counts) / 20
		}
		if math.Abs(mean-want) > 0.05 {
			t.Errorf("%d perfect bytes: %.3f bits, want %.2f", n, mean, want)
		}
	}
	if h := MinEntropy(&[256]uint64{5: 1000}); h != 0 {
		t.Errorf("stuck: %v bits", h)
	}
	if h := MinEntropy(new([256]uint64)); h != 0 {
		t.Errorf("nothing: %v bits", h)
	}
}

func TestRefusedConfigs(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no entropy":       func(c *Config) { c.ClaimedEntropy = 0 },
		"NaN":              func(c *Config) { c.ClaimedEntropy = math.NaN() },
		"more than a byte": func(c *Config) { c.ClaimedEntropy = 8.1 },
		"next to nothing":  func(c *Config) { c.ClaimedEntropy = 0.001 },
		"loose alpha":      func(c *Config) { c.AlphaExponent = 10 },
		"strict alpha":     func(c *Config) { c.AlphaExponent = 100 },
		"window":           func(c *Config) { c.DuplicateWindow = -1 },
		"short start-up":   func(c *Config) { c.StartUpSamples = 100 },
	} {
		c := DefaultConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s: %+v is accepted", name, c)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzMonitor(f *testing.F) {
	f.Add([]byte{1, 1, 1, 1, 1, 1}, 3)
	f.Add(bytes.Repeat([]byte{0, 1}, 600), 511)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = max(0, min(cut, len(data)))
		whole, parts := New(DefaultConfig()), New(DefaultConfig())
		a := whole.Test(data).Flags
		b := parts.Test(data[:cut]).Flags | parts.Test(data[cut:]).Flags
		if both := entropy.FlagRepetition | entropy.FlagProportion; a&both != b&both {
			t.Errorf("whole %b, cut at %d %b", a, cut, b)
		}
	})
}

func BenchmarkTest(b *testing.B) {
	m, block := New(DefaultConfig()), make([]byte, 20480)
	rng := rand.NewChaCha8([32]byte{})
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		b.StopTimer()
		_, _ = rng.Read(block)
		b.StartTimer()
		m.Test(block)
	}
}
