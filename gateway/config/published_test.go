package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"qr-gateway/gateway/api"
	"qr-gateway/gateway/config"
	"qr-gateway/sampler"
)

// published are the fields of qr-sampler and what its configuration makes of many inputs.
type published struct {
	FieldsNew []struct {
		Name       string
		Default    any
		PerRequest bool `json:"per_request"`
		Env        string
		RequestKey string `json:"request_key"`
	} `json:"fields_new"`
	Cases []publishedCase
}

type publishedCase struct {
	Env    map[string]string
	Dotenv string
	Init   map[string]any
	Args   map[string]any `json:"extra_args"`
	Expect *struct {
		Changed map[string]any `json:"changed_from_field_defaults"`
	}
	Error *struct{ Stage string } `json:"expect_error"`
}

// different are the cases that this program decides otherwise, with the reason. compat is presets.compat.
func different(compat bool) map[int]string {
	out := alwaysDifferent()
	if compat {
		out[134] = "a preset of the process is always expanded, and wins here"
	} else {
		const wins = "the environment wins over the preset of the process"
		out[133], out[141] = wins, wins
	}
	return out
}

func alwaysDifferent() map[int]string {
	const (
		empty   = "an empty variable is none: container files pass variables through that way"
		ranges  = "a value out of range is refused"
		words   = "a word that is not in the list is refused"
		null    = "null in a request is a key left out, as in OpenAI's fields"
		process = "a preset of the process is always expanded"
	)
	return map[int]string{
		10: empty, 48: empty, 200: empty,
		27: ranges, 28: ranges, 33: ranges, 70: "of the negative numbers only -1 is off", 75: ranges, 79: ranges, 80: ranges, 81: ranges,
		102: ranges, 103: ranges, 104: ranges,
		52: words, 53: words, 54: words, 55: words, 99: words, 100: words, 101: words, 201: words, 202: words,
		58: "QR_TOP_K in a request is refused with a hint, not ignored",
		65: null, 77: null, 92: null, 97: null, 144: null,
		150: process,
		203: "of the older version; the source can be named by a request", 204: "of the older version; conditioning belongs to the process",
	}
}

func readPublished(t *testing.T) published {
	t.Helper()
	data, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var p published
	if err := json.Unmarshal(data, &p); err != nil || len(p.Cases) != 205 || len(p.FieldsNew) != 106 {
		t.Fatalf("%d cases, %d fields: %v", len(p.Cases), len(p.FieldsNew), err)
	}
	return p
}

// TestPublishedFields holds that every field, with its variable and scope, is known, and lists the defaults that differ.
func TestPublishedFields(t *testing.T) {
	requests, process := sampler.Defaults(), sampler.ProcessDefaults()
	other := map[string]string{}
	for _, f := range readPublished(t).FieldsNew {
		got, found := requests.Value(f.RequestKey)
		if !found {
			got, found = process.Value(f.RequestKey)
		}
		_, err := sampler.RequestKey(f.RequestKey)
		inRequest := err == nil
		if !found {
			t.Errorf("%s is unknown", f.Name)
		}
		if f.Env != strings.ToUpper(f.RequestKey) || inRequest != (f.PerRequest || f.Name == "preset") {
			t.Errorf("%s: variable %s, per request %t", f.Name, f.Env, inRequest)
		}
		if fmt.Sprint(got) != fmt.Sprint(f.Default) && !(got == "" && f.Default == nil) {
			other[f.Name] = fmt.Sprint(got)
		}
	}
	want := map[string]string{
		"entropy_source_type": "", "entropy_source_instances": "{}", // system, none: written in another way
		"population_mean": "<nil>", "population_std": "<nil>", // that of the source, else of uniform bytes
		"sample_count": "20480", "entropy_prefetch": "false", "log_level": "none",
		"qrng_max_bytes_per_day": "524288000", // 5.24288e+08, an integer here
	}
	if !maps.Equal(want, other) {
		t.Errorf("other defaults are %v, want %v", other, want)
	}
}

// TestPublishedCases runs every case through loading and a request.
func TestPublishedCases(t *testing.T) {
	p := readPublished(t)
	fields := make([]string, len(p.FieldsNew))
	defaults := map[string]any{}
	for i, f := range p.FieldsNew {
		fields[i], defaults[f.Name] = f.RequestKey, f.Default
	}
	for _, compat := range []bool{true, false} {
		why := different(compat)
		for i, c := range p.Cases {
			t.Run(fmt.Sprint(compat, i), func(t *testing.T) {
				request, process, err := c.resolve(t, compat)
				wrong := c.compare(request, process, err, fields, defaults)
				switch {
				case wrong != "" && why[i] == "":
					t.Error(wrong)
				case wrong == "" && why[i] != "":
					t.Errorf("it is as published, yet listed as different: %s", why[i])
				}
			})
		}
	}
}

// resolve loads the environment of the case and reads its request.
func (c *publishedCase) resolve(t *testing.T, compat bool) (sampler.Params, sampler.Process, error) {
	t.Helper()
	dir := t.TempDir()
	o := config.Options{File: filepath.Join(dir, "c.yaml")}
	write(t, o.File, fmt.Sprintf("presets: {compat: %t}\nmodels: [{id: m, backend: fake}]", compat))
	for name, value := range c.Env {
		o.Env = append(o.Env, name+"="+value)
	}
	if c.Dotenv != "" {
		o.EnvFile = filepath.Join(dir, "env")
		write(t, o.EnvFile, c.Dotenv)
	}
	cfg, err := config.Load(o)
	if err != nil {
		return sampler.Params{}, sampler.Process{}, err
	}
	args := maps.Clone(c.Args)
	if args == nil {
		args = map[string]any{}
	}
	for name, value := range c.Init {
		args["qr_"+name] = value
	}
	p, err := ask(cfg, map[string]any{"extra_args": args})
	return p, cfg.Process, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask reads a request with these fields.
func ask(cfg config.Config, fields map[string]any) (sampler.Params, error) {
	body := map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
	maps.Copy(body, fields)
	raw, err := json.Marshal(body)
	if err != nil {
		return sampler.Params{}, err
	}
	parsed, err := api.Parse(raw)
	if err != nil {
		return sampler.Params{}, err
	}
	call, err := parsed.WithPresets(cfg.Library).Chat(cfg.Models[0].Params)
	if err != nil {
		return sampler.Params{}, err
	}
	return call.Request.Params, nil
}

// compare says in what the outcome is not the published one.
func (c *publishedCase) compare(p sampler.Params, process sampler.Process, err error, keys []string, defaults map[string]any) string {
	if (err != nil) != (c.Error != nil) {
		return fmt.Sprintf("error %v, published: %+v", err, c.Error)
	}
	if err != nil {
		return ""
	}
	start, startProcess := sampler.Defaults(), sampler.ProcessDefaults()
	for _, key := range keys {
		got, ok := p.Value(key)
		base, _ := start.Value(key)
		if !ok {
			got, _ = process.Value(key)
			base, _ = startProcess.Value(key)
		}
		name := strings.TrimPrefix(key, "qr_")
		wants := []any{base, defaults[name]} // a preset may set the published default, which is not always ours
		if v, changed := c.Expect.Changed[name]; changed {
			wants = []any{v}
		}
		if name == "preset" {
			wants = []any{c.preset()} // published: never recorded once expanded, a defect
		}
		if !slices.ContainsFunc(wants, func(want any) bool { return sameValue(name, got, want) }) {
			return fmt.Sprintf("%s is %v, want one of %v", name, got, wants)
		}
	}
	return ""
}

// preset is the name that decides.
func (c *publishedCase) preset() any {
	if name, ok := c.Args["qr_preset"]; ok {
		return name
	}
	return c.Env["QR_PRESET"]
}

func sameValue(name string, got, want any) bool {
	if name == "top_k" && want == -1.0 {
		want = 0.0 // off
	}
	if name == "entropy_source_instances" {
		data, err := json.Marshal(want)
		var a, b any
		return err == nil && json.Unmarshal(data, &a) == nil && json.Unmarshal([]byte(fmt.Sprint(got)), &b) == nil && fmt.Sprint(a) == fmt.Sprint(b)
	}
	x, isNumber := want.(float64)
	if i, ok := got.(int64); ok && isNumber {
		return float64(i) == x
	}
	if y, ok := got.(float64); ok && isNumber {
		return math.Abs(x-y) <= 1e-12
	}
	return got == want
}
