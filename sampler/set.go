package sampler

import (
	"fmt"
	"strings"

	"qr-gateway/sampler/param"
)

// Set takes a value as encoding/json decodes it (string, bool, float64, json.Number, map[string]any, nil) or a Go integer, by its key or an
// alias. Numbers and flags may be written as text, see [param.Loose]. The error is a *[ParamError] with key as it was given. A refused value
// leaves p as it was. nil unsets a nullable field.
func (p *Params) Set(key string, value any) error {
	return p.take(key, func(f *Field) (param.Value, error) { return f.Take(key, value, param.Loose) })
}

// SetText takes a value from the environment or a command line. The word null, or nothing at all, unsets a nullable field.
func (p *Params) SetText(key, text string) error {
	return p.take(key, func(f *Field) (param.Value, error) { return f.TakeText(key, text) })
}

// SetStandard takes a field by the name that OpenAI or common extensions give it: temperature, top_p, top_k, min_p, seed, the penalties,
// logit_bias. null means the field is absent; a number is a number, never text.
func (p *Params) SetStandard(name string, value any) error {
	for i := range table.all {
		r := &table.all[i]
		if r.Standard != name || name == "" {
			continue
		}
		if value == nil {
			return nil
		}
		v, err := r.Take(name, value, param.Strict)
		if err != nil {
			return err
		}
		return p.put(r, v)
	}
	return unknown(name)
}

func (p *Params) take(key string, read func(*Field) (param.Value, error)) error {
	r, ok := table.named[key]
	if !ok {
		return unknown(key)
	}
	v, err := read(&r.Field)
	if err != nil {
		return err
	}
	return p.put(r, v)
}

// put stores what the table has taken. A top_k of -1 is off, as other servers have it.
func (p *Params) put(r *row[Params], v param.Value) error {
	if r.Key == "qr_top_k" {
		v.Int = max(v.Int, 0)
	}
	r.store(p, v)
	return nil
}

// unknown is the error for a word that is no key. A key of the process is named as such.
func unknown(key string) error {
	if r, ok := process.named[strings.ToLower(key)]; ok {
		return ofProcess(key, &r.Field)
	}
	for _, name := range []string{"qr_" + key, strings.ToLower(key)} {
		if r, ok := table.named[name]; ok {
			return &ParamError{Key: key, Nearest: r.Key}
		}
	}
	return param.Unknown(key, table.names)
}

// ofProcess refuses a field that neither requests nor presets set.
func ofProcess(name string, f *Field) error {
	section := "process"
	if _, ok := table.named[f.Key]; ok {
		section = "parameters"
	}
	return &ParamError{Key: name, Reason: fmt.Sprintf("%s belongs to the process: set it with %s or under %s: in the configuration file; no request or preset can",
		name, f.Env, section)}
}
