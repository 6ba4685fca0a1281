package temper_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler/temper"
)

// kind finds a strategy that is in the table.
func kind(t *testing.T, name string) temper.Kind {
	t.Helper()
	k, err := temper.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNeedsTwoTokens(t *testing.T) {
	for _, name := range []string{"edt", "gdt", "dynatemp", "belltemp"} {
		if _, err := kind(t, name).New(defaults(nil), 1); !errors.Is(err, temper.ErrVocab) {
			t.Errorf("%s: error %v", name, err)
		}
		v := defaults(values{"qr_coherence_inner_strategy": name})
		if _, err := kind(t, "coherence_gate").New(v, 1); !errors.Is(err, temper.ErrVocab) {
			t.Errorf("coherence_gate over %s: error %v", name, err)
		}
	}
}

// TestEDTRises: with a positive exponent more entropy is a higher temperature, with a negative one a lower.
func TestEDTRises(t *testing.T) {
	k := kind(t, "edt")
	rapid.Check(t, func(t *rapid.T) {
		exponent := rapid.Float64Range(-3, 3).Draw(t, "exponent")
		a := newAnswer(t, k, 8, values{"qr_edt_exponent": exponent, "qr_edt_min_temp": 0.0, "qr_edt_max_temp": 5.0})
		row, flatter := smooth(8).Draw(t, "row"), make([]float64, 8)
		for i, v := range row {
			flatter[i] = v / 2
		}
		one, err := a.plan(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := one.Temperature
		two, err := a.plan(flatter, nil)
		if err != nil || exponent > 0 && two.Temperature < first || exponent < 0 && two.Temperature > first {
			t.Fatalf("exponent %v: %v, flatter %v, error %v", exponent, first, two.Temperature, err)
		}
	})
}

func TestEDTWithoutEntropy(t *testing.T) {
	row := []float64{math.Inf(-1), 3, math.NaN()}
	for _, c := range []struct{ base, exponent, want float64 }{
		{0.8, -2, 2}, {0.8, 2, 0.1}, {0.8, 0, 0.8}, {0, -2, 0.1}, {0, 0, 0.1},
	} {
		out, err := begin(t, "edt", 3, defaults(values{"qr_edt_base_temp": c.base, "qr_edt_exponent": c.exponent})).plan(row, nil)
		if err != nil || out.Temperature != c.want {
			t.Errorf("base %v, exponent %v: %+v, error %v, want %v", c.base, c.exponent, out, err, c.want)
		}
	}
}

// TestDriftWithoutChange: while the row is the same there is no drift, and the first other row drifts by the same amount, whatever the
// weight of a new token is.
func TestDriftWithoutChange(t *testing.T) {
	k := kind(t, "hvh_drift")
	rapid.Check(t, func(t *rapid.T) {
		row, other := smooth(8).Draw(t, "row"), smooth(8).Draw(t, "other")
		n := rapid.IntRange(1, 10).Draw(t, "tokens")
		var last [2]temper.Output
		for i, lambda := range []float64{rapid.Float64Range(0, 1).Draw(t, "lambda"), rapid.SampledFrom([]float64{0, 1}).Draw(t, "end")} {
			a := newAnswer(t, k, 8, values{"qr_hvh_lambda_ema": lambda})
			for range n {
				out, err := a.plan(row, nil)
				if err != nil || math.Abs(note(out, "d_h")) > 1e-13 || math.Abs(note(out, "d_vh")) > 1e-12 {
					t.Fatalf("no change: %+v, error %v", out, err)
				}
			}
			out, err := a.plan(other, nil)
			if err != nil {
				t.Fatal(err)
			}
			last[i] = *out
		}
		if math.Abs(last[0].Temperature-last[1].Temperature) > 1e-12 || math.Abs(last[0].MinP-last[1].MinP) > 1e-12 {
			t.Fatalf("%+v, with another weight %+v", last[0], last[1])
		}
	})
}

func note(out *temper.Output, name string) float64 {
	for _, n := range out.Notes {
		if n.Name == name {
			return n.Value
		}
	}
	return math.NaN()
}

// TestExchangeCounts compares with plain probabilities.
func TestExchangeCounts(t *testing.T) {
	k := kind(t, "tt_exchange")
	rapid.Check(t, func(t *rapid.T) {
		row := smooth(12).Draw(t, "row")
		minP := rapid.Float64Range(0, 0.15).Draw(t, "min-p")
		a := newAnswer(t, k, 12, values{"qr_tt_min_p_base": minP, "qr_tt_min_p_scale": 0.0})
		out, err := a.plan(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := softmax(row, 1)
		top, n, mass := slices.Max(p), 0, 0.0
		for _, q := range p {
			if math.Abs(q/(top*minP)-1) < 1e-9 {
				t.Skip()
			}
			if q >= top*minP {
				n++
				mass += q
			}
		}
		h := 0.0
		for _, q := range p {
			if q >= top*minP {
				h -= q / mass * math.Log(q/mass)
			}
		}
		if int(note(out, "n_kept")) != n || math.Abs(note(out, "h_kept")-h) > 1e-12 {
			t.Fatalf("%+v, want %d kept with %v", out, n, h)
		}
	})
}

// TestMixture compares transformed logits with the mixture of two softmaxes, and with logarithms where those vanish.
func TestMixture(t *testing.T) {
	k := kind(t, "mix_temperatures")
	rapid.Check(t, func(t *rapid.T) {
		cool, hot := rapid.Float64Range(0.3, 2.2).Draw(t, "cool"), rapid.Float64Range(0.3, 2.2).Draw(t, "hot")
		steep := rapid.Float64Range(-1e4, 1e4).Draw(t, "a")
		a := newAnswer(t, k, 10, values{"qr_mix_t_cool": cool, "qr_mix_t_hot": hot, "qr_mix_gate_a": steep})
		wide := rapid.SampledFrom([]float64{8, 60, 400, 3000}).Draw(t, "width")
		row := rapid.SliceOfN(rapid.Float64Range(-wide, wide), 10, 10).Draw(t, "row")
		out, err := a.plan(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, vh := temper.Moments(row)
		x := min(max(steep*(h-1.3)+0.8*(vh-1.2), -700), 700)
		p, q := softmax(row, hot), softmax(row, cool)
		for i, got := range out.Row {
			want := p[i]/(1+math.Exp(-x)) + q[i]/(1+math.Exp(x))
			if want > 1e-280 && math.Abs(got-math.Log(want)) > 1e-11*max(1, -math.Log(want)) {
				t.Fatalf("token %d of %v: %v, want %v", i, row, got, math.Log(want))
			}
			if want <= 1e-280 && got > -600 {
				t.Fatalf("token %d of %v: %v, want less than -600", i, row, got)
			}
		}
	})
}

// TestRingRemembers compares with a list of what was chosen.
func TestRingRemembers(t *testing.T) {
	k := kind(t, "ring_buffer_ar")
	rapid.Check(t, func(t *rapid.T) {
		size, threshold := rapid.IntRange(1, 5).Draw(t, "size"), rapid.SampledFrom([]float64{-0.5, 0, 0.65}).Draw(t, "threshold")
		a := newAnswer(t, k, 7, values{"qr_rba_buffer_n": size, "qr_rba_threshold": threshold})
		var chosen []int32
		for range rapid.IntRange(1, 15).Draw(t, "tokens") {
			row := smooth(7).Draw(t, "row")
			row[3] = math.NaN()
			out, err := a.plan(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkRing(t, out, row, chosen, threshold)
			token := rapid.Int32Range(0, 6).Draw(t, "token")
			a.Chosen(token)
			chosen = append(chosen, token)
			chosen = chosen[max(0, len(chosen)-size):]
		}
	})
}

func checkRing(t *rapid.T, out *temper.Output, row []float64, chosen []int32, threshold float64) {
	if int(note(out, "n_buffered")) != len(chosen) {
		t.Fatalf("%+v after %v", out, chosen)
	}
	if len(chosen) == 0 {
		if len(out.Row) != 0 {
			t.Fatalf("transformed logits %v without history", out.Row)
		}
		return
	}
	for i, got := range out.Row {
		likeness := 0.0
		if slices.Contains(chosen, int32(i)) {
			likeness = 1
		}
		want := row[i] - 2.5*max(0, likeness-threshold)
		if math.IsNaN(want) {
			want = math.Inf(-1)
		}
		if math.Abs(got-want) > 1e-12 {
			t.Fatalf("token %d after %v: %v, want %v", i, chosen, got, want)
		}
	}
}
