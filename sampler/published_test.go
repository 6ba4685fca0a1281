package sampler_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"qr-gateway/sampler"
)

// TestPublishedValuesFit holds that the ranges of the strategies' parameters take every value that the published cases use.
func TestPublishedValuesFit(t *testing.T) {
	data, err := os.ReadFile("temper/testdata/temperature.json")
	if err != nil {
		t.Fatal(err)
	}
	var published struct {
		Cases      []struct{ Params map[string]any }
		Degenerate []struct{ Params map[string]any }
		Defaults   map[string]any
	}
	if err := json.Unmarshal(data, &published); err != nil || len(published.Cases) == 0 || len(published.Defaults) == 0 {
		t.Fatalf("%d cases, %d defaults: %v", len(published.Cases), len(published.Defaults), err)
	}
	no := map[any]string{
		"no_such_strategy": "an unknown inner strategy is refused, where the published one takes fixed",
		"coherence_gate":   "so is the gate itself",
	}
	defaults := []struct{ Params map[string]any }{{published.Defaults}}
	for _, c := range slices.Concat(published.Cases, published.Degenerate, defaults) {
		for name, value := range c.Params {
			p := sampler.Defaults()
			if err := p.Set("qr_"+name, value); (err != nil) != (no[value] != "") {
				t.Errorf("%s = %v: %v", name, value, err)
			}
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	p := sampler.Defaults()
	b.ReportAllocs()
	for b.Loop() {
		data, err := json.Marshal(p)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sampler.ParseParams(data); err != nil {
			b.Fatal(err)
		}
	}
}
