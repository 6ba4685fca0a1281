package temper_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler/param"
	"qr-gateway/sampler/temper"
)

// rowGen makes rows of n logits, some of them masked or not numbers.
func rowGen(n int) *rapid.Generator[[]float64] {
	logit := rapid.OneOf(
		rapid.Float64Range(-20, 20), rapid.Float64Range(-1e4, 1e4), rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64),
		rapid.SampledFrom([]float64{0, 0, math.Inf(-1), math.Inf(1), math.NaN(), 5e-324}),
	)
	return rapid.OneOf(rapid.SliceOfN(logit, n, n), rapid.SliceOfN(rapid.Float64Range(-8, 8), n, n))
}

// smooth makes rows of logits as models have them.
func smooth(n int) *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.Float64Range(-8, 8), n, n)
}

// valuesGen makes parameters anywhere in their ranges, often at the ends.
func valuesGen(all map[string]param.Field) *rapid.Generator[values] {
	return rapid.Custom(func(t *rapid.T) values {
		v := values{"qr_temperature": rapid.Float64Range(0, 5).Draw(t, "qr_temperature")}
		for _, k := range temper.Kinds() {
			for _, f := range k.Fields {
				v[f.Key] = valueOf(t, all[f.Key])
			}
		}
		return v
	})
}

func valueOf(t *rapid.T, f param.Field) any {
	low := f.Min
	if f.MinOpen {
		low = math.Nextafter(f.Min, f.Max)
	}
	if f.Type == param.TypeString {
		return rapid.SampledFrom(f.Enum).Draw(t, f.Key)
	}
	if f.Type == param.TypeInteger {
		return rapid.IntRange(int(f.Min), min(int(f.Max), 40)).Draw(t, f.Key)
	}
	return rapid.OneOf(
		rapid.Just(f.Default.(float64)), rapid.Just(low), rapid.Just(f.Max), rapid.Float64Range(low, f.Max),
	).Draw(t, f.Key)
}

func evidenceGen() *rapid.Generator[*temper.Evidence] {
	any64 := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 10), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}))
	return rapid.Ptr(rapid.Custom(func(t *rapid.T) temper.Evidence {
		return temper.Evidence{Z: any64.Draw(t, "z"), R: any64.Draw(t, "r"), Valid: rapid.Bool().Draw(t, "valid")}
	}), true)
}

// TestAlwaysUsable: whatever the parameters, rows and evidence are, temperature and min-p are usable, diagnostics are numbers, and
// transformed logits are absent exactly where the row's are.
func TestAlwaysUsable(t *testing.T) {
	all := fields(t)
	rapid.Check(t, func(t *rapid.T) { checkUsable(t, all) })
}

func FuzzAlwaysUsable(f *testing.F) {
	all := map[string]param.Field{}
	for _, k := range temper.Kinds() {
		for _, field := range k.Fields {
			all[field.Key] = field
		}
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkUsable(t, all) }))
}

func checkUsable(t *rapid.T, all map[string]param.Field) {
	n := rapid.IntRange(2, 12).Draw(t, "vocabulary")
	v := valuesGen(all).Draw(t, "values")
	if low, high := v.Number("qr_edt_min_temp"), v.Number("qr_edt_max_temp"); low > high {
		v["qr_edt_min_temp"], v["qr_edt_max_temp"] = high, low
	}
	k := rapid.SampledFrom(temper.Kinds()).Draw(t, "strategy")
	s, err := k.New(v, n)
	if err != nil {
		t.Fatal(err)
	}
	a := &answer{Strategy: s, nVocab: n}
	for range rapid.IntRange(1, 6).Draw(t, "tokens") {
		row := rowGen(n).Draw(t, "row")
		out, err := a.plan(row, evidenceGen().Draw(t, "evidence"))
		if err != nil {
			t.Fatal(err)
		}
		checkOutput(t, out, row)
		a.Chosen(rapid.Int32Range(-3, int32(n)+70).Draw(t, "token"))
	}
}

func checkOutput(t *rapid.T, out *temper.Output, row []float64) {
	if !finite(out.Temperature) || !(out.MinP >= 0 && out.MinP <= 1) || len(out.Row) != 0 && len(out.Row) != len(row) {
		t.Fatalf("%+v", out)
	}
	for _, n := range out.Notes {
		if !finite(n.Value) || n.Name == "" {
			t.Fatalf("note %+v", n)
		}
	}
	wide := slices.ContainsFunc(row, func(v float64) bool { return finite(v) && math.Abs(v) > 1e9 })
	for i, v := range out.Row {
		if math.IsNaN(v) || math.IsInf(v, 1) {
			t.Fatalf("transformed logit %v of %v", v, row[i])
		}
		if !finite(row[i]) && finite(v) {
			t.Fatalf("transformed logit %v of %v, which is absent", v, row[i])
		}
		if !wide && finite(row[i]) && !finite(v) { // a token that has no chance beside another may go
			t.Fatalf("transformed logit %v of %v, which is present", v, row[i])
		}
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// TestRefusesInput: what is not a number makes no temperature, and leaves the state alone.
func TestRefusesInput(t *testing.T) {
	nan := math.NaN()
	for _, k := range temper.Kinds() {
		s, err := k.New(defaults(nil), 5)
		if err != nil {
			t.Fatal(err)
		}
		var out temper.Output
		for _, in := range []temper.Input{{H: nan}, {VH: nan}, {HNorm: math.Inf(1)}} {
			in.Row64 = make([]float64, 5)
			if err := s.Plan(&in, &out); !errors.Is(err, temper.ErrInput) {
				t.Errorf("%s with %+v: error %v", k.Name, in, err)
			}
		}
		fresh := begin(t, k.Name, 5, defaults(nil))
		used := &answer{Strategy: s, nVocab: 5}
		row := []float64{2, 1, 0, -1, -2}
		a, errA := used.plan(row, nil)
		b, errB := fresh.plan(row, nil)
		if errA != nil || errB != nil || a.Temperature != b.Temperature || a.MinP != b.MinP {
			t.Errorf("%s after refused input: %+v, want %+v", k.Name, a, b)
		}
	}
}

// clones are parameters that take everything variable out of a strategy: it must be temperature t and min-p m throughout.
func clones(t, m float64) map[string]values {
	return map[string]values{
		"fixed":            {"qr_temperature": t},
		"edt":              {"qr_edt_base_temp": t, "qr_edt_exponent": 0.0, "qr_edt_min_temp": 0.0, "qr_edt_max_temp": 5.0},
		"hvh_drift":        {"qr_hvh_t_base": t, "qr_hvh_alpha_h": 0.0, "qr_hvh_alpha_vh": 0.0, "qr_hvh_gamma_dh": 0.0, "qr_hvh_delta_dvh": 0.0, "qr_hvh_min_p_base": m, "qr_hvh_kappa_h": 0.0, "qr_hvh_nu_dh": 0.0},
		"tt_exchange":      {"qr_tt_t_base": t, "qr_tt_gamma": 0.0, "qr_tt_min_p_base": m, "qr_tt_min_p_scale": 0.0},
		"evdt_tt":          {"qr_evdt_t_base": t, "qr_evdt_alpha": 0.0, "qr_evdt_beta": 0.0, "qr_evdt_min_p_base": m, "qr_evdt_min_p_scale": 0.0, "qr_evdt_min_p_vh": 0.0},
		"gdt":              {"qr_gdt_t_base": t, "qr_gdt_t_peak": 0.0, "qr_gdt_alpha": 0.0, "qr_gdt_min_p_base": m},
		"dynatemp":         {"qr_dynatemp_t_center": t, "qr_dynatemp_t_range": 0.0, "qr_dynatemp_min_p": m},
		"belltemp":         {"qr_belltemp_t_base": t, "qr_belltemp_t_peak": 0.0, "qr_belltemp_vh_weight": 0.0, "qr_belltemp_min_p_base": m, "qr_belltemp_min_p_scale": 0.0},
		"mix_temperatures": {"qr_mix_t_cool": t, "qr_mix_t_hot": t, "qr_mix_min_p": m},
		"ring_buffer_ar":   {"qr_rba_t": t, "qr_rba_lam": 0.0, "qr_rba_min_p": m},
		"coherence_gate":   {"qr_temperature": t, "qr_coherence_t_boost_max": 0.0},
	}
}

func TestStaticClone(t *testing.T) {
	for _, k := range temper.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				temp, minP := rapid.Float64Range(0.3, 2.2).Draw(t, "temperature"), rapid.Float64Range(0, 0.15).Draw(t, "min-p")
				s, err := k.New(defaults(clones(temp, minP)[k.Name]), 9)
				if err != nil {
					t.Fatal(err)
				}
				a := &answer{Strategy: s, nVocab: 9}
				for range 3 {
					row := smooth(9).Draw(t, "row")
					out, err := a.plan(row, &temper.Evidence{Z: 9, R: 1, Valid: true})
					if err != nil {
						t.Fatal(err)
					}
					checkClone(t, out, row, temp, minP)
					a.Chosen(rapid.Int32Range(0, 8).Draw(t, "token"))
				}
			})
		})
	}
}

// checkClone compares the distribution that is selected from, which is what counts where there are transformed logits.
func checkClone(t *rapid.T, out *temper.Output, row []float64, temp, minP float64) {
	if out.HasMinP && out.MinP != minP {
		t.Fatalf("min-p %v, want %v", out.MinP, minP)
	}
	if len(out.Row) == 0 {
		if math.Abs(out.Temperature-temp) > 1e-15 {
			t.Fatalf("temperature %v, want %v", out.Temperature, temp)
		}
		return
	}
	got, want := softmax(out.Row, out.Temperature), softmax(row, temp)
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-13 {
			t.Fatalf("probabilities %v, want %v", got, want)
		}
	}
}

func softmax(row []float64, t float64) []float64 {
	top, z := slices.Max(row), 0.0
	p := make([]float64, len(row))
	for i, v := range row {
		p[i] = math.Exp((v - top) / t)
		z += p[i]
	}
	for i := range p {
		p[i] /= z
	}
	return p
}

// TestAnswersAreIndependent runs two answers token by token beside each other, and one of them alone.
func TestAnswersAreIndependent(t *testing.T) {
	for _, k := range temper.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rows := rapid.SliceOfN(smooth(6), 2, 8).Draw(t, "rows")
				tokens := rapid.SliceOfN(rapid.Int32Range(0, 5), len(rows), len(rows)).Draw(t, "tokens")
				v := defaults(values{"qr_coherence_inner_strategy": rapid.SampledFrom([]string{"fixed", "hvh_drift", "ring_buffer_ar"}).Draw(t, "inner")})
				var s [3]*answer
				for i := range s {
					made, err := k.New(v, 6)
					if err != nil {
						t.Fatal(err)
					}
					s[i] = &answer{Strategy: made, nVocab: 6}
				}
				strong := &temper.Evidence{Z: 5, R: 0.7, Valid: true}
				for i, row := range rows {
					a, errA := s[0].plan(row, strong)
					_, errB := s[1].plan(rows[len(rows)-1-i], nil)
					b, errC := s[2].plan(row, strong)
					if errA != nil || errB != nil || errC != nil {
						t.Fatal(errA, errB, errC)
					}
					if a.Temperature != b.Temperature || a.MinP != b.MinP || !slices.Equal(a.Row, b.Row) || !slices.Equal(a.Notes, b.Notes) {
						t.Fatalf("token %d beside another answer: %+v, alone %+v", i, a, b)
					}
					s[0].Chosen(tokens[i])
					s[1].Chosen(5 - tokens[i])
					s[2].Chosen(tokens[i])
				}
			})
		})
	}
}

// TestShift: a constant added to all logits changes nothing but, by as much, the transformed logits of the ring buffer.
func TestShift(t *testing.T) {
	for _, k := range temper.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				row, by := smooth(8).Draw(t, "row"), rapid.Float64Range(-50, 50).Draw(t, "shift")
				moved := slices.Clone(row)
				for i := range moved {
					moved[i] += by
				}
				if k.Name == "tt_exchange" && nearEdge(row) {
					t.Skip()
				}
				a, b := newAnswer(t, k, 8, nil), newAnswer(t, k, 8, nil)
				a.Chosen(3)
				b.Chosen(3)
				one, errA := a.plan(row, nil)
				two, errB := b.plan(moved, nil)
				if errA != nil || errB != nil || math.Abs(one.Temperature-two.Temperature) > 1e-9 || math.Abs(one.MinP-two.MinP) > 1e-9 {
					t.Fatalf("%+v, moved %+v, errors %v, %v", one, two, errA, errB)
				}
				p, q := softmax(append(one.Row, 0), 1), softmax(append(two.Row, by), 1)
				if k.Name == "mix_temperatures" {
					q = softmax(append(two.Row, 0), 1)
				}
				for i := range p {
					if math.Abs(p[i]-q[i]) > 1e-9 {
						t.Fatalf("%v, moved %v", one.Row, two.Row)
					}
				}
			})
		})
	}
}

// nearEdge reports whether rounding may move a token over the edge of min-p at the defaults.
func nearEdge(row []float64) bool {
	h, _ := temper.Moments(row)
	edge := slices.Max(row) + math.Log(min(max(0.005+0.025*h, 0), 0.15))
	return slices.ContainsFunc(row, func(v float64) bool { return math.Abs(v-edge) < 1e-9 })
}

func newAnswer(t *rapid.T, k temper.Kind, n int, change values) *answer {
	s, err := k.New(defaults(change), n)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{Strategy: s, nVocab: n}
}

// TestWidths: rows of float32 and of float64 that hold the same numbers decide the same.
func TestWidths(t *testing.T) {
	for _, k := range temper.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				narrow := rapid.SliceOfN(rapid.Float32Range(-30, 30), 7, 7).Draw(t, "row")
				wide := widen(narrow)
				h, vh := temper.Moments(narrow)
				a, b := newAnswer(t, k, 7, nil), newAnswer(t, k, 7, nil)
				a.Chosen(2)
				b.Chosen(2)
				var one, two temper.Output
				errA := a.Plan(&temper.Input{Row32: narrow, H: h, VH: vh, HNorm: h / math.Log(7)}, &one)
				errB := b.Plan(&temper.Input{Row64: wide, H: h, VH: vh, HNorm: h / math.Log(7)}, &two)
				if errA != nil || errB != nil || one.Temperature != two.Temperature || one.MinP != two.MinP || !slices.Equal(one.Row, two.Row) {
					t.Fatalf("%+v, float64 %+v, errors %v, %v", one, two, errA, errB)
				}
			})
		})
	}
}
