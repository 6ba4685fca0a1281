package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/sampler"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestParametersPage holds docs/parameters.md to the table.
func TestParametersPage(t *testing.T) {
	const file = root + "/docs/parameters.md"
	want := parametersPage()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/parameters.md is not what the table says; go test ./cmd/qr-gateway -run ParametersPage -update (-want +got):\n%s", diff)
	}
}

func parametersPage() []byte {
	var b bytes.Buffer
	b.WriteString(`# Parameters

Every row can be set per request at the top level of the body, or inside ` + "`extra_body`, `extra_args` or `vllm_xargs`" + `; by an
environment variable of the server; in the ` + "`defaults`" + ` of a model in the configuration; and as a flag of ` + "`qr-gateway generate`" + `, without
` + "`qr_`" + ` and with dashes. A request wins over the environment, the environment over the configuration. A standard field sets its row
unless the ` + "`qr_`" + ` key is given too. An unknown ` + "`qr_`" + ` key or a value out of range is a 400 that names the key and what it takes.
` + "`GET /v1/qr/parameters`" + ` serves this table as JSON.

`)
	for _, f := range sampler.Fields() {
		fmt.Fprintf(&b, "## `%s`\n\n%s\n\n%s\n\n", f.Key, f.Help, facts(f))
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

func facts(f sampler.Field) string {
	out := []string{takes(f)}
	if f.Unit != "" {
		out = append(out, "unit: "+f.Unit)
	}
	if f.Default != nil {
		out = append(out, fmt.Sprintf("default: `%v`", f.Default))
	} else {
		out = append(out, "default: unset")
	}
	if f.Standard != "" {
		out = append(out, "standard field: `"+f.Standard+"`")
	}
	return strings.Join(append(out, "environment: `"+f.Env+"`"), " · ")
}

func takes(f sampler.Field) string {
	switch {
	case len(f.Enum) > 0:
		return "one of `" + strings.Join(f.Enum, "`, `") + "`"
	case f.Type == sampler.TypeBool:
		return "true or false"
	case f.Key == "qr_seed":
		return "integer, 64 bits"
	}
	return fmt.Sprintf("%s from %s to %s", f.Type, decimal(f.Min), decimal(f.Max))
}

func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
