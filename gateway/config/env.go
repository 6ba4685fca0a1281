package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/sampler"
)

const envPrefix = "QR_"

// environ is the part of the environment that is ours, by name.
func environ(env []string) map[string]string {
	out := map[string]string{}
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, envPrefix) && value != "" {
			out[name] = value
		}
	}
	return out
}

// fromEnv reads the sections' keys from the environment.
func fromEnv(env map[string]string) (map[string]any, []error) {
	out := map[string]any{}
	var errs []error
	for _, l := range leaves() {
		text, ok := env[l.env()]
		if !ok {
			continue
		}
		value, err := fromText(text, l.typ)
		if err != nil {
			errs = append(errs, &FieldError{Path: l.env(), Message: err.Error()})
			continue
		}
		section, _ := out[l.path[0]].(map[string]any)
		if section == nil {
			section = map[string]any{}
			out[l.path[0]] = section
		}
		section[l.path[1]] = value
	}
	return out, errs
}

// fromText gives text the type of its key. Types of our own are left to the hook.
func fromText(text string, t reflect.Type) (any, error) {
	switch {
	case t == reflect.TypeFor[int]():
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("is %q; it takes a whole number", text)
		}
		return n, nil
	case t == reflect.TypeFor[[]string]():
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), nil
	case t.Kind() == reflect.Int64:
		return hook(reflect.TypeFor[string](), t, text)
	default:
		return text, nil
	}
}

// checkEnv finds variables that were meant for us but say nothing: those of a section, and those nearly spelt like one.
func checkEnv(env map[string]string) []error {
	known := []string{"QR_CACHE", "QR_VERIFY"}
	for _, l := range leaves() {
		known = append(known, l.env())
	}
	for _, f := range sampler.Fields() {
		known = append(known, f.Env)
	}
	var errs []error
	for name := range env {
		if slices.Contains(known, name) || strings.HasPrefix(name, "QR_TEST_") {
			continue
		}
		near := suggest(name, slices.Clone(known))
		if ours(name) || misspelt(name, known) {
			errs = append(errs, &FieldError{Path: name, Message: "unknown environment variable" + near})
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

func ours(name string) bool {
	for _, section := range []string{"SERVER_", "LOG_", "QUEUE_", "ENGINE_", "MODELS_"} {
		if strings.HasPrefix(name, envPrefix+section) {
			return true
		}
	}
	return false
}

// misspelt says that a name is one or two letters away from one of ours.
func misspelt(name string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return len(k) > 7 && distance(name, k) <= 2 })
}
