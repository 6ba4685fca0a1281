package jsonlines

import (
	"strings"
	"testing"

	"qr-gateway/sampler"
)

// TestStreamsAreBounded holds that neither many streams nor large ones take all memory, and that one which ended gives its place back.
func TestStreamsAreBounded(t *testing.T) {
	for _, r := range []*runner{
		{base: sampler.Defaults(), streams: map[string]*session{}, places: maxPlaces - 3},
		{base: sampler.Defaults(), streams: make(map[string]*session, maxStreams)},
	} {
		for i := range maxStreams - 1 {
			if r.places == 0 {
				r.streams[strings.Repeat("x", i+1)] = &session{failed: 1}
			}
		}
		for _, want := range []string{"", "one too many"} {
			_, err := r.session(&Line{Stream: "a" + want, Logits: Logits{1, 2}})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		before := r.places
		r.end("a")
		r.end("a")
		if r.places != before-2 {
			t.Errorf("%d places after the end, %d before; the stream had 2", r.places, before)
		}
	}
}
