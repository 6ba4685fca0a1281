package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"qr-gateway/backends/vllm"
	"qr-gateway/sampler/param"
)

// leaf is one key of a section.
type leaf struct {
	path  []string // e.g. server, listen
	typ   reflect.Type
	value any // its default
}

func (l leaf) env() string { return envPrefix + strings.ToUpper(strings.Join(l.path, "_")) }

// leaves lists the keys of all sections with their defaults; the models are not among them.
func leaves() []leaf {
	var out []leaf
	c := reflect.ValueOf(Default())
	for i := range c.NumField() {
		section := c.Type().Field(i)
		if section.Type.Kind() != reflect.Struct || section.Tag.Get("mapstructure") == "-" {
			continue
		}
		for j := range section.Type.NumField() {
			f := section.Type.Field(j)
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
				continue // a list is set in the file only
			}
			path := []string{section.Tag.Get("mapstructure"), f.Tag.Get("mapstructure")}
			out = append(out, leaf{path: path, typ: f.Type, value: c.Field(i).Field(j).Interface()})
		}
	}
	return out
}

// modelDefaults are the keys of a model with their defaults.
func modelDefaults() map[string]any {
	out := map[string]any{}
	m := reflect.ValueOf(DefaultModel(""))
	for i := range m.NumField() {
		if tag := m.Type().Field(i).Tag.Get("mapstructure"); tag != "-" {
			out[tag] = m.Field(i).Interface()
		}
	}
	return out
}

// unknownKeys compares what a file says with the struct that it is for.
func unknownKeys(path string, value any, t reflect.Type) []error {
	switch {
	case t.Kind() == reflect.Struct:
		if value == nil {
			return nil // left out
		}
		m, ok := value.(map[string]any)
		if !ok {
			return []error{&FieldError{Path: path, Message: fmt.Sprintf("is %v; it takes keys with values", value)}}
		}
		return unknownIn(path, m, t)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		list, ok := value.([]any)
		if !ok {
			return []error{&FieldError{Path: path, Message: "it takes a list, each entry with " + entryForm(t.Elem())}}
		}
		var errs []error
		for i, v := range list {
			errs = append(errs, unknownKeys(fmt.Sprintf("%s[%d]", path, i), v, t.Elem())...)
		}
		return errs
	default:
		return nil
	}
}

// entryForm shows how an entry of a list begins.
func entryForm(t reflect.Type) string {
	if t == reflect.TypeFor[Model]() {
		return "an id: `- id: NAME`"
	}
	return "a name: `- name: NAME`"
}

func unknownIn(path string, m map[string]any, t reflect.Type) []error {
	known := keysOf(t)
	if known == nil {
		return nil // takes any key
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		if inner, ok := known[key]; ok {
			errs = append(errs, unknownKeys(at, m[key], inner)...)
			continue
		}
		errs = append(errs, &FieldError{Path: at, Message: "unknown key" + suggest(key, slices.Collect(maps.Keys(known)))})
	}
	return errs
}

// keysOf are the keys that a struct takes, with their types; nil if it takes any.
func keysOf(t reflect.Type) map[string]reflect.Type {
	if t == reflect.TypeFor[Replica]() {
		return replicaKeys()
	}
	known := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		switch tag := f.Tag.Get("mapstructure"); tag {
		case ",remain":
			return nil
		case "-":
		default:
			known[tag] = f.Type
		}
	}
	return known
}

// suggest names the known word nearest to one that isn't, if one is near.
func suggest(word string, known []string) string {
	slices.Sort(known)
	if like := param.Nearest(word, known); like != "" {
		return fmt.Sprintf("; did you mean %q?", like)
	}
	return ""
}

// hook turns what a file or variable holds into our types, and refuses what would be taken the wrong way: mapstructure
// itself reads the bare number 5 as 5 nanoseconds.
func hook(from, to reflect.Type, data any) (any, error) {
	switch {
	case from == to:
		return data, nil
	case to == reflect.TypeFor[time.Duration]():
		return parseDuration(data)
	case to == reflect.TypeFor[ByteSize]():
		if text, ok := data.(string); ok {
			return parseByteSize(text)
		}
		return nil, fmt.Errorf("is %v; it takes a size with its unit, e.g. 10MiB", data)
	}
	if m, ok := data.(map[string]any); ok {
		switch to {
		case reflect.TypeFor[Model]():
			return withDefaults(m), nil
		case reflect.TypeFor[Replica]():
			return replicaDefaults(m), nil
		case reflect.TypeFor[Route]():
			return overDefaults(defaultRoute(), m), nil
		case reflect.TypeFor[Breaker]():
			return overDefaults(defaultRoute().Breaker, m), nil
		case reflect.TypeFor[Timeouts]():
			return overDefaults(defaultTimeouts(), m), nil
		case reflect.TypeFor[VLLM]():
			return overDefaults(defaultVLLM(), m), nil
		case reflect.TypeFor[Peek]():
			return overDefaults(defaultPeek(), m), nil
		}
	}
	return data, sameKind(from, to, data)
}

// sameKind refuses what mapstructure would convert, such as 1.5 to 1, in words that say how to write it.
func sameKind(from, to reflect.Type, data any) error {
	takes := ""
	switch {
	case from.Kind() == to.Kind():
	case to.Kind() == reflect.Int:
		takes = "a whole number"
	case to.Kind() == reflect.Float64:
		if from.Kind() != reflect.Int {
			takes = "a number"
		}
	case to.Kind() == reflect.String:
		takes = "text; put it in quotes"
	case to.Kind() == reflect.Bool:
		takes = "true or false"
	case to.Kind() == reflect.Map:
		takes = "keys with values"
	case to == reflect.TypeFor[[]string]():
		if from.Kind() != reflect.Slice {
			takes = "a list of texts"
		}
	}
	if takes == "" {
		return nil
	}
	return fmt.Errorf("is %v; it takes %s", data, takes)
}

func parseDuration(data any) (time.Duration, error) {
	if text, ok := data.(string); ok {
		if d, err := time.ParseDuration(strings.TrimSpace(text)); err == nil && text != "0" {
			return d, nil
		}
	}
	return 0, fmt.Errorf("is %v; it takes a duration with its unit, e.g. 30s or 10m", data)
}

// withDefaults fills in what a model of the file leaves out, or leaves empty.
func withDefaults(m map[string]any) map[string]any {
	out := modelDefaults()
	if m["backend"] == BackendVLLM {
		out["workers"] = vllm.DefaultConfig().Workers // it batches
	}
	for key, value := range m {
		if value != nil {
			out[key] = value
		}
	}
	return out
}
