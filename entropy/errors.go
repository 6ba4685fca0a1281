package entropy

import (
	"errors"
	"fmt"
)

// Kind tells errors of sources apart by what can be done about them.
type Kind string

// The kinds.
const (
	KindConfig    Kind = "config"    // address, path, certificate or option can't be used; found at start
	KindRefused   Kind = "refused"   // the source understood and said no; asking again is useless
	KindQuota     Kind = "quota"     // the source's limit is used up for now
	KindTimeout   Kind = "timeout"   // no answer within the time it is given
	KindTransport Kind = "transport" // not reachable, or the connection broke
	KindProtocol  Kind = "protocol"  // an answer that breaks the contract: wrong length, wrong echo, not what was asked
	KindHealth    Kind = "health"    // a test of the raw bytes raised an alarm
	KindOpen      Kind = "open"      // the breaker is open; nothing was sent
	KindClosed    Kind = "closed"    // the source was closed
)

// Error is a draw that failed. Bytes that came with it are spent: they are never used.
type Error struct {
	Kind    Kind
	Source  string // as configured
	Message string // names the thing
	Hint    string // the remedy, or empty
	Err     error  // the cause, or nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("entropy source %s: %s", e.Source, e.Message)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or empty for an error that is none of a source.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
