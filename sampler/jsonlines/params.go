package jsonlines

import (
	"maps"
	"slices"
	"strings"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

const presetKey = "qr_preset"

// set lays the line's parameters over p as a request does: its preset, then standard fields, then its own keys. null is no value.
func (l *Line) set(p *sampler.Params, presets sampler.Presets) error {
	own, standard, err := l.split()
	if err != nil {
		return err
	}
	if err := layPreset(p, own[presetKey], presets); err != nil {
		return err
	}
	if err := setStandard(p, standard); err != nil {
		return err
	}
	if errs := p.Lay(own); len(errs) > 0 {
		return errs[0]
	}
	if l.Number != nil {
		p.Amplifier = amplify.NameServer
	}
	if err := p.Validate(); err != nil {
		return err
	}
	return finish(p, standard)
}

// split tells the keys of ours from standard fields.
func (l *Line) split() (own, standard map[string]any, err error) {
	own, standard = map[string]any{}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(l.Params)) {
		if !strings.HasPrefix(name, "qr_") {
			standard[name] = l.Params[name]
			continue
		}
		if _, err := sampler.RequestKey(name); err != nil {
			return nil, nil, err
		}
		if value := l.Params[name]; value != nil {
			own[name] = value
		}
	}
	return own, standard, nil
}

// layPreset lays the preset called name over p; nil is none.
func layPreset(p *sampler.Params, name any, presets sampler.Presets) error {
	if name == nil {
		return nil
	}
	if err := p.Set(presetKey, name); err != nil { // it is a text
		return err
	}
	return p.LayPreset(p.Preset, presets)
}

// setStandard applies temperature and its like. A qr_ key is laid over them.
func setStandard(p *sampler.Params, standard map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(standard)) {
		if err := p.SetStandard(name, standard[name]); err != nil {
			return err
		}
	}
	return nil
}

// finish makes p what a line without a model can do: a bypass is plain sampling by the standard fields, and nothing looks ahead.
func finish(p *sampler.Params, standard map[string]any) error {
	switch {
	case p.Bypass:
		*p = sampler.Defaults()
		p.Bypass, p.Decoder = true, sampler.DecoderPlain
		return setStandard(p, standard)
	case p.UsesLookahead():
		return &sampler.ParamError{Key: "qr_decoder", Reason: "look-ahead needs a model, and a line has none; " +
			"leave qr_alpha and the wave out, or set qr_decoder to plain"}
	}
	return nil
}
