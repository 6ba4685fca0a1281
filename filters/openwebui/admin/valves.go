package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"qr-gateway/sampler"
	"qr-gateway/sampler/param"
)

// Valves are the administrator's values of the filter, by their names, as JSON. In what is to be laid over stored ones, null takes a value
// away, so that the gateway's own default holds again.
type Valves map[string]json.RawMessage

// ServerDefault is the word of a dropdown for a value that is not sent.
const ServerDefault = "server default"

// ownValve reads a valve of the filter itself; all others are parameters.
type ownValve struct {
	takes string
	read  func(string) (any, error)
}

const valvesHint = "`qr-gateway params` lists every parameter and what it takes; beside them there are enabled, priority, models, status, warnings and users_may_override"

func ownValves() map[string]ownValve {
	flag := ownValve{"true or false", func(s string) (any, error) { return strconv.ParseBool(s) }}
	return map[string]ownValve{
		"enabled": flag, "status": flag, "warnings": flag, "users_may_override": flag,
		"priority": {"a whole number", func(s string) (any, error) { return strconv.Atoi(s) }},
		"models":   {"a text", func(s string) (any, error) { return s, nil }},
	}
}

// ParseValves reads KEY=VALUE texts and holds them against the parameter table. All that is wrong is said at once.
func ParseValves(texts []string) (Valves, error) {
	out, parameters := Valves{}, map[string]string{}
	var errs []error
	for _, text := range texts {
		key, value, err := split(text)
		if _, twice := out[key]; twice && err == nil {
			err = fmt.Errorf("valve %s is given twice", key)
		}
		if err == nil {
			out[key], err = parseValve(key, value)
		}
		if _, own := ownValves()[key]; err == nil && !own && string(out[key]) != "null" {
			parameters[key] = value
		}
		errs = append(errs, err)
	}
	errs = append(errs, together(parameters)...)
	if err := errors.Join(errs...); err != nil {
		return nil, &Error{Message: err.Error(), Hint: valvesHint, Err: err}
	}
	return out, nil
}

// split takes a KEY=VALUE text apart; an alias becomes the key that it stands for.
func split(text string) (key, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || key == "" {
		return "", "", fmt.Errorf("valve %q is not KEY=VALUE", text)
	}
	if name, err := sampler.RequestKey(key); err == nil {
		key = name
	}
	if strings.EqualFold(value, ServerDefault) {
		value = ""
	}
	return key, value, nil
}

// together finds what doesn't go with one another, such as an alpha and a wave.
func together(values map[string]string) []error {
	p := sampler.Defaults()
	if errs := p.LayText(values); len(errs) > 0 {
		return errs
	}
	if err := p.Validate(); err != nil {
		return []error{err}
	}
	return nil
}

func parseValve(key, value string) (json.RawMessage, error) {
	if own, ok := ownValves()[key]; ok {
		return own.parse(key, value)
	}
	f, err := parameter(key)
	if err != nil || value == "" {
		return json.RawMessage("null"), err
	}
	p := sampler.Defaults()
	if err := p.SetText(key, value); err != nil {
		return nil, err
	}
	v, _ := p.Value(key)
	return stored(&f, v, value)
}

func (o ownValve) parse(key, value string) (json.RawMessage, error) {
	if value == "" {
		return json.RawMessage("null"), nil
	}
	v, err := o.read(value)
	if err != nil {
		return nil, fmt.Errorf("%s is %q; it takes %s", key, value, o.takes)
	}
	return json.Marshal(v)
}

// parameter finds the row of a key that a request may set.
func parameter(key string) (sampler.Field, error) {
	name, err := sampler.RequestKey(key)
	if err != nil {
		return sampler.Field{}, err
	}
	f, _ := sampler.FieldByName(name)
	return f, nil
}

// stored is a value in the form that the filter's page stores it in: flags as words of a dropdown, objects as their text.
func stored(f *sampler.Field, v any, text string) (json.RawMessage, error) {
	switch f.Type {
	case param.TypeBool:
		text = "off"
		if on, _ := v.(bool); on {
			text = "on"
		}
	case param.TypeInteger, param.TypeNumber:
		return json.Marshal(v)
	case param.TypeString, param.TypeObject:
	}
	return json.Marshal(text)
}

// lay is v with the values of over; null takes one away.
func (v Valves) lay(over Valves) Valves {
	out := maps.Clone(v)
	if out == nil {
		out = Valves{}
	}
	for key, value := range over {
		if string(value) == "null" {
			delete(out, key)
			continue
		}
		out[key] = value
	}
	return out
}

// differences lists what is other in w, as KEY=VALUE or "KEY unset", in order.
func (v Valves) differences(w Valves) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if old, ok := v[key]; !ok || !same(old, w[key]) {
			out = append(out, key+"="+string(w[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if _, ok := w[key]; !ok && string(v[key]) != "null" {
			out = append(out, key+" unset")
		}
	}
	return out
}

// taken finds what Open WebUI did not store of v: keys that the filter's page doesn't have are dropped there without a word.
func (v Valves) taken(stored Valves) error {
	var lost []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		if _, ok := stored[key]; !ok && string(v[key]) != "null" {
			lost = append(lost, key)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return &Error{
		Message: "the installed filter has no valve " + strings.Join(lost, ", "),
		Hint:    "leave it out; everything else was set",
	}
}
