package admin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func lighthouse() map[string]any {
	return map[string]any{
		"description": "Words.", "capabilities": map[string]any{"usage": true, "vision": false}, "tags": []any{map[string]any{"name": "qr-gateway"}},
		"suggestion_prompts": []any{map[string]any{"title": []string{"Begin", "a story"}, "content": "Begin a story."}},
		"profile_image_url":  "not ours to set",
	}
}

func TestCardSaysWhatTheGatewaySays(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{"ready": true}, lighthouse())
	said(t, install(t, c, Installation{Models: true})[1:], "model m: card created")
	m := w.models["m"]
	if m.Name != "A m" || len(m.Grants) != 0 || len(m.Params) != 0 {
		t.Errorf("card: name %q, grants %v, params %v", m.Name, m.Grants, m.Params)
	}
	for path, want := range map[string]string{
		"meta.description": `"Words."`, "meta.capabilities.usage": "true", "meta.capabilities.vision": "false", "meta.tags": `[{"name":"qr-gateway"}]`,
		"meta.suggestion_prompts": `[{"content":"Begin a story.","title":["Begin","a story"]}]`,
	} {
		if !same(m.at(path), json.RawMessage(want)) {
			t.Errorf("%s is %s, want %s", path, m.at(path), want)
		}
	}
	if m.at("meta.profile_image_url") != nil {
		t.Error("the picture was set")
	}
}

func TestCardKeepsWhatWasWrittenByHand(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{}, lighthouse())
	install(t, c, Installation{Models: true})
	m := w.models["m"]
	m.put("meta.description", json.RawMessage(`"Mine."`))
	m.put("meta.capabilities.vision", json.RawMessage("true"))
	m.put("meta.tags", nil) // taken away is by hand too
	m.Params["temperature"] = json.RawMessage("0.5")
	before := m.clone()
	said(t, install(t, c, Installation{Models: true})[1:], "model m:  kept capability vision, description, tags")
	if d := cmp.Diff(before, m.clone()); d != "" {
		t.Errorf("the card changed (-before +after):\n%s", d)
	}

	upstream := w.upstream[0]["openai"].(map[string]any)
	upstream["name"] = "Another"
	delete(upstream["info"].(map[string]any)["meta"].(map[string]any), "suggestion_prompts")
	said(t, install(t, c, Installation{Models: true})[1:], "model m: card updated (name, suggestion prompts) kept capability vision, description, tags")
	if m.Name != "Another" || m.at("meta.suggestion_prompts") != nil || string(m.at("params.temperature")) != "0.5" {
		t.Errorf("after an update: %q %s %s", m.Name, m.Meta, m.Params)
	}

	said(t, install(t, c, Installation{Models: true, Cards: Cards{Force: true}})[1:], "model m: card updated (capabilities, description, tags)")
	if string(m.at("meta.description")) != `"Words."` || string(m.at("params.temperature")) != "0.5" {
		t.Errorf("after force: %s %s", m.Meta, m.Params)
	}
}

func TestCardThatWasThereBefore(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{}, lighthouse())
	group := grant{Type: "group", ID: "staff", Permission: "read"}
	w.models["m"] = &model{ID: "m", Name: "m", Active: true, Meta: object(json.RawMessage(`{"description":"Mine.","toolIds":["x"]}`)), Grants: []grant{group}}
	said(t, install(t, c, Installation{Models: true, Cards: Cards{Public: true}})[1:],
		"model m: card updated (capabilities, suggestion prompts, tags, name), opened to all users kept description")
	if d := cmp.Diff([]grant{group, everyone()}, w.models["m"].Grants); d != "" {
		t.Errorf("grants differ (-want +got):\n%s", d)
	}
	report, err := c.Uninstall(t.Context(), "qr_gateway_filter", false)
	if err != nil {
		t.Fatal(err)
	}
	said(t, lines(report)[1:], "model m: our part of the card removed, closed to all users")
	want := model{ID: "m", Name: "m", Active: true, Meta: object(json.RawMessage(`{"description":"Mine.","toolIds":["x"]}`)), Params: map[string]json.RawMessage{}, Grants: []grant{group}}
	if d := cmp.Diff(want, *w.models["m"]); d != "" {
		t.Errorf("the card differs from what it was (-want +got):\n%s", d)
	}
}

func TestSlider(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{}, nil)
	in := Installation{Models: true, Cards: Cards{Controls: true}}
	said(t, install(t, c, in)[1:], "model m: card created")
	raw := string(w.models["m"].at(controlPath))
	last := -1
	for _, stop := range lookaheadChoices() {
		at := strings.Index(raw, `"`+stop.key+`"`)
		if at <= last {
			t.Errorf("%s stands at %d, after %d: the stops are out of order in %s", stop.key, at, last, raw)
		}
		last = at
		if _, err := ParseValves([]string{"qr_decoder=" + stop.params["qr_decoder"].(string)}); err != nil {
			t.Error(err)
		}
	}
	said(t, install(t, c, Installation{Models: true})[1:], "model m: ") // it stays without the flag
	if w.models["m"].at(controlPath) == nil {
		t.Error("the slider went without being asked to")
	}

	w.controls = false
	w.models = map[string]*model{}
	said(t, install(t, c, in)[1:], "slider: not in this version of Open WebUI", "model m: card created")
	if len(w.models["m"].Params) > 0 {
		t.Errorf("a version without sliders was given one, which it would send along: %s", w.models["m"].Params)
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true},
		{"0.10", "0.1", true},
		{"9007199254740993", "9007199254740992", false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{"[1,2]", "[2,1]", false},
		{"1", `"1"`, false},
		{"1e999999999", "1e999999999", true},
		{`["number","1"]`, "1", false},
		{"", "", false},
		{"{", "{", false},
	} {
		if got := same(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.want {
			t.Errorf("same(%s, %s) = %v", c.a, c.b, got)
		}
	}
}
