// Package dispatch carries one request through the queue and its answer back: it submits the job, tells the client's side
// where it stands in the queue, receives the frames that a node sends and hands them on in order.
//
// A [Dispatcher] owns the table of live jobs. The goroutine that calls [Dispatcher.Do] owns its job: it alone calls the
// sink, and it cancels the job in the queue when its context ends. Who repeats a job reads the log of the first one in its stead. Nodes call [Dispatcher.Deliver] from goroutines of their
// own; each blocks on its own job only, so one slow client holds up nobody else.
package dispatch

import (
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// Job is one prepared request.
type Job struct {
	ID       string  // unique; a job whose id is live is refused
	Key      string  // caller, for fairness: API key hash or remote address
	Model    string  // served id
	Task     bool    // a client's own call, such as for a title: it goes after what people wait for
	Weight   float64 // of the key; 0 is 1
	Prepared *backends.Prepared
	Resumes  bool // another worker of the model can take the answer up
	// Repeat is what a caller gives each attempt at one request: of those with the same Key only the first is run, and the others get its
	// answer. Empty is none.
	Repeat string
	// Digest tells requests with the same Repeat apart: letters and digits. Empty: whatever repeats is taken for the same.
	Digest string
}

// Sink receives what happens to a job. Its methods are called from the goroutine that called Do, one at a time.
type Sink interface {
	// Queued reports the place in the queue: once as soon as the job is accepted, then whenever it changes. Position 1 is
	// next, 0 is already with a node. Wait is an estimate; 0 is unknown.
	Queued(position int, wait time.Duration)
	// Event takes a piece of the answer. It may block: the worker then waits. An error cancels the job and is what Do returns.
	// After a retry, and where another worker takes the answer up, Started comes again; content never does.
	Event(backends.Event) error
}

// RoomSink is an optional power of a [Sink]: to be told what the caller may still have waiting.
type RoomSink interface {
	// Room is called before Queued, once, where the queue knows it.
	Room(queue.Room)
}
