// Package link carries what a worker and a gateway on different machines tell each other: the frames of running jobs, requests to be
// prepared, and what the worker hosts. Jobs themselves travel through the shared queue.
//
// A worker has a [Client], which dials every gateway: one gRPC stream for each pair, made again whenever it breaks. A gateway has a [Server].
// Frames that the gateway has not taken are kept by the worker and sent again on the next stream; the gateway's dispatcher drops what it
// has seen before. So a link may break at any moment, and each frame arrives once and in order, or the run that sent it is told that it
// doesn't.
//
// Nothing that is slow holds up anything else: a job whose client reads slowly has 32 frames on the way, and then its run waits, alone.
//
// All goroutines of a client and of a server belong to their Run, which returns when the last has ended. Everything else may be called from
// any goroutine. See design.md.
package link

import "errors"

// What Deliver answers besides dispatch.ErrGone and the error of its context.
var (
	// ErrNoLink is for a gateway that could not be reached for too long. What was sent to it and not taken is lost.
	ErrNoLink = errors.New("gateway can't be reached")
	// ErrClosed is for a client that does not run any more.
	ErrClosed = errors.New("link is closed")
	// ErrTooLarge is for a message over the limit.
	ErrTooLarge = errors.New("message is too large")
)

// window is how many frames of one run may be on the way.
const window = 32

// Sizes of a message, in bytes.
const (
	partSize     = 512 << 10 // what is larger is sent in parts
	messageLimit = 1 << 20   // of gRPC, for one part and what is around it
)

// run is one lease's run of a job.
type run struct {
	job   string
	epoch int64
}

// metadataKey is where a worker shows the secret.
const metadataKey = "qr-link-secret"
