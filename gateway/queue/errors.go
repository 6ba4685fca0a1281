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
	// ErrFull matches every *FullError.
	ErrFull = errors.New("queue is full")
)

// FullError is a refusal because a limit is reached.
type FullError struct {
	Limit      string        // jobs, tokens, jobs_per_key or tokens_per_key
	Depth      int           // how much of it is used
	Max        int           // the limit itself
	RetryAfter time.Duration // when a place should be free, from the measured drain rate; 1 s to 60 s
}

func (e *FullError) Error() string {
	return fmt.Sprintf("queue is full: %d of %d %s are waiting (try again in %s)", e.Depth, e.Max, limitNoun(e.Limit), e.RetryAfter)
}

func limitNoun(limit string) string {
	switch limit {
	case LimitJobsPerKey:
		return "jobs of this key"
	case LimitTokensPerKey:
		return "tokens of this key"
	default:
		return limit
	}
}

// Is reports every FullError as [ErrFull].
func (e *FullError) Is(target error) bool { return target == ErrFull }
