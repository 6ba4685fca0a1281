package catalog

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"qr-gateway/entropy/guard"
)

// ErrUnknownOption is a key that the type does not have.
var ErrUnknownOption = errors.New("unknown option")

// decode reads options over the defaults that out points to. Every key must be known; text is read as a number, a flag or a duration
// where one is wanted, as it comes from the environment and from command lines.
func decode(opts map[string]any, out any) error {
	known := Keys(out)
	for _, key := range sortedKeys(opts) {
		if !slices.Contains(known, key) {
			return unknown(key, known)
		}
	}
	for _, key := range sortedKeys(opts) {
		if err := decodeOne(key, opts[key], out); err != nil {
			return err
		}
	}
	return nil
}

func decodeOne(key string, value any, out any) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: out, DecodeHook: mapstructure.DecodeHookFuncType(convert), MatchName: func(a, b string) bool { return a == b }})
	if err != nil {
		return fmt.Errorf("read option %s: %w", key, err)
	}
	err = d.Decode(map[string]any{key: value})
	if bad, ok := errors.AsType[*valueError](err); ok {
		return fmt.Errorf("option %s: %w", key, bad)
	}
	if err != nil { // the library's text repeats the value, which may be a key or a password
		return fmt.Errorf("option %s: a %T can't be used here", key, value)
	}
	return nil
}

func unknown(key string, known []string) error {
	if like := nearest(key, known); like != "" {
		return fmt.Errorf("%w %s: did you mean %s?", ErrUnknownOption, key, like)
	}
	return fmt.Errorf("%w %s: want one of %s", ErrUnknownOption, key, strings.Join(known, ", "))
}

// valueError is a value that does not fit.
type valueError struct{ text string }

func (e *valueError) Error() string { return e.text }

func bad(format string, args ...any) error { return &valueError{fmt.Sprintf(format, args...)} }

var durationType = reflect.TypeFor[time.Duration]()

// convert is the decoder's hook: it makes exact values of what configuration files, the environment and JSON give, and refuses the rest.
func convert(from, to reflect.Type, data any) (any, error) {
	if to == durationType {
		return duration(data)
	}
	switch kind := to.Kind(); {
	case kind == reflect.Bool:
		return flag(data)
	case kind >= reflect.Int && kind <= reflect.Uint64:
		return whole(data, to)
	case kind == reflect.Float64 || kind == reflect.Float32:
		return number(data)
	case kind == reflect.String && from.Kind() != reflect.String:
		return nil, bad("want text")
	case kind == reflect.Slice && from.Kind() == reflect.String:
		return strings.Split(reflect.ValueOf(data).String(), ","), nil
	}
	return data, nil
}

func duration(data any) (any, error) {
	switch v := data.(type) {
	case time.Duration:
		return v, nil
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d, nil
		}
	}
	return nil, bad("want a duration with its unit, such as 250ms or 10s")
}

func flag(data any) (any, error) {
	switch v := data.(type) {
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, nil
		}
	}
	return nil, bad("want true or false")
}

// whole returns an int64, or a uint64 where to is unsigned, that fits to.
func whole(data any, to reflect.Type) (any, error) {
	text := fmt.Sprint(data)
	switch v := data.(type) {
	case string:
		text = strings.TrimSpace(v)
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return nil, bad("%v is not a whole number", v)
		}
		text = strconv.FormatFloat(v, 'f', 0, 64)
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
	default:
		return nil, bad("want a whole number")
	}
	if to.Kind() >= reflect.Uint && to.Kind() <= reflect.Uint64 {
		n, err := strconv.ParseUint(text, 10, to.Bits())
		if err != nil {
			return nil, bad("want a whole number from 0 to %d", uint64(1)<<(to.Bits()-1)-1+uint64(1)<<(to.Bits()-1))
		}
		return n, nil
	}
	n, err := strconv.ParseInt(text, 10, to.Bits())
	if err != nil {
		return nil, bad("want a whole number")
	}
	return n, nil
}

func number(data any) (any, error) {
	v := reflect.ValueOf(data)
	f := math.NaN()
	switch {
	case !v.IsValid():
	case v.CanFloat():
		f = v.Float()
	case v.CanInt():
		f = float64(v.Int())
	case v.CanUint():
		f = float64(v.Uint())
	case v.Kind() == reflect.String:
		if p, err := strconv.ParseFloat(strings.TrimSpace(v.String()), 64); err == nil {
			f = p
		}
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, bad("want a finite number")
	}
	return f, nil
}

// Keys lists the option names of a pointer to a configuration, in the order of its fields.
func Keys(config any) []string { return keysOf(reflect.TypeOf(config).Elem()) }

func keysOf(t reflect.Type) []string {
	var out []string
	for f := range fieldsOf(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		switch {
		case strings.Contains(rest, "squash"):
			out = append(out, keysOf(f.Type)...)
		case name == "-" || !f.IsExported():
		case name == "":
			out = append(out, f.Name)
		default:
			out = append(out, name)
		}
	}
	return out
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// split takes the options of the guard out of those of a source.
func split(opts map[string]any) (own, guards map[string]any) {
	own, guards = map[string]any{}, map[string]any{}
	keys := Keys(&guard.Config{})
	for k, v := range opts {
		if slices.Contains(keys, k) {
			guards[k] = v
		} else {
			own[k] = v
		}
	}
	return own, guards
}

func sortedKeys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
