package enginepb

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
)

func TestErrorsTravelWhole(t *testing.T) {
	for _, kind := range []backends.Kind{
		backends.KindInvalid, backends.KindTooLong, backends.KindUnavailable, backends.KindLost, backends.KindEntropy, backends.KindInternal,
	} {
		want := &backends.Error{Kind: kind, Code: "code", Param: "param", Message: "message é", Hint: "hint"}
		got := FromStatus(ToStatus(fmt.Errorf("outer: %w", want)))
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(backends.Error{}, "Err")); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", kind, diff)
		}
	}
}

// TestCutTextTravels: a text that C has cut to fit may end within a letter.
func TestCutTextTravels(t *testing.T) {
	cut := &backends.Error{Kind: backends.KindInvalid, Code: "template_error", Message: "no role caf\xc3", Hint: "\xff"}
	if got := FromStatus(ToStatus(cut)); got == nil || got.Kind != cut.Kind || got.Message != "no role caf\uFFFD" {
		t.Errorf("got %+v", got)
	}
}

func TestOtherErrors(t *testing.T) {
	if ToStatus(nil) != nil {
		t.Error("nil became an error")
	}
	if got := status.Code(ToStatus(fmt.Errorf("decode: %w", context.Canceled))); got != codes.Canceled {
		t.Errorf("cancelled context has code %v", got)
	}
	got := FromStatus(ToStatus(errors.New("secret reason")))
	if got == nil || got.Kind != backends.KindInternal || got.Message == "secret reason" {
		t.Errorf("got %+v, want an internal error that keeps its reason for the logs", got)
	}
	if got := FromStatus(status.Error(codes.Unavailable, "connection refused")); got != nil {
		t.Errorf("an error of the connection became %+v", got)
	}
}
