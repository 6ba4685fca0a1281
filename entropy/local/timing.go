package local

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// TimingConfig says how jitter is made into bytes.
type TimingConfig struct {
	// Raw hands out the lowest byte of each time difference as it is, for study; claim no more entropy than was measured.
	Raw bool `mapstructure:"raw"`
	// MinRate is the least rate, in bytes per second, below which the source is refused at start.
	MinRate float64 `mapstructure:"min_rate"`
	// ClaimedPerSample is the min-entropy claimed for one time difference, in bits. It sets how many make 32 bytes: 320 bits of claim.
	ClaimedPerSample float64 `mapstructure:"claimed_per_sample"`
	// MemoryBytes is what the measured work walks through, a power of two; larger than the first-level cache.
	MemoryBytes int `mapstructure:"memory_bytes"`
}

// DefaultTimingConfig conditions, and refuses less than 200 kB/s.
func DefaultTimingConfig() TimingConfig {
	return TimingConfig{MinRate: 200e3, ClaimedPerSample: 0.75, MemoryBytes: 1 << 20}
}

// Validate names the option that can't be used.
func (c TimingConfig) Validate() error {
	switch {
	case !(c.MinRate >= 0) || math.IsInf(c.MinRate, 0):
		return fmt.Errorf("min_rate is %v, want bytes per second, 0 or more", c.MinRate)
	case !(c.ClaimedPerSample >= 0.05 && c.ClaimedPerSample <= 1):
		return fmt.Errorf("claimed_per_sample is %v, want 0.05 to 1 bit", c.ClaimedPerSample)
	case c.MemoryBytes < 1<<12 || c.MemoryBytes > 1<<30 || c.MemoryBytes&(c.MemoryBytes-1) != 0:
		return fmt.Errorf("memory_bytes is %d, want a power of two from 4096 to 2^30", c.MemoryBytes)
	}
	return nil
}

// outBytes are made at once when the jitter is conditioned, with outBits of claim: the output's own 256 and 64 to spare, as SP 800-90B
// 3.1.5.1 asks of full entropy.
const (
	outBytes = sha256.Size
	outBits  = 256 + 64
)

// Timing makes bytes of the differences between clock readings around memory accesses, whose times depend on caches, the TLB, refresh and
// whatever else runs. Two tests of SP 800-90B run on the differences, before they are hashed.
type Timing struct {
	name    string
	cfg     TimingConfig
	samples int // per outBytes
	rate    float64
	perBit  float64 // measured min-entropy of a sample, an upper bound of the truth
	turn    chan struct{}
	seq     atomic.Uint64

	// Owned by whoever holds the turn.
	memory  []byte
	place   uint32
	clock   func() int64 // monotonic, ns
	before  int64
	monitor *health.Monitor
	raw     []byte
}

// trialSamples are measured at start.
const (
	trialSamples = 1 << 15
	trialPart    = 1 << 10 // is timed by itself
)

// OpenTiming measures the jitter of this machine, and refuses it if it gives too little entropy or too low a rate.
func OpenTiming(ctx context.Context, name string, cfg TimingConfig) (*Timing, error) {
	if err := cfg.Validate(); err != nil {
		return nil, badOption(name, err)
	}
	start := time.Now()
	return openTiming(ctx, name, cfg, func() int64 { return int64(time.Since(start)) })
}

func openTiming(ctx context.Context, name string, cfg TimingConfig, clock func() int64) (*Timing, error) {
	t := &Timing{
		name: name, cfg: cfg, samples: int(math.Ceil(outBits / cfg.ClaimedPerSample)), clock: clock,
		turn: make(chan struct{}, 1), memory: make([]byte, cfg.MemoryBytes),
	}
	t.raw = make([]byte, t.samples)
	t.monitor = health.New(health.Config{ClaimedEntropy: cfg.ClaimedPerSample, AlphaExponent: 40})
	if err := t.trial(ctx); err != nil {
		return nil, err
	}
	t.turn <- struct{}{}
	return t, nil
}

// trial measures entropy and rate.
func (t *Timing) trial(ctx context.Context) error {
	for i := range t.memory { // so that no page is brought in while it is measured
		t.memory[i] = byte(i)
	}
	var counts [256]uint64
	var pairs [256][256]uint32
	raw := make([]byte, trialSamples)
	quickest := time.Duration(math.MaxInt64)
	for part := range slices.Chunk(raw, trialPart) { // the quickest, since anything may come between
		began := time.Now()
		t.sample(part)
		quickest = min(quickest, time.Since(began))
	}
	for i, x := range raw {
		counts[x]++
		if i > 0 {
			pairs[raw[i-1]][x]++
		}
	}
	t.perBit = min(health.MinEntropy(&counts), conditional(&pairs, len(raw)-1))
	if t.perBit < 2*t.cfg.ClaimedPerSample {
		return t.refuse(fmt.Sprintf("the jitter has %.2f bits a sample at most, want twice the claim of %.2f", t.perBit, t.cfg.ClaimedPerSample))
	}
	t.rate = trialPart / quickest.Seconds()
	if !t.cfg.Raw {
		t.rate *= outBytes / float64(t.samples)
	}
	if t.rate < t.cfg.MinRate {
		return t.refuse(fmt.Sprintf("it makes %.0f bytes per second, less than min_rate %.0f", t.rate, t.cfg.MinRate))
	}
	return ended(ctx, t.name, 0)
}

// conditional is the min-entropy of a sample for someone who knows the one before: minus log2 of the chance to guess it right.
func conditional(pairs *[256][256]uint32, n int) float64 {
	right := 0.0
	for _, row := range pairs {
		most := uint32(0)
		for _, c := range row {
			most = max(most, c)
		}
		right += float64(most)
	}
	return -math.Log2(right / float64(n))
}

func (t *Timing) refuse(why string) error {
	return &entropy.Error{Kind: entropy.KindConfig, Source: t.name, Message: "timing jitter can't be used on this machine: " + why, Hint: "use type system, or lower the option and know what that means"}
}

// sample fills raw with the lowest bytes of time differences around walks through memory.
func (t *Timing) sample(raw []byte) {
	mask := uint32(len(t.memory) - 1)
	place, before := t.place, t.before
	for i := range raw {
		place = 1664525*place + 1013904223
		at := (place >> 2) & mask
		t.memory[at] += byte(place >> 24)
		now := t.clock()
		raw[i] = byte(now - before)
		before = now
	}
	t.place, t.before = place, before
}

// Draw implements [entropy.Source]. The jitter is measured while the caller waits.
func (t *Timing) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	asked := time.Now()
	select {
	case <-t.turn:
		defer func() { t.turn <- struct{}{} }()
	case <-ctx.Done():
	}
	for rest := buf; ; {
		if err := ended(ctx, t.name, len(buf)); err != nil {
			clear(buf)
			return entropy.Block{}, err
		}
		if len(rest) == 0 {
			break
		}
		n, err := t.part(rest)
		if err != nil {
			clear(buf)
			return entropy.Block{}, err
		}
		rest = rest[n:]
	}
	return entropy.Block{
		Bytes: buf, Source: t.name, Device: "clock", Requested: asked, Arrived: time.Now(), Sequence: t.seq.Add(1), Class: entropy.ClassJIT,
	}, nil
}

// part writes the next bytes of a draw.
func (t *Timing) part(buf []byte) (int, error) {
	t.sample(t.raw)
	if r := t.monitor.Test(t.raw); r.Flags != 0 {
		what := t.monitor.Describe(r)
		t.monitor.Restart()
		return 0, &entropy.Error{Kind: entropy.KindHealth, Source: t.name, Message: "time differences: " + what, Hint: "something else may be stopping this machine's clock or cores"}
	}
	if t.cfg.Raw {
		return copy(buf, t.raw), nil
	}
	out := sha256.Sum256(t.raw)
	return copy(buf, out[:]), nil
}

// ClaimedEntropy is what raw bytes may be tested at; conditioned ones are tested as full.
func (t *Timing) ClaimedEntropy() float64 {
	if t.cfg.Raw {
		return t.cfg.ClaimedPerSample
	}
	return 8
}

// Probe implements [entropy.Prober].
func (t *Timing) Probe(context.Context) (entropy.Capabilities, error) {
	return entropy.Capabilities{
		Device: "clock", Class: entropy.ClassJIT, Rate: t.rate,
		Details: map[string]string{"measured_bits_per_sample": fmt.Sprintf("%.2f", t.perBit), "samples_per_32_bytes": fmt.Sprint(t.samples)},
	}, nil
}
