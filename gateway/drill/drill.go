// Package drill decides whether a cluster that faults are done to keeps its word: it plans the faults from a seed ([Plan]), does those of the
// network ([Proxy]), asks as a client would and notes how each answer ended ([Ask], [Persist]), and checks what was noted ([Run.Check]). The
// processes are those of its user.
//
// Plan, Ask, Persist and Check keep no state; a Proxy is safe for concurrent use.
package drill

import (
	"fmt"
	"time"
)

// Request is one question to a gateway.
type Request struct {
	ID      string // unique; the gateway logs it
	Gateway string // that is asked
	Model   string
	Key     string // of the caller; may be empty
	Prompt  string
	Params  map[string]any // how it is decoded
	Tokens  int            // at most
	Stream  bool           // the answer in pieces
	Leave   time.Duration  // the client leaves after it; 0 is never
	Want    string         // the undisturbed answer
}

// Ending is how an answer ended.
type Ending string

// The endings. All but Refused are those of a request that was accepted, or may have been.
const (
	Whole   Ending = "whole"
	Failed  Ending = "failed"  // the client was told so
	Refused Ending = "refused" // with an HTTP status, or nobody listened
	Left    Ending = "left"    // by the client
	Broken  Ending = "broken"  // the connection ended and the answer had not
	Hung    Ending = "hung"    // nothing more came
)

// Answer is what became of a request. Times are since the run's start.
type Answer struct {
	Began, Ended time.Duration
	Ending       Ending
	Status       int           // of HTTP; 0 is no reply
	RetryAfter   time.Duration // that a refusal tells; 0 is none
	Again        bool          // a client that tries again would, by the status and what the gateway says of it
	Code         string        // of the error
	Message      string
	Text         string
	Ends         int // how often an end was told: by a finish reason or an error
	Continued    int // how often another worker took it up
}

// Exchange is a request with its answer.
type Exchange struct {
	Request
	Answer
}

func (e Exchange) String() string {
	return fmt.Sprintf("%s to %s for %s %v, stream %t, %.2fs to %.2fs: %s (status %d, code %q, %d ends, taken up %d times: %s)\n got %q\nwant %q",
		e.ID, e.Gateway, e.Model, e.Params, e.Stream, e.Began.Seconds(), e.Ended.Seconds(), e.Ending, e.Status, e.Code, e.Ends, e.Continued, e.Message, e.Text, e.Want)
}

// Logged is what a gateway's log says of a request.
type Logged struct {
	ID      string
	Gateway string
	Status  int
}
