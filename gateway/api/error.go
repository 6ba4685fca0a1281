package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/sampler"
)

// StatusClientClosed is what the log shows for a client that left; nobody receives it.
const StatusClientClosed = 499

// Types of errors, as OpenAI names them.
const (
	typeInvalid = "invalid_request_error"
	typeLimit   = "rate_limit_error"
	typeServer  = "server_error"
)

// ErrShutdown is the cause of a context that ends because the server does.
var ErrShutdown = errors.New("the server is shutting down")

// Error is a failure in the form that the client sees.
type Error struct {
	Status     int    // HTTP status
	Type       string // OpenAI's class of error
	Code       string // stable word for programs, or empty
	Param      string // the request field at fault, or empty
	Message    string // for people: names the thing and the remedy
	RetryAfter time.Duration
	Quota      Quota // the limit that the request hit, if it is one that callers know
	NoRetry    bool  // tells clients not to try again by themselves, since the model has run
	Err        error // cause, for the log only
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Envelope is the JSON form: {"error":{"message","type","param","code"}}.
func (e *Error) Envelope() any {
	return envelope{Error: errorBody{Message: e.Message, Type: e.Type, Param: orNull(e.Param), Code: orNull(e.Code)}}
}

type envelope struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Invalid is a 400 about one field.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: typeInvalid, Param: param, Code: "invalid_value", Message: fmt.Sprintf(format, args...)}
}

func unsupported(param, format string, args ...any) *Error {
	e := Invalid(param, format, args...)
	e.Code = "unsupported_parameter"
	return e
}

// NotFound is the 404 for an address that no route serves.
func NotFound(method, path string) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: typeInvalid, Code: "not_found",
		Message: fmt.Sprintf("nothing is served at %s %s; the API is under /v1, e.g. /v1/chat/completions and /v1/models", method, quote(path)),
	}
}

// MethodNotAllowed is the 405.
func MethodNotAllowed(method, path string) *Error {
	return &Error{
		Status: http.StatusMethodNotAllowed, Type: typeInvalid, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s does not take %s; the Allow header names what it takes", quote(path), method),
	}
}

// UnknownModel is the 404 for a model id that isn't among those served.
func UnknownModel(id string, served []string) *Error {
	names := "no model is served"
	if len(served) > 0 {
		names = "served here: " + strings.Join(served, ", ")
	}
	return &Error{
		Status: http.StatusNotFound, Type: typeInvalid, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("model %q does not exist; %s", quote(id), names),
	}
}

// NoRecord is the 404 for the record of an answer.
func NoRecord(id string) *Error {
	return &Error{
		Status: http.StatusNotFound, Type: typeInvalid, Code: "record_not_found",
		Message: fmt.Sprintf("no record of %q is kept; only those of the newest answers are, until the server ends (records.keep, records.bytes)", quote(id)),
	}
}

// Panicked is the 500 for a defect of ours. The client learns the id to quote, never the cause.
func Panicked(requestID string) *Error { return internal(requestID, nil) }

// FromError turns any error into what the client sees. Anything it doesn't know is a 500 that shows only requestID.
func FromError(err error, requestID string) *Error {
	var own *Error
	var engine *backends.Error
	var param *sampler.ParamError
	var full *queue.FullError
	var repeat *dispatch.RepeatError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &engine):
		return fromBackend(engine, requestID)
	case errors.As(err, &param):
		return fromParam(param)
	case errors.As(err, &full):
		return fromFull(full)
	case errors.As(err, &repeat):
		return fromRepeat(repeat)
	default:
		return fromSentinel(err, requestID)
	}
}

func fromSentinel(err error, requestID string) *Error {
	switch {
	case errors.Is(err, ErrShutdown), errors.Is(err, queue.ErrClosed):
		return unavailable("shutting_down", "the server is shutting down; try again when it is back", err)
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusGatewayTimeout, Type: typeServer, Code: "timeout", Message: "the request took longer than it may", NoRetry: true, Err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Status: StatusClientClosed, Type: typeInvalid, Code: "client_closed", Message: "the request was cancelled", Err: err}
	default:
		return internal(requestID, err)
	}
}

func fromBackend(e *backends.Error, requestID string) *Error {
	out := &Error{Type: typeServer, Code: e.Code, Param: e.Param, Message: e.Error(), RetryAfter: e.RetryAfter, NoRetry: e.MayHaveRun, Err: e}
	switch e.Kind {
	case backends.KindInvalid, backends.KindTooLong:
		out.Status, out.Type = http.StatusBadRequest, typeInvalid
	case backends.KindUnavailable, backends.KindEntropy:
		out.Status = http.StatusServiceUnavailable
	case backends.KindUpstream:
		out.Status = http.StatusBadGateway
	case backends.KindTimeout:
		out.Status, out.NoRetry = http.StatusGatewayTimeout, true // its model may have run
	case backends.KindLimited:
		out.Status, out.Type = http.StatusTooManyRequests, typeLimit
	case backends.KindLost, backends.KindModel:
		out.Status, out.NoRetry = http.StatusInternalServerError, true
	default:
		return internal(requestID, e)
	}
	return out
}

func fromParam(e *sampler.ParamError) *Error {
	out := Invalid(e.Key, "%s", e.Error())
	out.Err = e
	return out
}

func fromFull(e *queue.FullError) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Type: typeLimit, Code: "queue_full",
		Message: e.Error(), RetryAfter: e.RetryAfter, Quota: quotaOf(e), Err: e,
	}
}

func unavailable(code, message string, cause error) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: typeServer, Code: code, Message: message, Err: cause}
}

func internal(requestID string, cause error) *Error {
	return &Error{
		Status: http.StatusInternalServerError, Type: typeServer, Code: "internal_error", NoRetry: true, Err: cause,
		Message: fmt.Sprintf("the gateway failed to answer; its log has the reason under request id %s", requestID),
	}
}

// WriteError sends e as a whole reply. Nothing may have been written to w before.
func WriteError(w http.ResponseWriter, e *Error) error {
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	e.Quota.write(w.Header())
	if e.NoRetry {
		w.Header().Set("X-Should-Retry", "false")
	}
	return WriteJSON(w, e.Status, e.Envelope())
}

// WriteJSON sends v as a whole reply.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode reply: %w", err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}
