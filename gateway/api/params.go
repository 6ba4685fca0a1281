package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/sampler"
)

// prefix marks the parameters of ours. A key that begins so and isn't in the table is an error, never ignored.
const prefix = "qr_"

// nests are the objects in which clients that can't add top-level fields put ours.
var nests = [...]string{"extra_args", "extra_body", "vllm_xargs"}

const alphaKey = "qr_alpha"

var waveKeys = [...]string{"qr_wave_period", "qr_wave_amplitude", "qr_wave_offset"}

// params lays the request's values over the model's defaults.
func (o object) params(defaults sampler.Params) (sampler.Params, error) {
	given, err := o.gather()
	if err != nil {
		return defaults, err
	}
	p := defaults
	if err := o.setStandard(&p, given); err != nil {
		return defaults, err
	}
	for _, key := range sortedKeys(given) {
		value, err := decode(given[key])
		if err != nil {
			return defaults, err
		}
		if err := p.Set(key, value); err != nil {
			return defaults, blame(key, err)
		}
	}
	if err := oneAlpha(&p, given); err != nil {
		return defaults, err
	}
	if err := p.Validate(); err != nil {
		return defaults, blame("", err)
	}
	return p, nil
}

// gather collects the qr_ keys from every place they may stand in.
func (o object) gather() (object, error) {
	given := object{}
	if err := given.take(o); err != nil {
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
		if err := given.take(inner); err != nil {
			return nil, err
		}
	}
	return given, nil
}

func (o object) take(from object) error {
	for _, key := range sortedKeys(from) {
		value := from[key]
		if !ours(key) || isNull(value) && known(key) {
			continue
		}
		if other, twice := o[key]; twice && !sameValue(other, value) {
			return Invalid(key, "%s is given twice, as %s and as %s; give it once", key, quote(string(other)), quote(string(value)))
		}
		o[key] = value
	}
	return nil
}

// ours ignores case, so that QR_ALPHA is refused with a hint instead of being ignored.
func ours(key string) bool {
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

func known(key string) bool {
	_, ok := sampler.FieldByName(key)
	return ok
}

func sameValue(a, b json.RawMessage) bool {
	if bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) {
		return true
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	return errX == nil && errY == nil && x == y
}

// setStandard applies temperature and its like where the qr_ key that they stand for is absent.
func (o object) setStandard(p *sampler.Params, given object) error {
	for _, f := range sampler.Fields() {
		raw, ok := o.get(f.Standard)
		if _, overridden := given[f.Key]; f.Standard == "" || !ok || overridden {
			continue
		}
		value, err := decode(raw)
		if err != nil {
			return err
		}
		if err := p.SetStandard(f.Standard, value); err != nil {
			return blame(f.Standard, err)
		}
	}
	return nil
}

// oneAlpha lets a request that sets alpha win over a wave of the model's defaults, and refuses one that sets both.
func oneAlpha(p *sampler.Params, given object) error {
	if _, ok := given[alphaKey]; !ok || p.WavePeriod == 0 {
		return nil
	}
	for _, key := range waveKeys {
		if _, ok := given[key]; ok {
			return Invalid(alphaKey, "%s and %s are both given; a wave sets alpha for every token, so give one of them", alphaKey, key)
		}
	}
	p.WavePeriod = 0
	return nil
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

// blame makes sure that a refusal of the sampler's is a client error that names a field.
func blame(key string, err error) error {
	var own *sampler.ParamError
	if errors.As(err, &own) {
		return err
	}
	e := Invalid(key, "%s", err.Error())
	e.Err = err
	return e
}

func sortedKeys(o object) []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
