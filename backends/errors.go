package backends

import (
	"errors"
	"fmt"
	"time"
)

// Kind says who is to act on an error, and so which HTTP status it becomes.
type Kind string

// The kinds. Anything that is not a *Error is an internal error.
const (
	KindInvalid     Kind = "invalid"     // the request is wrong: 400
	KindTooLong     Kind = "too_long"    // prompt over the context: 400, context_length_exceeded
	KindUnavailable Kind = "unavailable" // no engine can take it now: 503
	KindLost        Kind = "lost"        // the engine died or was killed while it ran: 500, not to be retried blindly
	KindEntropy     Kind = "entropy"     // the entropy source failed under its policy: 503
	KindModel       Kind = "model"       // the model gave numbers that nothing can be chosen by: 500, not to be retried
	KindUpstream    Kind = "upstream"    // a server that requests are passed on to failed, or can't be reached: 502
	KindTimeout     Kind = "timeout"     // such a server took longer than it may: 504
	KindLimited     Kind = "limited"     // such a server takes no more for now: 429
	KindInternal    Kind = "internal"    // a defect of ours: 500
)

// Codes of errors that are about choosing tokens on a server that requests are passed on to, and say nothing of what else it can do.
const (
	CodeUnsampled  = "sampler_unavailable" // tokens can't be chosen, or some were not
	CodeMismatched = "token_mismatch"      // a token is another than was chosen
)

// ErrLost is matched by errors.Is for every *Error of KindLost.
var ErrLost = errors.New("engine lost")

// Error is a failure with everything a client needs to act on it.
type Error struct {
	Kind    Kind
	Code    string // OpenAI's code where it has one, else a stable word of ours
	Param   string // request field, or empty
	Message string // one sentence, names the thing
	Hint    string // the remedy, or empty
	Err     error  // cause, for logs

	RetryAfter time.Duration // with KindLimited and KindUpstream: when to try again; 0 is not known
	// MayHaveRun says that a server had the request and may have run the model, so that another try may run it again.
	MayHaveRun bool
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Hint)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports KindLost as ErrLost.
func (e *Error) Is(target error) bool { return target == ErrLost && e.Kind == KindLost }

// TooLong is the error for a prompt that leaves no room for an answer.
func TooLong(prompt, context int) *Error {
	return &Error{
		Kind: KindTooLong, Code: "context_length_exceeded", Param: "messages",
		Message: fmt.Sprintf("the prompt has %d tokens, but a request to this model may use %d, prompt and answer together", prompt, context),
		Hint:    "shorten the prompt, or serve the model with a larger context",
	}
}
