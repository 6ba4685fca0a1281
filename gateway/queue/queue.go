// Package queue says what stands between the HTTP edge and the nodes: a bounded, fair queue of jobs with leases. The
// interfaces are here; memory holds the embedded implementation, redis the one that machines share, and queuetest the suite
// that both pass.
//
// A job goes queued -> leased -> streaming -> done | failed | cancelled | expired. Every change is compare-and-set, and a
// terminal state never changes. A lease carries an epoch, one higher with each claim: what arrives with an older epoch is
// refused with [ErrFenced], so a node that comes back from the dead can't write into somebody else's run.
//
// The queue carries requests. Tokens take the direct way from node to gateway; a [Log] may keep a copy of them for those who
// come back. A job's payload is bytes that the queue doesn't look into, so an implementation may keep it anywhere; the embedded
// one takes the same bytes, which costs little and leaves one path to test.
//
// Every method is safe for concurrent use.
package queue

import (
	"context"
	"time"
)

// State is where a job stands.
type State string

// The states. The last four are terminal.
const (
	StateQueued    State = "queued"
	StateLeased    State = "leased"    // with a node; nothing has reached the client
	StateStreaming State = "streaming" // with a node; the client has part of the answer
	StateDone      State = "done"
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
	StateExpired   State = "expired" // not claimed before its deadline
)

// Terminal says that a state never changes again.
func (s State) Terminal() bool {
	switch s {
	case StateDone, StateFailed, StateCancelled, StateExpired:
		return true
	default:
		return false
	}
}

// Limits that a submission can hit, as [FullError] names them.
const (
	LimitJobs         = "jobs"
	LimitTokens       = "tokens"
	LimitBytes        = "bytes"
	LimitJobsPerKey   = "jobs_per_key"
	LimitTokensPerKey = "tokens_per_key"
	LimitBytesPerKey  = "bytes_per_key"
	LimitDeadline     = "deadline" // the estimated wait is longer than the job may wait
)

// Submitter is the gateway's side.
type Submitter interface {
	// Submit queues a job. A job whose id or idempotency key is known already is not queued again: the ticket tells how the
	// first one stands. A full queue is a *FullError, and so is a deadline that can't be kept.
	Submit(ctx context.Context, job Job) (Ticket, error)
	// Cancel ends a job at whatever stage; its node learns through [Lease.Lost]. Cancelling a terminal job does nothing.
	Cancel(ctx context.Context, id, reason string) error
	// Watch reports a job's status now and at each change. A slow reader misses intermediate ones, never the last. The
	// channel is closed after a terminal status, or without one when ctx ends, the queue shuts down, or the queue has lost
	// the job; Watch again then tells which. Positions are estimates, and may lag by a second or, far behind, a few.
	Watch(ctx context.Context, id string) (<-chan Status, error)
}

// Offer is what a node could run at once.
type Offer struct {
	Node   string
	Models []string // served ids with a free slot
	Least  Class    // the least urgent class that may have it, counting what a job has gained by waiting
	Loaded []string // those of the models that need no loading
	// Warm are the prefixes that the node has ready. Of the keys whose turn is near, the one whose next job has the longest
	// of them is served first, unless that overtakes a job that has waited for [Config.AffinityAge].
	Warm []uint64
}

// Lease is the right to run a job, kept by heartbeats.
type Lease struct {
	Job   Job
	Epoch int64
	Node  string
	// Lost is closed when the lease ends otherwise than by Settle: cancelled, expired, or the queue shut down.
	Lost <-chan struct{}
}

// Progress tells how far a run is. Anything above 0 means that the client may have seen part of the answer; a node must
// report it before it sends that part.
type Progress struct {
	Seq  int64 // frames with content so far
	Cost int   // tokens taken so far; what a job is charged that ends without a Settle
}

// Outcome is how a lease ended.
type Outcome struct {
	// State is done, failed or cancelled; queued hands the job back, which is allowed before the client has seen anything.
	State State
	Cost  int // tokens really taken
	// Reason is for failed and queued. A job handed back with a reason has lost an attempt; it fails when none is left.
	Reason string
}

// Claimer is the node's side.
type Claimer interface {
	// Claim blocks until it gets a job for one of the offered models. When ctx ends first no job is taken.
	Claim(ctx context.Context, offer Offer) (Lease, error)
	// Heartbeat keeps the lease. ErrFenced means: stop at once, nothing from this run counts any more.
	Heartbeat(ctx context.Context, lease Lease, progress Progress) error
	// Settle ends the lease. The last frame must have reached the gateway before. ErrFenced as in Heartbeat.
	Settle(ctx context.Context, lease Lease, outcome Outcome) error
}

// Stats counts what a queue holds and has done.
type Stats struct {
	Models map[string]ModelStats
	// Since the start, of all models.
	Submitted, Refused, Done, Failed, Cancelled, Expired int64
	LeasesLost, Requeued, Fenced                         int64
	Tokens                                               int64 // really taken by settled jobs
	Claims                                               int   // that wait for a job now
	// Calls are this process's exchanges with the queue's server, by what was asked; nil where there is no server.
	Calls map[string]CallStats
}

// CallStats counts exchanges with a server.
type CallStats struct {
	Calls, Errors int64
	Time          time.Duration // of all together
}

// ModelStats is one model's share.
type ModelStats struct {
	Waiting, Running int           // jobs
	WaitingTokens    int           // sum of the costs of those waiting
	Oldest           time.Duration // how long the oldest of those waiting has waited
	Classes          [Classes]ClassStats
}

// ClassStats is the share of one class.
type ClassStats struct {
	Waiting int
	Oldest  time.Duration
}

// Gauge reports.
type Gauge interface {
	Stats(ctx context.Context) (Stats, error)
}

// Queue is all of it. Consumers ask for the part they use.
type Queue interface {
	Submitter
	Claimer
	Log
	Gauge
}
