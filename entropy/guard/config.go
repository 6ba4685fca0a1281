// Package guard stands between a source and those who use its bytes. It checks each block (length, health tests on the raw bytes,
// duplicates, declared rate, time order, device), applies the source's policy to what it finds, keeps an alarmed source out until a
// start-up test passes, counts, and holds the source's calibration. See design.md for the states.
//
// No block is drawn again because it looked bad: that would select. Bytes that arrived are used or counted as discarded.
//
// A [Guard] is safe for concurrent use. It starts no goroutine: a source that is kept out is tested again by the first draw after the
// back-off.
package guard

import (
	"errors"
	"fmt"
	"math"
	"time"

	"qr-gateway/entropy/health"
)

// Policy says what happens when a block can't be used.
type Policy string

// The policies.
const (
	Strict   Policy = "strict"   // the draw fails
	Fallback Policy = "fallback" // a second, named source serves, and its blocks say so
	Observe  Policy = "observe"  // findings are flagged and the bytes are used
)

// Policies lists them.
func Policies() []string { return []string{string(Strict), string(Fallback), string(Observe)} }

// Config is what every source can be given, whatever its type. The keys stand beside the options of the type.
type Config struct {
	Policy Policy `mapstructure:"-"`

	health.Config `mapstructure:",squash"`
	// Health turns the tests of the raw bytes on; without them only length, rate, time and device are checked.
	Health bool `mapstructure:"health"`

	// ExpectDevice is the device id that blocks and the probe must name; empty takes any.
	ExpectDevice string `mapstructure:"expect_device"`
	// DeclaredRate is what the source makes, in bytes per second; 0 is not checked. Bytes that come RateFactor times as fast were waiting.
	DeclaredRate float64 `mapstructure:"declared_rate"`
	// RateFactor is how much faster than declared is too fast, from 1.
	RateFactor float64 `mapstructure:"rate_factor"`
	// ReadyBytes is what may lie ready in a buffer of known size, such as a driver's.
	ReadyBytes int `mapstructure:"ready_bytes"`
	// ClockSkew is how far the clock of the source's server may be from ours.
	ClockSkew time.Duration `mapstructure:"clock_skew"`

	// RecoverMin and RecoverMax bound the wait before an alarmed source is tested again. It doubles with each alarm in a row.
	RecoverMin time.Duration `mapstructure:"recover_min"`
	RecoverMax time.Duration `mapstructure:"recover_max"`
	// RecoverTimeout bounds a start-up test, and so what a draw can be held up by one.
	RecoverTimeout time.Duration `mapstructure:"recover_timeout"`
	// HoldAlarm keeps an alarmed source out until it is opened again, or its owner has it tested ([Guard.Recheck]).
	HoldAlarm bool `mapstructure:"hold_alarm"`
	// Required refuses the start when the source does not answer or fails its start-up test. Otherwise it starts out alarmed.
	Required bool `mapstructure:"required"`

	// CalibrationFile is a frozen baseline to load.
	CalibrationFile string `mapstructure:"calibration_file"`
	// CalibrationBlocks of CalibrationBlockBytes are measured at start when there is no file; 0 measures none.
	CalibrationBlocks     int `mapstructure:"calibration_blocks"`
	CalibrationBlockBytes int `mapstructure:"calibration_block_bytes"`
}

// DefaultConfig is strict, with all tests on and no declared rate.
func DefaultConfig() Config {
	return Config{
		Policy: Strict, Config: health.DefaultConfig(), Health: true,
		RateFactor: 2, ClockSkew: time.Second,
		RecoverMin: 250 * time.Millisecond, RecoverMax: 30 * time.Second, RecoverTimeout: 2 * time.Second,
		CalibrationBlockBytes: 20480,
	}
}

// Validate names the option that can't be used and the values it takes.
func (c Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	switch {
	case c.Policy != Strict && c.Policy != Fallback && c.Policy != Observe:
		return fmt.Errorf("policy is %q, want one of %v", c.Policy, Policies())
	case !(c.DeclaredRate >= 0) || math.IsInf(c.DeclaredRate, 0):
		return fmt.Errorf("declared_rate is %v, want bytes per second, or 0 for no check", c.DeclaredRate)
	case !(c.RateFactor >= 1) || math.IsInf(c.RateFactor, 0):
		return fmt.Errorf("rate_factor is %v, want 1 or more", c.RateFactor)
	case c.ReadyBytes < 0:
		return fmt.Errorf("ready_bytes is %d, want 0 or more", c.ReadyBytes)
	case c.ClockSkew < 0:
		return fmt.Errorf("clock_skew is %v, want 0s or more", c.ClockSkew)
	case c.RecoverMin <= 0 || c.RecoverMax < c.RecoverMin:
		return fmt.Errorf("recover_min is %v and recover_max %v, want 0s < recover_min <= recover_max", c.RecoverMin, c.RecoverMax)
	case c.RecoverTimeout <= 0:
		return fmt.Errorf("recover_timeout is %v, want more than 0s", c.RecoverTimeout)
	}
	return c.validateCalibration()
}

func (c Config) validateCalibration() error {
	if c.CalibrationBlocks != 0 && (c.CalibrationBlocks < MinBlocks || c.CalibrationBlocks > MaxBlocks) {
		return fmt.Errorf("calibration_blocks is %d, want 0 (none) or %d to %d", c.CalibrationBlocks, MinBlocks, MaxBlocks)
	}
	if c.CalibrationBlockBytes < 1 || c.CalibrationBlockBytes > MaxBlockBytes {
		return fmt.Errorf("calibration_block_bytes is %d, want 1 to %d", c.CalibrationBlockBytes, MaxBlockBytes)
	}
	if c.CalibrationFile != "" && c.CalibrationBlocks != 0 {
		return errors.New("calibration_file and calibration_blocks are both set: a frozen baseline is never measured again, remove one")
	}
	return nil
}
