package sampler

import (
	"context"
	"errors"
	"time"

	"qr-gateway/sampler/amplify"
)

// ByteSource is the randomness behind an [EntropyNoise]. What more it can do is told by the optional interfaces [NumberSource],
// [AheadSource] and [Calibrated].
type ByteSource interface {
	// Fill fills all of buf with bytes that were never handed out before, and says where they came from. On an error buf holds nothing
	// to be used.
	Fill(ctx context.Context, buf []byte) (Block, error)
}

// NumberSource is an optional power of a [ByteSource]: its server makes a number of a block of its own.
type NumberSource interface {
	// Number asks for one number. sourceID and blockBytes are for the server; empty and 0 are its own. An error that wraps [ErrNoNumber]
	// says that there is none to be had and that the source's policy is to go on with bytes.
	Number(ctx context.Context, sourceID string, blockBytes int) (Number, error)
}

// ErrNoNumber is what a [NumberSource] wraps where its policy lets bytes take a number's place.
var ErrNoNumber = errors.New("the server gives no number")

// AheadSource is an optional power of a [ByteSource]: it can be asked before the bytes are needed.
type AheadSource interface {
	// Begin sends the request for n bytes and never blocks. A nil Ticket means that it can't be asked now. The nonce goes to the
	// server, which sends it back.
	Begin(n int, nonce uint64) Ticket
}

// Ticket is a request on its way. Exactly one of its methods is called, once.
type Ticket interface {
	// Redeem waits for the bytes, as Fill does.
	Redeem(ctx context.Context, buf []byte) (Block, error)
	// Drop gives the bytes up.
	Drop()
}

// Calibrated is an optional power of a [ByteSource] with a second choice behind it.
type Calibrated interface {
	// Calibration is what was measured of the bytes of the source that a [Block] names, or nil.
	Calibration(source string) *amplify.Calibration
}

// Block says where the bytes of a draw came from.
type Block struct {
	Source     string // as configured; with a fallback, the one that served
	Device     string // what the source says it read, or empty
	Requested  time.Time
	Arrived    time.Time
	ServerTime time.Time // when the source says the bytes were made; zero where it doesn't
	Sequence   uint64    // of this block at the source, from 1; 0 where it doesn't count
	Echoed     bool      // the source sent back the sequence number or nonce of this very request
	Class      string    // freshness: jit, buffer, unknown, pool, replay
	Shots      int       // reads of the device it took; 0 is 1
	Fallback   bool      // the bytes come from a second choice
	Flags      []string  // names of what was noticed about the bytes; never changed
	Discarded  int64     // blocks that came for this draw and were not used
}

// Number is a uniform number that a server made of a block of its own, with what it says about it.
type Number struct {
	Block
	U          float64 // strictly between 0 and 1
	Z          float64
	SourceID   string
	Bytes      int // integrated
	Integrator string
	Purity     string
	CoherenceZ float64
	CoherenceR float64
	Coherent   bool // the coherence values are valid
}
