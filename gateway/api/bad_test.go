package api_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

// badJSON are values that no field of this kind takes, as JSON.
func badJSON(f sampler.Field) []string {
	out := []string{"[1]", `[[]]`, `{"a":1}`, `"` + strings.Repeat("x", 20000) + `"`}
	switch f.Type {
	case sampler.TypeNumber:
		out = append(out, badNumbers(f)...)
	case sampler.TypeInteger:
		out = append(append(out, badNumbers(f)...), "1.5", `"1e3"`, `"7.5"`)
	case sampler.TypeBool:
		out = append(out, "2", "0.5", `"maybe"`, `" true "`, `""`)
	case sampler.TypeString:
		out = append(out, "5", "true", "1e400")
		if len(f.Enum) > 0 {
			out = append(out, `""`, `"zzz"`, `"`+strings.ToUpper(f.Enum[0])+`"`)
		} else {
			out = append(out, `"`+strings.Repeat("x", f.MaxLen+1)+`"`, `"a\u0000b"`, `"a\nb"`)
		}
	case sampler.TypeObject:
		out = append(out, "5", "true", `{"-1":0}`, `{"2147483648":0}`, `{"7":100.5}`, `{"7":-101}`, `{"7":1e400}`, `{"7":null}`, `{"7":1,"07":1}`, tooMany(f.MaxLen+1))
	}
	return out
}

func badNumbers(f sampler.Field) []string {
	out := []string{`"abc"`, `""`, `"NaN"`, `"nan"`, `"Infinity"`, `"-inf"`, `"0x10"`, "1e999", "-1e999", `"1e999"`, `"1__0"`, `"_1"`}
	if f.Key == "qr_seed" {
		return append(out, "9223372036854775808", "-9223372036854775809")
	}
	above, below := f.Max+1, f.Min-1
	if f.Type == sampler.TypeNumber {
		above, below = math.Nextafter(f.Max, math.Inf(1)), math.Nextafter(f.Min, math.Inf(-1))
	}
	if f.MinOpen && !f.OrZero {
		below = f.Min
	}
	if f.OrZero && below == 0 {
		below = -1
	}
	for _, x := range []float64{above, below, 1e300, -1e300} {
		out = append(out, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return out
}

func tooMany(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// TestEveryParameterRefuses sends every kind of bad value under every name of every parameter.
func TestEveryParameterRefuses(t *testing.T) {
	for _, f := range sampler.Fields() {
		if !f.PerRequest {
			continue
		}
		for _, name := range append([]string{f.Key}, f.Aliases...) {
			for _, value := range badJSON(f) {
				refusesValue(t, f, name, value)
			}
		}
		if f.Standard == "" {
			continue
		}
		for _, value := range append(badJSON(f), `"7"`, "true", `{"7":"1"}`) {
			refusesValue(t, f, f.Standard, value)
		}
	}
}

func refusesValue(t *testing.T, f sampler.Field, name, value string) {
	t.Helper()
	for _, body := range []string{
		`{` + hello + `,"` + name + `":` + value + `}`,
		`{` + hello + `,"vllm_xargs":{"` + name + `":` + value + `}}`,
	} {
		if name == f.Standard && strings.Contains(body, "vllm_xargs") {
			continue
		}
		_, err := chat(t, body)
		if err == nil {
			t.Errorf("%s: %.60s was taken", name, value)
			return
		}
		e := api.FromError(err, "")
		shown := strings.Trim(value, `"`)
		shown = shown[:min(len(shown), 5)]
		if shown == "1e999" || strings.Contains(value, `\`) || strings.HasPrefix(value, "{") || strings.Contains(shown, "e+") {
			shown = "" // written in another way
		}
		allowed := f.Allowed()
		if f.Key == "qr_preset" {
			allowed = "it takes"
		}
		if e.Status != 400 || e.Param != name || e.Code != "invalid_value" ||
			!strings.HasPrefix(e.Message, name+" is ") || !strings.Contains(e.Message, allowed) || !strings.Contains(e.Message, shown) {
			t.Errorf("%s: %.60s: %d, param %q, %s", name, value, e.Status, e.Param, e.Message)
		}
		if len(e.Message) > 600 {
			t.Errorf("%s: the message has %d bytes", name, len(e.Message))
		}
	}
}

// TestProcessFieldsRefuse holds that a request sets nothing of the process.
func TestProcessFieldsRefuse(t *testing.T) {
	fields := sampler.ProcessFields()
	if one, ok := sampler.FieldByName("qr_ecdf_calibration_samples"); !ok || one.PerRequest {
		t.Error("the calibration of ecdf is not the process's")
	} else {
		fields = append(fields, one)
	}
	for _, f := range fields {
		value, err := json.Marshal(f.Default)
		if err != nil {
			t.Fatal(err)
		}
		_, err = chat(t, `{`+hello+`,"`+f.Key+`":`+string(value)+`}`)
		if err == nil {
			t.Errorf("%s was taken", f.Key)
			continue
		}
		e := api.FromError(err, "")
		if e.Status != 400 || e.Param != f.Key || !strings.Contains(e.Message, "belongs to the process") || !strings.Contains(e.Message, f.Env) {
			t.Errorf("%s: %d, param %q, %s", f.Key, e.Status, e.Param, e.Message)
		}
	}
}

// TestLooseValues holds how numbers and flags may be written under our keys, and only there.
func TestLooseValues(t *testing.T) {
	for value, want := range map[string]int{`7`: 7, `7.0`: 7, `"7"`: 7, `" 8 "`: 8, `"+5"`: 5, `"7.0"`: 7, `"1_000"`: 1000, `true`: 1, `false`: 0, `-1`: 0} {
		if got := mustChat(t, `{`+hello+`,"qr_top_k":`+value+`}`).Request.Params.TopK; got != want {
			t.Errorf("%s is read as %d, want %d", value, got, want)
		}
	}
	for value, want := range map[string]bool{
		`true`: true, `1`: true, `1.0`: true, `"1"`: true, `"TRUE"`: true, `"t"`: true, `"Yes"`: true, `"y"`: true, `"on"`: true,
		`false`: false, `0`: false, `"0"`: false, `"f"`: false, `"no"`: false, `"N"`: false, `"OFF"`: false,
	} {
		if got := mustChat(t, `{`+hello+`,"qr_truncate_first":`+value+`}`).Request.Params.TruncateFirst; got != want {
			t.Errorf("%s is read as %t, want %t", value, got, want)
		}
	}
}

func TestBypass(t *testing.T) {
	body := `{` + hello + `,"temperature":0.5,"top_k":7,"presence_penalty":1,"logit_bias":{"5":-100},
		"qr_bypass":"yes","qr_temperature":3,"qr_alpha":0.9,"qr_entropy_source":"x","qr_amplifier":"zscore_thought","qr_temperature_strategy":"edt"}`
	want := sampler.Defaults()
	want.Bypass, want.Decoder = true, "plain"
	want.Temperature, want.TopK, want.PresencePenalty = 0.5, 7, 1
	want.LogitBias = []sampler.TokenBias{{Token: 5, Bias: -100}}
	got := mustChat(t, body).Request.Params
	if !got.Equal(want) || got.UsesLookahead() {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := chat(t, `{`+hello+`,"qr_bypass":true,"qr_alpha":7}`); err == nil {
		t.Error("a bad value beside qr_bypass was taken")
	}
	defaults := sampler.Defaults()
	defaults.Bypass = true
	b, err := api.Parse([]byte(`{` + hello + `,"qr_bypass":false,"qr_top_k":3}`))
	if err != nil {
		t.Fatal(err)
	}
	call, err := b.Chat(defaults)
	if err != nil || call.Request.Params.Bypass || call.Request.Params.TopK != 3 {
		t.Errorf("a request that opts back in: %v, %v", call, err)
	}
}

// shelf is a small set of presets.
type shelf map[string]map[string]any

func (s shelf) Values(name string) (map[string]any, error) {
	if v, ok := s[name]; ok {
		return v, nil
	}
	names := []string{}
	for n := range s {
		names = append(names, n)
	}
	slices.Sort(names)
	return nil, sampler.UnknownPreset(name, names)
}

func TestPresets(t *testing.T) {
	shelf := shelf{"calm": {"qr_temperature": 0.4, "qr_top_k": 9}, "wild": {"qr_fixed_temperature": "2"}}
	for fields, want := range map[string]string{
		`"qr_preset":"calm"`:                                    "calm 0.4 9",
		`"qr_preset":"wild"`:                                    "wild 2 4",
		`"qr_preset":"calm","temperature":1.5`:                  "calm 1.5 9",
		`"qr_preset":"calm","qr_fixed_temperature":3,"top_k":1`: "calm 3 1",
		`"qr_preset":null`:                                      " 1 4",
		`"qr_preset":""`:                                        `qr_preset is ""; it takes one of calm, wild`,
		`"qr_preset":"Calm"`:                                    `qr_preset is "Calm"; it takes one of calm, wild`,
		`"qr_preset":["calm"]`:                                  `qr_preset is ["calm"]; it takes the name of a preset`,
		`"qr_preset":"calm","qr_foo":1`:                         `unknown parameter "qr_foo"`,
	} {
		defaults := sampler.Defaults()
		defaults.TopK = 4
		b, err := api.Parse([]byte(`{` + hello + `,` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		call, err := b.WithPresets(shelf).Chat(defaults)
		got := fmt.Sprint(err)
		if err == nil {
			p := call.Request.Params
			got = fmt.Sprint(p.Preset, " ", p.Temperature, " ", p.TopK)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
}

func BenchmarkThreeParameters(b *testing.B) {
	raw := []byte(`{` + hello + `,"qr_top_k":50,"qr_fixed_temperature":"0.7","qr_edt_base_temp":0.9}`)
	defaults := sampler.Defaults()
	b.ReportAllocs()
	for b.Loop() {
		body, err := api.Parse(raw)
		must(b, err)
		_, err = body.Chat(defaults)
		must(b, err)
	}
}
