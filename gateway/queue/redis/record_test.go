package redis

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"qr-gateway/gateway/queue"
)

// TestParcel holds that a node gets the job that was submitted, but for its id, deadline and floor, which have their own way.
func TestParcel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := queue.Job{
			Key: rapid.String().Draw(t, "key"), Owner: rapid.String().Draw(t, "owner"), Model: rapid.String().Draw(t, "model"),
			IdempotencyKey: rapid.String().Draw(t, "idempotency key"), Class: queue.Class(rapid.IntRange(0, queue.Classes-1).Draw(t, "class")),
			Cost: rapid.IntMin(0).Draw(t, "cost"), Weight: rapid.Float64Range(1e-9, 1e9).Draw(t, "weight"),
			Prefixes: rapid.SliceOfN(rapid.Uint64(), 0, queue.MaxPrefixes).Draw(t, "prefixes"),
			Payload:  rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		}
		got, err := openParcel(parcel(&want))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v (-want +got)\n%s", err, diff)
		}
	})
}

func FuzzParcel(f *testing.F) {
	f.Add(parcel(&queue.Job{Key: "k", Model: "m", Owner: "o", Cost: 7, Prefixes: []uint64{1, 2}, Payload: []byte("p")}))
	f.Add([]byte("1,2\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := openParcel(data)
		if err == nil && (j.Class < 0 || j.Class >= queue.Classes || j.Cost < 0 || len(j.Payload) > len(data)) {
			t.Errorf("took %+v", j)
		}
	})
}

// TestHidden holds that any text can stand in a record, and comes back.
func TestHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom([]rune("\x01\x02aba\x00"))).Draw(t, "text")
		if h := hidden(s); shown(h) != s || strings.Contains(h, "\x01") {
			t.Fatalf("%q became %q, then %q", s, h, shown(h))
		}
	})
}
