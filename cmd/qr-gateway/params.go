package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

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
	if f.Default != nil {
		help += fmt.Sprintf(" (default %v)", f.Default)
	}
	return "`" + strings.ToUpper(string(f.Type)) + "`: " + help
}

// apply sets on params what was given.
func (p *paramFlags) apply(params *sampler.Params) error {
	if err := p.applySine(params); err != nil {
		return err
	}
	for key, text := range p.text {
		if !p.flags.Changed(flagName(key)) {
			continue
		}
		if err := params.SetText(key, *text); err != nil {
			return err
		}
	}
	if p.flags.Changed("alpha") && params.WavePeriod > 0 {
		return errors.New("--alpha and a wave are both given; a wave sets alpha for every token, so give one of them")
	}
	return params.Validate()
}

func (p *paramFlags) applySine(params *sampler.Params) error {
	if p.sine == "" {
		return nil
	}
	parts := strings.Split(p.sine, ",")
	if len(parts) != 3 {
		return fmt.Errorf("--sine is %q; it takes PERIOD,AMPLITUDE,OFFSET, such as 16,0.6,-0.2", p.sine)
	}
	for i, key := range []string{"qr_wave_period", "qr_wave_amplitude", "qr_wave_offset"} {
		if err := params.SetText(key, strings.TrimSpace(parts[i])); err != nil {
			return fmt.Errorf("--sine %s: %w", p.sine, err)
		}
	}
	return nil
}
