package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
)

// paramFlags are the command-line flags of the parameter table: qr_lookahead_k is --lookahead-k, and so on. A flag that was
// not given changes nothing, so that defaults of the model stay.
type paramFlags struct {
	flags *pflag.FlagSet
	text  map[string]*string // key -> value as typed
	sine  string
}

func addParamFlags(flags *pflag.FlagSet) *paramFlags {
	p := &paramFlags{flags: flags, text: map[string]*string{}}
	for _, f := range sampler.Fields() {
		p.text[f.Key] = flags.String(flagName(f.Key), "", flagHelp(f))
	}
	flags.StringVar(&p.sine, "sine", "", "`PERIOD,AMPLITUDE,OFFSET`: alpha as a wave, e.g. 16,0.6,-0.2; short for the three wave flags")
	return p
}

func flagName(key string) string {
	return strings.ReplaceAll(strings.TrimPrefix(key, "qr_"), "_", "-")
}

func flagHelp(f sampler.Field) string {
	help := f.Help
	if len(f.Enum) > 0 {
		help += "; one of " + strings.Join(f.Enum, ", ")
	}
	if f.Default != nil && f.Default != "" && f.Type != sampler.TypeObject {
		help += fmt.Sprintf(" (default %v)", f.Default)
	}
	return "`" + strings.ToUpper(string(f.Type)) + "`: " + help
}

const presetKey = "qr_preset"

// apply lays what was given over params: a preset first, then the flags.
func (p *paramFlags) apply(params *sampler.Params) error {
	given := map[string]string{}
	for key, text := range p.text {
		if p.flags.Changed(flagName(key)) {
			given[key] = *text
		}
	}
	if err := p.applySine(given); err != nil {
		return err
	}
	if err := applyPreset(params, given[presetKey]); err != nil {
		return err
	}
	if errs := params.LayText(given); len(errs) > 0 {
		return errs[0]
	}
	return params.Validate()
}

// applyPreset lays a preset of the program over params.
func applyPreset(params *sampler.Params, name string) error {
	if name == "" {
		return nil
	}
	all, err := presets.BuiltIn()
	if err != nil {
		return err
	}
	values, err := all.Values(name)
	if err != nil {
		return err
	}
	if errs := params.Lay(values); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// applySine adds the three values that --sine is short for.
func (p *paramFlags) applySine(given map[string]string) error {
	if p.sine == "" {
		return nil
	}
	parts := strings.Split(p.sine, ",")
	if len(parts) != 3 {
		return fmt.Errorf("--sine is %q; it takes PERIOD,AMPLITUDE,OFFSET, such as 16,0.6,-0.2", p.sine)
	}
	wave := map[string]string{}
	for i, key := range []string{"qr_wave_period", "qr_wave_amplitude", "qr_wave_offset"} {
		wave[key] = strings.TrimSpace(parts[i])
	}
	scratch := sampler.Defaults()
	for _, key := range slices.Sorted(maps.Keys(wave)) {
		if err := scratch.SetText(key, wave[key]); err != nil {
			return fmt.Errorf("--sine %s: %w", p.sine, err)
		}
	}
	maps.Copy(given, wave)
	return nil
}
