package queue

import (
	"errors"
	"fmt"
	"time"
)

// What a queue answers when it can't do as asked.
var (
	// ErrFenced is for a lease that is no longer the job's: it expired, another node holds the job, or it was cancelled.
	ErrFenced = errors.New("lease is stale")
	// ErrUnknown is for a job id that was never submitted or is forgotten.
	ErrUnknown = errors.New("job is unknown")
	// ErrClosed is for a queue that has shut down.
	ErrClosed = errors.New("queue is closed")
	// ErrUnavailable is for a queue on another server that can't be reached. What was asked may have been done all the same;
	// asking again does no harm.
	ErrUnavailable = errors.New("queue can't be reached")
	// ErrFull matches every *FullError.
	ErrFull = errors.New("queue is full")
	// ErrTooLarge matches every *TooLargeError.
	ErrTooLarge = errors.New("too large for the queue")
	// ErrTrimmed is for a place in a job's log that the log no longer holds.
	ErrTrimmed = errors.New("log no longer goes back so far")
)

// FullError is a refusal because a limit is reached.
type FullError struct {
	Limit      string        // one of the Limit constants
	Depth      int           // how much of it is used
	Max        int           // the limit itself
	RetryAfter time.Duration // when a place should be free, from the measured drain rate; 1 s to 60 s
	// Wait and Within are for LimitDeadline only: the estimate of the wait, and the time in which the job had to start.
	Wait, Within time.Duration
}

func (e *FullError) Error() string {
	if e.Limit == LimitDeadline {
		return fmt.Sprintf("the wait is estimated at %s, but the request must start within %s (try again in %s)", e.Wait, e.Within, e.RetryAfter)
	}
	return fmt.Sprintf("queue is full: %d of %d %s are waiting (try again in %s)", e.Depth, e.Max, limitNoun(e.Limit), e.RetryAfter)
}

func limitNoun(limit string) string {
	switch limit {
	case LimitJobsPerKey:
		return "jobs of this key"
	case LimitTokensPerKey:
		return "tokens of this key"
	case LimitBytesPerKey:
		return "bytes of this key"
	default:
		return limit
	}
}

// Is reports every FullError as [ErrFull].
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Full makes the refusal for a limit. It rounds the wait up to whole seconds, 1 to 60: clients read it from a header in
// seconds.
func Full(limit string, depth, most int, wait time.Duration) *FullError {
	wait = min(max(time.Second, wait), time.Minute)
	return &FullError{Limit: limit, Depth: depth, Max: most, RetryAfter: (wait + time.Second - 1).Truncate(time.Second)}
}

// TooLargeError is a refusal of what could never be taken, however empty the queue is.
type TooLargeError struct {
	What string // payload or log entry
	Size int    // bytes
	Max  int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has %d bytes; the queue takes up to %d", e.What, e.Size, e.Max)
}

// Is reports every TooLargeError as [ErrTooLarge].
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }
