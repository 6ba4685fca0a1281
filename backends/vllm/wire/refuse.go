package wire

import "fmt"

// Codes of refusals.
const (
	CodeKind      = "unknown_kind"
	CodeOversized = "oversized"
	CodeTruncated = "truncated"
	CodeForm      = "wrong_form"
	CodeReplay    = "replayed"
	CodeVersion   = "wrong_version"
	CodeHello     = "bad_hello"
	CodePeer      = "foreign_peer"
	CodeBusy      = "busy"
)

// RefusedError says why a connection is ended.
type RefusedError struct {
	Code    string `json:"code"`
	Message string `json:"message"` // one sentence, names the thing
	Hint    string `json:"hint"`    // the remedy, or empty
}

// Error implements error.
func (r *RefusedError) Error() string {
	if r.Hint == "" {
		return r.Message
	}
	return r.Message + " (" + r.Hint + ")"
}

func refuse(code, format string, args ...any) *RefusedError {
	return &RefusedError{Code: code, Message: fmt.Sprintf(format, args...)}
}
