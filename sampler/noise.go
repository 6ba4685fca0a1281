package sampler

import "context"

// Noise supplies the uniform numbers of one request, each strictly between 0 and 1. It belongs to one goroutine. One that can ask its
// source ahead is also a [Pipelined].
type Noise interface {
	// One returns the number that decides step as a whole.
	One(ctx context.Context, step int) (float64, error)
	// Each fills u with one number per token of step. len(u) is len(tokens), at least 1. Tokens may be [EndToken].
	Each(ctx context.Context, step int, tokens []int32, u []float64) error
	// Info names the source of the latest bytes, the way a number is made of them, and how many bytes were taken so far.
	Info() (source, uSource string, bytes int64)
	// Last says what the latest numbers were made of; nil before the first. It is for reading only, and valid until the next One or Each.
	Last() *Evidence
}

// Pipelined is an optional power of a [Noise]. Where the request has opted in and the source can, the bytes of a token are asked for as soon
// as the token before it is known, while the model still computes the logits.
type Pipelined interface {
	// Accepted tells that token was chosen at step. Before the first token, Accepted(-1, -1) may be called.
	Accepted(step int, token int32)
	// End gives up what was asked for and not used. The noise may be used again afterwards.
	End()
}

// Ids that stand for something other than a token of the vocabulary when numbers are asked for.
const (
	wholeStep int32 = -1 // the step as a whole
	// EndToken is all end-of-generation tokens together.
	EndToken int32 = -2
)

// Seeded is noise keyed by seed, step and token id, never by rank: two candidates that change places through float noise keep their
// numbers. It has no state and may be shared.
type Seeded struct {
	key uint64
	ev  Evidence // the same for every number, never changed
}

// NewSeeded returns the noise of a seeded request.
func NewSeeded(seed int64) *Seeded {
	return &Seeded{
		key: mix(uint64(seed) + golden),
		ev:  Evidence{Block: Block{Source: "seed", Class: "replay"}, Amplifier: "seeded", Reading: noReading()},
	}
}

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

// Last implements [Noise]. The numbers themselves are not in it: the noise keeps no state.
func (s *Seeded) Last() *Evidence { return &s.ev }
