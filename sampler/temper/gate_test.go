package temper_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler/temper"
)

// TestGateArithmetic compares the running boost with the formula, over every inner strategy: those whose base can be raised stay within
// their bounds, the others are raised as they come.
func TestGateArithmetic(t *testing.T) {
	k := kind(t, "coherence_gate")
	rapid.Check(t, func(t *rapid.T) {
		inner := rapid.SampledFrom(k.Fields[0].Enum).Draw(t, "inner")
		fade := rapid.Float64Range(0, 1).Draw(t, "alpha")
		v := values{"qr_coherence_inner_strategy": inner, "qr_coherence_ema_alpha": fade}
		plainKind, err := temper.Find(inner)
		if err != nil {
			t.Fatal(err)
		}
		a, plain, want := newAnswer(t, k, 8, v), newAnswer(t, plainKind, 8, v), 0.0
		for range rapid.IntRange(1, 12).Draw(t, "tokens") {
			row, e := smooth(8).Draw(t, "row"), evidenceGen().Draw(t, "evidence")
			want = nextBoost(want, fade, e)
			got, err := a.plan(row, e)
			if err != nil {
				t.Fatal(err)
			}
			base, err := plain.plan(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkBoost(t, inner, got, base, want)
			token := rapid.Int32Range(0, 7).Draw(t, "token")
			a.Chosen(token)
			plain.Chosen(token)
		}
	})
}

// nextBoost is the formula, with the defaults of the other parameters.
func nextBoost(boost, fade float64, e *temper.Evidence) float64 {
	if e == nil {
		return 0
	}
	earned := 0.0
	if e.Valid && e.Z >= 3.5 && finite(e.Z) && finite(e.R) {
		earned = 0.5 * min(max(e.R, 0), 1)
	}
	boost = fade*earned + (1-fade)*boost
	if boost < 1e-6 {
		return 0
	}
	return boost
}

func checkBoost(t *rapid.T, inner string, got, base *temper.Output, boost float64) {
	if note(got, "gate_boost") != boost || (note(got, "gate_open") == 1) != (boost > 0) {
		t.Fatalf("%+v, want a boost of %v", got, boost)
	}
	want := base.Temperature + boost
	switch inner {
	case "edt":
		want = min(max(note(base, "pre_clamp_temp")*(0.8+boost)/0.8, 0.1), 2)
	case "hvh_drift":
		want = min(max(note(base, "pre_clamp_temp")+boost, 0.3), 2.2)
	}
	if math.Abs(got.Temperature-want) > 1e-12 || got.MinP != base.MinP || got.HasMinP != base.HasMinP || !slices.Equal(got.Row, base.Row) {
		t.Fatalf("%s raised by %v: %+v, want temperature %v over %+v", inner, boost, got, want, base)
	}
}

// TestGateShuts: a boost fades below a millionth and is gone; no evidence ends it at once.
func TestGateShuts(t *testing.T) {
	a := begin(t, "coherence_gate", 5, defaults(nil))
	row := []float64{2, 1, 0, -1, -2}
	plan := func(e *temper.Evidence) *temper.Output {
		t.Helper()
		out, err := a.plan(row, e)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := plan(nil); out.Temperature != 1 {
		t.Errorf("the first token has temperature %v", out.Temperature)
	}
	if out := plan(&temper.Evidence{Z: 4, R: 0.8, Valid: true}); math.Abs(out.Temperature-1.12) > 1e-15 {
		t.Errorf("after a strong draw the temperature is %v", out.Temperature)
	}
	n := 0
	for plan(&temper.Evidence{Valid: true}).Temperature > 1 {
		n++
	}
	// 0.12 * 0.7^n is under 1e-6 from n = 33.
	if n != 32 {
		t.Errorf("the boost faded over %d tokens, want 32", n)
	}
	plan(&temper.Evidence{Z: 4, R: 0.8, Valid: true})
	if out := plan(nil); out.Temperature != 1 || note(out, "gate_open") != 0 {
		t.Errorf("after a failed draw: %+v", out)
	}
}
