package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// example is a command of docs/sample.md and what the page says it prints.
type example struct{ lines, filter, want []string }

var (
	console  = regexp.MustCompile("(?s)```console\n\\$ (.*?)\n(.*?)```")
	quoted   = regexp.MustCompile(`'(\{.*?\})'`)
	selector = regexp.MustCompile(`jq '?(.*?)'?$`)
)

func examples(t *testing.T) []example {
	t.Helper()
	page, err := os.ReadFile("../../docs/sample.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	for _, m := range console.FindAllStringSubmatch(string(page), -1) {
		command, pipe, _ := strings.Cut(m[1], " | qr-gateway sample")
		e := example{want: strings.Split(strings.TrimSpace(m[2]), "\n")}
		for _, q := range quoted.FindAllStringSubmatch(command, -1) {
			e.lines = append(e.lines, q[1])
		}
		f := selector.FindStringSubmatch(pipe)
		if len(e.lines) == 0 || f == nil {
			t.Fatalf("%q is not an example that this test understands", m[1])
		}
		e.filter = strings.Split(strings.Trim(f[1], "{}"), ", ")
		all = append(all, e)
	}
	return all
}

// filter is the part of jq that the page uses: {a, b: .c.d}, and .a for an object.
func filter(t *testing.T, answer map[string]any, fields []string) map[string]any {
	t.Helper()
	if len(fields) == 1 && strings.HasPrefix(fields[0], ".") {
		inner, _ := answer[fields[0][1:]].(map[string]any)
		return inner
	}
	out := map[string]any{}
	for _, f := range fields {
		name, path, deep := strings.Cut(f, ": .")
		if !deep {
			path = name
		}
		var value any = answer
		for part := range strings.SplitSeq(path, ".") {
			m, _ := value.(map[string]any)
			value = m[part]
		}
		out[name] = value
	}
	return out
}

// TestSamplePage holds that the page shows what the command prints.
func TestSamplePage(t *testing.T) {
	for _, e := range examples(t) {
		root := newRoot()
		var out bytes.Buffer
		root.SetArgs([]string{"sample"})
		root.SetIn(strings.NewReader(strings.Join(e.lines, "\n")))
		root.SetOut(&out)
		_ = root.Execute() // one example is of an error, and its answer tells
		answers := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(answers) != len(e.want) {
			t.Errorf("%v: got %d answers, want %d", e.lines, len(answers), len(e.want))
			continue
		}
		for i := range answers {
			var got, want map[string]any
			if json.Unmarshal([]byte(answers[i]), &got) != nil || json.Unmarshal([]byte(e.want[i]), &want) != nil {
				t.Fatalf("not JSON: %s or %s", answers[i], e.want[i])
			}
			if diff := cmp.Diff(want, filter(t, got, e.filter), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("%s (-page +command):\n%s", e.lines[i], diff)
			}
		}
	}
}
