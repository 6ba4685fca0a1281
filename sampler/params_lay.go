package sampler

import (
	"maps"
	"slices"
	"strings"

	"qr-gateway/sampler/param"
)

const (
	keyAlpha      = "qr_alpha"
	keyDecoder    = "qr_decoder"
	keyWavePeriod = "qr_wave_period"
)

// RequestKey is [Key] for a name that a request has: the error may also say that only the process sets it.
func RequestKey(name string) (string, error) {
	key, err := Key(name)
	if err != nil {
		return "", err
	}
	if r := table.named[key]; !r.PerRequest {
		return "", ofProcess(name, &r.Field)
	}
	return key, nil
}

// Key is the key that name stands for, itself or by being an alias. The error is a *[ParamError]: the name is unknown, or belongs to the
// process.
func Key(name string) (string, error) {
	r, ok := table.named[name]
	if !ok {
		return "", unknown(name)
	}
	return r.Key, nil
}

// Standards lists the OpenAI fields and common extensions that set a parameter, in the order of the table.
func Standards() []string {
	var out []string
	for i := range table.all {
		if s := table.all[i].Standard; s != "" {
			out = append(out, s)
		}
	}
	return out
}

// StandardKey is the key that a standard field sets.
func StandardKey(name string) (string, bool) {
	for i := range table.all {
		if r := &table.all[i]; r.Standard == name && name != "" {
			return r.Key, true
		}
	}
	return "", false
}

// Lay lays one layer of values, by their keys or aliases, over p: those of a preset, of a model in the configuration file, and so on. A
// layer that sets alpha and no wave takes the wave of a layer below away, and one that sets either and no decoder has it decide the decoder,
// so that it is not lost on a layer below that says plain. It returns every value that can't be taken, in the order of the
// keys, each a *[ParamError]; those stay as they were.
func (p *Params) Lay(values map[string]any) []error {
	return lay(p, values, p.Set)
}

// LayText is Lay for values of the environment.
func (p *Params) LayText(values map[string]string) []error {
	return lay(p, values, p.SetText)
}

func lay[V any](p *Params, values map[string]V, set func(string, V) error) []error {
	var errs []error
	wave, first := p.WavePeriod, map[string]string{}
	p.WavePeriod = 0
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := twice(first, name); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := set(name, values[name]); err != nil {
			errs = append(errs, err)
		}
	}
	_, waved := first[keyWavePeriod]
	_, fixed := first[keyAlpha]
	fixed = fixed && p.Alpha != nil
	switch {
	case fixed && p.WavePeriod > 0:
		errs = append(errs, conflict(keyAlpha, "%s and %s are both given; a wave sets alpha for every token, so give one of them", keyAlpha, keyWavePeriod))
	case !waved && !fixed:
		p.WavePeriod = wave
	}
	if _, decided := first[keyDecoder]; !decided && (fixed || waved && p.WavePeriod > 0) && p.Decoder == DecoderPlain {
		p.Decoder = DecoderAuto
	}
	return errs
}

// twice refuses a parameter that one layer has under two names.
func twice(first map[string]string, name string) error {
	r, ok := table.named[name]
	if !ok {
		return nil // set says so
	}
	if other, taken := first[r.Key]; taken {
		return conflict(name, "%s and %s are one parameter; give one of them", other, name)
	}
	first[r.Key] = name
	return nil
}

// CheckPreset finds what is wrong with values that a preset sets: unknown keys, values out of range, a preset within the preset.
func CheckPreset(values map[string]any) []error {
	p := Defaults()
	errs := p.Lay(values)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name == "qr_preset" {
			errs = append(errs, conflict(name, "a preset can't name another one; leave qr_preset out"))
		}
		if r, ok := table.named[name]; ok && !r.PerRequest {
			errs = append(errs, ofProcess(name, &r.Field))
		}
	}
	if len(errs) == 0 {
		if err := p.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Presets finds the parameters that a preset sets.
type Presets interface {
	// Values are those of the preset called name. The error is a *[ParamError] that lists the names there are.
	Values(name string) (map[string]any, error)
}

// LayPreset lays the preset called name over p, and records the name. presets is nil where there are none.
func (p *Params) LayPreset(name string, presets Presets) error {
	if presets == nil {
		return UnknownPreset(name, nil)
	}
	values, err := presets.Values(name)
	if err != nil {
		return err
	}
	if errs := p.Lay(values); len(errs) > 0 {
		return errs[0]
	}
	p.Preset = name
	return nil
}

// UnknownPreset is the refusal of a preset that is not among known.
func UnknownPreset(name string, known []string) *ParamError {
	allowed := "none: there are no presets"
	if len(known) > 0 {
		allowed = "one of " + strings.Join(known, ", ")
	}
	return &ParamError{Key: "qr_preset", Value: param.Show(name), Allowed: allowed}
}
