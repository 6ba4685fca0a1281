package sampler

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Set takes a value as encoding/json decodes it (string, bool, float64, json.Number, nil) or a Go integer. The error is a *[ParamError].
// A refused value leaves p as it was. nil unsets a nullable field.
func (p *Params) Set(key string, value any) error {
	r, ok := findRow(func(r *row) bool { return r.Key == key })
	if !ok {
		return unknown(key)
	}
	return r.assign(p, key, value)
}

// SetText takes a value from the environment or a command line. The word null, or nothing at all, unsets a nullable field.
func (p *Params) SetText(key, text string) error {
	r, ok := findRow(func(r *row) bool { return r.Key == key })
	if !ok {
		return unknown(key)
	}
	return r.assign(p, key, r.fromText(strings.TrimSpace(text)))
}

// SetStandard takes a field by the name that OpenAI or common extensions give it: temperature, top_p, top_k, min_p, seed. null means the
// field is absent; a top_k of -1 is off, as other servers have it.
func (p *Params) SetStandard(name string, value any) error {
	r, ok := findRow(func(r *row) bool { return r.Standard == name && name != "" })
	if !ok {
		return unknown(name)
	}
	if value == nil {
		return nil
	}
	if f, isNum := asFloat(value); name == "top_k" && isNum && f == -1 {
		value = 0
	}
	return r.assign(p, name, value)
}

func findRow(match func(*row) bool) (*row, bool) {
	for i := range table {
		if match(&table[i]) {
			return &table[i], true
		}
	}
	return nil, false
}

// fromText gives text the type that the row takes. What can't be parsed stays text, and assign refuses it.
func (r *row) fromText(text string) any {
	if r.Nullable && (text == "" || text == "null") {
		return nil
	}
	switch r.Type {
	case TypeNumber, TypeInteger:
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return json.Number(text)
		}
	case TypeBool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case TypeString:
	}
	return text
}

// assign checks value and writes it. key is the name the caller used.
func (r *row) assign(p *Params, key string, value any) error {
	if !r.write(r.at(p), value) {
		return &ParamError{Key: key, Value: show(value), Allowed: r.allowed()}
	}
	return nil
}

// write writes value to at, a pointer as row says. Nothing is written unless the value fits.
func (r *row) write(at, value any) bool {
	switch at := at.(type) {
	case *string:
		s, ok := value.(string)
		return keep(at, s, ok && r.fitsString(s))
	case *float64:
		f, ok := asFloat(value)
		return keep(at, f, ok && r.fitsNumber(f))
	case *int:
		i, ok := asInt(value)
		return keep(at, int(i), ok && r.fitsNumber(float64(i)))
	}
	return r.writeNullable(at, value)
}

func keep[T any](at *T, v T, ok bool) bool {
	if ok {
		*at = v
	}
	return ok
}

// writeNullable is write for a field that can be unset.
func (r *row) writeNullable(at, value any) bool {
	switch at := at.(type) {
	case **float64:
		f, ok := asFloat(value)
		return place(at, f, value == nil, ok && r.fitsNumber(f))
	case **int64:
		i, ok := asInt(value)
		return place(at, i, value == nil, ok && r.fitsNumber(float64(i)))
	case **bool:
		b, ok := value.(bool)
		return place(at, b, value == nil, ok)
	}
	return false
}

func place[T any](at **T, v T, unset, ok bool) bool {
	switch {
	case unset:
		*at = nil
	case ok:
		*at = &v
	}
	return unset || ok
}

func (r *row) fitsString(s string) bool {
	for _, e := range r.Enum {
		if s == e {
			return true
		}
	}
	return false
}

// fitsNumber holds the range. A wave period has a gap between off and 2.
func (r *row) fitsNumber(f float64) bool {
	if r.Key == "qr_wave_period" && f != 0 && f < 2 {
		return false
	}
	return f >= r.Min && f <= r.Max
}

// allowed says in words what the field takes.
func (r *row) allowed() string {
	text := ""
	switch r.Type {
	case TypeString:
		text = "one of " + strings.Join(r.Enum, ", ")
	case TypeBool:
		text = "true or false"
	case TypeInteger:
		text = "a whole number from " + number(r.Min) + " to " + number(r.Max)
	case TypeNumber:
		text = "a number from " + number(r.Min) + " to " + number(r.Max)
	}
	if r.Key == "qr_wave_period" {
		text = "0 (off) or a number from 2 to " + number(r.Max)
	}
	if r.Nullable {
		text += ", or null"
	}
	return text
}

func number(f float64) string {
	switch f {
	case math.MinInt64:
		return "-2^63"
	case math.MaxInt64:
		return "2^63-1"
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// show writes value as JSON would, at most 60 bytes of it.
func show(value any) string {
	if f, ok := value.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	b, err := json.Marshal(value)
	if err != nil {
		b = []byte(fmt.Sprint(value))
	}
	if len(b) > 60 {
		return strings.ToValidUTF8(string(b[:57]), "") + "..."
	}
	return string(b)
}
