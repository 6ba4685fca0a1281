package config_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"qr-gateway/gateway/config"
	"qr-gateway/sampler"
)

// badText are texts that no field of this kind takes, for a variable.
func badText(f sampler.Field) []string {
	out := []string{"\x01", strings.Repeat("x", 1<<17)}
	switch f.Type {
	case sampler.TypeNumber, sampler.TypeInteger:
		out = append(out, "abc", "NaN", "Infinity", "-inf", "0x10", "1e999", "1,5", "1__0", "[1]", "{}", "true")
		if f.Key != "qr_seed" {
			out = append(out, strconv.FormatFloat(f.Max*1.001+1, 'f', 6, 64), strconv.FormatFloat(min(f.Min, 0)-1.5, 'f', -1, 64))
		}
		if f.Type == sampler.TypeInteger {
			out = append(out, "1.5", "1e3")
		}
	case sampler.TypeBool:
		out = append(out, "2", "maybe", " true ", "[true]")
	case sampler.TypeString:
		if len(f.Enum) > 0 {
			out = append(out, "zzz", strings.ToUpper(f.Enum[0]), f.Enum[0]+" ", "5")
		}
	case sampler.TypeObject:
		out = append(out, "5", "[]", `{"x":1}`, `{"7":101}`, `{"7":"1"}`, "{")
	}
	return out
}

// refusesAt holds that a start is refused, naming where the value came from, the key and what it takes.
func refusesAt(t *testing.T, file string, f sampler.Field, yaml string, env []string, where, key string) {
	t.Helper()
	if yaml != "" {
		write(t, file, yaml)
	}
	_, err := config.Load(config.Options{File: file, Env: env})
	if err == nil {
		t.Errorf("%s: %.60q %.60q was taken", f.Key, yaml, env)
		return
	}
	text := err.Error()
	takes := key + " is "
	switch {
	case f.Key == "qr_entropy_source_instances" || f.Key == "qr_preset":
		takes = ""
	case slices.Contains([]string{"qr_presets_dir", "qr_profiles_dir"}, f.Key):
		takes = key
	}
	if !strings.HasPrefix(text, "check configuration: "+where) || !strings.Contains(text, takes) || takes != "" && !strings.Contains(text, "; it takes "+f.Allowed()) {
		t.Errorf("%s: %.60q: %.300s", f.Key, env, text)
	}
	if len(text) > 1000 {
		t.Errorf("%s: the message has %d bytes", f.Key, len(text))
	}
}

// TestEveryVariableRefuses sets every bad value under every name that a parameter has in the environment.
func TestEveryVariableRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, fake)
	for _, f := range slices.Concat(sampler.Fields(), sampler.ProcessFields()) {
		if f.Key == "qr_log_level" {
			continue // see TestLogLevel
		}
		for _, key := range append([]string{f.Key}, f.Aliases...) {
			shown := key
			if _, ok := sampler.FieldByName(key); !ok {
				shown = strings.TrimPrefix(key, "qr_")
			}
			for _, text := range badText(f) {
				name := strings.ToUpper(key)
				refusesAt(t, file, f, "", []string{name + "=" + text}, name, shown)
			}
		}
	}
}

// TestLogLevel holds that the one variable with two meanings is told apart by its word.
func TestLogLevel(t *testing.T) {
	for word, want := range map[string][2]string{"debug": {"debug", "none"}, "summary": {"info", "summary"}, "none": {"info", "none"}} {
		got, err := load(t, fake, []string{"QR_LOG_LEVEL=" + word})
		if err != nil || got.Log.Level != want[0] || got.Models[0].Params.LogLevel != want[1] {
			t.Errorf("%s: %v, log level %s, per request %s", word, err, got.Log.Level, got.Models[0].Params.LogLevel)
		}
	}
	_, err := load(t, fake, []string{"QR_LOG_LEVEL=loud"})
	if err == nil || !strings.Contains(err.Error(), `log.level: is "loud"; it takes debug or info or warn or error (QR_LOG_LEVEL also takes none, summary or full, for qr_log_level)`) {
		t.Errorf("error %v", err)
	}
}

// TestEveryLineRefuses sets values of the wrong type in the file: the parameters of every model, of one model, and the process.
func TestEveryLineRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	for _, f := range sampler.Fields() {
		if f.Key == "qr_preset" {
			continue // its own refusals are in the golden file
		}
		for i, v := range badValues(f) {
			refusesAt(t, file, f, fake+"parameters: {"+f.Key+": "+v+"}", nil, "parameters: ", f.Key)
			if i > 1 {
				continue // the same code reads both
			}
			refusesAt(t, file, f, "models: [{id: m, backend: fake, defaults: {"+f.Key+": "+v+"}}]", nil, "models[0].defaults: ", f.Key)
		}
	}
	for _, f := range sampler.ProcessFields() {
		name := strings.TrimPrefix(f.Key, "qr_")
		for _, v := range badValues(f) {
			refusesAt(t, file, f, fake+"process: {"+name+": "+v+"}", nil, "process."+name, name)
		}
	}
}

// badValues are YAML values of the wrong type, or out of range.
func badValues(f sampler.Field) []string {
	out := []string{"[1]", "{a: 1}"}
	switch f.Type {
	case sampler.TypeNumber, sampler.TypeInteger:
		out = append(out, ".nan", ".inf", "-.inf", "many", "1e300", "-1e300", "99999999999999999999")
	case sampler.TypeBool:
		out = append(out, "2", "maybe")
	case sampler.TypeString:
		out = append(out, "5", "1.5", "true")
	case sampler.TypeObject:
		out = append(out, "5", "text")
	}
	return out
}

// TestEveryDefaultIsTaken holds that what is printed as a default can be written back, in the environment and in the file.
func TestEveryDefaultIsTaken(t *testing.T) {
	var parameters, process, env []string
	for _, f := range sampler.Fields() {
		if data, err := json.Marshal(f.Default); err == nil && f.Key != "qr_preset" {
			parameters = append(parameters, f.Key+": "+string(data))
		}
	}
	for _, f := range sampler.ProcessFields() {
		data, err := json.Marshal(f.Default)
		if err != nil {
			t.Fatal(err)
		}
		process = append(process, strings.TrimPrefix(f.Key, "qr_")+": "+string(data))
	}
	for _, f := range slices.Concat(sampler.Fields(), sampler.ProcessFields()) {
		if f.Type != sampler.TypeObject && f.Default != nil {
			env = append(env, f.Env+"="+fmt.Sprint(f.Default))
		}
	}
	for name, o := range map[string]struct {
		yaml string
		env  []string
	}{
		"file":        {fake + "parameters: {" + strings.Join(parameters, ", ") + "}\nprocess: {" + strings.Join(process, ", ") + "}\n", nil},
		"environment": {fake, env},
	} {
		got, err := load(t, o.yaml, o.env)
		if err != nil {
			t.Fatal(name, err)
		}
		if !got.Models[0].Params.Equal(sampler.Defaults()) || got.Process != sampler.ProcessDefaults() {
			t.Errorf("%s: parameters %+v, process %+v", name, got.Models[0].Params, got.Process)
		}
	}
}
