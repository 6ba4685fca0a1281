package sampler

import (
	"crypto/sha256"
	"math"

	"qr-gateway/sampler/amplify"
)

// Evidence is what the numbers of one step were made of.
type Evidence struct {
	Block
	amplify.Reading        // of the step as a whole; NaN where there is a number per token
	Bytes           int    // received
	Amplifier       string // that made the numbers
	Calibration     *amplify.Calibration

	Number *Number // the server's, where it made the number; nil else
	Asked  *Asked  // where the bytes were asked for ahead, successfully or not; nil else

	Tokens   []int32           // with a number per token: which,
	Readings []amplify.Reading // and its reading

	block []byte
}

// Asked is a request for bytes that was sent before the logits existed. It can be checked with [VerifyNonce].
type Asked struct {
	Salt     [SaltSize]byte
	Step     int   // that the bytes were for
	Previous int32 // token chosen before it; -1 for none
	Nonce    uint64
	Hit      bool // its bytes were used. Else others were asked for, once the logits existed
}

// noReading is the reading where there is none.
func noReading() amplify.Reading {
	nan := math.NaN()
	return amplify.Reading{U: nan, Z: nan, Mean: nan, SEM: nan}
}

// For is the reading of the number that token was given, or that of the step as a whole. An end-of-generation token has that of
// [EndToken].
func (e *Evidence) For(token int32) amplify.Reading {
	end := e.Reading
	for i, id := range e.Tokens {
		switch id {
		case token:
			return e.Readings[i]
		case EndToken:
			end = e.Readings[i]
		}
	}
	return end
}

// Digest is the SHA-256 of the bytes received. ok is false where there were none.
func (e *Evidence) Digest() (sum [sha256.Size]byte, ok bool) {
	if len(e.block) == 0 {
		return sum, false
	}
	return sha256.Sum256(e.block), true
}

// coherence is what the server said about the number, if it said anything.
func (e *Evidence) coherence() (z, r float64, valid, ok bool) {
	if e == nil || e.Number == nil || e.Number.Fallback && !e.Number.Coherent {
		return 0, 0, false, false
	}
	return e.Number.CoherenceZ, e.Number.CoherenceR, e.Number.Coherent, true
}
