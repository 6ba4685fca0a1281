package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
	"qr-gateway/sampler/temper"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestGenerated holds the files that are made from the parameter table to it.
func TestGenerated(t *testing.T) {
	for file, want := range map[string][]byte{
		"docs/parameters.md":                    parametersPage(),
		"configs/schema/parameters.schema.json": parametersSchema(),
		"configs/schema/config.schema.json":     configSchema(),
	} {
		path := root + "/" + file
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what the table says; go test ./cmd/qr-gateway -run Generated -update (-want +got):\n%s", file, diff)
		}
	}
}

// TestStrategiesPage holds that the page has every strategy and amplifier, and every parameter of one.
func TestStrategiesPage(t *testing.T) {
	data, err := os.ReadFile(root + "/docs/strategies.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	has := func(name string, fields []sampler.Field) {
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("the page has no line for %s", name)
		}
		for _, f := range fields {
			_, bare, _ := strings.Cut(strings.TrimPrefix(f.Key, "qr_"), "_") // without the strategy's prefix
			if !strings.Contains(page, bare) && !strings.Contains(page, f.Key) {
				t.Errorf("the page doesn't tell of %s", f.Key)
			}
		}
	}
	for _, k := range temper.Kinds() {
		has(k.Name, k.Fields)
	}
	for _, k := range amplify.Kinds() {
		has(k.Name, k.Fields)
	}
}

// compiled checks a schema against the meta-schema.
func compiled(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestConfigSchema holds that the schema takes the file that shows every key, and refuses what loading does.
func TestConfigSchema(t *testing.T) {
	schema := compiled(t, configSchema())
	example, err := os.ReadFile(root + "/configs/qr-gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		string(example): true,
		"{}":            true,
		"server:\nmodels: [{id: m, path: null, defaults: {qr_alpha: 0.3, qr_fixed_temperature: 2}}]": true,
		"entropy: {sources: [{name: a, type: mock, seed: 5}]}":                                       true,
		"entropy: {sources: [{type: mock}]}":                                                         false,
		"models: [{path: x}]":                                                                        false,
		"models: [{id: m, worker: 2}]":                                                               false,
		"server: {keep_alive: 10}":                                                                   false,
		"server: {keep_alive: 10s}":                                                                  true,
		"server: {body_limit: 1.5MiB}":                                                               true,
		"server: {body_limit: 5}":                                                                    false,
		"sever: {}":                                                                                  false,
		"parameters: {qr_alpha: 2}":                                                                  false,
		"parameters: {qr_top_k: null}":                                                               true,
		"parameters: {qr_alhpa: 1}":                                                                  false,
		"process: {cb_window_size: 0}":                                                               false,
		"process: {grpc_mode: bidi_streaming}":                                                       true,
		"preset: 5":                                                                                  false,
	} {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		v, err = jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != ok {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// TestSchema holds that the schema is a valid one, and takes and refuses what the table does.
func TestSchema(t *testing.T) {
	schema := compiled(t, parametersSchema())
	for body, ok := range map[string]bool{
		`{}`: true,
		`{"model":"m","qr_alpha":0.3,"qr_wave_period":0,"qr_seed":9223372036854775807}`: true,
		`{"qr_wave_period":1.5}`:        false,
		`{"qr_alpha":null,"seed":null}`: true,
		`{"qr_top_k":null,"qr_curve":null,"temperature":null,"qr_wave_period":null,"qr_logit_bias":null}`: true,
		`{"extra_body":{"qr_alpha":0.3},"extra_args":null}`:                                               true,
		`{"vllm_xargs":{"qr_alpha":3}}`:                                                                   false,
		`{"extra_args":{"qr_alhpa":0.3}}`:                                                                 false,
		`{"extra_body":"qr_alpha"}`:                                                                       false,
		`{"qr_logit_bias":{"7":null}}`:                                                                    false,
		`{"qr_alpha":2}`:                                                                                  false,
		`{"qr_top_k":1.5}`:                                                                                false,
		`{"qr_fixed_temperature":9}`:                                                                      false,
		`{"temperature":-1}`:                                                                              false,
		`{"qr_repetition_penalty":0}`:                                                                     false,
		`{"qr_logit_bias":{"7":-100}}`:                                                                    true,
		`{"logit_bias":{"x":1}}`:                                                                          false,
		`{"qr_curve":"article"}`:                                                                          true,
		`{"qr_curve":"banana"}`:                                                                           false,
		`{"qr_alhpa":0.3}`:                                                                                false,
		`{"QR_ALPHA":0.3}`:                                                                                false,
		`{"qr_grpc_mode":"unary"}`:                                                                        false,
		`{"qr_temperature_strategy":"edt"}`:                                                               true,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
	defaults, err := json.Marshal(sampler.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	defaults = bytes.Replace(defaults, []byte(`,"qr_ecdf_calibration_samples":2000`), nil, 1) // of the process
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(defaults))
	if err != nil || schema.Validate(v) != nil {
		t.Errorf("the defaults: %v, %v", err, schema.Validate(v))
	}
}
