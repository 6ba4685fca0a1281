package backends

import (
	"errors"
	"time"
)

// Failure is an *[Error] as it travels between processes and stands in logs, as JSON. Its cause is left as text.
type Failure struct {
	Kind       Kind          `json:"kind"`
	Code       string        `json:"code,omitempty"`
	Param      string        `json:"param,omitempty"`
	Message    string        `json:"message"`
	Hint       string        `json:"hint,omitempty"`
	Cause      string        `json:"cause,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	MayHaveRun bool          `json:"may_have_run,omitempty"`
}

// FailureOf is e in that form.
func FailureOf(e *Error) Failure {
	f := Failure{Kind: e.Kind, Code: e.Code, Param: e.Param, Message: e.Message, Hint: e.Hint, RetryAfter: e.RetryAfter, MayHaveRun: e.MayHaveRun}
	if e.Err != nil {
		f.Cause = e.Err.Error()
	}
	return f
}

// Unpack is the error that f was made of, but for the type of its cause.
func (f Failure) Unpack() *Error {
	e := &Error{Kind: f.Kind, Code: f.Code, Param: f.Param, Message: f.Message, Hint: f.Hint, RetryAfter: f.RetryAfter, MayHaveRun: f.MayHaveRun}
	if f.Cause != "" {
		e.Err = errors.New(f.Cause)
	}
	return e
}
