package config_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends/openai"
)

func upstreamRefusals() []refusal {
	model := func(keys string) string { return "models: [{id: m, backend: openai, " + keys + "}]" }
	return []refusal{
		{name: "upstream without an address", yaml: model("workers: 0")},
		{name: "upstream without a scheme", yaml: model("url: 'localhost:8081'")},
		{name: "user in an address", yaml: model("url: 'http://u:hidden@x/v1'")},
		{name: "two keys", yaml: model("url: 'http://x/v1', api_key: hidden, api_key_file: f")},
		{name: "key with a line break", yaml: model(`url: 'http://x/v1', api_key: "hidden\nhidden"`)},
		{name: "headers of an upstream", yaml: model(`url: 'http://x/v1', headers: {content-length: "1", "a b": c, x: "hidden\n"}`)},
		{name: "header as a number", yaml: model(`url: 'http://x/v1', headers: {x: 1}`)},
		{name: "time-outs", yaml: model("url: 'http://x/v1', timeouts: {connect: 0s, idle: -1s}")},
		{name: "time-out without a unit", yaml: model("url: 'http://x/v1', timeouts: {connect: 5}")},
		{name: "unknown time-out", yaml: model("url: 'http://x/v1', timeouts: {conect: 5s}")},
		{name: "qr of an upstream", yaml: model("url: 'http://x/v1', qr: maybe")},
		{name: "address of an engine", yaml: "models: [{id: m, path: x, url: 'http://x/v1'}]"},
		{name: "upstream as a replica", yaml: "models: [{id: m, backend: openai, replicas: [{name: a, url: x}, {name: b, url: 'http://x', timeouts: {total: 0s}}]}]"},
	}
}

// TestUpstream holds what a model of a server elsewhere is made of.
func TestUpstream(t *testing.T) {
	got, err := load(t, `models:
  - {id: m, backend: openai, url: http://x/v1, timeouts: {idle: 5s, total: null}, headers: {X-Team: a}, workers: 1000, qr: pass, upstream_model: n}
  - {id: n, backend: openai, timeouts: null, headers: null, qr: null, url: http://x/v1, context: 512, replicas: [{name: a, api_key_file: keys/a, timeouts: {connect: 1s}}]}
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := openai.DefaultConfig()
	want.Model, want.URL, want.Workers, want.UpstreamModel, want.PassParams = "m", "http://x/v1", 1000, "n", true
	want.Timeouts.Idle, want.Headers = 5*time.Second, map[string]string{"x-team": "a"}
	if diff := cmp.Diff(want, got.Models[0].Upstream()); diff != "" {
		t.Errorf("first model (-want +got):\n%s", diff)
	}
	want = openai.DefaultConfig()
	want.Model, want.URL, want.Context, want.Headers, want.APIKeyFile = "n", "http://x/v1", 512, map[string]string{}, filepath.Join("keys", "a")
	want.Timeouts.Connect = time.Second
	if diff := cmp.Diff(want, got.Models[1].Backends()[0].Model.Upstream()); diff != "" {
		t.Errorf("replica of the second model (-want +got):\n%s", diff)
	}
}

// TestKeysStayHidden holds that no refusal shows a key.
func TestKeysStayHidden(t *testing.T) {
	for _, c := range upstreamRefusals() {
		if _, err := load(t, c.yaml, c.env, c.args...); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: Load = %v", c.name, err)
		}
	}
}
