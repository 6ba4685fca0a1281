package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy/catalog"
)

func TestParseSource(t *testing.T) {
	for text, want := range map[string]catalog.Spec{
		"system":      {Name: "system", Type: "system", Options: map[string]any{}},
		"mock,seed=3": {Name: "mock", Type: "mock", Options: map[string]any{"seed": "3"}},
		"grpc,name=lab,address=unix:///a.sock,policy=fallback,fallback=system": {
			Name: "lab", Type: "grpc", Policy: "fallback", Fallback: "system", Options: map[string]any{"address": "unix:///a.sock"},
		},
		`http,"url=http://host/?a=1,2",key=`: {Name: "http", Type: "http", Options: map[string]any{"url": "http://host/?a=1,2", "key": ""}},
		"exec, command=a=b":                  {Name: "exec", Type: "exec", Options: map[string]any{"command": "a=b"}},
	} {
		got, err := parseSource(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"", "mock,seed", "mock,=3", "mock,seed=3,seed=4", `mock,"seed=3`} {
		if got, err := parseSource(text); err == nil || !strings.Contains(err.Error(), "entropy source") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := parseSources([]string{"mock", "mock,x"}); err == nil || !strings.Contains(err.Error(), `"mock,x"`) {
		t.Errorf("got %v", err)
	}
}

func FuzzParseSource(f *testing.F) {
	for _, text := range []string{"mock,seed=3", `http,"url=a,b"`, "a,name=b,policy=c,fallback=d,e=f", ",", "\"", "a\nb,c=d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := parseSource(text)
		if err == nil && spec.Options == nil {
			t.Errorf("%q: no options", text)
		}
		if _, ok := spec.Options[""]; ok {
			t.Errorf("%q: an option without a name", text)
		}
	})
}
