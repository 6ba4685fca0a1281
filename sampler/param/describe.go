package param

import (
	"encoding/json"
	"math"
	"strconv"
)

// Description is a field as JSON shows it.
type Description struct {
	Key        string   `json:"key"`
	Aliases    []string `json:"aliases,omitempty"`
	Standard   string   `json:"standard,omitempty"`
	Env        string   `json:"env,omitempty"`
	Group      string   `json:"group,omitempty"`
	Type       string   `json:"type"`
	Min        *float64 `json:"min,omitempty"`
	Max        *float64 `json:"max,omitempty"`
	MinOpen    bool     `json:"min_open,omitempty"`
	OrZero     bool     `json:"or_zero,omitempty"`
	Enum       []string `json:"enum,omitempty"`
	MaxLen     int      `json:"max_len,omitempty"`
	Nullable   bool     `json:"nullable,omitempty"`
	Default    any      `json:"default"`
	Unit       string   `json:"unit,omitempty"`
	Help       string   `json:"help"`
	PerRequest bool     `json:"per_request"`
}

// Describe returns the field as JSON shows it.
func (f *Field) Describe() Description {
	d := Description{
		Key: f.Key, Aliases: f.Aliases, Standard: f.Standard, Env: f.Env, Group: f.Group, Type: string(f.Type), MinOpen: f.MinOpen, OrZero: f.OrZero,
		Enum: f.Enum, MaxLen: f.MaxLen, Nullable: f.Nullable, Default: f.Default, Unit: f.Unit, Help: f.Help, PerRequest: f.PerRequest,
	}
	if f.Type == TypeNumber || f.Type == TypeInteger || f.Type == TypeObject {
		least, most := f.Min, f.Max
		d.Min, d.Max = &least, &most
	}
	return d
}

// Schema is the field as a property of a JSON Schema (draft 2020-12). It describes values of the field's own type, and null, which is the
// same as leaving the key out; numbers and flags written as text are taken as well.
func (f *Field) Schema() map[string]any {
	s := f.values()
	s["type"] = []any{s["type"], "null"}
	if words, ok := s["enum"].([]string); ok {
		enum := make([]any, len(words), len(words)+1)
		for i, w := range words {
			enum[i] = w
		}
		s["enum"] = append(enum, nil)
	}
	if f.OrZero {
		s = map[string]any{"anyOf": []any{map[string]any{"const": 0}, s}}
	}
	s["description"] = f.Help
	s["default"] = f.Default
	if f.Unit != "" {
		s["x-unit"] = f.Unit
	}
	s["x-group"], s["x-env"] = f.Group, f.Env
	return s
}

func (f *Field) values() map[string]any {
	switch f.Type {
	case TypeNumber, TypeInteger:
		return f.numbers(string(f.Type))
	case TypeBool:
		return map[string]any{"type": "boolean"}
	case TypeObject:
		return map[string]any{
			"type": "object", "maxProperties": f.MaxLen, "additionalProperties": false,
			"patternProperties": map[string]any{"^[0-9]+$": f.numbers("number")},
		}
	case TypeString:
	}
	if len(f.Enum) > 0 {
		return map[string]any{"type": "string", "enum": f.Enum}
	}
	return map[string]any{"type": "string", "maxLength": f.MaxLen}
}

func (f *Field) numbers(typ string) map[string]any {
	least := "minimum"
	if f.MinOpen {
		least = "exclusiveMinimum"
	}
	return map[string]any{"type": typ, least: exact(f.Min), "maximum": exact(f.Max)}
}

// exact is a limit as JSON writes it whole.
func exact(x float64) json.Number {
	switch x {
	case math.MinInt64:
		return json.Number(strconv.FormatInt(math.MinInt64, 10))
	case math.MaxInt64:
		return json.Number(strconv.FormatInt(math.MaxInt64, 10))
	}
	return json.Number(strconv.FormatFloat(x, 'g', -1, 64))
}
