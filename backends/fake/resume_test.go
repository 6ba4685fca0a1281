package fake_test

import (
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
)

// TestAnswersAreTakenUp: whatever of an answer its client has, another model of the same kind goes on from there.
func TestAnswersAreTakenUp(t *testing.T) {
	m, other := build(t, fake.DefaultConfig(), fake.Deps{}), build(t, fake.DefaultConfig(), fake.Deps{})
	rapid.Check(t, func(t *rapid.T) {
		req := text(rapid.StringN(1, 20, -1).Draw(t, "prompt"))
		req.MaxTokens = rapid.IntRange(1, 40).Draw(t, "most")
		req.Stop = rapid.SliceOfN(rapid.SampledFrom([]string{"the", " a", "light", "e s", "zzz"}), 0, 2).Draw(t, "stop")
		p, err := m.Prepare(t.Context(), req)
		if err != nil {
			t.Skip(err)
		}
		var events []backends.Event
		keep := func(to *[]backends.Event) func(backends.Event) error {
			return func(e backends.Event) error {
				if e.Started == nil {
					*to = append(*to, e)
				}
				return nil
			}
		}
		want, err := m.Generate(t.Context(), p, keep(&events))
		if err != nil || len(events) == 0 {
			t.Skip("nothing to take up")
		}
		at := rapid.IntRange(0, len(events)).Draw(t, "at")
		taken, has, began := *p, whole(events[:at]), 0
		for _, e := range events[:at] {
			taken.Delivered = append(taken.Delivered, e.Tokens...)
		}
		var rest []backends.Event
		more := keep(&rest)
		got, err := other.Generate(t.Context(), &taken, func(e backends.Event) error {
			if e.Started != nil {
				began = e.Started.Content
			}
			return more(e)
		})
		if err != nil || got.Reason != want.Reason || got.Usage != want.Usage || began > len(has) || has[:began]+whole(rest) != whole(events) {
			t.Fatalf("taken up at event %d of %d: %v, %+v %q after %d bytes; want %+v %q", at, len(events), err, got, whole(rest), began, want, whole(events))
		}
	})
}

func whole(events []backends.Event) (text string) {
	for _, e := range events {
		text += e.Content
	}
	return text
}
