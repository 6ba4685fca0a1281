// Package health tests raw bytes while they are used: the repetition-count and the adaptive-proportion test of NIST SP 800-90B
// (section 4.4), and a check for blocks that were seen before. The tests find a source that is stuck or has lost most of its entropy;
// they do not find small bias, and a conditioned source passes them even when what feeds it is dead. "90B-style": no compliance is
// claimed.
//
// A [Monitor] belongs to one source and its state runs on from block to block. It is not safe for concurrent use.
package health

import (
	"errors"
	"fmt"
	"math"

	"qr-gateway/entropy"
)

// Limits of [Config].
const (
	MinAlphaExponent   = 20
	MaxAlphaExponent   = 60
	MaxDuplicateWindow = 65536
	// Window is the adaptive-proportion test's, in samples of 8 bits.
	Window = 512
	// MinStartUp is the least number of samples a start-up test takes.
	MinStartUp = 1024
)

// Config says how strict the tests are.
type Config struct {
	// ClaimedEntropy is what the source is said to have at least, in bits per byte, above 0 and up to 8.
	ClaimedEntropy float64 `mapstructure:"claimed_entropy"`
	// AlphaExponent sets the chance of a false alarm per sample to 2^-AlphaExponent.
	AlphaExponent int `mapstructure:"alpha_exponent"`
	// DuplicateWindow is how many earlier blocks a block is compared with; 0 turns the check off.
	DuplicateWindow int `mapstructure:"duplicate_window"`
	// StartUpSamples is how many bytes the start-up test reads and discards, at least 1024; 0 runs none, for recordings.
	StartUpSamples int `mapstructure:"startup_samples"`
}

// DefaultConfig claims full entropy at 2^-40: about one false alarm in 25 million blocks of 20,480 bytes. At the customary 2^-20 it
// would be one in 400.
func DefaultConfig() Config {
	return Config{ClaimedEntropy: 8, AlphaExponent: 40, DuplicateWindow: 1024, StartUpSamples: MinStartUp}
}

// Validate names the option that can't be used.
func (c Config) Validate() error {
	if !(c.ClaimedEntropy > 0 && c.ClaimedEntropy <= 8) {
		return fmt.Errorf("claimed_entropy is %v, want bits per byte above 0 and up to 8", c.ClaimedEntropy)
	}
	if c.ClaimedEntropy < 0.01 {
		return fmt.Errorf("claimed_entropy is %v: below 0.01 bits per byte the tests can find nothing", c.ClaimedEntropy)
	}
	if c.AlphaExponent < MinAlphaExponent || c.AlphaExponent > MaxAlphaExponent {
		return fmt.Errorf("alpha_exponent is %d, want %d to %d (40 is a false alarm in 2^40 samples)", c.AlphaExponent, MinAlphaExponent, MaxAlphaExponent)
	}
	if c.DuplicateWindow < 0 || c.DuplicateWindow > MaxDuplicateWindow {
		return fmt.Errorf("duplicate_window is %d, want 0 (off) to %d blocks", c.DuplicateWindow, MaxDuplicateWindow)
	}
	if c.StartUpSamples != 0 && c.StartUpSamples < MinStartUp || c.StartUpSamples > 1<<20 {
		return fmt.Errorf("startup_samples is %d, want 0 (no test) or %d to %d bytes", c.StartUpSamples, MinStartUp, 1<<20)
	}
	return nil
}

// RepetitionCutoff is the run length at which the repetition-count test alarms: 1 + ceil(-log2(alpha)/H), SP 800-90B 4.4.1.
func RepetitionCutoff(entropy float64, alphaExponent int) int {
	return 1 + int(math.Ceil(float64(alphaExponent)/entropy))
}

// ProportionCutoff is the count in a window at which the adaptive-proportion test alarms: 1 + critbinom(window, 2^-H, 1-alpha),
// SP 800-90B 4.4.2. The tail is summed from its small end, so that alpha is not lost in 1-alpha.
func ProportionCutoff(entropy float64, alphaExponent, window int) int {
	alpha := math.Ldexp(1, -alphaExponent)
	logP, logQ := -entropy*math.Ln2, math.Log1p(-math.Exp2(-entropy))
	full, _ := math.Lgamma(float64(window + 1))
	tail := 0.0
	for k := window; k > 0; k-- { // here tail is P(X > k)
		a, _ := math.Lgamma(float64(k + 1))
		b, _ := math.Lgamma(float64(window - k + 1))
		tail += math.Exp(full - a - b + float64(k)*logP + float64(window-k)*logQ)
		if tail > alpha { // P(X >= k) is too likely, so k is the smallest whose own upper tail is not
			return 1 + k
		}
	}
	return 1
}

// MinEntropy is the most-common-value estimate in bits per byte with its 99 % bound (SP 800-90B 6.3.1). It is a floor that depends on
// the number of samples: perfect bytes give about 7.27 over 20,480 and 7.87 over a million. Without samples it is 0.
func MinEntropy(counts *[256]uint64) float64 {
	var n, most uint64
	for _, c := range counts {
		n, most = n+c, max(most, c)
	}
	if n < 2 {
		return 0
	}
	p := float64(most) / float64(n)
	return -math.Log2(min(1, p+2.5758*math.Sqrt(p*(1-p)/float64(n-1)))) + 0 // no -0
}

// ErrAlarm is what a test of raw bytes found.
var ErrAlarm = errors.New("a health test of the raw bytes raised an alarm")

// Result is what the tests found in one block.
type Result struct {
	Flags entropy.Flags // repetition (of bytes or of differences), proportion, duplicate
	Run   int           // the longest run of equal bytes that the block has a part in, from 1
	Ramp  int           // the longest run of equal differences of neighbours
	Count int           // the highest count of a window's first byte
}
