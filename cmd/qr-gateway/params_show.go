package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"qr-gateway/gateway/config"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
	"qr-gateway/sampler/param"
	"qr-gateway/sampler/temper"
)

func newParams() *cobra.Command {
	var asJSON, asSchema, asEnv, asConfig bool
	cmd := &cobra.Command{
		Use:   "params [--json | --schema | --config-schema | --env]",
		Short: "show every parameter: its type, range, default, environment variable and meaning",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			switch {
			case asJSON:
				return writeJSON(out, descriptions())
			case asSchema:
				_, err := out.Write(parametersSchema())
				return err
			case asConfig:
				_, err := out.Write(configSchema())
				return err
			case asEnv:
				return writeEnv(out)
			}
			return writeTable(out)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&asJSON, "json", false, "as a JSON list")
	fl.BoolVar(&asSchema, "schema", false, "the JSON Schema of what a request may set")
	fl.BoolVar(&asEnv, "env", false, "as NAME=default lines for an --env-file")
	fl.BoolVar(&asConfig, "config-schema", false, "the JSON Schema of the configuration file")
	cmd.MarkFlagsMutuallyExclusive("json", "schema", "config-schema", "env")
	return cmd
}

// allFields are the parameters of requests, then those of the process.
func allFields() []sampler.Field { return slices.Concat(sampler.Fields(), sampler.ProcessFields()) }

func descriptions() []param.Description {
	var out []param.Description
	for _, f := range allFields() {
		out = append(out, f.Describe())
	}
	return out
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	group := ""
	for _, f := range allFields() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(tw, "\n%s\n", group)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", f.Key, f.Allowed(), defaultText(f))
	}
	return tw.Flush()
}

// defaultText is the default as a command line or variable has it.
func defaultText(f sampler.Field) string {
	switch v := f.Default.(type) {
	case nil:
		return ""
	case string:
		return v
	case map[string]any:
		return "{}"
	default:
		return fmt.Sprint(v)
	}
}

func writeEnv(w io.Writer) error {
	var errs []error
	for _, f := range allFields() {
		_, err := fmt.Fprintf(w, "# %s (%s)\n#%s=%s\n", f.Help, f.Allowed(), f.Env, defaultText(f))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// parametersPage is docs/parameters.md.
func parametersPage() []byte {
	var b bytes.Buffer
	b.WriteString(parametersIntro)
	group := ""
	for _, f := range allFields() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, "## %s\n\n", group)
			if strings.HasPrefix(group, "Process") {
				b.WriteString("Set by the process only: in the environment, or under `process:` in the file, without `qr_`.\n\n")
			}
		}
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n%s%s\n\n", f.Key, f.Help, words(f.Key), facts(f))
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

// words explain those that a field takes, where a table has them.
func words(key string) string {
	var b strings.Builder
	switch key {
	case "qr_temperature_strategy":
		for _, k := range temper.Kinds() {
			fmt.Fprintf(&b, "- `%s`: %s\n", k.Name, k.Help)
		}
	case "qr_amplifier":
		for _, k := range amplify.Kinds() {
			fmt.Fprintf(&b, "- `%s`: %s\n", k.Name, k.Help)
		}
	default:
		return ""
	}
	return b.String() + "\n[strategies.md](strategies.md) has the formulas.\n\n"
}

const parametersIntro = `# Parameters

Made from the parameter table; ` + "`qr-gateway params`" + ` prints it, ` + "`GET /v1/qr/parameters`" + ` serves it, and
[parameters.schema.json](../configs/schema/parameters.schema.json) is its JSON Schema.

A parameter of a request can be set at the top level of the body, or inside ` + "`extra_body`, `extra_args` or `vllm_xargs`" + `; by an
environment variable of the server, in any case; in ` + "`parameters`" + ` (every model) and in the ` + "`defaults`" + ` of a model in the configuration; by a
preset; and as a flag of ` + "`qr-gateway generate` and `sample`, without `qr_`" + ` and with dashes. What wins, highest first: the request's own key,
the preset that the request names, the environment, the preset of the process, the file, the default. See
[configuration.md](configuration.md#presets-and-precedence).

A standard field sets its row unless the ` + "`qr_`" + ` key is given too. Under a ` + "`qr_`" + ` key and in the environment numbers and flags may be written
as text (` + "`\"7\"`, `\"1_000\"`, `\"yes\"`" + `) and flags as 1 and 0; standard fields take their own type only,
and only at the top level. null is the same as leaving a key out.
An unknown ` + "`qr_`" + ` key or a value out of range is a 400 that names the key, the value and what it takes. NaN and infinity are refused.

`

func facts(f sampler.Field) string {
	out := []string{takes(f)}
	if f.Unit != "" {
		out = append(out, "unit: "+f.Unit)
	}
	switch f.Default {
	case nil:
		out = append(out, "default: unset")
	case "":
		out = append(out, "default: empty")
	default:
		out = append(out, "default: `"+defaultText(f)+"`")
	}
	if f.Standard != "" {
		out = append(out, "standard field: `"+f.Standard+"`")
	}
	if len(f.Aliases) > 0 {
		out = append(out, "also: `"+strings.Join(f.Aliases, "`, `")+"`")
	}
	if !f.PerRequest {
		out = append(out, "not per request")
	}
	env := []string{f.Env}
	for _, a := range f.Aliases {
		env = append(env, strings.ToUpper(a))
	}
	return strings.Join(append(out, "environment: `"+strings.Join(env, "`, `")+"`"), " · ")
}

func takes(f sampler.Field) string {
	switch {
	case len(f.Enum) > 0:
		return "one of `" + strings.Join(f.Enum, "`, `") + "`"
	case f.Key == "qr_seed":
		return "integer, 64 bits"
	}
	return f.Allowed()
}

// parametersSchema is the JSON Schema of what a request may set: our keys, their aliases, and the standard fields that set one.
func parametersSchema() []byte {
	properties := map[string]any{}
	for _, f := range requestFields() {
		properties[f.Key] = f.Schema()
		same := map[string]any{"$ref": "#/properties/" + f.Key, "description": "the same as " + f.Key}
		for _, a := range f.Aliases {
			properties[a] = same
		}
		if f.Standard != "" {
			properties[f.Standard] = map[string]any{"$ref": "#/properties/" + f.Key, "description": "sets " + f.Key + " unless that is given"}
		}
	}
	for _, nest := range []string{"extra_body", "extra_args", "vllm_xargs"} {
		properties[nest] = map[string]any{
			"anyOf":       []any{map[string]any{"$ref": "#"}, map[string]any{"type": "null"}},
			"description": "the same keys, for clients that can't add to the top level; standard fields have no effect here",
		}
	}
	return encoded(map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "urn:qr-gateway:parameters",
		"title":       "Parameters of a qr-gateway request",
		"description": "Keys that a request to /v1/chat/completions or /v1/completions may have beside those of OpenAI. Numbers and flags may be written as text under qr_ keys.",
		"type":        "object", "properties": properties,
		"propertyNames": map[string]any{"anyOf": []any{
			map[string]any{"not": map[string]any{"pattern": "^[qQ][rR]_"}},
			map[string]any{"enum": ownNames()},
		}},
	})
}

// encoded is a schema as its file has it.
func encoded(schema map[string]any) []byte {
	var b bytes.Buffer
	if err := writeJSON(&b, schema); err != nil {
		panic("encode schema: " + err.Error()) // it is made of texts and numbers of the program
	}
	return b.Bytes()
}

// configSchema is the JSON Schema of the configuration file.
func configSchema() []byte { return encoded(config.Schema()) }

// ownNames are the keys and aliases that a request may use.
func ownNames() []string {
	var out []string
	for _, f := range requestFields() {
		out = append(append(out, f.Key), f.Aliases...)
	}
	return out
}

func requestFields() []sampler.Field {
	return slices.DeleteFunc(sampler.Fields(), func(f sampler.Field) bool { return !f.PerRequest })
}
