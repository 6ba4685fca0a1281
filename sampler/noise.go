package sampler

import (
	"context"
	"errors"
)

// Noise supplies the uniform numbers of one request, each strictly between 0 and 1. It belongs to one goroutine.
type Noise interface {
	// One returns the number that decides step as a whole.
	One(ctx context.Context, step int) (float64, error)
	// Each fills u with one number per token of step. len(u) is len(tokens).
	Each(ctx context.Context, step int, tokens []int32, u []float64) error
	// Info names the source of the bytes, the way a number is made of them, and how many bytes were taken so far.
	Info() (source, uSource string, bytes int64)
}

// ByteSource is the randomness behind an [EntropyNoise]. Fill fills all of buf with bytes that were never handed out before, or
// returns an error.
type ByteSource interface {
	Fill(ctx context.Context, buf []byte) error
}

// Amplifier makes one uniform number of a block of bytes. The result is strictly between 0 and 1.
type Amplifier interface {
	U(block []byte) (float64, error)
}

// errNotBuilt is returned while a body is missing.
var errNotBuilt = errors.New("not built yet")

// NewSeeded returns the noise of a seeded request.
func NewSeeded(seed int64) *Seeded { return &Seeded{seed: uint64(seed)} }

// Seeded is noise keyed by seed, step and token id.
type Seeded struct{ seed uint64 }

// One implements [Noise].
func (s *Seeded) One(ctx context.Context, step int) (float64, error) { return 0, errNotBuilt }

// Each implements [Noise].
func (s *Seeded) Each(ctx context.Context, step int, tokens []int32, u []float64) error {
	return errNotBuilt
}

// Info implements [Noise].
func (s *Seeded) Info() (source, uSource string, bytes int64) { return "seed", "seeded", 0 }

// EntropyConfig says how bytes become numbers.
type EntropyConfig struct {
	Source  string // name of the byte source, for records
	USource string // name of the amplifier, for records
	Bytes   int    // bytes of one draw
}

// EntropyNoise takes every number from a byte source, at the moment it is asked for.
type EntropyNoise struct{ cfg EntropyConfig }

// NewEntropyNoise returns noise that draws cfg.Bytes from src for every call and amplifies them with amp.
func NewEntropyNoise(cfg EntropyConfig, src ByteSource, amp Amplifier) *EntropyNoise {
	return &EntropyNoise{cfg: cfg}
}

// One implements [Noise].
func (e *EntropyNoise) One(ctx context.Context, step int) (float64, error) { return 0, errNotBuilt }

// Each implements [Noise].
func (e *EntropyNoise) Each(ctx context.Context, step int, tokens []int32, u []float64) error {
	return errNotBuilt
}

// Info implements [Noise].
func (e *EntropyNoise) Info() (source, uSource string, bytes int64) {
	return e.cfg.Source, e.cfg.USource, 0
}
