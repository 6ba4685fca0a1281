package sampler

import (
	"context"
	"fmt"
)

// Noise supplies the uniform numbers of one request, each strictly between 0 and 1. It belongs to one goroutine.
type Noise interface {
	// One returns the number that decides step as a whole.
	One(ctx context.Context, step int) (float64, error)
	// Each fills u with one number per token of step. len(u) is len(tokens), at least 1. Tokens may be [EndToken].
	Each(ctx context.Context, step int, tokens []int32, u []float64) error
	// Info names the source of the bytes, the way a number is made of them, and how many bytes were taken so far.
	Info() (source, uSource string, bytes int64)
}

// Ids that stand for something other than a token of the vocabulary when numbers are asked for.
const (
	wholeStep int32 = -1 // the step as a whole
	// EndToken is all end-of-generation tokens together.
	EndToken int32 = -2
)

// Seeded is noise keyed by seed, step and token id, never by rank: two candidates that change places through float noise keep their
// numbers. It has no state and may be shared.
type Seeded struct{ key uint64 }

// NewSeeded returns the noise of a seeded request.
func NewSeeded(seed int64) *Seeded { return &Seeded{key: mix(uint64(seed) + golden)} }

// golden is 2^64 divided by the golden ratio, the step of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 in Stafford's variant 13: every bit of x changes every bit of the result with probability about 1/2.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// at is the number of one token: 52 random bits and a half, so that neither 0 nor 1 is reached.
func (s *Seeded) at(step int, token int32) float64 {
	x := mix(s.key ^ mix(uint64(step)+golden))
	x = mix(x + golden*uint64(uint32(token)) + golden)
	return (float64(x>>12) + 0.5) / (1 << 52)
}

// One implements [Noise].
func (s *Seeded) One(_ context.Context, step int) (float64, error) { return s.at(step, wholeStep), nil }

// Each implements [Noise].
func (s *Seeded) Each(_ context.Context, step int, tokens []int32, u []float64) error {
	for i, t := range tokens {
		u[i] = s.at(step, t)
	}
	return nil
}

// Info implements [Noise].
func (s *Seeded) Info() (source, uSource string, bytes int64) { return "seed", "seeded", 0 }

// ByteSource is the randomness behind an [EntropyNoise]. Fill fills all of buf with bytes that were never handed out before, or
// returns an error.
type ByteSource interface {
	Fill(ctx context.Context, buf []byte) error
}

// Amplifier makes one uniform number of a block of bytes. The result is strictly between 0 and 1.
type Amplifier interface {
	U(block []byte) (float64, error)
}

// EntropyConfig says how bytes become numbers.
type EntropyConfig struct {
	Source  string // name of the byte source, for records
	USource string // name of the amplifier, for records
	Bytes   int    // bytes of one draw, at least 1
}

// EntropyNoise takes every number from a byte source at the moment it is asked for: one draw for One, and one draw cut into equal
// blocks for Each. It belongs to one goroutine.
type EntropyNoise struct {
	cfg   EntropyConfig
	src   ByteSource
	amp   Amplifier
	buf   []byte
	taken int64
}

// NewEntropyNoise returns noise that draws cfg.Bytes from src for every call and amplifies them with amp.
func NewEntropyNoise(cfg EntropyConfig, src ByteSource, amp Amplifier) *EntropyNoise {
	return &EntropyNoise{cfg: cfg, src: src, amp: amp, buf: make([]byte, max(cfg.Bytes, 0))}
}

// One implements [Noise].
func (e *EntropyNoise) One(ctx context.Context, _ int) (float64, error) {
	if err := e.draw(ctx); err != nil {
		return 0, err
	}
	return e.amplify(e.buf)
}

// Each implements [Noise]. Block i, in the order of tokens, becomes u[i]; what is left over after the last whole block is not used.
func (e *EntropyNoise) Each(ctx context.Context, _ int, tokens []int32, u []float64) error {
	if len(tokens) == 0 {
		return nil
	}
	size := len(e.buf) / len(tokens)
	if size == 0 {
		return fmt.Errorf("draw numbers: %d bytes (qr_sample_count) are too few for %d candidates", len(e.buf), len(tokens))
	}
	if err := e.draw(ctx); err != nil {
		return err
	}
	for i := range tokens {
		v, err := e.amplify(e.buf[i*size : (i+1)*size])
		if err != nil {
			return err
		}
		u[i] = v
	}
	return nil
}

// Info implements [Noise].
func (e *EntropyNoise) Info() (source, uSource string, bytes int64) {
	return e.cfg.Source, e.cfg.USource, e.taken
}

func (e *EntropyNoise) draw(ctx context.Context) error {
	if err := e.src.Fill(ctx, e.buf); err != nil {
		return fmt.Errorf("draw %d bytes from %s: %w", len(e.buf), e.cfg.Source, err)
	}
	e.taken += int64(len(e.buf))
	return nil
}

func (e *EntropyNoise) amplify(block []byte) (float64, error) {
	u, err := e.amp.U(block)
	if err != nil {
		return 0, fmt.Errorf("amplify %d bytes: %w", len(block), err)
	}
	if !(u > 0 && u < 1) {
		return 0, fmt.Errorf("amplify %d bytes: %s gave %v, which is not between 0 and 1", len(block), e.cfg.USource, u)
	}
	return u, nil
}
