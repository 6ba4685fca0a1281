package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/config"
)

// described is a source as name:type:policy:fallback.
func described(cfg config.Config) []string {
	var out []string
	for _, s := range cfg.Entropy.Sources {
		out = append(out, fmt.Sprintf("%s:%s:%s:%s", s.Name, s.Type, s.Policy, s.Fallback))
	}
	return out
}

// TestImpliedSources holds that an environment written for qr-sampler makes the sources that it means.
func TestImpliedSources(t *testing.T) {
	const server = "QR_GRPC_SERVER_ADDRESS=localhost:1"
	for _, c := range []struct {
		name    string
		env     []string
		sources []string
	}{
		{"nothing", nil, nil},
		{"named server", []string{server}, []string{"quantum_grpc:grpc:fallback:system"}},
		{"selected", []string{"QR_ENTROPY_SOURCE_TYPE=quantum_grpc"}, []string{"quantum_grpc:grpc:fallback:system"}},
		{"strict", []string{server, "QR_FALLBACK_MODE=error"}, []string{"quantum_grpc:grpc:strict:"}},
		{"mock behind", []string{server, "qr_fallback_mode=mock_uniform"}, []string{"quantum_grpc:grpc:fallback:mock_uniform", "mock_uniform:mock:strict:"}},
		{"mock", []string{"QR_ENTROPY_SOURCE_TYPE=mock_uniform"}, []string{"mock_uniform:mock:strict:"}},
		{"timing", []string{"QR_ENTROPY_SOURCE=timing_noise"}, []string{"timing_noise:timing:fallback:system"}},
		{"openentropy", []string{"QR_ENTROPY_SOURCE=openentropy", "QR_OE_SOURCES=clock_jitter"}, []string{"openentropy:openentropy:fallback:system"}},
		{"preset", []string{"QR_PRESET=chat_light"}, []string{"quantum_grpc:grpc:fallback:system"}},
		{
			"instances",
			[]string{`QR_ENTROPY_SOURCE_INSTANCES={"lane_b": {"type": "quantum_grpc", "grpc_server_address": "h:1"},` + "\n" + `"lane_a": {"type": "system"}}`},
			[]string{"lane_a:system:strict:", "lane_b:grpc:fallback:system"},
		},
		{"quota alone", []string{"QR_QRNG_MAX_BYTES_PER_DAY=5", "QR_CB_WINDOW_SIZE=7"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, fake, c.env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.sources, described(cfg)); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultOfEnvironment holds that the source which the environment chooses is the default of the process, as its health and lists tell it.
func TestDefaultOfEnvironment(t *testing.T) {
	const two = fake + "\nentropy: {default: a, sources: [{name: a, type: mock}, {name: b, type: mock}]}"
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "a"},
		{[]string{"QR_ENTROPY_SOURCE=b"}, "b"},
		{[]string{"QR_ENTROPY_SOURCE_TYPE=quantum_grpc"}, "quantum_grpc"},
		{[]string{"QR_ENTROPY_SOURCE=b", "QR_ENTROPY_DEFAULT=system"}, "system"},
		{[]string{"QR_ENTROPY_SOURCE=b", "QR_ENTROPY_ALLOW=b"}, "b"},
		{[]string{"QR_PRESET=chat_light"}, "a"},
	} {
		cfg, err := load(t, two, c.env)
		if err != nil || cfg.Entropy.Default != c.want {
			t.Errorf("%v: default %q, %v; want %q", c.env, cfg.Entropy.Default, err, c.want)
		}
	}
}

func TestImpliedOptions(t *testing.T) {
	cfg, err := load(t, fake+"process: {grpc_mode: bidi_streaming, grpc_timeout_ms: 250, qr_cb_window_size: 50}", []string{
		"QR_GRPC_SERVER_ADDRESS=unix:///run/e.sock", "QR_GRPC_API_KEY=secret", "QR_CB_RECOVERY_WINDOW_S=0.5", "Qr_Cb_Window_Size=60",
		`QR_ENTROPY_SOURCE_INSTANCES={"lane": {"type": "quantum_grpc", "grpc_timeout_ms": 100, "grpc_retry_count": "4"}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	lane, shared := cfg.Entropy.Sources[0].Options, cfg.Entropy.Sources[1].Options
	want := map[string]any{
		"address": "unix:///run/e.sock", "mode": "bidi_streaming", "timeout": 250 * time.Millisecond, "timeout_window": 60,
		"breaker_open": 500 * time.Millisecond, "retries": 2, "api_key": "secret",
	}
	for key, v := range want {
		if shared[key] != v {
			t.Errorf("%s is %v, want %v", key, shared[key], v)
		}
	}
	for _, key := range []string{"timeout_floor", "breaker_open_max"} { // nobody set them: the source's own defaults hold
		if v, set := shared[key]; set {
			t.Errorf("%s is set to %v", key, v)
		}
	}
	if lane["timeout"] != 100*time.Millisecond || lane["retries"] != 4 || lane["address"] != "unix:///run/e.sock" {
		t.Errorf("lane has %v", lane)
	}
	for key, origin := range map[string]string{"qr_grpc_mode": "file", "qr_cb_window_size": "environment", "qr_grpc_retry_count": ""} {
		if cfg.Origins[key] != origin {
			t.Errorf("%s comes from %q, want %q", key, cfg.Origins[key], origin)
		}
	}
}

func TestSourceNames(t *testing.T) {
	const sources = fake + `
entropy:
  default: a
  sources:
    - {name: a, type: mock, seed: 5}
    - {name: b, type: mock, policy: fallback, fallback: a}
    - {name: c, type: mock}
`
	cfg, err := load(t, sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.SourceNames(); !slices.Equal(got, []string{"system", "a", "b", "c"}) {
		t.Errorf("names are %v", got)
	}
	if got := cfg.Entropy.Sources[0]; got.Options["seed"] != 5 || got.Spec().Options["seed"] != 5 || len(got.Options) != 1 {
		t.Errorf("options are %v", got.Options)
	}
	if cfg, err = load(t, sources, []string{"QR_ENTROPY_ALLOW=a,b"}); err != nil || !slices.Equal(cfg.SourceNames(), []string{"a", "b"}) {
		t.Errorf("allowed are %v, %v", cfg.SourceNames(), err)
	}
	if _, err = load(t, sources, []string{"QR_ENTROPY_ALLOW=a", "QR_ENTROPY_SOURCE=b"}); err == nil || !strings.Contains(err.Error(), `qr_entropy_source is "b" (environment)`) {
		t.Errorf("a source that is not allowed: %v", err)
	}
}

// TestOptionPaths holds that files are found from any folder.
func TestOptionPaths(t *testing.T) {
	cfg, err := load(t, fake+"entropy: {sources: [{name: r, type: replay, path: r.bin}]}", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Entropy.Sources[0].Options["path"]; got != "r.bin" {
		t.Errorf("path is %v, want it relative to the working folder, where the file is", got)
	}
}
