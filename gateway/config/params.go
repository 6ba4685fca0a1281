package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
)

// presetEnv names the preset of the process.
const presetEnv = "QR_PRESET"

// layer is one place that parameters of requests come from.
type layer struct {
	origin string         // in words
	path   string         // of the file, for errors; empty: the environment
	values map[string]any // of the file or a preset
	text   map[string]string
}

// fillParams works out what a request to each model starts from.
func (c *Config) fillParams(env map[string]string) error {
	var errs []error
	said := map[string]bool{} // what is wrong for every model is said once
	for i := range c.Models {
		for _, err := range c.fillModel(i, env) {
			if !said[err.Error()] {
				said[err.Error()] = true
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (c *Config) fillModel(i int, env map[string]string) []error {
	m := &c.Models[i]
	m.Params, m.Origins = sampler.Defaults(), map[string]string{}
	path := fmt.Sprintf("models[%d].defaults", i)
	file := []layer{
		{origin: "file, parameters", path: "parameters", values: c.Parameters},
		{origin: "file, defaults of the model", path: path, values: m.Defaults},
	}
	var errs []error
	for _, l := range file {
		errs = append(errs, m.lay(l)...)
	}
	preset, err := c.processPreset(m, path, env)
	if err != nil {
		return append(errs, err)
	}
	later := []layer{preset, {origin: "environment", text: paramEnv(env)}}
	if c.Presets.Compat {
		slices.Reverse(later)
	}
	for _, l := range later {
		errs = append(errs, m.lay(l)...)
	}
	if m.Params.Preset != "" {
		m.Origins["qr_preset"] = preset.path
	}
	return errs
}

// processPreset is the layer of the preset that QR_PRESET names, else the model's defaults, else the file's parameters, else its preset.
func (c *Config) processPreset(m *Model, path string, env map[string]string) (layer, error) {
	name, from := c.Preset, "preset"
	for _, p := range []struct {
		name any
		from string
	}{{c.Parameters["qr_preset"], "parameters"}, {m.Defaults["qr_preset"], path}, {env[presetEnv], presetEnv}} {
		if text, ok := p.name.(string); ok && text != "" {
			name, from = text, p.from
		}
	}
	m.Params.Preset = name
	if name == "" {
		return layer{}, nil
	}
	values, err := c.Library.Values(name)
	if err != nil {
		return layer{}, &FieldError{Path: from, Message: err.Error()}
	}
	return layer{origin: "preset " + name + " (" + from + ")", path: from, values: values}, nil
}

// paramEnv are the variables that set parameters, by key or alias. That of the preset is not among them.
func paramEnv(env map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range env {
		if name == presetEnv || name == logLevelEnv && !tokenLevel(text) {
			continue
		}
		if _, err := sampler.Key(strings.ToLower(name)); err == nil {
			out[strings.ToLower(name)] = text
		}
	}
	return out
}

// lay lays one layer over what the model has so far.
func (m *Model) lay(l layer) []error {
	var errs []error
	bad, waved := map[string]bool{}, m.Params.WavePeriod > 0
	for _, err := range slices.Concat(m.Params.Lay(l.values), m.Params.LayText(l.text)) {
		var own *sampler.ParamError
		path := l.path
		if errors.As(err, &own) {
			bad[own.Key] = true
			if path == "" {
				path = strings.ToUpper(own.Key)
			}
		}
		errs = append(errs, &FieldError{Path: path, Message: err.Error()})
	}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(l.values)), maps.Keys(l.text)) {
		if key, err := sampler.Key(name); err == nil && !bad[name] {
			m.Origins[key] = l.origin
		}
	}
	if waved && m.Params.WavePeriod == 0 { // alpha of this layer took it away
		m.Origins["qr_wave_period"] = l.origin
	}
	return errs
}

// loadPresets reads the presets that there are: those of the program, and those of presets.dir or else of QR_PROFILES_DIR/presets.
func (c *Config) loadPresets() error {
	var err error
	switch {
	case c.Presets.Dir != "":
		if c.Library, err = presets.Load(c.Presets.Dir); err != nil {
			return &FieldError{Path: "presets.dir", Message: err.Error()}
		}
	case c.Process.ProfilesDir != "":
		err = c.loadProfiles()
	default:
		c.Library, err = presets.BuiltIn()
	}
	return err
}
