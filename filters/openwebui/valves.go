package openwebui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
	"qr-gateway/sampler/temper"
)

// first are the parameters that the page begins with, single ones and whole groups; the others follow in the order of the table.
var first = []string{
	"qr_preset", "qr_decoder", "Look-ahead", "qr_temperature_strategy", "qr_temperature", "qr_entropy_source", "qr_amplifier", "qr_seed", "Choice of a token",
	"Penalties and bias", "Entropy",
}

// unshared are the parameters that only administrators set: they fill the log and the memory of the server.
var unshared = []string{"qr_log_level", "qr_diagnostic_mode"}

// regions are the generated parts of the source, by name.
func regions(fields []sampler.Field) map[string]string {
	var table, users, administrators strings.Builder
	for _, f := range ordered(fields) {
		table.WriteString(entry(f))
		if slices.Contains(unshared, f.Key) {
			administrators.WriteString(valve(f))
		} else {
			users.WriteString(valve(f))
		}
	}
	return map[string]string{"parameters": table.String(), "valves": users.String(), "administrator": administrators.String()}
}

// ordered are the parameters of a request, the most used first.
func ordered(fields []sampler.Field) []sampler.Field {
	fields = slices.DeleteFunc(slices.Clone(fields), func(f sampler.Field) bool { return !f.PerRequest })
	slices.SortStableFunc(fields, func(a, b sampler.Field) int { return cmp.Compare(place(a), place(b)) })
	return fields
}

func place(f sampler.Field) int {
	for i, name := range first {
		if name == f.Key || name == f.Group && !slices.Contains(first, f.Key) {
			return i
		}
	}
	return len(first)
}

// kind is what source.py calls a type.
func kind(f sampler.Field) string {
	switch {
	case len(f.Enum) > 0:
		return "choice"
	case f.Type == sampler.TypeBool:
		return "flag"
	case f.Type == sampler.TypeObject:
		return "object"
	case f.Type == sampler.TypeString:
		return "text"
	}
	return "number"
}

// entry is a parameter's line of the table in the source.
func entry(f sampler.Field) string {
	words := append([]string{kind(f)}, f.Aliases...)
	if f.Standard != "" {
		words = append(words, f.Standard)
	}
	return fmt.Sprintf("    %s: %s,\n", quote(f.Key), tuple(words))
}

func tuple(words []string) string {
	out := list(words)
	if len(words) == 1 {
		out += ","
	}
	return "(" + out + ")"
}

func list(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return strings.Join(out, ", ")
}

// quote writes a Python string. Go and Python agree on all escapes that it can hold.
func quote(s string) string { return strconv.Quote(s) }

// valve is a parameter's field.
func valve(f sampler.Field) string {
	field := map[string]string{"choice": "choice", "flag": "flag", "object": "area", "text": "box", "number": "number"}[kind(f)]
	args := []string{quote(title(f.Key))}
	if len(f.Enum) > 0 {
		args = append(args, "["+list(f.Enum)+"]")
	}
	return fmt.Sprintf("    %s: Any = %s(\n        %s,\n        %s\n        %s,\n    )\n",
		f.Key, field, strings.Join(args, ", "), quote(help(f)+"\n\n"), quote(facts(f)))
}

// title is the key in words: qr_wave_period is Wave period.
func title(key string) string {
	words := strings.ReplaceAll(strings.TrimPrefix(key, "qr_"), "_", " ")
	return strings.ToUpper(words[:1]) + words[1:]
}

// help is what the parameter means, in Markdown.
func help(f sampler.Field) string {
	text := markdown(f.Help)
	switch f.Key {
	case "qr_temperature_strategy":
		for _, k := range temper.Kinds() {
			text += kindLine(k.Name, k.Help)
		}
	case "qr_amplifier":
		for _, k := range amplify.Kinds() {
			text += kindLine(k.Name, k.Help)
		}
	case "qr_preset":
		text += " The gateway brings " + strings.Join(Presets(), ", ") + " along; `GET /v1/qr/presets` there lists all it has."
	case "qr_entropy_source":
		text += " `GET /v1/qr/entropy` of the gateway lists them."
	case "qr_logit_bias":
		text += " Written as JSON."
	}
	return text
}

func kindLine(name, help string) string { return "\n- " + markdown(name) + ": " + markdown(help) }

// facts are what the valve takes and what it stands for, in one line of Markdown.
func facts(f sampler.Field) string {
	out := []string{"`" + f.Key + "`"}
	if kind(f) != "choice" && kind(f) != "flag" {
		out = append(out, markdown(strings.TrimSuffix(f.Allowed(), ", or null")))
	}
	if f.Unit != "" {
		out = append(out, "unit: "+f.Unit)
	}
	out = append(out, standard(f))
	if f.Standard != "" {
		out = append(out, "the chat's own `"+f.Standard+"` wins")
	}
	return strings.Join(out, " · ")
}

// standard is the default of the table; the server's configuration may say otherwise.
func standard(f sampler.Field) string {
	switch v := f.Default.(type) {
	case bool:
		return "built-in default: " + map[bool]string{true: "on", false: "off"}[v]
	case nil, map[string]any:
		return "built-in default: unset"
	case string:
		if v == "" {
			return "built-in default: unset"
		}
		return "built-in default: " + markdown(v)
	default:
		return fmt.Sprintf("built-in default: %v", v)
	}
}

// Presets are the names of those that the program brings along. The filter can't ask for them, so that they are written here.
func Presets() []string {
	return []string{
		"adaptive", "chat_light", "creative_sampling", "future_focus", "future_open", "future_wave", "greedy", "normal_t1", "plain", "qthought",
		"qthought_purity", "qthought_think", "qthought_voice", "research_strict",
	}
}
