package config

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/subosito/gotenv"

	"qr-gateway/sampler"
)

const envPrefix = "QR_"

// environ is the part of the environment that is ours, by name in upper case: case makes no difference, as in qr-sampler. What stands
// later wins, but two spellings of one name in the real environment are an error, since their order is chance.
func environ(o Options) (map[string]string, []error) {
	out := map[string]string{}
	fromFile, err := readEnvFile(o)
	if err != nil {
		return nil, []error{err}
	}
	for name, value := range fromFile {
		keep(out, name, value)
	}
	seen := map[string]string{}
	var errs []error
	for _, pair := range o.Env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !keep(out, name, value) {
			continue
		}
		upper := strings.ToUpper(name)
		if other, twice := seen[upper]; twice && other != name {
			errs = append(errs, &FieldError{Path: name, Message: "the environment has " + other + " too; case makes no difference, so set one of them"})
		}
		seen[upper] = name
	}
	return out, errs
}

// keep notes a variable that is ours. An empty one is none.
func keep(out map[string]string, name, value string) bool {
	name = strings.ToUpper(name)
	ours := strings.HasPrefix(name, envPrefix) && value != ""
	if ours {
		out[name] = value
	}
	return ours
}

// readEnvFile reads the file of --env-file, if there is one: NAME=value lines, as a .env file has them.
func readEnvFile(o Options) (map[string]string, error) {
	path := o.EnvFile
	if o.Flags != nil {
		if f := o.Flags.Lookup(envFileFlag); f != nil && f.Changed {
			path = f.Value.String()
		}
	}
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read environment file: %w", err)
	}
	env, err := gotenv.StrictParse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read environment file %s: %s", path, badLine(data))
	}
	return env, nil
}

// badLine tells where a file of variables is wrong. The line isn't shown: it may be the one with a key.
func badLine(data []byte) string {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i := range lines {
		if _, err := gotenv.StrictParse(bytes.NewReader(bytes.Join(lines[:i+1], nil))); err != nil {
			return fmt.Sprintf("line %d is not NAME=value", i+1)
		}
	}
	return "it has lines that are not NAME=value"
}

// fromEnv reads the sections' keys from the environment.
func fromEnv(env map[string]string) (map[string]any, []error) {
	out := map[string]any{}
	var errs []error
	for _, l := range leaves() {
		text, ok := env[l.env()]
		if !ok || l.env() == logLevelEnv && tokenLevel(text) {
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

// logLevelEnv is log.level to us, with the words of a log, and qr_log_level to qr-sampler, with words of its own: the word decides.
const logLevelEnv = "QR_LOG_LEVEL"

// tokenLevel says that a word is one of qr_log_level.
func tokenLevel(word string) bool {
	return slices.Contains([]string{sampler.LogNone, sampler.LogSummary, sampler.LogFull}, word)
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
	case t == reflect.TypeFor[bool]():
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("is %q; it takes true or false", text)
		}
		return b, nil
	case t == reflect.TypeFor[[]string]():
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), nil
	case t.Kind() == reflect.Int64:
		return hook(reflect.TypeFor[string](), t, text)
	default:
		return text, nil
	}
}

// known are the variables that mean something.
func known() []string {
	out := []string{"QR_CACHE", "QR_VERIFY"}
	for _, l := range leaves() {
		out = append(out, l.env())
	}
	for _, f := range slices.Concat(sampler.Fields(), sampler.ProcessFields()) {
		for _, key := range append([]string{f.Key}, f.Aliases...) {
			out = append(out, strings.ToUpper(key))
		}
	}
	return out
}

// checkEnv finds variables that were meant for us but say nothing. Those of a section, and those nearly spelt like one of ours, are errors;
// of the others there is a warning.
func checkEnv(env map[string]string) (warnings []string, errs []error) {
	known := known()
	for name := range env {
		if slices.Contains(known, name) || strings.HasPrefix(name, "QR_TEST_") {
			continue
		}
		near := suggest(name, slices.Clone(known))
		if ours(name) || misspelt(name, known) {
			errs = append(errs, &FieldError{Path: name, Message: "unknown environment variable" + near})
		} else {
			warnings = append(warnings, name+": unknown environment variable, not used"+near)
		}
	}
	slices.Sort(warnings)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return warnings, errs
}

func ours(name string) bool {
	for _, section := range []string{"SERVER_", "LOG_", "QUEUE_", "ENGINE_", "MODELS_", "PRESETS_"} {
		if strings.HasPrefix(name, envPrefix+section) {
			return true
		}
	}
	return false
}

// misspelt says that a name is one or two letters away from one of ours.
func misspelt(name string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return len(k) > 7 && levenshtein.ComputeDistance(name, k) <= 2 })
}
