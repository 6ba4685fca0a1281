// Package choice has the plain types that the sidecar of vLLM and the backend of vLLM speak to each other in. The values are never changed
// once they are handed out.
package choice

import (
	"context"
	"fmt"

	"qr-gateway/backends"
)

// Status says what came of one row. The numbers are those of the wire.
type Status uint8

// What a row can come to.
const (
	Token   Status = iota // a token was chosen
	Whole                 // the compact row does not decide: the whole row is needed
	Native                // the row is vLLM's own to choose from
	Stop                  // the answer ends here, by force
	Illegal               // there is no token that may be chosen
	Unknown               // no request has that handle: it is to begin again
)

// String is the name of the status in logs and records.
func (s Status) String() string {
	switch s {
	case Token:
		return "token"
	case Whole:
		return "whole"
	case Native:
		return "native"
	case Stop:
		return "stop"
	case Illegal:
		return "illegal"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Choice is what was decided for one step of one answer. A later Choice of the same step takes the place of an earlier one: vLLM may show a step
// again with another row, as it does with prompts that it reads in parts. Records of tokens are in the account that [Trail.Finish] returns.
type Choice struct {
	Step    int    // of the token within the answer, from 0
	Token   int32  // -1 where none was chosen
	Status  Status // Token, Native, Stop or Illegal
	Void    int    // earlier draws of this very step that came to nothing
	Err     *backends.Error
	Session string // of the engine process that showed the row
}

// Engine is one engine process that is connected now.
type Engine struct {
	Session     string // random, of the process
	VLLM        string // version
	Runner      string // v1 or v2
	Rows        string // compact or full
	Model       string
	Vocab       int // logits of a row
	MaxModelLen int // tokens
	DPRank      int
	Live        int // requests that are its own now
}

// Trail is what is chosen for one answer, on its way to whoever follows it. It belongs to one goroutine.
type Trail interface {
	// Next waits for the next choice. The error is io.EOF once the answer has finished and all is read, or ctx's.
	Next(ctx context.Context) (Choice, error)
	// Finish says that the request has ended and returns the account of it: the sidecar forgets the answer, and refuses its rid from now on.
	Finish(ctx context.Context) (*backends.DecodeStats, error)
}
