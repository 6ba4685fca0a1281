package amplify

import (
	"fmt"
	"math"
)

// ZScoreMean makes u of the mean M of n bytes: z = (M-mean)/(std/sqrt(n)), u = erfc(-z/sqrt2)/2. By the central limit theorem z is
// standard normal and u uniform for a source as described. erfc keeps all digits of a small u, where 1+erf would cancel.
type ZScoreMean struct{ cfg Config }

// New returns the amplifier for bytes as cfg describes them. An Epsilon of 0 is taken for [Epsilon].
func New(cfg Config) (*ZScoreMean, error) {
	if cfg.Epsilon == 0 {
		cfg.Epsilon = Epsilon
	}
	return newZScore(cfg)
}

func newZScore(cfg Config) (*ZScoreMean, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check amplifier %s: %w", Name, err)
	}
	return &ZScoreMean{cfg: cfg}, nil
}

func makeZScore(cfg Config) (Amplifier, error) { return newZScore(cfg) }

// Read implements [Amplifier].
func (a *ZScoreMean) Read(block []byte) (Reading, error) {
	if len(block) == 0 {
		return Reading{}, ErrEmpty
	}
	return a.reading(Sum(block), len(block)), nil
}

// reading is that of n bytes, 1 or more, that add up to sum.
func (a *ZScoreMean) reading(sum uint64, n int) Reading {
	r := Reading{Mean: float64(sum) / float64(n), SEM: a.cfg.Std / math.Sqrt(float64(n)), Bytes: n}
	r.Z = (r.Mean - a.cfg.Mean) / r.SEM
	r.U = a.cfg.keep(0.5 * math.Erfc(-r.Z/math.Sqrt2))
	return r
}
