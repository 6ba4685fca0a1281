// Package measure examines a source: its rate and latency, the health tests, and whether its bytes and the numbers made of them are
// distributed as they should be. It is what `qr-gateway entropy test` shows.
//
// A [Meter] takes blocks one by one and belongs to one goroutine; [Run] draws them from a source.
package measure

import (
	"context"
	"errors"
	"fmt"
	"math"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// Limits of [Config].
const (
	MinBlocks     = 8
	MaxBlocks     = 1 << 20
	MaxBlockBytes = 1 << 24
)

// Mean and standard deviation of a uniform byte: sqrt((256^2-1)/12).
const (
	UniformMean = 127.5
	UniformStd  = 73.90027063549903
)

// Config says how much is drawn and what it is compared with.
type Config struct {
	// Blocks and BlockBytes are how many draws of which size. A number u is made of each.
	Blocks     int
	BlockBytes int
	// Health is for the tests of the raw bytes; a claim below 8 bits marks a raw source, whose bytes need not be uniform.
	Health health.Config
	// Mean and Std of a byte are the source's baseline, against which u is made; both 0: uniform bytes.
	Mean, Std float64
}

// DefaultConfig draws 200 blocks of 20,480 bytes and expects uniform bytes.
func DefaultConfig() Config {
	return Config{Blocks: 200, BlockBytes: 20480, Health: health.DefaultConfig()}
}

// Validate names what can't be used.
func (c Config) Validate() error {
	switch {
	case c.Blocks < MinBlocks || c.Blocks > MaxBlocks:
		return fmt.Errorf("blocks is %d, want %d to %d", c.Blocks, MinBlocks, MaxBlocks)
	case c.BlockBytes < 1 || c.BlockBytes > MaxBlockBytes:
		return fmt.Errorf("block bytes is %d, want 1 to %d", c.BlockBytes, MaxBlockBytes)
	case c.Mean == 0 && c.Std == 0:
	case !(c.Mean >= 0 && c.Mean <= 255):
		return fmt.Errorf("mean is %v, want 0 to 255", c.Mean)
	case !(c.Std > 0) || math.IsInf(c.Std, 0):
		return fmt.Errorf("std is %v, want more than 0", c.Std)
	}
	return c.Health.Validate()
}

func (c Config) baseline() bool { return c.Std != 0 }

// ErrSecondChoice is a block that another source served: it says nothing about the one that is examined.
var ErrSecondChoice = errors.New("a second source served the block")

// ErrOtherDevice is a block of another device than the first: a baseline or verdict of both would be of neither.
var ErrOtherDevice = errors.New("another device served the block; expect_device holds a source to one")

// Run draws and examines. The source's guard, if it has one, should be under the policy observe, so that what it finds is seen here.
func Run(ctx context.Context, src entropy.Source, cfg Config) (*Report, error) {
	m, err := NewMeter(cfg)
	if err != nil {
		return nil, err
	}
	buf, device := make([]byte, cfg.BlockBytes), ""
	for i := range cfg.Blocks {
		b, err := src.Draw(ctx, buf)
		if err != nil {
			return nil, fmt.Errorf("draw block %d of %d: %w", i+1, cfg.Blocks, err)
		}
		if i == 0 {
			device = b.Device
		}
		switch {
		case b.Fallback:
			return nil, fmt.Errorf("draw block %d of %d: %w: %s", i+1, cfg.Blocks, ErrSecondChoice, b.Source)
		case b.Device != device:
			return nil, fmt.Errorf("draw block %d of %d: %w: %q, and before %q", i+1, cfg.Blocks, ErrOtherDevice, b.Device, device)
		}
		m.Add(b)
	}
	return m.Report(), nil
}
