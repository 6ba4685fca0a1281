// Package amplify turns blocks of raw bytes into uniform numbers. An amplifier holds no state and may be shared by goroutines.
package amplify

import (
	"errors"
	"fmt"
	"math"
)

// ErrEmpty says that there was no byte to make a number of.
var ErrEmpty = errors.New("block is empty")

// Name is what records call the numbers of [ZScoreMean].
const Name = "zscore_mean"

// ByteStd is the standard deviation of a uniform byte: sqrt((256^2-1)/12).
const ByteStd = 73.90027063549903

// ByteMean is the mean of a uniform byte.
const ByteMean = 127.5

// Epsilon keeps u away from 0 and 1.
const Epsilon = 1e-10

// Config describes the bytes of a perfect source.
type Config struct {
	Mean float64 // of one byte
	Std  float64 // of one byte, over 0
}

// DefaultConfig describes uniform bytes.
func DefaultConfig() Config { return Config{Mean: ByteMean, Std: ByteStd} }

// Validate reports a description that no source can have.
func (c Config) Validate() error {
	if !(c.Mean >= 0 && c.Mean <= 255) {
		return fmt.Errorf("mean of a byte is %v; it lies between 0 and 255", c.Mean)
	}
	if !(c.Std > 0 && c.Std <= 255) {
		return fmt.Errorf("standard deviation of a byte is %v; it lies above 0, up to 255", c.Std)
	}
	return nil
}

// ZScoreMean makes u of the mean M of n bytes: z = (M-mean)/(std/sqrt(n)), u = erfc(-z/sqrt2)/2, kept within
// [Epsilon, 1-Epsilon]. By the central limit theorem z is standard normal and u uniform for a perfect source.
type ZScoreMean struct{ cfg Config }

// New returns the amplifier for bytes as cfg describes them.
func New(cfg Config) (*ZScoreMean, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check amplifier: %w", err)
	}
	return &ZScoreMean{cfg: cfg}, nil
}

// U returns the number of block, or [ErrEmpty].
func (a *ZScoreMean) U(block []byte) (float64, error) {
	u, _, err := a.UZ(block)
	return u, err
}

// UZ returns the number of block and its z-score.
func (a *ZScoreMean) UZ(block []byte) (u, z float64, err error) {
	n := len(block)
	if n == 0 {
		return 0, 0, ErrEmpty
	}
	mean := float64(Sum(block)) / float64(n)
	z = (mean - a.cfg.Mean) / (a.cfg.Std / math.Sqrt(float64(n)))
	u = 0.5 * math.Erfc(-z/math.Sqrt2)
	return min(max(u, Epsilon), 1-Epsilon), z, nil
}

// Sum adds the bytes of block.
func Sum(block []byte) uint64 {
	var s uint64
	for _, b := range block {
		s += uint64(b)
	}
	return s
}
