package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends/openai"
	"qr-gateway/backends/peek"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/sidecar"
)

func samplingRefusals() []refusal {
	on := func(backend, keys string) string {
		return "models: [{id: m, backend: " + backend + ", url: 'http://x', " + keys + "}]"
	}
	side := func(keys string) string { return "sidecar: {" + keys + "}\n" + on("vllm", "") }
	return []refusal{
		{name: "vLLM's own keys", yaml: on("vllm", "vllm: {fail: maybe, mismatch: no, choice_wait: 0s}")},
		{name: "unknown key of vLLM", yaml: on("vllm", "vllm: {sidecars: x}")},
		{name: "socket of vLLM", yaml: "models: [{id: m, backend: vllm, url: 'unix:x.sock'}]"},
		{name: "vLLM without an address", yaml: "models: [{id: m, backend: vllm}]"},
		{name: "vLLM that looks ahead", yaml: on("vllm", "defaults: {qr_alpha: 0.3}")},
		{name: "replica on vLLM that looks ahead", yaml: "models: [{id: m, defaults: {qr_decoder: lookahead}, replicas: [{name: a, backend: vllm, url: 'http://x'}]}]"},
		{name: "peek's own keys", yaml: on("peek", "peek: {logprobs: 1, vocabulary: 1}, group: 65")},
		{name: "peek without an address", yaml: "models: [{id: m, backend: peek}]"},
		{name: "limits of a sidecar", yaml: side("deadline: 0s, top: 0, keep: 0s, requests: 0")},
		{name: "open sidecar", yaml: side("listen: '0.0.0.0:7070'")},
		{name: "half a certificate of a sidecar", yaml: side("listen: '127.0.0.1:7070', secret_file: s, tls_cert: c")},
	}
}

// TestSampling holds what models are made of whose server is asked for rows, and the sidecar.
func TestSampling(t *testing.T) {
	got, err := load(t, `sidecar: {socket: /s.sock, users: [vllm, "1001"], listen: "127.0.0.1:7070", secret_file: secret, deadline: 1s}
models:
  - {id: a, backend: vllm, url: "unix:/v.sock", vllm: {fail: native, probe: false}}
  - {id: b, backend: vllm, url: http://x, workers: 8, vllm: {sidecar: "h:1"}}
  - {id: c, backend: peek, url: http://x/v1, group: 4, peek: {logprobs: 30, end_tokens: ["</s>"]}}
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, two := vllm.DefaultConfig(), vllm.DefaultConfig()
	one.Model, one.URL, one.Fail, one.Probe, one.Headers = "a", "unix:/v.sock", vllm.FailNative, false, map[string]string{}
	two.Model, two.URL, two.Workers, two.Headers = "b", "http://x", 8, map[string]string{}
	if diff := cmp.Diff([]vllm.Config{one, two}, []vllm.Config{got.Models[0].OnVLLM(), got.Models[1].OnVLLM()}); diff != "" || got.Models[1].VLLM.Sidecar != "h:1" {
		t.Errorf("models on vLLM (-want +got):\n%s", diff)
	}
	three := peek.DefaultConfig()
	three.Upstream = openai.DefaultConfig()
	three.Upstream.Model, three.Upstream.URL, three.Upstream.Headers, three.Group, three.Logprobs, three.EndTokens = "c", "http://x/v1", map[string]string{}, 4, 30, []string{"</s>"}
	if diff := cmp.Diff(three, got.Models[2].Peeking()); diff != "" {
		t.Errorf("model that is looked ahead on (-want +got):\n%s", diff)
	}
	want := sidecar.DefaultConfig()
	want.Socket, want.UIDs, want.Listen, want.SecretFile, want.Deadline, want.Version = "/s.sock", []int{7}, "127.0.0.1:7070", "secret", time.Second, "v"
	if diff := cmp.Diff(want, got.Sidecar.Server("v", []int{7})); diff != "" {
		t.Errorf("sidecar (-want +got):\n%s", diff)
	}
	if c := got.Sidecar.Client("h:1"); c.Address != "h:1" || c.SecretFile != "secret" {
		t.Errorf("client of a sidecar: %+v", c)
	}
}
