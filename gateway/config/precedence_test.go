package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/gateway/config"
)

// TestPrecedenceOfParameters lays one value after the other over the same key, the lowest first: each wins over all before it.
func TestPrecedenceOfParameters(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ours.yaml"), "name: ours\nsets: {qr_top_k: 3}")
	write(t, filepath.Join(dir, "theirs.yaml"), "name: theirs\nsets: {qr_top_k: 5}")
	var yaml, env []string
	fields := map[string]any{}
	yaml = append(yaml, "models: [{id: m, backend: fake DEFAULTS}]", "presets: {dir: "+dir+" COMPAT}")
	check := func(what string, want int, origin string) {
		t.Helper()
		text := strings.NewReplacer("DEFAULTS", "", "COMPAT", "").Replace(strings.Join(yaml, "\n"))
		cfg, err := load(t, text, env)
		if err != nil {
			t.Fatal(what, err)
		}
		p, err := ask(cfg, fields)
		if err != nil {
			t.Fatal(what, err)
		}
		if p.TopK != want || cfg.Models[0].Origins["qr_top_k"] != origin {
			t.Errorf("%s: top-k is %d from %q, want %d from %q", what, p.TopK, cfg.Models[0].Origins["qr_top_k"], want, origin)
		}
	}
	check("default", 0, "")
	yaml = append(yaml, "parameters: {qr_top_k: 1}")
	check("file", 1, "file, parameters")
	yaml[0] = strings.Replace(yaml[0], "DEFAULTS", ", defaults: {qr_top_k: 2}", 1)
	check("model", 2, "file, defaults of the model")
	yaml = append(yaml, "preset: ours")
	check("preset of the process", 3, "preset ours (preset)")
	env = append(env, "QR_TOP_K=4")
	check("environment", 4, "environment")
	fields["qr_preset"] = "theirs"
	check("preset of the request", 5, "environment")
	fields["top_k"] = 6
	check("standard field", 6, "environment")
	fields["qr_top_k"] = 7
	check("key of the request", 7, "environment")
	delete(fields, "qr_preset")
	delete(fields, "top_k")
	delete(fields, "qr_top_k")
	yaml[1] = strings.Replace(yaml[1], "COMPAT", ", compat: true", 1)
	check("the published order", 3, "preset ours (preset)")
}

// TestPresetOfTheProcess holds which one it is, and that a request replaces only what its own preset names.
func TestPresetOfTheProcess(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		env        []string
		want       string
	}{
		{"none", fake, nil, ""},
		{"file", fake + "preset: greedy", nil, "greedy"},
		{"parameters", fake + "preset: greedy\nparameters: {qr_preset: plain}", nil, "plain"},
		{"model", "models: [{id: m, backend: fake, defaults: {qr_preset: adaptive}}]\npreset: greedy", nil, "adaptive"},
		{"environment", fake + "preset: greedy", []string{"qr_preset=future_open"}, "future_open"},
		{"an empty variable", fake + "preset: greedy", []string{"QR_PRESET="}, "greedy"},
	} {
		cfg, err := load(t, c.yaml, c.env)
		if err != nil {
			t.Fatal(c.name, err)
		}
		if got := cfg.Models[0].Params.Preset; got != c.want {
			t.Errorf("%s: preset is %q, want %q", c.name, got, c.want)
		}
	}
	cfg, err := load(t, fake+"preset: future_wave", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ask(cfg, map[string]any{"qr_preset": "adaptive"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Preset != "adaptive" || p.Strategy != "edt" || p.WavePeriod != 16 || p.Decoder != "plain" {
		t.Errorf("preset %s, strategy %s, wave %v, decoder %s", p.Preset, p.Strategy, p.WavePeriod, p.Decoder)
	}
	if p, err = ask(cfg, map[string]any{"qr_preset": "future_open"}); err != nil || p.AlphaAt(4) != 0.6 {
		t.Errorf("alpha of the preset is %v, %v: the wave below must give way", p.AlphaAt(4), err)
	}
}

// TestOriginOfLostWave holds that a wave which a higher layer's alpha took away is told as that layer's doing.
func TestOriginOfLostWave(t *testing.T) {
	cfg, err := load(t, fake+"preset: future_wave", []string{"QR_ALPHA=0.5"})
	if err != nil {
		t.Fatal(err)
	}
	if m := cfg.Models[0]; m.Params.WavePeriod != 0 || m.Origins["qr_wave_period"] != "environment" {
		t.Errorf("period %v from %q", m.Params.WavePeriod, m.Origins["qr_wave_period"])
	}
}

// TestUnusedVariables holds that what does nothing is said to do nothing.
func TestUnusedVariables(t *testing.T) {
	cfg, err := load(t, fake+"process: {apply_parallel_rows: 2}", []string{"QR_PREINIT_ENTROPY_SOURCES=quantum_grpc,system", "QR_GRPC_PREPROBE_ENABLED=0"})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(cfg.Warnings, "\n")
	for _, name := range []string{"QR_APPLY_PARALLEL_ROWS: not used: ", "QR_PREINIT_ENTROPY_SOURCES: not used: ", "QR_GRPC_PREPROBE_ENABLED: not used: "} {
		if !strings.Contains(all, name) {
			t.Errorf("no warning %q in %q", name, all)
		}
	}
	if len(cfg.Warnings) != 3 || len(cfg.Entropy.Sources) != 0 {
		t.Errorf("warnings %q, sources %v", all, cfg.Entropy.Sources)
	}
}

// TestEnvironmentFile holds that a file of variables is read only when it is named, and that the environment wins over it.
func TestEnvironmentFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "my.env")
	write(t, file, "# mine\nexport QR_TOP_K='33'\nqr_top_p=0.5\nOTHER=1\nQR_MIN_P=\nQR_QUEUE_JOBS=5\n")
	t.Chdir(dir)
	write(t, ".env", "QR_TOP_K=1")
	cfg, err := load(t, fake, []string{"QR_TOP_P=0.25"}, "--env-file", file)
	if err != nil {
		t.Fatal(err)
	}
	if p := cfg.Models[0].Params; p.TopK != 33 || p.TopP != 0.25 || p.MinP != 0 || cfg.Queue.Jobs != 5 {
		t.Errorf("top-k %d, top-p %v, min-p %v, jobs %d", p.TopK, p.TopP, p.MinP, cfg.Queue.Jobs)
	}
	if _, err := config.Load(config.Options{EnvFile: file}); err == nil {
		t.Error("no models: taken")
	}
	if cfg, err = load(t, fake, nil); err != nil || cfg.Models[0].Params.TopK != 0 {
		t.Errorf("a .env file was read without being named: %v, %v", cfg.Models[0].Params.TopK, err)
	}
	write(t, file, "QR_TOP_K=1\n# mine\nQR_GRPC_API_KEY hush\nQR_TOP_P=1\n")
	if _, err := load(t, fake, nil, "--env-file", file); err == nil || !strings.HasSuffix(err.Error(), "line 3 is not NAME=value") {
		t.Errorf("a broken line: %v", err)
	}
	for name, text := range map[string]string{"broken": "QR TOP K", "unknown": "QR_ALPAH=1", "value": "QR_TOP_K=many"} {
		write(t, file, text)
		if _, err := load(t, fake, nil, "--env-file", file); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := load(t, fake, nil, "--env-file", filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a missing file: %v", err)
	}
}
