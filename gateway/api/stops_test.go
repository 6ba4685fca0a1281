package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/sampler"
)

// TestEmptyStops: forms in which people type a list send an empty entry; it stops nothing.
func TestEmptyStops(t *testing.T) {
	for stop, want := range map[string][]string{`""`: {}, `["a",""]`: {"a"}, `["",""]`: {}, `"a"`: {"a"}} {
		call, err := parse(t, `{"model":"m","stop":`+stop+`,"messages":[{"role":"user","content":"x"}]}`).Chat(sampler.Defaults())
		if err != nil {
			t.Errorf("%s: %v", stop, err)
			continue
		}
		if diff := cmp.Diff(want, append([]string{}, call.Request.Stop...)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", stop, diff)
		}
	}
}
