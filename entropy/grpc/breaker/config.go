package breaker

import (
	"errors"
	"fmt"
	"time"
)

// Config is how a breaker behaves.
type Config struct {
	Timeout    time.Duration `mapstructure:"timeout"`             // cap of one attempt, and its limit until there are enough samples
	Floor      time.Duration `mapstructure:"timeout_floor"`       // no attempt gets less, but for a timeout that is less
	Multiplier float64       `mapstructure:"timeout_multiplier"`  // of the 99th percentile; at least 1
	Window     int           `mapstructure:"timeout_window"`      // attempts that are remembered
	MinSamples int           `mapstructure:"timeout_min_samples"` // attempts before the limit adapts
	Failures   int           `mapstructure:"breaker_failures"`    // calls in a row that open it
	Open       time.Duration `mapstructure:"breaker_open"`        // time it stays open the first time; doubles each time
	OpenMax    time.Duration `mapstructure:"breaker_open_max"`    // cap of that, where it is more than the first time
	Jitter     float64       `mapstructure:"breaker_jitter"`      // share of the open time that chance may take off; 0 to 1
	// ParityRank takes the percentile as the published qr-sampler does, at index min(floor(0.99 n), n-1). For up to 100 samples that is
	// the maximum, so that one outlier sets the limit for the next 100 draws; the default is the nearest rank.
	ParityRank bool `mapstructure:"timeout_parity_rank"`
}

// DefaultConfig returns the defaults. The floor is far above the noise of a scheduler whose cores all decode: 5 ms, as elsewhere, opens a
// breaker against a healthy server. A trial costs one connection at most, so that the breaker of a server that was away for long is not kept open long.
func DefaultConfig() Config {
	return Config{
		Timeout: 5 * time.Second, Floor: 250 * time.Millisecond, Multiplier: 1.5, Window: 100, MinSamples: 10,
		Failures: 3, Open: 500 * time.Millisecond, OpenMax: 5 * time.Second, Jitter: 0.25,
	}
}

// limits of a configuration.
const (
	maxWindow  = 100_000
	maxTimeout = time.Hour
	maxOpen    = 24 * time.Hour
)

// Validate says what is wrong.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Timeout > 0 && c.Timeout <= maxTimeout, "timeout %v: must be over 0 and at most %v", c.Timeout, maxTimeout)
	check(c.Floor >= 0 && c.Floor <= maxTimeout, "timeout_floor %v: must lie between 0 and %v", c.Floor, maxTimeout)
	check(c.Multiplier >= 1 && c.Multiplier <= 100, "timeout_multiplier %v: must lie between 1 and 100", c.Multiplier)
	check(c.Window >= 1 && c.Window <= maxWindow, "timeout_window %d: must lie between 1 and %d", c.Window, maxWindow)
	check(c.MinSamples >= 1, "timeout_min_samples %d: must be at least 1", c.MinSamples)
	check(c.Failures >= 1, "breaker_failures %d: must be at least 1", c.Failures)
	check(c.Open > 0 && c.Open <= maxOpen, "breaker_open %v: must be over 0 and at most %v", c.Open, maxOpen)
	check(c.OpenMax > 0 && c.OpenMax <= maxOpen, "breaker_open_max %v: must be over 0 and at most %v", c.OpenMax, maxOpen)
	check(c.Jitter >= 0 && c.Jitter <= 1, "breaker_jitter %v: must lie between 0 and 1", c.Jitter)
	return errors.Join(errs...)
}

// rank is the index of the 99th percentile in n sorted samples.
func (c Config) rank(n int) int {
	if c.ParityRank {
		return min(n*99/100, n-1)
	}
	return (n*99+99)/100 - 1 // ceil(0.99 n), counted from 1
}
