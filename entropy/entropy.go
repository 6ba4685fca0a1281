// Package entropy is where random bytes come from. A [Source] hands out blocks, each with the record of where and when it was
// drawn; implementations live in folders of their own and all pass the suite in entropytest. A Source is safe for concurrent use.
//
// Nothing here buffers ahead: a block is asked for when it is needed, and bytes that arrive after their caller has gone are dropped.
package entropy

import (
	"context"
	"slices"
	"time"
)

// Class says when the bytes of a block came to be, relative to the request for them. It is declared per source, and checked where it
// can be.
type Class string

// The classes, from the strictest.
const (
	ClassJIT     Class = "jit"     // measured on request, after a flush or by a one-shot command
	ClassBuffer  Class = "buffer"  // a device or driver buffer of known size stands between: staleness is bounded
	ClassUnknown Class = "unknown" // a remote service that can't tell
	ClassPool    Class = "pool"    // a pool or generator: bytes are derived from older state
	ClassReplay  Class = "replay"  // recorded or computed: no randomness of this moment at all
)

// Known reports whether it is one of them.
func (c Class) Known() bool {
	switch c {
	case ClassJIT, ClassBuffer, ClassUnknown, ClassPool, ClassReplay:
		return true
	default:
		return false
	}
}

// Source hands out random bytes. Implementations are safe for concurrent use. One that holds a connection, a device or a process also
// implements io.Closer; Close ends and waits for everything the source started, and draws fail with [KindClosed] afterwards.
type Source interface {
	// Draw fills all of buf and describes the bytes; Block.Bytes is buf. No byte is handed out twice. On an error, which is an *[Error] or
	// ctx's, buf holds nothing to be used. When ctx ends, Draw returns its error soon, and never writes to buf after it has returned.
	Draw(ctx context.Context, buf []byte) (Block, error)
}

// Block is a run of bytes and its provenance.
type Block struct {
	Bytes      []byte // the caller's buffer
	Source     string // as configured, e.g. system; with a fallback, the one that served
	Device     string // what the source says it read, or empty
	Requested  time.Time
	Arrived    time.Time
	ServerTime time.Time // when the source says the bytes were made; zero where it doesn't
	Sequence   uint64    // of this block at the source, from 1
	Echoed     bool      // the source sent back the sequence number or nonce of this very request
	Class      Class
	Shots      int    // reads of the device it took; 0 is 1
	Discarded  int    // blocks that came for this draw and were not used; with an error too
	Fallback   bool   // the bytes come from a second choice
	Flags      Flags  // what was noticed about the bytes
	Pipelined  bool   // asked for before the logits existed
	Nonce      uint64 // of a pipelined request
	Salt       []byte // the nonce's, so that it can be checked
}

// Flags are findings about a block.
type Flags uint32

// The findings.
const (
	FlagRepetition  Flags = 1 << iota // repetition-count test
	FlagProportion                    // adaptive-proportion test
	FlagDuplicate                     // the same block was seen before
	FlagTooFast                       // arrived faster than the declared rate allows: bytes were waiting
	FlagTimeOrder                     // server time lies before the request, or before the block before
	FlagOtherDevice                   // not the device that was asked for
	FlagDrift                         // byte mean is far from the source's baseline; never acted on
)

var flagNames = [...]string{"repetition", "proportion", "duplicate", "too_fast", "time_order", "other_device", "drift"}

// FlagNames lists the names of all findings in the order of their bits, for metrics that show zeros too.
func FlagNames() []string { return slices.Clone(flagNames[:]) }

// Names lists what is set, as records and metrics call it. Without findings it is nil.
func (f Flags) Names() []string {
	var out []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Number is a uniform number that a server made of a block of its own, with what it says about it.
type Number struct {
	Block      Block // without bytes
	U          float64
	Z          float64
	SourceID   string
	Bytes      int // integrated
	Integrator string
	Purity     string
	CoherenceZ float64
	CoherenceR float64
	Coherent   bool // the coherence values are valid
}

// NumberRequest says what a server is to integrate.
type NumberRequest struct {
	SourceID   string // empty: the key's own
	BlockBytes int    // 0: the server's default
}

// Numberer is a source whose server can integrate a draw itself.
type Numberer interface {
	// Number makes one number strictly between 0 and 1. Errors as those of Draw.
	Number(ctx context.Context, req NumberRequest) (Number, error)
}

// Prober is a source that can be checked before it is used, without handing out what it reads.
type Prober interface {
	// Probe says what the source is and can do, or why it can't be used. It takes no longer than a few seconds.
	Probe(ctx context.Context) (Capabilities, error)
}

// Capabilities is what a probe found.
type Capabilities struct {
	Device  string
	Class   Class
	Rate    float64 // bytes per second, declared or measured; 0 is unknown
	MaxDraw int     // bytes of one draw; 0 is no limit
	Number  bool    // it integrates draws itself
	Details map[string]string
}

// Ahead is a source that can be asked before the logits exist. This is opt-in: such a block is marked as pipelined.
type Ahead interface {
	// Begin sends the request for n bytes and never blocks. A nil Ticket means that it can't be asked now.
	Begin(n int, nonce uint64) Ticket
}

// Ticket is a request on its way. Exactly one of its methods is called, once.
type Ticket interface {
	// Redeem waits for the bytes, as Draw does.
	Redeem(ctx context.Context, buf []byte) (Block, error)
	// Drop gives the bytes up.
	Drop()
}
