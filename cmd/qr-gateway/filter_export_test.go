package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/configs/presets"
	"qr-gateway/filters/openwebui"
)

// TestFilterNamesThePresets holds what the filter's help tells of presets to those that the program brings along.
func TestFilterNamesThePresets(t *testing.T) {
	all, err := presets.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all.Names(), openwebui.Presets()); diff != "" {
		t.Errorf("filters/openwebui/valves.go names other presets (-want +got):\n%s", diff)
	}
}
