package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Class is how urgent a job is. A job of one class waits as long as one of a more urgent class waits for the same model, but
// it moves up a class each time it has waited [Config.Age].
type Class int

// The classes, the most urgent first.
const (
	ClassChat  Class = iota // somebody waits for it
	ClassTask               // a client's own call, such as for the title of a chat
	ClassBatch              // nobody waits for it
)

// Classes is how many there are.
const Classes = 3

func (c Class) String() string {
	switch c {
	case ClassChat:
		return "chat"
	case ClassTask:
		return "task"
	case ClassBatch:
		return "batch"
	default:
		return fmt.Sprint("class ", int(c))
	}
}

// Job is a unit of work as submitted.
type Job struct {
	ID       string    // unique
	Key      string    // caller, for fairness
	Owner    string    // where the gateway is reached whose client waits; empty: in this process
	Model    string    // served id
	Class    Class     //
	Cost     int       // tokens that it may take
	Weight   float64   // of its key: one with 2 gets twice the tokens of one with 1; 0 is 1
	Payload  []byte    // opaque to the queue; not to be changed after Submit
	Deadline time.Time // must be claimed before; zero: the queue's own wait limit
	// IdempotencyKey makes a repeated submission of the same Key the same job, whatever its ID is. One that ends before it was ever
	// claimed (epoch 0) frees it. Empty is none.
	IdempotencyKey string
	// Prefixes are hashes of growing prefixes of the prompt, the longest last: see [Offer.Warm]. At most [MaxPrefixes].
	Prefixes []uint64
	// Floor is an epoch that the job's leases begin above. It is for a job that is submitted again because the queue has
	// forgotten it: what the leases of the first time still write is refused.
	Floor int64
}

// MaxPrefixes bounds the prefixes of a job.
const MaxPrefixes = 64

// Check reports a job that no queue takes.
func (j *Job) Check() error {
	switch {
	case j.ID == "":
		return errors.New("a job needs an id")
	case j.Model == "":
		return errors.New("a job needs a model")
	case j.Class < 0 || j.Class >= Classes:
		return fmt.Errorf("class is %d; it can be 0 to %d", j.Class, Classes-1)
	case j.Cost < 0:
		return fmt.Errorf("cost is %d; it can't be negative", j.Cost)
	case j.Weight < 0 || math.IsNaN(j.Weight) || math.IsInf(j.Weight, 0):
		return fmt.Errorf("weight is %g; it must be above 0, or 0 for 1", j.Weight)
	case len(j.Prefixes) > MaxPrefixes:
		return fmt.Errorf("there are %d prefixes; at most %d are taken", len(j.Prefixes), MaxPrefixes)
	default:
		return nil
	}
}

// Charge is what tokens of a job count in its key's turn. It is above 0 even for a job without cost.
func (j *Job) Charge(tokens int) float64 {
	weight := j.Weight
	if weight == 0 {
		weight = 1
	}
	return float64(max(1, tokens)) / weight
}

// Ticket answers a submission.
type Ticket struct {
	ID       string        // of the job: that of the first submission with the same idempotency key
	State    State         // queued or leased for a new job, any for one submitted before
	Position int           // 1 is next; 0 is not waiting
	Wait     time.Duration // estimate; 0 is unknown
	Room     Room          // of a new job; zero for one submitted before, and where it is not known
}

// Room is what the key of a job that was just queued may still have waiting, whichever of its own limits and those of all is nearer.
type Room struct {
	Jobs, Tokens Share
	Reset        time.Duration // until nothing of the key waits any more, by the measured rate; 0 is now, negative not known
}

// Share is one limit of a key. The zero value is none.
type Share struct{ Limit, Left int }

// Status is a job as it is now.
type Status struct {
	State    State
	Epoch    int64         // of the newest lease; 0 before the first
	Position int           // as in Ticket
	Wait     time.Duration // as in Ticket
	Reason   string        // why it failed, expired, was cancelled or was queued again
}

// Entry is one entry of a job's log. The last one carries how the job ended, and no data.
type Entry struct {
	Seq   int64 // 1, 2, 3 ...
	Epoch int64 // of the lease that wrote it
	Data  []byte
	End   *Status
}

// Log keeps what the runs of a job have sent, for those who come later: a client that has lost its connection, or one that
// repeats a request with the same idempotency key. What it holds is opaque to the queue. It is bounded by [Config.LogEntries] and
// [Config.LogBytes], and kept for [Config.Keep] after the job has ended.
type Log interface {
	// Append adds entries. ErrFenced as in Heartbeat: so nobody writes into the run of another. An entry that no log could
	// hold is a *TooLargeError.
	Append(ctx context.Context, lease Lease, entries ...[]byte) error
	// Read sends the entries from seq on (0 and 1 are the first), and those that follow as they are written. The last one has
	// End; then, or when ctx ends, the channel is closed. ErrTrimmed is for a seq that is dropped already; a reader who falls
	// behind the bound later sees the sequence jump.
	Read(ctx context.Context, id string, seq int64) (<-chan Entry, error)
}
