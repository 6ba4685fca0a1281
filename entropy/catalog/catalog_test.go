package catalog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/device"
	"qr-gateway/entropy/entropytest"
	"qr-gateway/entropy/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opts = map[string]any

func openSet(t *testing.T, specs ...Spec) *Set {
	t.Helper()
	s, err := Open(t.Context(), specs, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, s *Set, name string) entropy.Source {
	t.Helper()
	src, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func fill(t *testing.T, s entropy.Source, n int) entropy.Block {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConformance runs the suite over what others get: the guarded source.
func TestConformance(t *testing.T) {
	for _, spec := range []Spec{
		{Name: "system", Type: "system"},
		{Name: "seeded", Type: "mock_uniform", Policy: "fallback", Fallback: "system", Options: opts{"seed": 3}},
		{Name: "watched", Type: "mock_biased", Policy: "observe", Options: opts{"shift": "0.5"}},
	} {
		t.Run(spec.Name, func(t *testing.T) {
			entropytest.Run(t, func(t *testing.T) entropy.Source { return get(t, openSet(t, spec), spec.Name) })
		})
	}
}

func TestSystemIsAlwaysThere(t *testing.T) {
	s := openSet(t)
	if !slices.Equal(s.Names(), []string{"system"}) {
		t.Errorf("names are %v", s.Names())
	}
	if b := fill(t, get(t, s, "system"), 64); b.Source != "system" || b.Class != entropy.ClassPool {
		t.Errorf("%+v", b)
	}
	spec, ok := s.Spec("system")
	if !ok || spec.Type != "system" {
		t.Errorf("spec %+v", spec)
	}
}

func TestGetNamesTheNearest(t *testing.T) {
	s := openSet(t, Spec{Name: "lab-device", Type: "mock"})
	_, err := s.Get("lab-devise")
	if !errors.Is(err, ErrUnknownSource) || !strings.Contains(err.Error(), "did you mean lab-device?") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Guard("zzz"); !errors.Is(err, ErrUnknownSource) || !strings.Contains(err.Error(), "lab-device, system") {
		t.Errorf("got %v", err)
	}
}

// TestAReplayGivesItsFirstByte: no start-up test eats a recording.
func TestAReplayGivesItsFirstByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rec")
	data := []byte("the quick brown fox jumps over the lazy dog, twice")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openSet(t,
		Spec{Name: "tape", Type: "replay", Options: opts{"path": path, "claimed_entropy": 1.0}},
		Spec{Name: "chain", Type: "fallback", Options: opts{"sources": []any{"tape", "system"}}},
	)
	if b := fill(t, get(t, s, "tape"), 9); !bytes.Equal(b.Bytes, data[:9]) {
		t.Errorf("got %q", b.Bytes)
	}
	if b := fill(t, get(t, s, "chain"), 10); !bytes.Equal(b.Bytes, data[9:19]) || b.Fallback {
		t.Errorf("got %q, fallback %v", b.Bytes, b.Fallback)
	}
	if n := s.States()[0].Fallbacks["member"]; n != 0 {
		t.Errorf("%d blocks of a later member are counted", n)
	}
	if b := fill(t, get(t, s, "chain"), 100); b.Source != "system" || !b.Fallback {
		t.Errorf("after the end: %+v", b)
	}
	if n := s.States()[0].Fallbacks["member"]; n != 1 {
		t.Errorf("%d blocks of a later member are counted, want 1", n)
	}
}

func TestPolicyFallback(t *testing.T) {
	s := openSet(t,
		Spec{Name: "bad", Type: "mock_biased", Policy: "fallback", Fallback: "next", Options: opts{"fault": "stuck"}},
		Spec{Name: "next", Type: "mock_biased", Policy: "fallback", Fallback: "system", Options: opts{"fault": "counter"}},
	)
	if b := fill(t, get(t, s, "bad"), 600); b.Source != "system" || !b.Fallback || b.Flags != 0 {
		t.Errorf("%+v", b)
	}
	for _, st := range s.States() {
		if st.Source != "system" && (st.Fallbacks["repetition"] != 1 || st.Mode != guard.ModeAlarmed) {
			t.Errorf("%+v", st)
		}
	}
}

// TestDeclaredRateFindsAPool: the operating system's generator can't pass for a device of 1 MB/s, and a device of its speed may.
func TestDeclaredRateFindsAPool(t *testing.T) {
	for rate, want := range map[float64]entropy.Flags{1e6: entropy.FlagTooFast, 1e12: 0} {
		s := openSet(t, Spec{Name: "claims", Type: "system", Policy: "observe", Options: opts{"declared_rate": rate}})
		if b := fill(t, get(t, s, "claims"), 1<<20); b.Flags != want {
			t.Errorf("declared %g B/s: flags %q, want %q", rate, b.Flags.Names(), want.Names())
		}
	}
	s := openSet(t, Spec{Name: "claims", Type: "system", Options: opts{"declared_rate": 1e6}})
	_, err := get(t, s, "claims").Draw(t.Context(), make([]byte, 1<<20))
	if entropy.KindOf(err) != entropy.KindHealth {
		t.Errorf("strict: %v", err)
	}
}

func TestRefusedSets(t *testing.T) {
	for name, row := range map[string]struct {
		specs []Spec
		want  []string
	}{
		"unknown type":       {[]Spec{{Name: "a", Type: "quantum"}}, []string{"source a", `"quantum"`, "system, timing"}},
		"misspelt type":      {[]Spec{{Name: "a", Type: "sistem"}}, []string{"did you mean system?"}},
		"no type":            {[]Spec{{Name: "a"}}, []string{`unknown type ""`, "system, timing"}},
		"unknown option":     {[]Spec{{Name: "a", Type: "mock", Options: opts{"sead": 1}}}, []string{"source a", "sead", "did you mean seed?"}},
		"guard's, misspelt":  {[]Spec{{Name: "a", Type: "mock", Options: opts{"claimed_entropie": 1}}}, []string{"did you mean claimed_entropy?"}},
		"no such option":     {[]Spec{{Name: "a", Type: "replay", Options: opts{"wrap": true}}}, []string{"wrap", "path, format, offset"}},
		"wrong value":        {[]Spec{{Name: "a", Type: "mock", Options: opts{"seed": -1}}}, []string{"option seed", "0 to 18446744073709551615"}},
		"fraction":           {[]Spec{{Name: "a", Type: "mock", Options: opts{"offset": 1.5}}}, []string{"option offset", "whole number"}},
		"not finite":         {[]Spec{{Name: "a", Type: "mock_biased", Options: opts{"shift": "NaN"}}}, []string{"option shift", "finite"}},
		"no unit":            {[]Spec{{Name: "a", Type: "mock", Options: opts{"recover_min": 5}}}, []string{"option recover_min", "250ms"}},
		"not text":           {[]Spec{{Name: "a", Type: "replay", Options: opts{"path": 7}}}, []string{"option path", "text"}},
		"nothing":            {[]Spec{{Name: "a", Type: "replay", Options: opts{"path": nil}}}, []string{"path is empty"}},
		"a map":              {[]Spec{{Name: "a", Type: "replay", Options: opts{"path": opts{"x": 1}}}}, []string{"option path"}},
		"out of range":       {[]Spec{{Name: "a", Type: "mock", Options: opts{"claimed_entropy": 9}}}, []string{"claimed_entropy is 9", "up to 8"}},
		"policy":             {[]Spec{{Name: "a", Type: "mock", Policy: "lenient"}}, []string{"policy", "strict fallback observe"}},
		"no fallback":        {[]Spec{{Name: "a", Type: "mock", Policy: "fallback"}}, []string{"fallback: system"}},
		"idle fallback":      {[]Spec{{Name: "a", Type: "mock", Fallback: "system"}}, []string{"never used under policy strict"}},
		"fallback to nobody": {[]Spec{{Name: "a", Type: "mock", Policy: "fallback", Fallback: "b"}}, []string{`"b"`, "not configured"}},
		"itself":             {[]Spec{{Name: "a", Type: "mock", Policy: "fallback", Fallback: "a"}}, []string{"a -> a"}},
		"a ring": {[]Spec{
			{Name: "a", Type: "mock", Policy: "fallback", Fallback: "b"}, {Name: "b", Type: "mock", Policy: "fallback", Fallback: "a"},
		}, []string{"a -> b -> a"}},
		"a ring of members": {[]Spec{
			{Name: "a", Type: "fallback", Options: opts{"sources": []string{"b", "system"}}}, {Name: "b", Type: "mock", Policy: "fallback", Fallback: "a"},
		}, []string{"a -> b -> a"}},
		"one member":               {[]Spec{{Name: "a", Type: "fallback", Options: opts{"sources": "system"}}}, []string{"2 to 16"}},
		"twice":                    {[]Spec{{Name: "a", Type: "mock"}, {Name: "a", Type: "timing"}}, []string{"two sources"}},
		"a bad name":               {[]Spec{{Name: "../a", Type: "mock"}}, []string{"letters, digits"}},
		"a type name":              {[]Spec{{Name: "timing", Type: "mock"}}, []string{"that of type timing"}},
		"a directory":              {[]Spec{{Name: "a", Type: "replay", Options: opts{"path": "/"}}}, []string{"source a", "is a directory"}},
		"a device":                 {[]Spec{{Name: "a", Type: "replay", Options: opts{"path": "/dev/random"}}}, []string{"is a device"}},
		"the file":                 {[]Spec{{Name: "a", Type: "mock", Options: opts{"calibration_file": "/nowhere"}}}, []string{"source a", "calibration_file"}},
		"a file of another device": {[]Spec{{Name: "a", Type: "mock", Options: opts{"calibration_file": baselineFile(t)}}}, []string{"source a", `"elsewhere"`, "measure this one"}},
		"no baseline":              {[]Spec{{Name: "a", Type: "mock_biased", Options: opts{"fault": "stuck", "health": false, "calibration_blocks": 16}}}, []string{"baseline", "stuck"}},
		"required": {
			[]Spec{{Name: "a", Type: "mock_biased", Options: opts{"fault": "stuck", "startup_samples": 1024, "required": true}}},
			[]string{"required", "source a", "repetition-count"},
		},
	} {
		s, err := Open(t.Context(), row.specs, Deps{})
		if err == nil {
			t.Errorf("%s: it opens", name)
			_ = s.Close()
			continue
		}
		for _, w := range row.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", name, w, err)
			}
		}
	}
}

func baselineFile(t *testing.T) string {
	t.Helper()
	sums := make([]uint64, 16)
	for i := range sums {
		sums[i] = uint64(i % 3)
	}
	c, err := guard.NewCalibration("a", "elsewhere", time.Now(), 64, sums)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "baseline.json")
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBaselineAtStart(t *testing.T) {
	s := openSet(t, Spec{Name: "a", Type: "mock", Options: opts{"calibration_blocks": 32, "calibration_block_bytes": 1024}})
	g, err := s.Guard("a")
	if err != nil {
		t.Fatal(err)
	}
	if c := g.Calibration(); c == nil || len(c.Sums) != 32 || c.BlockBytes != 1024 || c.Device != "chacha8 0000000000000000+0" {
		t.Errorf("%+v", c)
	}
}

// TestSecretsAreNotRepeated: an option of the wrong type is named without its value.
func TestSecretsAreNotRepeated(t *testing.T) {
	err := Validate([]Spec{{Name: "a", Type: "replay", Options: opts{"path": []any{"hunter2"}}}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsAsText(t *testing.T) {
	var got guard.Config
	if err := decode(opts{"health": "false", "declared_rate": "2e6", "alpha_exponent": "30", "clock_skew": "250ms", "ready_bytes": float64(63)}, &got); err != nil {
		t.Fatal(err)
	}
	if got.Health || got.DeclaredRate != 2e6 || got.AlphaExponent != 30 || got.ClockSkew != 250*time.Millisecond || got.ReadyBytes != 63 {
		t.Errorf("%+v", got)
	}
}

// TestClaimOfRawSources: a source that knows what its raw bytes hold is tested at that.
func TestClaimOfRawSources(t *testing.T) {
	s, err := Open(t.Context(), []Spec{{Name: "raw", Type: "timing", Options: opts{"raw": true, "min_rate": 0}}}, Deps{})
	if err != nil {
		t.Skip(err) // this machine's clock is too coarse
	}
	defer s.Close()
	b := fill(t, get(t, s, "raw"), 20480)
	if b.Flags != 0 || s.States()[0].Mode != guard.ModeOK {
		t.Errorf("flags %b, %+v", b.Flags, s.States()[0])
	}
}

func TestClosed(t *testing.T) {
	s, err := Open(t.Context(), []Spec{{Name: "a", Type: "mock"}}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range s.Names() {
		if _, err := get(t, s, name).Draw(t.Context(), make([]byte, 1)); entropy.KindOf(err) != entropy.KindClosed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReload opens a new set while the old one serves; both name the same sources.
func TestReload(t *testing.T) {
	old := openSet(t, Spec{Name: "a", Type: "mock", Options: opts{"seed": 1}})
	fresh := openSet(t, Spec{Name: "a", Type: "mock", Options: opts{"seed": 2}})
	if a, b := fill(t, get(t, old, "a"), 32), fill(t, get(t, fresh, "a"), 32); bytes.Equal(a.Bytes, b.Bytes) {
		t.Error("both draw from one source")
	}
	if _, err := Open(t.Context(), []Spec{{Name: "a", Type: "replay", Options: opts{"path": "/"}}}, Deps{}); err == nil {
		t.Error("a bad configuration opens")
	}
	fill(t, get(t, old, "a"), 32)
}

// TestTable holds what the table must be like.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	guards := Keys(&guard.Config{})
	for _, k := range Kinds() {
		for _, name := range append([]string{k.Type}, k.Aliases...) {
			if seen[name] {
				t.Errorf("two types are called %s", name)
			}
			seen[name] = true
			if found, ok := Find(name); !ok || found.Type != k.Type {
				t.Errorf("%s is not found", name)
			}
		}
		if k.Help == "" || k.Class == "" || k.Options == nil || k.Open == nil {
			t.Errorf("%s: the line is not complete", k.Type)
		}
		for _, key := range Keys(k.Options()) {
			if slices.Contains(guards, key) {
				t.Errorf("%s: option %s is the guard's", k.Type, key)
			}
		}
	}
	for _, alias := range []string{"timing_noise", "mock_uniform"} {
		if !seen[alias] {
			t.Errorf("the published name %s is not known", alias)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("seed", "1")
	f.Add("clock_skew", "1h")
	f.Fuzz(func(t *testing.T, key, value string) {
		for _, k := range Kinds() {
			if err := decode(opts{key: value}, k.Options()); err != nil && err.Error() == "" {
				t.Error("an error without text")
			}
		}
	})
}

// TestBaselineOfComposition: what serves while all is well is the first member, so its baseline is the composition's.
func TestBaselineOfComposition(t *testing.T) {
	s, err := Open(t.Context(), []Spec{
		{Name: "raw", Type: "mock_biased", Options: map[string]any{"calibration_blocks": 16, "shift": 20, "claimed_entropy": 4}},
		{Name: "both", Type: "fallback", Options: map[string]any{"sources": "raw,system"}},
	}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, _ := s.Guard("raw")
	both, _ := s.Guard("both")
	if c := both.Calibration(); c == nil || c != raw.Calibration() || both.State().Calibration != c.Hash {
		t.Errorf("%+v", c)
	}
}

// TestListsAsText: lists of numbers come as text from command lines too.
func TestListsAsText(t *testing.T) {
	for text, want := range map[string][]int{"110,300": {110, 300}, "110": {110}, "110, 300": {110, 300}} {
		cfg := device.DefaultConfig()
		if err := decode(map[string]any{"knock": text}, &cfg); err != nil || !slices.Equal(cfg.Knock, want) {
			t.Errorf("%q: %v, %v", text, cfg.Knock, err)
		}
	}
	cfg := device.DefaultConfig()
	if err := decode(map[string]any{"knock": "110,x"}, &cfg); err == nil || !strings.Contains(err.Error(), "option knock: want a whole number") {
		t.Errorf("got %v", err)
	}
}

// TestCompositionTellsWhatItDiscarded: the block that a member's guard refused shows on the one that was used.
func TestCompositionTellsWhatItDiscarded(t *testing.T) {
	s, err := Open(t.Context(), []Spec{
		{Name: "stuck", Type: "mock_biased", Options: opts{"fault": "stuck"}},
		{Name: "both", Type: "fallback", Options: opts{"sources": "stuck,system"}},
	}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	src, err := s.Get("both")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := src.Draw(t.Context(), make([]byte, 64)); err != nil || !b.Fallback || b.Discarded != 1 || b.Source != "system" {
		t.Errorf("%+v, %v", b, err)
	}
}
