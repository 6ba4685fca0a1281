// Package model is the life of jobs as a state machine that can be looked at whole: two gateways, two workers, two jobs, and everything that
// may happen to them in any order, crashes and lost messages among it. A test walks every state that can be reached and holds what must be
// true in each; another runs the real queue beside the machine and compares, so that the two can't drift apart. design.md tells what is
// modelled and what is not.
//
// Everything here is a value: [State.Next] changes nothing that it is given.
package model

import "slices"

// Sizes of the world.
const (
	Jobs    = 2
	Workers = 2
	Content = 2 // frames with text of a whole answer; one more says that it has ended

	// round is how far epochs of two submissions of one job lie apart: those of a later one are higher than all of an earlier one, whatever the
	// queue has forgotten.
	round = 8
)

// Queued is the state of a job in the queue, as in package queue.
type Queued uint8

// The states. Absent is a job that the queue doesn't know: not submitted yet, or forgotten with everything else.
const (
	Absent Queued = iota
	Waiting
	Leased
	Streaming
	Done
	Failed
	Cancelled
)

// Terminal says that a state never changes again.
func (q Queued) Terminal() bool { return q >= Done }

// Job is a job as the queue has it.
type Job struct {
	State Queued
	Epoch uint8 // of the newest lease
	Lost  uint8 // attempts
	Has   uint8 // frames with text that the client has already, as it was submitted
}

// End is how an answer ended for its client.
type End uint8

// The ends.
const (
	Open  End = iota // not at all yet
	Whole            // with all its text
	Error            // with an error
	Left             // the client left
)

// Client is an answer as the gateway that owns it has it. Job i belongs to gateway i.
type Client struct {
	Dead   bool // the gateway is no more, and the client with it
	Begun  bool // it has submitted the job
	End    End
	Epoch  uint8 // of the newest run that it has heard of
	Seq    uint8 // of the last frame that it took in that epoch
	Text   uint8 // frames with text that the client has
	Spoilt bool  // it got text twice, out of order or from two runs that know nothing of each other
}

// Run is a worker at work.
type Run struct {
	Dead  bool
	Job   uint8 // number of the job plus 1; 0 is none
	Epoch uint8
	Has   uint8 // as in Job
	Mark  bool  // the queue knows that text may have gone out
	Sent  uint8 // frames handed to the link
	Taken uint8 // of those, how many the gateway has taken or refused
	Gone  bool  // the gateway wants no more of them
}

// State is the whole world at one moment.
type State struct {
	Jobs    [Jobs]Job
	Clients [Jobs]Client
	Runs    [Workers]Run
	Faults  uint8 // how many are still to come: crashes, lost links, a queue that forgets
}

// Limits bound the world, so that it can be walked whole.
type Limits struct {
	Jobs     uint8 // that are submitted at all
	Attempts uint8 // leases that a job may lose before its first text
	Faults   uint8
	Rounds   uint8 // a job is not submitted more often
}

// Start is the world before anything has happened.
func Start(l Limits) State { return State{Faults: l.Faults} }

// Step is one thing that may happen, in words for a trace, and the world after it.
type Step struct {
	What  string
	Who   int  // number of the job or of the worker
	Must  bool // it happens some time, if nothing else does: neither a fault nor a client's whim
	After State
}

// leaves is what a client need not do.
const leaves = "client leaves"

// machine is a state with the limits that its steps keep.
type machine struct {
	State
	l     Limits
	steps []Step
}

// Next are all steps that may come next.
func (s State) Next(l Limits) []Step {
	m := &machine{State: s, l: l}
	for j := range int(l.Jobs) {
		m.gateway(j)
		m.queue(j)
	}
	for w := range Workers {
		m.worker(w)
		m.link(w)
	}
	m.faults()
	return m.steps
}

// may adds a step: what f does to a copy of the world. A step that changes nothing is none.
func (m *machine) may(what string, who int, f func(*State)) {
	after := m.State
	f(&after)
	if after != m.State {
		m.steps = append(m.steps, Step{What: what, Who: who, Must: after.Faults == m.Faults && what != leaves, After: after})
	}
}

// Settled says that every answer has ended, for good or ill, and that nobody works any more.
func (s State) Settled() bool {
	return !slices.ContainsFunc(s.Clients[:], func(c Client) bool { return c.Begun && !c.Dead && c.End == Open }) &&
		!slices.ContainsFunc(s.Runs[:], func(r Run) bool { return !r.Dead && r.Job != 0 })
}
