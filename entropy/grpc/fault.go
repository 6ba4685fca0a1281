package grpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/breaker"
)

// fault is why an attempt failed, and what follows from it.
type fault struct {
	err   error // an *entropy.Error, or the context's when the caller has gone
	gone  bool  // the caller has gone
	late  bool  // the answer took too long
	again bool  // the connection broke before anything came: the same may be asked once more
}

// outcome is what a fault, or nil, means for the breaker.
func (f *fault) outcome() breaker.Outcome {
	switch {
	case f == nil:
		return breaker.Success
	case f.gone:
		return breaker.Excluded
	}
	switch entropy.KindOf(f.err) {
	case entropy.KindTimeout, entropy.KindTransport, entropy.KindProtocol:
		return breaker.Failure
	default:
		return breaker.Excluded
	}
}

// fault tells errors apart.
func (s *Source) fault(err error) *fault {
	e := &entropy.Error{Source: s.name, Err: err}
	f := &fault{err: e}
	var wrong *protocolError
	switch {
	case errors.Is(err, errClosed) || s.line.isClosed():
		e.Kind, e.Message, e.Err = entropy.KindClosed, "it is closed", nil
	case errors.As(err, &wrong):
		e.Kind, e.Message, e.Err = entropy.KindProtocol, wrong.text, nil
		e.Hint = "check schema, fields and payload, and whether something else answers for the server"
	case errors.Is(err, context.DeadlineExceeded):
		s.asLate(f, e)
	case errors.Is(err, errLate), errors.Is(err, errLeft), errors.Is(err, errReplaced), errors.Is(err, errEnded), errors.Is(err, errShared):
		e.Kind, e.Message, f.again = entropy.KindTransport, "no answer", true
	default:
		s.byStatus(status.Convert(err), f, e)
	}
	return f
}

func (s *Source) asLate(f *fault, e *entropy.Error) {
	f.late = true
	e.Kind, e.Message, e.Err = entropy.KindTimeout, "no answer in time", nil
	e.Hint = "the limit adapts to the server; if it is slow by nature, set rate or a higher timeout_floor"
}

// byStatus reads what gRPC says, which is the server's word or the library's.
func (s *Source) byStatus(st *status.Status, f *fault, e *entropy.Error) {
	said := s.quote(st.Message())
	e.Message, e.Err = fmt.Sprintf("server %s: %s", st.Code(), said), nil
	switch st.Code() {
	case codes.DeadlineExceeded:
		s.asLate(f, e)
	case codes.ResourceExhausted:
		if strings.HasPrefix(st.Message(), "grpc: received message") { // our own library, about the length
			e.Kind, e.Message = entropy.KindProtocol, "the answer is longer than what was asked for: "+said
			return
		}
		e.Kind, e.Hint = entropy.KindQuota, "wait, ask for less, or raise the limit at the server"
		s.holdFor(st)
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unimplemented, codes.Unauthenticated:
		e.Kind, e.Hint = entropy.KindRefused, hintOf(st.Code())
	case codes.Unavailable, codes.Canceled:
		e.Kind, f.again = entropy.KindTransport, true
		e.Message = "no connection to " + s.cfg.Address + ": " + said
	default: // the server or its device failed
		e.Kind = entropy.KindTransport
	}
}

// maxQuote is how much of what a server says an error shows, in bytes.
const maxQuote = 500

// quote is what a server says, without the key should it be in there, and not at any length.
func (s *Source) quote(text string) string {
	if s.key != "" {
		text = strings.ReplaceAll(text, string(s.key), "(key)")
	}
	if len(text) > maxQuote {
		text = strings.ToValidUTF8(text[:maxQuote], "") + "..."
	}
	return text
}

// holdFor keeps from asking as long as the server says, or as is configured.
func (s *Source) holdFor(st *status.Status) {
	hold := s.cfg.QuotaHold
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			hold = min(max(info.GetRetryDelay().AsDuration(), 0), time.Hour)
		}
	}
	s.hold.Store(s.now().Add(hold).UnixNano())
}

func hintOf(c codes.Code) string {
	switch c {
	case codes.Unauthenticated, codes.PermissionDenied:
		return "check api_key and api_key_header, or the client certificate"
	case codes.Unimplemented, codes.NotFound:
		return "check mode, schema and the method paths: the server does not have this one"
	case codes.InvalidArgument, codes.OutOfRange:
		return "the server may limit the bytes of a request: see max_draw"
	default:
		return ""
	}
}
