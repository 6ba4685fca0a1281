package sampler_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"qr-gateway/sampler"
)

// recorded decides tokens over a small row and returns the record of the last.
func recorded(t *testing.T, p *sampler.Params, src sampler.ByteSource, tokens int) sampler.Record {
	t.Helper()
	row := []float32{2, 1, 0, -1, -2}
	n, err := sampler.NewNoise(p, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := begin(t, len(row), p)
	s.Observe(true)
	var r sampler.Record
	for range tokens {
		if _, err := s.Next(context.Background(), row, nil, n); err != nil {
			t.Fatal(err)
		}
		r = s.Record()
	}
	return r
}

// sameNumber takes one NaN for another.
func sameNumber() cmp.Option {
	return cmp.Comparer(func(a, b sampler.Maybe) bool { return a == b || math.IsNaN(float64(a)) && math.IsNaN(float64(b)) })
}

// names are the keys of a record's JSON.
func names(t *testing.T, r *sampler.Record) map[string]any {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "NaN") {
		t.Errorf("NaN in %s", data)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestRecordOfBytes is a token by bytes that were asked for ahead.
func TestRecordOfBytes(t *testing.T) {
	p := params(func(p *sampler.Params) {
		p.EntropyPrefetch, p.Strategy, p.Preset, p.TopK = true, "hvh_drift", "mine", 4
	})
	r := recorded(t, p, &rig{value: 100}, 3)
	got := names(t, &r)
	bytes := sha256.Sum256([]byte(strings.Repeat("\x64", 1000)))
	for key, want := range map[string]any{
		"step": 2.0, "token_id": 0.0, "previous_token_id": 0.0, "token_rank": 0.0, "preset_active": "mine", "temperature_strategy": "hvh_drift",
		"entropy_source_used": "first", "entropy_is_fallback": false, "entropy_device": "dice", "entropy_class": "jit", "entropy_fetch_ms": 0.25,
		"entropy_bytes": 1000.0, "entropy_sha256": hex.EncodeToString(bytes[:]), "amplifier": "zscore_mean", "sample_mean": 100.0,
		"entropy_pipelined": true, "entropy_prefetch_hit": true, "entropy_echo_verified": true, "num_candidates": 4.0,
		"total_sampling_ms": nil, "draw_z": nil, "gate_boost": nil,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if h, _ := got["shannon_entropy"].(float64); math.Abs(h-0.999972828275399) > 1e-9 {
		t.Errorf("shannon_entropy is %v", h)
	}
	if got["h_ema"] == nil || got["strategy_diagnostics"].(map[string]any)["d_h"] == nil {
		t.Errorf("diagnostics are missing: %v", got)
	}
	for _, key := range []string{"draw_source_id", "purity_label", "gate_open", "lookahead", "entropy_server_timestamp_ns", "ecdf_rank"} {
		if _, ok := got[key]; ok {
			t.Errorf("%s is there: %v", key, got[key])
		}
	}
	if err := sampler.VerifyNonce(&r); err != nil {
		t.Error(err)
	}
}

// TestRecordNamesCalibration: what the bytes were taken to be can be looked up.
func TestRecordNamesCalibration(t *testing.T) {
	cal := around(t, 127)
	row := []float32{1, 0}
	p := params(func(p *sampler.Params) { p.Amplifier = "ecdf" })
	s := begin(t, len(row), p)
	if _, err := s.Next(context.Background(), row, nil, noise(t, p, &rig{value: 127}, cal)); err != nil {
		t.Fatal(err)
	}
	if r := s.Record(); r.Calibration != cal.Hash() || r.EcdfSize != 4 || r.EcdfRank != 2 || r.Amplifier != "ecdf" {
		t.Errorf("got %+v, want calibration %s", r, cal.Hash())
	}
}

// TestRecordHasReferenceNames: every field of qr-sampler's record is there by its name, where it has a value.
func TestRecordHasReferenceNames(t *testing.T) {
	src := &rig{number: sampler.Number{
		Block: sampler.Block{Source: "first", Class: "jit"}, U: 0.25, Z: 1, SourceID: "id", Bytes: 10, Integrator: "bit_z", Purity: "label", CoherenceZ: 4, CoherenceR: 0.8, Coherent: true,
	}}
	gate := recorded(t, params(func(p *sampler.Params) { p.Amplifier, p.Strategy = "server", "coherence_gate" }), src, 2)
	drift := recorded(t, params(func(p *sampler.Params) { p.EntropyPrefetch, p.Strategy = true, "hvh_drift" }), &rig{value: 127}, 2)
	drift.ServerNS = 5
	a, b := names(t, &gate), names(t, &drift)
	for _, key := range []string{
		"timestamp_ns", "entropy_fetch_ms", "total_sampling_ms", "entropy_source_used", "entropy_is_fallback", "sample_mean", "z_score", "u_value",
		"temperature_strategy", "shannon_entropy", "temperature_used", "token_id", "token_rank", "token_prob", "num_candidates", "config_hash",
		"varentropy", "min_p_used", "preset_active", "h_ema", "vh_ema", "entropy_prefetch_hit", "entropy_nonce", "entropy_echo_verified",
		"entropy_server_timestamp_ns", "draw_z", "draw_coherence_z", "draw_coherence_valid", "draw_coherence_r", "purity_label", "integrated_bytes",
		"integrator", "draw_source_id", "gate_open", "gate_boost",
	} {
		_, inA := a[key]
		if _, inB := b[key]; !inA && !inB {
			t.Errorf("%s is missing", key)
		}
	}
	if a["gate_open"] != true || a["temperature_used"] != 1.12 || a["u_value"] != 0.25 || a["sample_mean"] != nil || a["amplifier"] != "server" {
		t.Errorf("record of a server's number: %v", a)
	}
}

// TestRecordOutlivesItsToken: later draws don't change a record.
func TestRecordOutlivesItsToken(t *testing.T) {
	row := []float32{2, 1, 0}
	src := &rig{value: 127}
	p := params(func(p *sampler.Params) { p.Strategy = "hvh_drift" })
	n := noise(t, p, src, nil)
	s := begin(t, len(row), p)
	if _, err := s.Next(context.Background(), row, nil, n); err != nil {
		t.Fatal(err)
	}
	r := s.Record()
	before := names(t, &r)
	src.value, src.fallback = 3, true
	if _, err := s.Next(context.Background(), []float32{0, 0, 0}, nil, n); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, names(t, &r)); diff != "" {
		t.Error(diff)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	r := recorded(t, params(func(p *sampler.Params) { p.EntropyPrefetch, p.Strategy = true, "coherence_gate" }), &rig{value: 127}, 2)
	r.Lookahead = &sampler.Lookahead{Alpha: 0.3, Score: sampler.Maybe(math.NaN()), H: 0.5, Peeks: 3}
	r.Flags = []string{"too_fast"}
	data, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	var back sampler.Record
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back, sameNumber(), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestRecordPage: docs/records.md has a line for every name of a record, and no other.
func TestRecordPage(t *testing.T) {
	page, err := os.ReadFile("../docs/records.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)`").FindAllSubmatch(page, -1) {
		told[string(m[1])] = true
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[sampler.Record](), reflect.TypeFor[sampler.Lookahead]()} {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !told[name] {
				t.Errorf("%s of %s is not on the page", name, typ)
			}
			delete(told, name)
		}
	}
	for name := range told {
		t.Errorf("%s is on the page and in no record", name)
	}
}

func TestConfigHash(t *testing.T) {
	a, b := sampler.Defaults(), sampler.Defaults()
	if x, y := sampler.ConfigHash(&a), sampler.ConfigHash(&b); x != y || len(x) != 16 || strings.Trim(x, "0123456789abcdef") != "" {
		t.Errorf("hashes %q and %q of the same parameters", x, y)
	}
	b.TopK = 7
	if sampler.ConfigHash(&a) == sampler.ConfigHash(&b) {
		t.Error("other parameters have the same hash")
	}
}

func FuzzRecordNotes(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b":"x","c":null}`, `[]`, `{"a":`, `{"a":{}}`, `null`, `{"a":true}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n, back sampler.Notes
		if json.Unmarshal([]byte(text), &n) != nil {
			return
		}
		data, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(n, back, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
