package enginepb

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
)

// ToStatus makes a gRPC error of err. A *backends.Error travels whole, its cause excepted; the end of a context keeps its
// code; anything else becomes an internal error with err's text for the logs.
func ToStatus(err error) error {
	var e *backends.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return withDetail(codeOf(e.Kind), err.Error(), e)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return withDetail(codes.Internal, err.Error(), &backends.Error{
		Kind: backends.KindInternal, Code: "internal", Message: "the engine hit a defect of its own",
	})
}

// withDetail mends texts that are not UTF-8, as what C has cut may be: the protocol would not carry the detail at all.
func withDetail(code codes.Code, text string, e *backends.Error) error {
	mend := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	st, err := status.New(code, mend(text)).WithDetails(&ErrorDetail{
		Kind: string(e.Kind), Code: e.Code, Param: e.Param, Message: mend(e.Message), Hint: mend(e.Hint),
	})
	if err != nil {
		return status.Error(code, text)
	}
	return st.Err()
}

func codeOf(k backends.Kind) codes.Code {
	switch k {
	case backends.KindInvalid, backends.KindTooLong:
		return codes.InvalidArgument
	case backends.KindUnavailable, backends.KindEntropy:
		return codes.Unavailable
	case backends.KindLost:
		return codes.Aborted
	case backends.KindModel, backends.KindInternal, backends.KindUpstream, backends.KindTimeout, backends.KindLimited:
	}
	return codes.Internal
}

// FromStatus is the inverse of ToStatus. It returns nil for an error that carries no detail, which the engine never sends
// but for the end of a context: it comes from the connection.
func FromStatus(err error) *backends.Error {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range st.Details() {
		if d, ok := d.(*ErrorDetail); ok {
			return &backends.Error{
				Kind: backends.Kind(d.Kind), Code: d.Code, Param: d.Param, Message: d.Message, Hint: d.Hint,
				Err: errors.New(st.Message()),
			}
		}
	}
	return nil
}

// MaxMessage bounds a message in bytes, on both sides. A prompt of a million tokens has a sixteenth of that.
const MaxMessage = 64 << 20

// CodeModelFile is the code of an error that the model's file is to blame for: trying again is of no use.
const CodeModelFile = "model_file"
