package config_test

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"qr-gateway/gateway/config"
	"qr-gateway/sampler"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// plain leaves out what Load works out beside the values.
var plain = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.IgnoreFields(config.Config{}, "Library", "Origins"), cmpopts.IgnoreFields(config.Model{}, "Origins"),
}

// load reads YAML text as c.yaml in a working folder of its own.
func load(t *testing.T, yaml string, env []string, args ...string) (config.Config, error) {
	t.Helper()
	o := config.Options{Env: env}
	if yaml != "" {
		t.Chdir(t.TempDir())
		o.File = "c.yaml"
		if err := os.WriteFile(o.File, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Flags = pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(o.Flags)
	if err := o.Flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return config.Load(o)
}

func TestPrecedence(t *testing.T) {
	file := "server: {listen: 'file:1', keep_alive: 3s}\nmodels: [{id: m, backend: fake}]\n"
	env := []string{"QR_SERVER_LISTEN=env:1", "QR_SERVER_KEEP_ALIVE=4s", "HOME=/x"}
	for _, c := range []struct {
		name      string
		env, args []string
		listen    string
		keepAlive time.Duration
	}{
		{"file over default", nil, nil, "file:1", 3 * time.Second},
		{"environment over file", env, nil, "env:1", 4 * time.Second},
		{"flag over environment", env, []string{"--listen", "flag:1"}, "flag:1", 4 * time.Second},
		{"flag over file", nil, []string{"--listen", "flag:1"}, "flag:1", 3 * time.Second},
		{"an empty variable is none", []string{"QR_SERVER_LISTEN="}, nil, "file:1", 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := load(t, file, c.env, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got.Server.Listen != c.listen || got.Server.KeepAlive != c.keepAlive {
				t.Errorf("listen %s, keep-alive %s; want %s, %s", got.Server.Listen, got.Server.KeepAlive, c.listen, c.keepAlive)
			}
			if want := config.Default().Server.WriteTimeout; got.Server.WriteTimeout != want {
				t.Errorf("write timeout %s, want the default %s", got.Server.WriteTimeout, want)
			}
		})
	}
}

func TestParamPrecedence(t *testing.T) {
	file := "models: [{id: m, backend: fake, defaults: {qr_alpha: 0.3, qr_top_k: 40, qr_seed: null}}, {id: n, backend: fake}]"
	got, err := load(t, file, []string{"QR_ALPHA=-0.5", "QR_CURVE=seed"})
	if err != nil {
		t.Fatal(err)
	}
	want := sampler.Defaults()
	alpha := -0.5
	want.Alpha, want.Curve = &alpha, "seed"
	if diff := cmp.Diff(want, got.Models[1].Params); diff != "" {
		t.Errorf("the model without defaults (-want +got):\n%s", diff)
	}
	want.TopK = 40
	if diff := cmp.Diff(want, got.Models[0].Params); diff != "" {
		t.Errorf("the model with defaults (-want +got):\n%s", diff)
	}
}

// TestAlphaOfTheEnvironmentWins holds that it does over a wave too, which would be silent about it.
func TestAlphaOfTheEnvironmentWins(t *testing.T) {
	file := "models: [{id: m, backend: fake, defaults: {qr_wave_period: 8, qr_wave_amplitude: 0.5}}]"
	got, err := load(t, file, []string{"QR_ALPHA=0.25"})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 8 {
		if a := got.Models[0].Params.AlphaAt(step); a != 0.25 {
			t.Errorf("alpha of token %d is %v, want 0.25", step, a)
		}
	}
}

func TestEnvironmentTypes(t *testing.T) {
	got, err := load(t, "models: [{id: m, backend: fake}]", []string{
		"QR_SERVER_BODY_LIMIT=2MiB", "QR_SERVER_CORS_ORIGINS=https://a.example, https://b.example", "QR_QUEUE_JOBS=7",
		"QR_QUEUE_WAIT_TIMEOUT=0s", "QR_ENGINE_BINARY=123", "QR_CACHE=/x", "QR_TEST_MODEL=/y", "QR_SOMEBODY_ELSES=1",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Server.BodyLimit, want.Server.CORSOrigins = 2<<20, []string{"https://a.example", "https://b.example"}
	want.Queue.Jobs, want.Queue.WaitTimeout, want.Engine.Binary = 7, 0, "123"
	want.Warnings = []string{"QR_SOMEBODY_ELSES: unknown environment variable, not used"}
	got.Models = nil
	if diff := cmp.Diff(want, got, plain); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// TestModelList holds what a map in viper gets wrong: case, dots and ids that differ in case only.
func TestModelList(t *testing.T) {
	got, err := load(t, `
models:
  - {id: Qwen2.5-0.5B, path: sub/a.gguf}
  - {id: qwen2.5-0.5b, path: /abs/b.gguf, workers: 1, gpu_layers: 0, description: null}
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := got.Models[0], got.Models[1]
	if a.ID != "Qwen2.5-0.5B" || b.ID != "qwen2.5-0.5b" || b.Path != "/abs/b.gguf" {
		t.Errorf("models are %q and %q at %s", a.ID, b.ID, b.Path)
	}
	if a.Path != "sub/a.gguf" {
		t.Errorf("path is %q, want it as it is: the file is in the working folder", a.Path)
	}
	want := config.DefaultModel("qwen2.5-0.5b")
	want.Path, want.Workers, want.GPULayers = "/abs/b.gguf", 1, 0
	if diff := cmp.Diff(want, b, plain); diff != "" {
		t.Errorf("model (-want +got):\n%s", diff)
	}
}

// TestPathsInFile holds that a configuration works from any working folder.
func TestPathsInFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	text := "engine: {binary: bin/qr-engine}\nmodels: [{id: m, path: m.gguf}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "bin/qr-engine"); got.Engine.Binary != want {
		t.Errorf("engine is %q, want %q", got.Engine.Binary, want)
	}
	if want := filepath.Join(dir, "m.gguf"); got.Models[0].Path != want {
		t.Errorf("model is %q, want %q", got.Models[0].Path, want)
	}
}

// TestNulls holds that a key without a value is a key left out.
func TestNulls(t *testing.T) {
	got, err := load(t, "server:\nqueue: {jobs: null}\nengine: {binary: null}\nmodels: [{id: m, backend: fake, path: null, workers: }]", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	m := config.DefaultModel("m")
	m.Backend = "fake"
	want.Models = []config.Model{m}
	if diff := cmp.Diff(want, got, plain); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestModelFlag(t *testing.T) {
	file := "models: [{id: a, path: x}, {id: b, path: /y}]"
	got, err := load(t, file, nil, "--model", "a=rel=1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if got.Models[0].Path != "rel=1.gguf" || got.Models[1].Path != "/y" {
		t.Errorf("paths are %q and %q", got.Models[0].Path, got.Models[1].Path)
	}
	got, err = load(t, "", nil, "--model", "m=/m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Models) != 1 || got.Models[0].ID != "m" || got.Models[0].Workers != 4 {
		t.Errorf("models without a file are %+v", got.Models)
	}
}

// TestRefused keeps the words of every refusal in testdata/refused.golden.
func TestRefused(t *testing.T) {
	path, err := filepath.Abs("testdata/refused.golden")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, c := range refusals() {
		_, err := load(t, c.yaml, c.env, c.args...)
		if err == nil {
			t.Errorf("%s: it was taken", c.name)
			continue
		}
		out.WriteString("== " + c.name + "\n" + err.Error() + "\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("messages differ (run with -update when they should):\n%s", diff)
	}
}

// TestExamples loads every file in configs/.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	for _, f := range files {
		if _, err := config.Load(config.Options{File: f}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestMainExample holds the claim of configs/qr-gateway.yaml that it shows the defaults.
func TestMainExample(t *testing.T) {
	got, err := config.Load(config.Options{File: "../../configs/qr-gateway.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	m := config.DefaultModel("smollm2")
	m.Path, m.Context = "../../configs/SmolLM2-135M-Instruct.Q4_1.gguf", 2048
	m.Name, m.Description, m.Prompts = got.Models[0].Name, got.Models[0].Description, got.Models[0].Prompts
	m.Defaults = map[string]any{"qr_decoder": "lookahead", "qr_alpha": 0.3}
	alpha := 0.3
	m.Params.Decoder, m.Params.Alpha = "lookahead", &alpha
	want.Models = []config.Model{m}
	if diff := cmp.Diff(want, got, plain); diff != "" {
		t.Errorf("configs/qr-gateway.yaml (-want +got):\n%s", diff)
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]config.ByteSize{
		"10MiB": 10 << 20, "1.5KiB": 1536, "2 KB": 2000, "1GiB": 1 << 30, "7000B": 7000, "0.001GB": 1e6,
	} {
		got, err := load(t, "server: {body_limit: "+text+"}\nmodels: [{id: m, backend: fake}]", nil)
		if err != nil || got.Server.BodyLimit != want {
			t.Errorf("%s = %d, %v; want %d", text, got.Server.BodyLimit, err, want)
		}
		again, err := load(t, "server: {body_limit: "+want.String()+"}\nmodels: [{id: m, backend: fake}]", nil)
		if err != nil || again.Server.BodyLimit != want {
			t.Errorf("%s, written as %s, reads %d, %v", text, want, again.Server.BodyLimit, err)
		}
	}
	for _, text := range []string{"MiB", "-1KiB", "1XB", "1e400GiB", "NaNKiB", "1 0KiB", "infGB"} {
		if got, err := load(t, "server: {body_limit: "+text+"}\nmodels: [{id: m, backend: fake}]", nil); err == nil {
			t.Errorf("%s was taken as %s", text, got.Server.BodyLimit)
		}
	}
}

func TestMissingFile(t *testing.T) {
	_, err := config.Load(config.Options{File: filepath.Join(t.TempDir(), "none.yaml")})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("Load = %v, want the file's name and that it isn't there", err)
	}
}
