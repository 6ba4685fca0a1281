package gateway

import (
	"errors"
	"fmt"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
)

// TestTheLogHasTheReason: the client is sent to the log, so the log must say more than the client was told.
func TestTheLogHasTheReason(t *testing.T) {
	engine := &backends.Error{Kind: backends.KindInternal, Message: "the engine hit a defect of its own", Err: errors.New("tokenise: no room")}
	for want, err := range map[string]error{
		"the engine hit a defect of its own: tokenise: no room":          &api.Error{Message: "its log has the reason", Err: engine},
		"run job: the engine hit a defect of its own: tokenise: no room": fmt.Errorf("run job: %w", engine),
		"draw bytes: broken": &backends.Error{Message: "draw bytes: broken", Err: errors.New("broken")},
		"plain":              errors.New("plain"),
	} {
		if got := cause(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
