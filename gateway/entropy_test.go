package gateway_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends/fake"
	"qr-gateway/configs/presets"
	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/gateway"
)

// shelf is the sources of a test.
type shelf struct {
	states []gateway.SourceState
	names  []string

	refuses error
}

func (s *shelf) States() []gateway.SourceState { return s.states }
func (s *shelf) Names() []string               { return s.names }
func (s *shelf) Default() string               { return s.names[0] }
func (s *shelf) Numbers(name string) bool      { return name == "qrng" }
func (s *shelf) Refusal(string) error          { return s.refuses }

// sourced is a server with sources.
func sourced(t *testing.T, s gateway.Sources, now time.Time) *gateway.Server {
	t.Helper()
	library, err := presets.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig()
	r.model = fake.DefaultConfig()
	r.catalog(t)
	srv, err := gateway.New(r.cfg, gateway.Deps{
		Models: r.models, Dispatcher: r.direct, Sources: s, Presets: library, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

func ask(t *testing.T, srv *gateway.Server, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

// healthCase is a reply of qr-sampler to GET /health/entropy, and what it knew.
type healthCase struct {
	Name   string
	Now    float64
	Status json.RawMessage `json:"status_file"`
	Expect map[string]any
	Stale  bool `json:"summary_flags_stale"`
}

// otherHealth are the cases that we answer otherwise, and why.
var otherHealth = map[string]string{
	"with gate":               "the gate belongs to one answer, whose record has it; the server knows of none",
	"with perf":               "engines time their tokens in their own records; perf is always null",
	"only a gate was written": "as with gate",
}

func (c *healthCase) state() *gateway.SourceState {
	var s struct {
		Primary  string   `json:"primary_name"`
		Fallback string   `json:"fallback_name"`
		Last     string   `json:"last_source_used"`
		Count    uint64   `json:"fallback_count"`
		Degraded bool     `json:"currently_degraded"`
		Updated  *float64 `json:"updated_at"`
	}
	if json.Unmarshal(c.Status, &s) != nil || s.Primary == "" {
		return nil
	}
	out := &gateway.SourceState{Fallback: s.Fallback, Degraded: s.Degraded, LastUsed: s.Last}
	out.Source, out.Fallbacks = s.Primary, map[string]uint64{"timeout": s.Count}
	if s.Updated != nil {
		out.Changed = seconds(*s.Updated)
	}
	return out
}

func seconds(s float64) time.Time { return time.UnixMilli(int64(1000 * s)) }

func TestHealthOfEntropyAsPublished(t *testing.T) {
	data, err := os.ReadFile("testdata/health.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []healthCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if otherHealth[c.Name] != "" {
			continue
		}
		s := &shelf{names: []string{"other"}}
		if state := c.state(); state != nil {
			s = &shelf{names: []string{state.Source}, states: []gateway.SourceState{*state}}
		}
		w := ask(t, sourced(t, s, seconds(c.Now)), "GET", "/health/entropy", "")
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: status %d, %v", c.Name, w.Code, err)
		}
		if stale := strings.Contains(got["summary"].(string), "stale"); stale != c.Stale {
			t.Errorf("%s: summary is %q, want it to call that stale: %v", c.Name, got["summary"], c.Stale)
		}
		got["summary"] = "(text)"
		if diff := cmp.Diff(c.Expect, got); diff != "" {
			t.Errorf("%s: (-published +ours)\n%s", c.Name, diff)
		}
	}
	if w := ask(t, sourced(t, &shelf{names: []string{"x"}}, time.Now()), "HEAD", "/health/entropy", ""); w.Code != 200 {
		t.Errorf("HEAD: status %d", w.Code)
	}
}

func TestEntropySources(t *testing.T) {
	sums := make([]uint64, 16)
	for i := range sums {
		sums[i] = uint64(1000 + i)
	}
	base, err := guard.NewCalibration("qrng", "dev", time.Unix(5, 0), 8, sums)
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{names: []string{"qrng", "system"}, states: []gateway.SourceState{
		{Type: "grpc", Fallback: "system", Degraded: true, LastUsed: "system", Breaker: "open", Baseline: base, State: guard.State{
			Source: "qrng", Policy: guard.Fallback, Mode: guard.ModeAlarmed, Class: entropy.ClassJIT, Draws: 7, LastError: "timeout",
			Fallbacks: map[string]uint64{"timeout": 3}, Calibration: base.Hash,
		}},
		{Type: "system", State: guard.State{Source: "system", Policy: guard.Strict, Mode: guard.ModeOK}},
	}}
	w := ask(t, sourced(t, s, time.Now()), "GET", "/v1/qr/entropy", "")
	var got struct {
		Data []map[string]any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Data) != 2 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	first := got.Data[0]
	for key, want := range map[string]any{
		"name": "qrng", "type": "grpc", "default": true, "policy": "fallback", "fallback": "system", "mode": "alarmed", "class": "jit",
		"draws": 7.0, "last_error": "timeout", "degraded": true, "last_used": "system", "breaker": "open",
		"fallbacks": map[string]any{"timeout": 3.0},
	} {
		if diff := cmp.Diff(want, first[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	if c, ok := first["calibration"].(map[string]any); !ok || c["hash"] != base.Hash || c["blocks"] != 16.0 || c["mean"] != base.Mean {
		t.Errorf("calibration: %v", first["calibration"])
	}
	if got.Data[1]["default"] != false || got.Data[1]["calibration"] != nil {
		t.Errorf("system: %v", got.Data[1])
	}
}

func TestNamesOfSources(t *testing.T) {
	srv := sourced(t, &shelf{names: []string{"qrng", "system"}}, time.Now())
	for name, status := range map[string]int{`"qrng"`: 200, `"system"`: 200, `""`: 200, `"mock"`: 400, `7`: 400} {
		w := ask(t, srv, "POST", "/v1/chat/completions", `{"model":"fake","messages":[{"role":"user","content":"hi"}],"qr_entropy_source":`+name+`}`)
		if w.Code != status {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
		if status == 400 && !strings.Contains(w.Body.String(), "qr_entropy_source") {
			t.Errorf("%s: %s does not name the parameter", name, w.Body)
		}
		if name == `"mock"` && !strings.Contains(w.Body.String(), "qrng, system") {
			t.Errorf("%s does not say what there is", w.Body)
		}
	}
	plain := newRig().build(t)
	if w := plain.ask("/v1/chat/completions", hello[:len(hello)-1]+`,"qr_entropy_source":"qrng"}`); w.Code != 400 {
		t.Errorf("a server without sources: status %d", w.Code)
	}
}

func TestSourcesThatCantServe(t *testing.T) {
	s := &shelf{names: []string{"qrng", "system"}}
	srv := sourced(t, s, time.Now())
	post := func(more string) *httptest.ResponseRecorder {
		return ask(t, srv, "POST", "/v1/chat/completions", `{"model":"fake","messages":[{"role":"user","content":"hi"}],"stream":true`+more+`}`)
	}
	for more, status := range map[string]int{
		`,"qr_amplifier":"server"`: 200, `,"qr_amplifier":"server","qr_entropy_source":"system"`: 400,
		`,"qr_amplifier":"server","qr_entropy_source":"system","seed":1`: 200,
	} {
		if w := post(more); w.Code != status || status == 400 && !strings.Contains(w.Body.String(), "qr_amplifier") {
			t.Errorf("%s: status %d: %s", more, w.Code, w.Body)
		}
	}
	s.refuses = &entropy.Error{Kind: entropy.KindHealth, Source: "qrng", Message: "kept out since an alarm", Hint: "wait for the test"}
	for more, status := range map[string]int{"": 503, `,"seed":1`: 200, `,"qr_bypass":true`: 200} {
		w := post(more)
		if w.Code != status {
			t.Errorf("%s: status %d: %s", more, w.Code, w.Body)
		}
		if body := w.Body.String(); status == 503 && !(strings.Contains(body, "entropy_unavailable") && strings.Contains(body, "kept out") && strings.Contains(body, "wait for the test")) {
			t.Errorf("%s: %s", more, body)
		}
	}
}

func TestPresets(t *testing.T) {
	srv := sourced(t, &shelf{names: []string{"system"}}, time.Now())
	w := ask(t, srv, "GET", "/v1/qr/presets", "")
	if !strings.Contains(w.Body.String(), `"name":"chat_light"`) || w.Code != 200 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	for name, status := range map[string]int{"future_focus": 200, "chat_light": 400, "none_such": 400} {
		w := ask(t, srv, "POST", "/v1/chat/completions", `{"model":"fake","messages":[{"role":"user","content":"hi"}],"qr_preset":"`+name+`"}`)
		if w.Code != status {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
		if name == "chat_light" && !strings.Contains(w.Body.String(), "preset is chat_light") { // it wants a source that is not there
			t.Errorf("%s: %s", name, w.Body)
		}
	}
	if w := newRig().build(t).get("/v1/qr/presets"); !strings.Contains(w.Body.String(), `"data":[]`) {
		t.Errorf("a server without presets: %s", w.Body)
	}
}
