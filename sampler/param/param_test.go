package param_test

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/sampler/param"
)

func fields() map[string]*param.Field {
	return map[string]*param.Field{
		"number":   {Key: "qr_n", Type: param.TypeNumber, Min: -2, Max: 5},
		"open":     {Key: "qr_o", Type: param.TypeNumber, Min: 0, Max: 5, MinOpen: true},
		"zero":     {Key: "qr_z", Type: param.TypeInteger, Min: 2, Max: 10, OrZero: true},
		"integer":  {Key: "qr_i", Type: param.TypeInteger, Min: math.MinInt64, Max: math.MaxInt64, Nullable: true},
		"flag":     {Key: "qr_b", Type: param.TypeBool},
		"word":     {Key: "qr_w", Type: param.TypeString, Enum: []string{"one", "two"}},
		"text":     {Key: "qr_t", Type: param.TypeString, MaxLen: 8},
		"biases":   {Key: "qr_l", Type: param.TypeObject, MaxLen: 3, Min: -100, Max: 100},
		"secret":   {Key: "qr_s", Type: param.TypeString, MaxLen: 8, Secret: true},
		"nullable": {Key: "qr_f", Type: param.TypeBool, Nullable: true},
	}
}

func TestTake(t *testing.T) {
	f := fields()
	for _, c := range []struct {
		field string
		value any
		want  param.Value
	}{
		{"number", 5.0, param.Value{Number: 5}},
		{"number", json.Number("-2"), param.Value{Number: -2}},
		{"number", "1_0e-1", param.Value{Number: 1}},
		{"open", 1e-300, param.Value{Number: 1e-300}},
		{"zero", 0, param.Value{}},
		{"zero", 2, param.Value{Int: 2}},
		{"integer", nil, param.Value{Null: true}},
		{"integer", json.Number("9223372036854775807"), param.Value{Int: math.MaxInt64}},
		{"integer", "-9223372036854775808", param.Value{Int: math.MinInt64}},
		{"flag", "ON", param.Value{Bool: true}},
		{"text", "äöü", param.Value{Text: "äöü"}},
		{"biases", map[string]any{"9": 1.0, "7": -100.0}, param.Value{Biases: []param.Bias{{Token: 7, Bias: -100}, {Token: 9, Bias: 1}}}},
		{"biases", map[string]any{}, param.Value{}},
	} {
		got, err := f[c.field].Take("x", c.value, param.Loose)
		if err != nil || !got.Equal(c.want) {
			t.Errorf("%s %v: %+v, %v", c.field, c.value, got, err)
		}
	}
}

func TestRefuse(t *testing.T) {
	f := fields()
	for _, c := range []struct {
		field string
		value any
		want  string
	}{
		{"number", 5.5, "x is 5.5; it takes a number from -2 to 5"},
		{"number", math.NaN(), "x is NaN; it takes a number from -2 to 5"},
		{"open", 0.0, "x is 0; it takes a number above 0, up to 5"},
		{"zero", 1, "x is 1; it takes 0 (off) or a whole number from 2 to 10"},
		{"integer", 1e17, "x is 1e+17; it takes a whole number from -2^63 to 2^63-1, or null"},
		{"flag", nil, "x is null; it takes true or false"},
		{"word", "One", `x is "One"; it takes one of one, two`},
		{"text", "123456789", `x is "123456789"; it takes text of at most 8 bytes without control characters`},
		{"text", "a\x00", `x is "a\u0000"; it takes text of at most 8 bytes without control characters`},
		{"text", "\xff", `x is "` + "\\ufffd" + `"; it takes text of at most 8 bytes without control characters`},
		{"biases", map[string]any{"7": 101.0}, `x is {"7":101}; it takes an object of up to 3 token ids, each with a number from -100 to 100`},
		{"biases", map[string]any{"1": 0, "2": 0, "3": 0, "4": 0}, `x is {"1":0,"2":0,"3":0,"4":0}; it takes an object of up to 3 token ids, each with a number from -100 to 100`},
		{"secret", "123456789", `x is a value that is not shown; it takes text of at most 8 bytes without control characters`},
	} {
		_, err := f[c.field].Take("x", c.value, param.Strict)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %v: %v, want %s", c.field, c.value, err, c.want)
		}
	}
}

// TestStrict holds that nothing but a value of the field's own type is one.
func TestStrict(t *testing.T) {
	f := fields()
	for name, values := range map[string][]any{
		"number": {"1", true}, "integer": {"1", true, 1.5}, "flag": {"true", 1, 0.0}, "biases": {map[string]any{"7": "1"}, map[string]any{"7": 1, "07": 1}},
	} {
		for _, v := range values {
			if got, ok := f[name].Read(v, param.Strict); ok {
				t.Errorf("%s: %v is taken as %+v", name, v, got)
			}
		}
	}
}

// TestWrittenAndRead holds that what is written as JSON, or as text, reads the same.
func TestWrittenAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fields()[rapid.SampledFrom([]string{"number", "integer", "zero"}).Draw(t, "field")]
		v := param.Value{Number: rapid.Float64Range(-2, 5).Draw(t, "number")}
		if f.Type == param.TypeInteger {
			v = param.Value{Int: rapid.Int64().Draw(t, "integer")}
			if f.OrZero {
				v.Int = rapid.Int64Range(2, 10).Draw(t, "small")
			}
		}
		data, err := f.AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		for how, take := range map[string]func() (param.Value, error){
			"json": func() (param.Value, error) { return f.Take("x", json.Number(data), param.Strict) },
			"text": func() (param.Value, error) { return f.TakeText("x", string(data)) },
			"go":   func() (param.Value, error) { return f.Take("x", f.Go(v), param.Strict) },
		} {
			if got, err := take(); err != nil || !got.Equal(v) {
				t.Errorf("%s: %s reads %+v, %v; want %+v", how, data, got, err, v)
			}
		}
	})
}

func TestNearest(t *testing.T) {
	known := []string{"qr_alpha", "qr_lookahead_k", "qr_lookahead_n"}
	for word, want := range map[string]string{"qr_alhpa": "qr_alpha", "qr_lookahed_n": "qr_lookahead_n", "zebra": "", strings.Repeat("q", 65): ""} {
		if got := param.Unknown(word, known).Nearest; got != want {
			t.Errorf("%q: nearest is %q, want %q", word, got, want)
		}
	}
}

func TestSchema(t *testing.T) {
	got := fields()["zero"].Schema()
	want := map[string]any{
		"anyOf":       []any{map[string]any{"const": 0}, map[string]any{"type": []any{"integer", "null"}, "minimum": json.Number("2"), "maximum": json.Number("10")}},
		"description": "", "default": nil, "x-group": "", "x-env": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	word := param.Field{Type: param.TypeString, Enum: []string{"a", "b"}, Default: "a"}
	want = map[string]any{"type": []any{"string", "null"}, "enum": []any{"a", "b", nil}, "description": "", "default": "a", "x-group": "", "x-env": ""}
	if diff := cmp.Diff(want, word.Schema()); diff != "" {
		t.Error(diff)
	}
}

// FuzzTakeText holds that any text is either taken within the range or refused with a message about the name.
func FuzzTakeText(f *testing.F) {
	for _, s := range []string{"1", " 1_0 ", "NaN", "1e400", "null", "", "{\"7\":1}", "yes", "0x1p-2", "\xff"} {
		f.Add(s)
	}
	all := fields()
	f.Fuzz(func(t *testing.T, text string) {
		for name, field := range all {
			v, err := field.TakeText("x", text)
			var own *param.Error
			switch {
			case err != nil && (!errors.As(err, &own) || own.Key != "x" || own.Allowed == "" || len(own.Value) > 200):
				t.Errorf("%s: %v", name, err)
			case err == nil && !field.Fits(v):
				t.Errorf("%s: %q is taken as %+v", name, text, v)
			}
			if x, perr := strconv.ParseFloat(text, 64); err == nil && perr == nil && field.Type == param.TypeNumber && v.Number != x {
				t.Errorf("%s: %q reads %v", name, text, v.Number)
			}
		}
	})
}
