package presets_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
)

func builtIn(t *testing.T) presets.Library {
	t.Helper()
	l, err := presets.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPublishedPresets holds the presets of qr-sampler to what it sets.
func TestPublishedPresets(t *testing.T) {
	data, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	var published []struct {
		Preset string
		Sets   map[string]any
	}
	if err := json.Unmarshal(data, &published); err != nil || len(published) != 7 {
		t.Fatalf("%d presets: %v", len(published), err)
	}
	l := builtIn(t)
	for _, want := range published {
		got, err := l.Find(want.Preset)
		if err != nil {
			t.Error(err)
			continue
		}
		if !got.BuiltIn || got.Experimental != (want.Preset == "creative_sampling") {
			t.Errorf("%s: built in %t, experimental %t", got.Name, got.BuiltIn, got.Experimental)
		}
		want.Sets["decoder"] = "plain" // there is no other there
		if diff := cmp.Diff(keyed(t, "qr_", want.Sets), keyed(t, "", got.Sets)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Preset, diff)
		}
	}
}

// keyed are values by the table's keys, as text.
func keyed(t *testing.T, prefix string, values map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, v := range values {
		key, err := sampler.Key(prefix + name)
		if err != nil {
			t.Error(err)
		}
		out[key] = fmt.Sprint(v)
	}
	return out
}

// TestPublishedOverLookahead holds that the presets of qr-sampler are what they are there on a model that looks ahead by default.
func TestPublishedOverLookahead(t *testing.T) {
	for _, name := range []string{"normal_t1", "chat_light", "creative_sampling", "qthought", "qthought_think", "qthought_voice", "qthought_purity"} {
		values, err := builtIn(t).Values(name)
		if err != nil {
			t.Fatal(err)
		}
		p := sampler.Defaults()
		if err := p.Set("qr_alpha", 0.3); err != nil {
			t.Fatal(err)
		}
		if errs := p.Lay(values); len(errs) > 0 || p.Validate() != nil || p.UsesLookahead() {
			t.Errorf("%s: %v, %v, looks ahead: %t", name, errs, p.Validate(), p.UsesLookahead())
		}
	}
}

// TestOwnPresets holds that every preset is valid from the defaults, and says what it is for.
func TestOwnPresets(t *testing.T) {
	l := builtIn(t)
	for _, want := range []string{"adaptive", "future_focus", "future_open", "future_wave", "greedy", "plain", "research_strict"} {
		if _, err := l.Find(want); err != nil {
			t.Error(err)
		}
	}
	for _, p := range l.All() {
		defaults := sampler.Defaults()
		if errs := defaults.Lay(p.Sets); len(errs) > 0 || defaults.Validate() != nil || p.Title == "" || p.Description == "" {
			t.Errorf("%s: %v, %v", p.Name, errs, defaults.Validate())
		}
	}
}

func TestFind(t *testing.T) {
	_, err := builtIn(t).Find("Normal_T1")
	var pe *sampler.ParamError
	if !errors.As(err, &pe) || pe.Key != "qr_preset" || !strings.Contains(err.Error(), `qr_preset is "Normal_T1"; it takes one of adaptive, chat_light`) {
		t.Errorf("error %v", err)
	}
	if _, err := (presets.Library{}).Find("x"); err == nil || !strings.Contains(err.Error(), "there are no presets") {
		t.Errorf("an empty library: %v", err)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "mine.yaml", "name: mine\nsets: {qr_top_k: 7, qr_top_p: \"0.5\"}\n")
	write(t, dir, "plain.yaml", "name: plain\ntitle: Another\nsets: {qr_temperature: 0.5}\n")
	write(t, dir, "notes.txt", "not a preset")
	l, err := presets.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Names()) != len(builtIn(t).Names())+1 {
		t.Errorf("names are %v", l.Names())
	}
	mine, err := l.Values("mine")
	if err != nil || mine["qr_top_k"] != 7 {
		t.Errorf("mine sets %v, %v", mine, err)
	}
	if p, err := l.Find("plain"); err != nil || p.Title != "Another" || p.BuiltIn {
		t.Errorf("plain is %+v, %v", p, err)
	}
	for _, bad := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "notes.txt")} {
		if _, err := presets.Load(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// badPreset is a file that is refused, and what the error says.
func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "the file is empty",
		"name: [x]":          "decode",
		"name: x\nsets: [1]": "into keys with values",
		"name: x\nset: {}":   "field set is unknown; there are name, title",
		"name: x\nsets: {qr_logit_bias: {fifty: 1}}":              `qr_logit_bias is {"fifty":1}`,
		"name: X\nsets: {qr_top_k: 1}":                            `name is "X"`,
		"name: y\nsets: {qr_top_k: 1}":                            `name of the file, "x"`,
		"name: x":                                                 "sets is empty",
		"name: x\nsets: {top_k: 1}":                               `did you mean "qr_top_k"`,
		"name: x\nsets: {qr_top_k: 5000000}":                      "a whole number from -1 to 1000000",
		"name: x\nsets: {qr_top_k: [1]}":                          "qr_top_k is [1]",
		"name: x\nsets: {qr_preset: plain}":                       "another",
		"name: x\nsets: {qr_grpc_mode: a}":                        "belongs to the process",
		"name: x\nsets: {qr_top_p: .nan}":                         "qr_top_p is NaN",
		"name: x\nsets: {qr_alpha: 1}\n---\n":                     "more than one document",
		"name: x\nsets: {qr_min_p: 0.1, qr_min_p_base: 0.1}":      "one parameter",
		"name: x\nsets: {qr_alpha: 0.1, qr_wave_period: 8}":       "give one of them",
		"name: x\nsets: {qr_edt_min_temp: 3, qr_edt_max_temp: 1}": "qr_edt_min_temp",
		strings.Repeat("#", 70000):                                "more than",
	} {
		dir := t.TempDir()
		write(t, dir, "x.yaml", text)
		if _, err := presets.Load(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.yaml") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// TestNoFiles holds that what can't be the file of a preset stops the start, and doesn't wait for anything.
func TestNoFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe.yaml":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder.yaml": func(path string) error { return os.Mkdir(path, 0o700) },
		"zero.yaml":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"lost.yaml":   func(path string) error { return os.Symlink("nowhere", path) },
		"short.yml":   func(path string) error { return os.WriteFile(path, []byte("name: short\nsets: {qr_top_k: 1}"), 0o600) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := presets.Load(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBiasOfNumbers holds that token ids need no quotes, and that a link to a file is one.
func TestBiasOfNumbers(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "any", "name: mine\nsets: {qr_logit_bias: {50: -100, \"7\": 1}}\n")
	if err := os.Symlink(filepath.Join(elsewhere, "any"), filepath.Join(dir, "mine.yaml")); err != nil {
		t.Fatal(err)
	}
	l, err := presets.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	values, err := l.Values("mine")
	if err != nil {
		t.Fatal(err)
	}
	p := sampler.Defaults()
	if errs := p.Lay(values); len(errs) > 0 || !slices.Equal(p.LogitBias, []sampler.TokenBias{{Token: 7, Bias: 1}, {Token: 50, Bias: -100}}) {
		t.Errorf("bias is %v, %v", p.LogitBias, errs)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: x\ntitle: T\nsets: {qr_top_k: 7}"))
	f.Add([]byte("name: x\nsets: {qr_logit_bias: {\"7\": -1}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := presets.Parse(data, "x")
		if err != nil {
			return
		}
		defaults := sampler.Defaults()
		if errs := defaults.Lay(p.Sets); len(errs) > 0 {
			t.Errorf("taken, yet %v", errs)
		}
	})
}
