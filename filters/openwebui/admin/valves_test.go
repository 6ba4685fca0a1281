package admin

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/sampler"
)

func TestParseValves(t *testing.T) {
	got := valves(t, "qr_alpha=0.4", "qr_decoder = lookahead", "qr_seed=9007199254740993", "qr_bypass=yes", `qr_logit_bias={"5": 2}`, "qr_top_k=",
		"qr_temperature=Server Default", "status=false", "priority=-1", "models=a*,b=c")
	want := map[string]string{
		"qr_alpha": "0.4", "qr_decoder": `"lookahead"`, "qr_seed": "9007199254740993", "qr_bypass": `"on"`, "qr_logit_bias": `"{\"5\": 2}"`, "qr_top_k": "null",
		"qr_temperature": "null", "status": "false", "priority": "-1", "models": `"a*,b=c"`,
	}
	// An alias is its key, so that one of the two temperatures is one too many.
	if _, err := ParseValves([]string{"qr_temperature=1", "qr_fixed_temperature="}); err == nil {
		t.Error("a key and its alias were both taken")
	}
	texts := map[string]string{}
	for k, v := range got {
		texts[k] = string(v)
	}
	if d := cmp.Diff(want, texts); d != "" {
		t.Errorf("valves differ (-want +got):\n%s", d)
	}
}

func TestParseValvesRefuses(t *testing.T) {
	for text, message := range map[string]string{
		"qr_alpha=7":          "qr_alpha is 7; it takes a number from -1 to 1",
		"qr_alpha=abc":        "qr_alpha",
		"qr_alfa=0.3":         `did you mean "qr_alpha"`,
		"qr_decoder=sideways": "qr_decoder",
		"qr_alpha":            "is not KEY=VALUE",
		"=1":                  "is not KEY=VALUE",
		"status=perhaps":      `status is "perhaps"; it takes true or false`,
		"priority=1.5":        "it takes a whole number",
		"qr_grpc_mode=unary":  "qr_grpc_mode",
		"qr_seed=nan":         "qr_seed",
	} {
		v, err := ParseValves([]string{text})
		if err == nil {
			t.Errorf("%s was taken: %s", text, v)
			continue
		}
		wantError(t, err, message, "qr-gateway params")
	}
	_, err := ParseValves([]string{"qr_alpha=0.3", "qr_wave_period=8", "qr_wave_amplitude=0.2"})
	wantError(t, err, "both given", "params")
	_, err = ParseValves([]string{"status=maybe", "qr_alpha=9"})
	wantError(t, err, "status is", "params")
	wantError(t, err, "qr_alpha is 9", "params")
}

// TestEveryParameterIsAValve holds that no row of the table is forgotten here.
func TestEveryParameterIsAValve(t *testing.T) {
	p := sampler.Defaults()
	for _, f := range sampler.Fields() {
		if !f.PerRequest {
			continue
		}
		v, ok := p.Value(f.Key)
		b, err := json.Marshal(v)
		if !ok || err != nil {
			t.Fatalf("%s has the default %v: %v", f.Key, v, err)
		}
		text := string(b)
		if s, isText := v.(string); isText {
			text = s
		}
		if text == "null" {
			continue
		}
		if _, err := ParseValves([]string{f.Key + "=" + text}); err != nil {
			t.Errorf("%s=%s: %v", f.Key, text, err)
		}
	}
}
