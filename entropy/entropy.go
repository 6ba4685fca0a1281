// Package entropy is where random bytes come from. A [Source] hands out blocks, each with the record of where and when it was
// drawn; implementations live in folders of their own and all pass the suite in entropytest. A Source is safe for concurrent use.
//
// Nothing here buffers ahead: a block is asked for when it is needed, and bytes that arrive after their caller has gone are dropped.
package entropy

import (
	"context"
	"time"
)

// Freshness says when the bytes of a block came to be, relative to the request for them.
const (
	FreshJIT     = "jit"     // made or read after the request arrived
	FreshUnknown = "unknown" // the source can't tell
)

// Source hands out random bytes. Implementations are safe for concurrent use.
type Source interface {
	// Draw fills all of buf and describes the bytes; Block.Bytes is buf. No byte is handed out twice. On an error, buf holds
	// nothing to be used. When ctx ends, Draw returns its error soon, and never writes to buf after it has returned.
	Draw(ctx context.Context, buf []byte) (Block, error)
}

// Block is a run of bytes and its provenance.
type Block struct {
	Bytes     []byte // the caller's buffer
	Source    string // as configured, e.g. system
	Device    string // what the source says it read, or empty
	Requested time.Time
	Arrived   time.Time
	Sequence  uint64 // of this block at the source, from 1
	Freshness string
	Fallback  bool // the bytes come from the second choice
}

// Filler hands out the bytes of a source without their record.
type Filler struct{ Source Source }

// Fill fills all of buf.
func (f Filler) Fill(ctx context.Context, buf []byte) error {
	_, err := f.Source.Draw(ctx, buf)
	return err
}
