package openwebui

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"qr-gateway/sampler"
)

// exported is the file of this version, and the function in it.
func exported(t *testing.T) ([]byte, Function) {
	t.Helper()
	files, err := Export()
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(files.JSON)
	if err != nil {
		t.Fatal(err)
	}
	return files.JSON, f
}

func TestCheckTakesWhatItExports(t *testing.T) {
	data, f := exported(t)
	if err := Check(data); err != nil {
		t.Error(err)
	}
	python, err := os.ReadFile(ID + ".py")
	if err != nil || f.Content != string(python) || f.ID != ID || f.Meta.Manifest["required_open_webui_version"] != "0.10.0" {
		t.Errorf("got %.200s, %v, error %v", f.Content, f.Meta, err)
	}
}

// What people do to a file by hand, and what they are told.
func TestCheckNamesWhatIsWrong(t *testing.T) {
	data, f := exported(t)
	edited := func(edit func(*Function)) string {
		g := f
		edit(&g)
		text, err := g.file()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	content := func(old, text string) string {
		return edited(func(g *Function) { g.Content = strings.Replace(g.Content, old, text, 1) })
	}
	for want, text := range map[string]string{
		"the file is an object":         strings.Trim(string(data), "[] \n"),
		"the file is no JSON array":     "]" + string(data),
		"unexpected end":                string(data[:100]),
		"has 0 functions":               "[]",
		"has 2 functions":               "[{}, {}]",
		"meta.manifest is a string":     `[{"meta": {"manifest": "x"}}]`,
		`its id is ""`:                  "[{}]",
		`its id is "qr-gateway"`:        edited(func(g *Function) { g.ID = "qr-gateway" }),
		"it has no name":                edited(func(g *Function) { g.Name = "" }),
		"no class Filter":               edited(func(g *Function) { g.Content = "" }),
		`words "from config"`:           content("The word of", "Taken from config: the word of"),
		`must begin with a line of """`: content(`"""`, `"""Doc`),
		"without a line `version":       content("version: 1.0.0", "revision: 1.0.0"),
		"it requires":                   content("license:", "requirements: numpy\nlicense:"),
		`version "0.9.0"`:               strings.ReplaceAll(edited(func(g *Function) { g.Content = strings.Replace(g.Content, "version: 1.0.0", "version: 0.9.0", 1) }), `"version": "1.0.0"`, `"version": "0.9.0"`),
		"the file was changed":          content("VERSION = ", "VERSION =  "),
	} {
		err := Check([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want) || e.Hint == "" || !strings.Contains(err.Error(), e.Hint) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// A help text of the table that Open WebUI would rewrite stops the export, and so does a source without its regions.
func TestExportRefuses(t *testing.T) {
	fields := []sampler.Field{{Key: "qr_x", Type: sampler.TypeNumber, Help: "Taken from config.", PerRequest: true}}
	python, err := fill(source, fields)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newFunction(python); err == nil || !strings.Contains(err.Error(), `"from config"`) {
		t.Errorf("error %v", err)
	}
	if _, err := fill(strings.Replace(source, "# <generated: valves>", "#", 1), fields); err == nil || !strings.Contains(err.Error(), `"valves"`) {
		t.Errorf("error %v", err)
	}
}

func TestMarkdown(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                         "plain",
		"qr_alpha or full_inverse":      "`qr_alpha` or full\\_inverse",
		"base * (H/ln V)^b <i> & [x]":   `base \* (H/ln V)\^b &lt;i&gt; &amp; \[x\]`,
		`ids: {"50": -100} bans it`:     "ids: `{\"50\": -100}` bans it",
		"`a` \\ ~~b~~ #1 |":             "\\`a\\` \\\\ \\~\\~b\\~\\~ \\#1 \\|",
		"qr_top_k, qr_top_p; QR_TOP_K.": "`qr_top_k`, `qr_top_p`; QR\\_TOP\\_K.",
	} {
		if got := markdown(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestOrder holds that the page begins with what is used most, and that no parameter of a request is missing or twice.
func TestOrder(t *testing.T) {
	all := sampler.Fields()
	got := ordered(all)
	if got[0].Key != "qr_preset" || got[1].Key != "qr_decoder" || got[2].Key != "qr_alpha" {
		t.Errorf("begins with %s, %s, %s", got[0].Key, got[1].Key, got[2].Key)
	}
	seen := map[string]int{}
	for _, f := range got {
		seen[f.Key]++
	}
	for _, f := range all {
		want := 0
		if f.PerRequest {
			want = 1
		}
		if seen[f.Key] != want {
			t.Errorf("%s is there %d times, want %d", f.Key, seen[f.Key], want)
		}
	}
	for _, name := range append(first, unshared...) {
		if !known(all, name) {
			t.Errorf("%q is no key and no group of the table", name)
		}
	}
}

func known(fields []sampler.Field, name string) bool {
	for _, f := range fields {
		if f.Key == name || f.Group == name {
			return true
		}
	}
	return false
}

// FuzzCheck holds that no file makes it fail in another way than by an error, and that what is taken is the file itself.
func FuzzCheck(f *testing.F) {
	files, err := Export()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(files.JSON)
	f.Add([]byte(`[{"id": "x", "content": "\"\"\"\ntitle: x\nversion: 1\n\"\"\"\nclass Filter"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if Check(data) == nil && !json.Valid(data) {
			t.Error("taken, and no JSON")
		}
	})
}
