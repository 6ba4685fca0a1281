package dispatch_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

func logged() []dispatch.Logged {
	frame := func(seq int64, f dispatch.Frame) dispatch.Frame {
		f.Job, f.Epoch, f.Seq = "a", 3, seq
		return f
	}
	return []dispatch.Logged{
		{Said: &dispatch.Said{Content: "so <far>", Reasoning: "why", Tokens: []int32{1, 2}}, Frame: frame(0, dispatch.Frame{})},
		{First: 1, Frame: frame(1, dispatch.Frame{Event: backends.Event{Started: &backends.Started{Worker: 2, Content: 4}}})},
		{First: 2, Frame: frame(5, dispatch.Frame{Event: backends.Event{Content: "é", Tokens: []int32{7}}})},
		{First: 6, Frame: frame(6, dispatch.Frame{Event: backends.Event{Raw: json.RawMessage(`{ "spaces":  1 }`)}})},
		{First: 7, Frame: frame(7, dispatch.Frame{Err: &backends.Error{Kind: backends.KindLost, Code: "c", Message: "m", Hint: "h", Err: errors.New("why"), MayHaveRun: true}})},
		{First: 8, Frame: frame(8, dispatch.Frame{Result: &backends.Result{Reason: "stop", Usage: backends.Usage{PromptTokens: 3}}})},
	}
}

// alike compares errors, of which a cause travels as text.
func alike(a, b *backends.Error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Code == b.Code && a.Error() == b.Error() && a.MayHaveRun == b.MayHaveRun && a.Err.Error() == b.Err.Error()
}

func entry(t testing.TB, only bool, all ...dispatch.Logged) []byte {
	t.Helper()
	data := dispatch.StartEntry(nil, only)
	for _, l := range all {
		var err error
		if data, err = dispatch.AppendLogged(data, l); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func TestLoggedIsReadAsWritten(t *testing.T) {
	for _, only := range []bool{true, false} {
		got, as, err := dispatch.ParseEntry("a", 3, entry(t, only, logged()...))
		if err != nil || as != only {
			t.Fatalf("ParseEntry = %t, %v", as, err)
		}
		if diff := cmp.Diff(logged(), got, cmp.Comparer(alike)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(entry(f, true, logged()...))
	f.Add([]byte("c"))
	f.Add([]byte("oe\x02\x01\x00"))
	f.Add([]byte("ce\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, only, err := dispatch.ParseEntry("a", 1, data)
		if err != nil {
			return
		}
		again, as, err := dispatch.ParseEntry("a", 1, entry(t, only, all...))
		if err != nil || as != only || len(again) != len(all) {
			t.Fatalf("%q is read as %d parts, written again as %d: %v", data, len(all), len(again), err)
		}
	})
}
