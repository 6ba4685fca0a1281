package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	goBlock  = regexp.MustCompile("(?s)```go\n(.*?)```")
	pathLine = regexp.MustCompile(`^// ([a-z/-]+\.go)\n`)
	lineFor  = regexp.MustCompile("(?s)table of `([^`]+)`[^`]*:\n\n```go\n(.*?)```")
	imports  = regexp.MustCompile(`(?m)^import \(\n`)
)

// overlay is the tree with the examples of docs/extending.md in it, as go build's -overlay takes it.
type overlay struct {
	root, dir string
	Replace   map[string]string
}

func (o *overlay) put(t *testing.T, path, text string) {
	t.Helper()
	file := filepath.Join(o.dir, strings.ReplaceAll(path, "/", "__"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Replace[filepath.Join(o.root, path)] = file
}

// line puts a line at the end of a table: before the line that closes it, which is the first after the last entry of the same shape.
func (o *overlay) line(t *testing.T, path, line string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(o.root, path))
	if err != nil {
		t.Fatal(err)
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, "\t"))]
	closing := strings.TrimSuffix(indent, "\t") + "}\n"
	table := regexp.MustCompile(`(?s)(var kinds = \[\]Kind\{\n|return \[\]Kind\{\n|return map\[string\]makeBackend\{\n).*?\n` + regexp.QuoteMeta(closing))
	at := table.FindIndex(data)
	if at == nil {
		t.Fatalf("%s has no table for %q", path, line)
	}
	end := at[1] - len(closing)
	text := string(data[:end]) + line + string(data[end:])
	for pkg, use := range map[string]string{"qr-gateway/entropy/chip": "chip.", "qr-gateway/backends/echo": "echo."} {
		if strings.Contains(line, use) {
			text = imports.ReplaceAllString(text, "import (\n\t\""+pkg+"\"\n")
		}
	}
	o.put(t, path, text)
}

// extended builds the program with everything on the page.
func extended(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/extending.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := &overlay{root: root, dir: t.TempDir(), Replace: map[string]string{}}
	files, lines := 0, lineFor.FindAllStringSubmatch(string(page), -1)
	for _, m := range goBlock.FindAllStringSubmatch(string(page), -1) {
		if path := pathLine.FindStringSubmatch(m[1]); path != nil {
			o.put(t, path[1], strings.TrimPrefix(m[1], path[0]))
			files++
		}
	}
	for _, m := range lines {
		o.line(t, m[1], m[2])
	}
	if files != 4 || len(lines) != 4 {
		t.Fatalf("the page has %d files and %d lines of tables; this test knows of 4 each", files, len(lines))
	}
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	o.put(t, "overlay.json", string(spec))
	program := filepath.Join(o.dir, "qr-gateway")
	build := exec.Command("go", "build", "-overlay", filepath.Join(o.dir, "overlay.json"), "-o", program, "./cmd/qr-gateway")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestExtendingPage holds that a new strategy, amplifier, source and backend are what the page says, and nothing more.
func TestExtendingPage(t *testing.T) {
	t.Parallel()
	program := extended(t)
	run := func(stdin string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdin = strings.NewReader(stdin)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, errs.String())
		}
		return out.String()
	}
	params := `"params": {"qr_temperature_strategy": "cooldown", "qr_cooldown_half_life": 1, "qr_amplifier": "hash"}`
	got := run(`{"stream": "a", "logits": [2, 1], "bytes": "c8", `+params+"}\n"+`{"stream": "a", "logits": [2, 1], "bytes": "c9"}`, "sample")
	for _, want := range []string{`"temperature":1.5`, `"temperature":1,`, `"amplifier":"hash"`} {
		if !strings.Contains(got, want) {
			t.Errorf("sample printed %s, want %s", got, want)
		}
	}
	if got := run("", "entropy", "test", "chip,slot=2", "--bytes", "4096", "--draws", "64", "--json"); !strings.Contains(got, "chip-2") {
		t.Errorf("entropy test printed %s, want the device", got)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("models:\n  - {id: parrot, backend: echo}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run("", "validate", "--config", file); !strings.Contains(got, "parrot: echo") {
		t.Errorf("validate printed %s, want the model", got)
	}
}
