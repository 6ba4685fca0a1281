package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/sampler"
)

// prefix marks the parameters of ours. A key that begins so and isn't in the table is an error, never ignored.
const prefix = "qr_"

// nests are the objects in which clients that can't add top-level fields put ours.
var nests = [...]string{"extra_args", "extra_body", "vllm_xargs"}

const (
	alphaKey  = "qr_alpha"
	periodKey = "qr_wave_period"
	presetKey = "qr_preset"
)

var wavePartKeys = [...]string{"qr_wave_amplitude", "qr_wave_offset"}

// given are the parameters of a request by their keys.
type given map[string]setting

// setting is one of them as the client wrote it.
type setting struct {
	name string // the key or an alias of it
	raw  json.RawMessage
}

// params lays the request's values over the preset that it names, and that over the model's defaults. It also returns the keys that the request
// gave, by which name or standard field ever.
func (b *Body) params(defaults sampler.Params) (sampler.Params, []string, error) {
	own, err := b.fields.gather()
	if err != nil {
		return defaults, nil, err
	}
	p, err := b.lay(own, defaults)
	return p, b.fields.keys(own), err
}

func (b *Body) lay(own given, defaults sampler.Params) (sampler.Params, error) {
	p := defaults
	if err := own.layPreset(&p, b.presets); err != nil {
		return defaults, err
	}
	if err := b.fields.setStandard(&p, own); err != nil {
		return defaults, err
	}
	if err := own.oneAlpha(&p); err != nil {
		return defaults, err
	}
	if err := own.lay(&p); err != nil {
		return defaults, err
	}
	if err := p.Validate(); err != nil {
		return defaults, err
	}
	if p.Bypass || b.plain {
		return b.fields.bypass()
	}
	return p, nil
}

// keys are those that the request gave.
func (o object) keys(own given) []string {
	keys := sortedKeys(own)
	for _, name := range sampler.Standards() {
		if _, ok := o.get(name); ok {
			key, _ := sampler.StandardKey(name)
			keys = append(keys, key)
		}
	}
	return keys
}

// gather collects the qr_ keys from every place they may stand in. Names are checked before any value is.
func (o object) gather() (given, error) {
	own := given{}
	if err := own.take(o); err != nil {
		return nil, err
	}
	for _, nest := range nests {
		inner, ok, err := o.object(nest)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if err := own.take(inner); err != nil {
			return nil, err
		}
	}
	return own, nil
}

func (g given) take(from object) error {
	for _, name := range sortedKeys(from) {
		if !ours(name) || name == clientKey || name == taskKey {
			continue
		}
		key, err := sampler.RequestKey(name)
		if err != nil {
			return err
		}
		value := from[name]
		if isNull(value) {
			continue
		}
		if other, twice := g[key]; twice && !sameValue(other.raw, value) {
			return Invalid(name, "%s is given twice, as %s %s and as %s %s; give it once",
				key, other.name, quote(string(other.raw)), name, quote(string(value)))
		}
		g[key] = setting{name, value}
	}
	return nil
}

// ours ignores case, so that QR_ALPHA is refused with a hint instead of being ignored.
func ours(key string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

func sameValue(a, b json.RawMessage) bool {
	if bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) {
		return true
	}
	if i, err := strconv.ParseInt(string(a), 10, 64); err == nil {
		if j, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return i == j // as floats, large ones would be rounded to the same
		}
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}

// layPreset lays the preset that the request names over the defaults.
func (g given) layPreset(p *sampler.Params, presets sampler.Presets) error {
	s, ok := g[presetKey]
	if !ok {
		return nil
	}
	var name string
	if err := json.Unmarshal(s.raw, &name); err != nil {
		return &sampler.ParamError{Key: presetKey, Value: quote(string(s.raw)), Allowed: "the name of a preset"}
	}
	return p.LayPreset(name, presets)
}

// setStandard applies temperature and its like where the qr_ key that they stand for is absent.
func (o object) setStandard(p *sampler.Params, own given) error {
	for _, name := range sampler.Standards() {
		raw, ok := o.get(name)
		key, _ := sampler.StandardKey(name)
		if _, overridden := own[key]; !ok || overridden {
			continue
		}
		value, err := decode(raw)
		if err != nil {
			return err
		}
		if err := p.SetStandard(name, value); err != nil {
			return err
		}
	}
	return nil
}

// lay lays the request's own parameters over p.
func (g given) lay(p *sampler.Params) error {
	values := map[string]any{}
	for _, key := range sortedKeys(g) {
		if key == presetKey {
			continue
		}
		value, err := decode(g[key].raw)
		if err != nil {
			return err
		}
		values[g[key].name] = value
	}
	if errs := p.Lay(values); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// oneAlpha refuses alpha beside a part of a wave whose period is a layer's below: the part would be lost with that wave. All else about alpha and
// waves is the rule of every layer.
func (g given) oneAlpha(p *sampler.Params) error {
	if _, ok := g[alphaKey]; !ok || p.WavePeriod == 0 {
		return nil
	}
	if _, ok := g[periodKey]; ok {
		return nil
	}
	for _, key := range wavePartKeys {
		if _, ok := g[key]; ok {
			return Invalid(alphaKey, "%s and %s are both given; a wave sets alpha for every token, so give one of them", alphaKey, key)
		}
	}
	return nil
}

// bypass is plain sampling by the standard fields alone. Whoever draws the numbers takes them from the operating system.
func (o object) bypass() (sampler.Params, error) {
	p := sampler.Defaults()
	p.Bypass, p.Decoder = true, sampler.DecoderPlain
	if err := o.setStandard(&p, nil); err != nil {
		return p, err
	}
	return p, p.Validate()
}

// decode reads a value without rounding it.
func decode(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, notJSON(raw, err)
	}
	return v, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
