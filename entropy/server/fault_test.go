package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy/entropypb"
	"qr-gateway/entropy/server"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]server.Fault{
		"delay:20ms@0.1":   {Kind: "delay", Time: 20 * time.Millisecond, Bytes: 1, P: 0.1},
		"short":            {Kind: "short", Bytes: 1, P: 1},
		"long:7@/100":      {Kind: "long", Bytes: 7, Every: 100},
		"code:UNAVAILABLE": {Kind: "code", Bytes: 1, P: 1, Code: codes.Unavailable},
		"silent@+3":        {Kind: "silent", Bytes: 1, P: 1, After: 3},
	} {
		got, err := server.ParseFault(text)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, d)
		}
	}
	for _, text := range []string{"", "odd", "delay", "delay:-1s", "short:0", "short:x", "code:OK", "code:ODD", "empty:1", "stale@2", "stale@-1", "stale@/0", "close@+x", "delay:1s@NaN"} {
		if f, err := server.ParseFault(text); err == nil {
			t.Errorf("%q is accepted: %+v", text, f)
		}
	}
}

func FuzzParseFault(f *testing.F) {
	for _, s := range []string{"delay:20ms@0.1", "short:1@/100", "code:UNAVAILABLE@0.01", "silent@+1000", "empty"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := server.ParseFault(text); err == nil && got.Validate() != nil {
			t.Errorf("%q is accepted and is not valid: %+v", text, got)
		}
	})
}

// TestFaults: each does what it is called after, to the third reply and after.
func TestFaults(t *testing.T) {
	for text, check := range map[string]func(t *testing.T, third, fourth *entropypb.EntropyResponse, err error){
		"short:3": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) { size(t, r, err, 13) },
		"long:3":  func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) { size(t, r, err, 19) },
		"empty":   func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) { size(t, r, err, 0) },
		"delay:1ms": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) {
			size(t, r, err, 16)
		},
		"stale":      func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) { echo(t, r, err, 2) },
		"wrong-echo": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) { echo(t, r, err, 3^1<<40) },
		"duplicate":  func(t *testing.T, _, r *entropypb.EntropyResponse, err error) { echo(t, r, err, 3) },
		"silent": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) {
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%v, %v", r, err)
			}
		},
		"close": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) {
			if err == nil || !strings.Contains(err.Error(), "EOF") {
				t.Errorf("%v, %v", r, err)
			}
		},
		"code:DATA_LOSS": func(t *testing.T, r, _ *entropypb.EntropyResponse, err error) {
			if status.Code(err) != codes.DataLoss {
				t.Errorf("%v, %v", r, err)
			}
		},
	} {
		t.Run(text, func(t *testing.T) {
			f, err := server.ParseFault(text + "@+2")
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, nil, func(c *server.Config) { c.Faults = []server.Fault{f} })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			stream, err := entropypb.NewEntropyServiceClient(dial(t, s.Addrs()[0])).StreamEntropy(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var replies []*entropypb.EntropyResponse
			for seq := range int64(4) {
				_ = stream.Send(&entropypb.EntropyRequest{BytesNeeded: 16, SequenceId: seq + 1})
			}
			for len(replies) < 4 && err == nil {
				var r *entropypb.EntropyResponse
				if r, err = stream.Recv(); err == nil {
					replies = append(replies, r)
				}
			}
			replies = append(replies, nil, nil, nil)
			check(t, replies[2], replies[3], err)
		})
	}
}

func size(t *testing.T, r *entropypb.EntropyResponse, err error, want int) {
	t.Helper()
	if err != nil || len(r.GetData()) != want {
		t.Errorf("%d bytes, %v, want %d", len(r.GetData()), err, want)
	}
}

func echo(t *testing.T, r *entropypb.EntropyResponse, err error, want int64) {
	t.Helper()
	if err != nil || r.GetSequenceId() != want {
		t.Errorf("echo %d, %v, want %d", r.GetSequenceId(), err, want)
	}
}
