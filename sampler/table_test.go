package sampler_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/sampler"
)

// TestTableCoversParams sets every field by its key and finds exactly that key changed, in JSON too.
func TestTableCoversParams(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range sampler.Fields() {
		for _, name := range append([]string{f.Key}, f.Aliases...) {
			if seen[name] {
				t.Errorf("%s stands in the table twice", name)
			}
			seen[name] = true
		}
		if f.Help == "" || f.Env != strings.ToUpper(f.Key) || f.PerRequest == (f.Key == "qr_ecdf_calibration_samples") || f.Group == "" {
			t.Errorf("%s: help, environment name, scope or group is missing: %+v", f.Key, f)
		}
		if (f.Default == nil) != f.Nullable {
			t.Errorf("%s: a field has a default or may be null", f.Key)
		}
		if len(f.Enum) == 1 {
			continue // there is no other value
		}
		p := sampler.Defaults()
		if err := p.Set(f.Key, another(f)); err != nil {
			t.Error(err)
		}
		if diff := changed(t, sampler.Defaults(), p); !slices.Equal(diff, []string{f.Key}) {
			t.Errorf("setting %s changed %v", f.Key, diff)
		}
	}
}

// TestParamsHaveRows holds that no exported field of Params lies beside the table.
func TestParamsHaveRows(t *testing.T) {
	zero, ones := sampler.Params{}, reflect.New(reflect.TypeFor[sampler.Params]()).Elem()
	exported := 0
	for i := range ones.NumField() {
		if ones.Type().Field(i).IsExported() {
			exported++
			fill(ones.Field(i))
		}
	}
	if diff := changed(t, zero, ones.Interface().(sampler.Params)); len(diff) != exported {
		t.Errorf("%d fields of Params show in JSON, want %d: %v", len(diff), exported, diff)
	}
}

func fill(v reflect.Value) {
	switch kind := v.Kind(); {
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case kind == reflect.String:
		v.SetString("x")
	case kind == reflect.Bool:
		v.SetBool(true)
	case kind == reflect.Int:
		v.SetInt(1)
	case kind == reflect.Float64:
		v.SetFloat(1)
	case kind == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	}
}

// another is a value of the field that is not its default.
func another(f sampler.Field) any {
	switch {
	case f.Type == sampler.TypeObject:
		return map[string]any{"7": 1.5}
	case f.Type == sampler.TypeBool:
		return f.Default != true
	case len(f.Enum) > 0 && f.Enum[0] != f.Default:
		return f.Enum[0]
	case len(f.Enum) > 1:
		return f.Enum[1]
	case f.Type == sampler.TypeString:
		return "x"
	case f.Key == "qr_seed":
		return 5
	case f.Max != f.Default:
		return f.Max
	}
	return f.Min
}

// changed are the keys whose JSON differs.
func changed(t *testing.T, a, b sampler.Params) []string {
	t.Helper()
	var x, y map[string]json.RawMessage
	for _, side := range []struct {
		p   sampler.Params
		out *map[string]json.RawMessage
	}{{a, &x}, {b, &y}} {
		data, err := json.Marshal(side.p)
		if err == nil {
			err = json.Unmarshal(data, side.out)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for key := range x {
		if !bytes.Equal(x[key], y[key]) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestFieldsAreACopy(t *testing.T) {
	for _, f := range sampler.Fields() {
		if len(f.Enum) > 0 {
			f.Enum[0] = "changed"
		}
	}
	p := sampler.Defaults()
	if err := p.Set("qr_decoder", sampler.DecoderAuto); err != nil {
		t.Errorf("a change of what Fields returned has changed the table: %v", err)
	}
	if n := testing.AllocsPerRun(20, func() { _ = p.Set("qr_alpha", 0.3) }); n > 2 {
		t.Errorf("a value takes %v allocations", n)
	}
}

func BenchmarkSetAndValidate(b *testing.B) {
	b.ReportAllocs()
	p := sampler.Defaults()
	for b.Loop() {
		if p.Set("qr_alpha", 0.3) != nil || p.SetStandard("temperature", 0.7) != nil || p.Validate() != nil {
			b.Fatal("refused")
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	p := sampler.Defaults()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if p.UsesLookahead() || p.LookaheadK != 20 || p.PopulationStd != nil || p.Strategy != "fixed" {
		t.Errorf("defaults are %+v", p)
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		err   string // start of the message, or empty
	}{
		{"qr_alpha", 0.3, ""},
		{"qr_alpha", json.Number("-1"), ""},
		{"qr_alpha", nil, ""},
		{"qr_alpha", 2.0, "qr_alpha is 2; it takes a number from -1 to 1, or null"},
		{"qr_alpha", "0.3", ""},
		{"qr_alpha", "a lot", `qr_alpha is "a lot"; it takes a number`},
		{"qr_alpha", true, ""},
		{"qr_alpha", "NaN", `qr_alpha is "NaN"; it takes a number`},
		{"qr_alpha", "1e999", `qr_alpha is "1e999"; it takes a number`},
		{"qr_alpha", math.NaN(), "qr_alpha is NaN; it takes a number"},
		{"qr_alpha", json.Number("1e999"), "qr_alpha is 1e999; it takes a number"},
		{"qr_alpha", []any{1}, "qr_alpha is [1]; it takes a number"},
		{"qr_temperature", math.Inf(1), "qr_temperature is +Inf; it takes a number from 0 to 5"},
		{"qr_temperature", nil, "qr_temperature is null; it takes a number"},
		{"qr_temperature", -0.1, "qr_temperature is -0.1; it takes"},
		{"qr_lookahead_k", 0, "qr_lookahead_k is 0; it takes a whole number from 1 to 256"},
		{"qr_lookahead_k", 3.0, ""},
		{"qr_lookahead_k", json.Number("3.0"), ""},
		{"qr_lookahead_k", json.Number("1e2"), ""},
		{"qr_lookahead_k", 3.5, "qr_lookahead_k is 3.5; it takes a whole number"},
		{"qr_lookahead_k", json.Number("1e300"), "qr_lookahead_k is 1e300; it takes"},
		{"qr_lookahead_k", json.Number("99999999999999999999"), "qr_lookahead_k is 99999999999999999999; it takes"},
		{"qr_seed", json.Number("9223372036854775807"), ""},
		{"qr_seed", json.Number("-9223372036854775808"), ""},
		{"qr_seed", json.Number("9223372036854775808"), "qr_seed is 9223372036854775808; it takes a whole number from -2^63 to 2^63-1, or null"},
		{"qr_seed", 1e17, "qr_seed is 1e+17; it takes"},
		{"qr_seed", nil, ""},
		{"qr_think_ban", true, ""},
		{"qr_think_ban", 1.0, ""},
		{"qr_think_ban", 2.0, "qr_think_ban is 2; it takes true or false, or null"},
		{"qr_think_ban", "perhaps", `qr_think_ban is "perhaps"; it takes true or false`},
		{"qr_curve", "seed", ""},
		{"qr_curve", "Seed", `qr_curve is "Seed"; it takes one of article, crossfade, seed`},
		{"qr_curve", strings.Repeat("x", 1000), `qr_curve is "` + strings.Repeat("x", 56) + "...; it takes"},
		{"qr_wave_period", 1.5, "qr_wave_period is 1.5; it takes 0 (off) or a number from 2 to 100000"},
		{"qr_wave_period", 2.0, ""},
		{"qr_alhpa", 0.3, `unknown parameter "qr_alhpa"; did you mean "qr_alpha"?`},
		{"qr_lookahed_k", 3, `unknown parameter "qr_lookahed_k"; did you mean "qr_lookahead_k"?`},
		{"qr_alpha ", 0.3, `unknown parameter "qr_alpha "; did you mean "qr_alpha"?`},
		{"zebra", 0.3, `unknown parameter "zebra"`},
		{strings.Repeat("q", 5000), 0, `unknown parameter "` + strings.Repeat("q", 61) + `..."`},
		{"", 0, `unknown parameter ""`},
	} {
		p := sampler.Defaults()
		before := p
		err := p.Set(c.key, c.value)
		if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s = %v: error %v, want %q", c.key, c.value, err, c.err)
		}
		var pe *sampler.ParamError
		if err != nil && (!errors.As(err, &pe) || !cmp.Equal(p, before)) {
			t.Errorf("%s = %v: error is no ParamError, or the value was taken", c.key, c.value)
		}
	}
}

func TestSetText(t *testing.T) {
	p := sampler.Defaults()
	for key, text := range map[string]string{
		"qr_alpha": " 0.3 ", "qr_seed": "-5", "qr_think_ban": "true", "qr_lookahead_k": "8", "qr_lookahead": "bounded", "qr_temperature": "0",
	} {
		if err := p.SetText(key, text); err != nil {
			t.Error(err)
		}
	}
	want := sampler.Defaults()
	alpha, seed, ban := 0.3, int64(-5), true
	want.Alpha, want.Seed, want.ThinkBan, want.LookaheadK, want.Lookahead, want.Temperature = &alpha, &seed, &ban, 8, "bounded", 0
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	for key, text := range map[string]string{
		"qr_alpha": "a lot", "qr_temperature": "", "qr_lookahead_k": "2.5", "qr_think_ban": "maybe", "qr_nope": "1", "qr_top_p": "NaN", "qr_min_p": "Inf",
		"qr_top_k": "0x10",
	} {
		if err := p.SetText(key, text); err == nil {
			t.Errorf("%s = %q: no error", key, text)
		}
	}
	if err := p.SetText("qr_alpha", "null"); err != nil || p.Alpha != nil {
		t.Errorf("null: alpha %v, error %v", p.Alpha, err)
	}
}

func TestSetStandard(t *testing.T) {
	p := sampler.Defaults()
	for name, value := range map[string]any{"temperature": 0.5, "top_p": 0.0, "top_k": -1, "seed": json.Number("7"), "min_p": nil} {
		if err := p.SetStandard(name, value); err != nil {
			t.Error(err)
		}
	}
	if p.Temperature != 0.5 || p.TopP != 0 || p.TopK != 0 || *p.Seed != 7 || p.MinP != 0 {
		t.Errorf("got %+v", p)
	}
	err := p.SetStandard("temperature", 9.0)
	if err == nil || err.Error() != "temperature is 9; it takes a number from 0 to 5" {
		t.Errorf("error %v", err)
	}
	if err := p.SetStandard("", 1.0); err == nil {
		t.Error("empty name: no error")
	}
}

func TestParamsRoundTrip(t *testing.T) {
	p := sampler.Defaults()
	alpha, seed, ban := 0.1+0.2, int64(math.MinInt64), false
	p.Alpha, p.Seed, p.ThinkBan, p.Curve = &alpha, &seed, &ban, sampler.CurveSeed
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sampler.ParseParams(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseParamsRefuses(t *testing.T) {
	for _, text := range []string{
		"", "[]", `{"qr_alhpa":1}`, `{"qr_alpha":2}`, `{"qr_lookahead_k":0}`, `{} {}`, `{"qr_curve":"x"}`, `{"qr_top_k":1.5}`,
		`{"qr_decoder":"lookahead","qr_sample_count":5}`, `{"qr_alpha":0.3,"qr_amplifier":"server"}`, `{"qr_edt_min_temp":3}`,
		`{"qr_amplifier":"ecdf","qr_sample_count":50000}`, `{"qr_zscore_calibration_samples":10000}`, `{"qr_alpha":"0.3"}`, `{"qr_top_k":true}`,
		`{"qr_fixed_temperature":1}`, `{"qr_min_p":null}`, `{"qr_logit_bias":{"x":1}}`, `{"qr_temperature_strategy":"magic"}`,
	} {
		if p, err := sampler.ParseParams([]byte(text)); err == nil {
			t.Errorf("%s: got %+v, want an error", text, p)
		}
	}
}

func FuzzParseParams(f *testing.F) {
	f.Add([]byte(`{"qr_alpha":0.3,"qr_seed":5}`))
	f.Add([]byte(`{"qr_wave_period":16,"qr_think_ban":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := sampler.ParseParams(data)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("parsed, yet invalid: %v", err)
		}
		if a := p.AlphaAt(3); !(a >= -1 && a <= 1) {
			t.Fatalf("alpha is %v", a)
		}
	})
}

func TestUsesLookahead(t *testing.T) {
	alpha := 0.0
	for _, c := range []struct {
		decoder string
		alpha   *float64
		period  float64
		want    bool
	}{
		{"auto", nil, 0, false},
		{"auto", &alpha, 0, true},
		{"auto", nil, 16, true},
		{"plain", &alpha, 16, false},
		{"lookahead", nil, 0, true},
	} {
		p := sampler.Defaults()
		p.Decoder, p.Alpha, p.WavePeriod = c.decoder, c.alpha, c.period
		if got := p.UsesLookahead(); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestAlphaAt(t *testing.T) {
	p, alpha := sampler.Defaults(), 0.5
	if got := p.AlphaAt(4); got != 0 {
		t.Errorf("nothing set: %v", got)
	}
	p.Alpha = &alpha
	if got := p.AlphaAt(4); got != 0.5 {
		t.Errorf("fixed: %v", got)
	}
	p.WavePeriod, p.WaveAmplitude, p.WaveOffset = 16, 0.6, -0.2
	for at, want := range map[int]float64{0: -0.2, 4: 0.4, 12: -0.8, 20: 0.4} {
		if got := p.AlphaAt(at); math.Abs(got-want) > 1e-12 {
			t.Errorf("wave at %d: %v, want %v", at, got, want)
		}
	}
	p.WaveAmplitude = 2
	if p.AlphaAt(4) != 1 || p.AlphaAt(12) != -1 {
		t.Errorf("not clamped: %v, %v", p.AlphaAt(4), p.AlphaAt(12))
	}
}

// TestAlphaDecidesTheDecoder holds that alpha is not lost on a layer below that says plain, and that the layer's own word wins.
func TestAlphaDecidesTheDecoder(t *testing.T) {
	for name, c := range map[string]struct {
		layer map[string]any
		want  string
	}{
		"alpha":            {map[string]any{"qr_alpha": 0.3}, sampler.DecoderAuto},
		"wave":             {map[string]any{"qr_wave_period": 16}, sampler.DecoderAuto},
		"no alpha":         {map[string]any{"qr_alpha": nil}, sampler.DecoderPlain},
		"no wave":          {map[string]any{"qr_wave_period": 0}, sampler.DecoderPlain},
		"something else":   {map[string]any{"qr_top_k": 5}, sampler.DecoderPlain},
		"its own decoder":  {map[string]any{"qr_alpha": 0.3, "qr_decoder": "plain"}, sampler.DecoderPlain},
		"its other choice": {map[string]any{"qr_decoder": "lookahead"}, sampler.DecoderLookahead},
	} {
		p := sampler.Defaults()
		p.Decoder = sampler.DecoderPlain
		if errs := p.Lay(c.layer); len(errs) > 0 || p.Decoder != c.want {
			t.Errorf("%s: the decoder is %s, errors %v; want %s", name, p.Decoder, errs, c.want)
		}
	}
}
