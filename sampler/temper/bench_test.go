package temper_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"qr-gateway/sampler/temper"
)

// bigVocab is the vocabulary of Qwen models.
const bigVocab = 151_936

// bigRow is a row of a real size: head-heavy as a model's are, or flat, with some tokens masked.
func bigRow(flat bool) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, bigVocab)
	for i := range row {
		row[i] = float32(r.NormFloat64())
		if !flat {
			row[i] += float32(20 - 2.2*math.Log(float64(1+r.IntN(bigVocab))))
		}
	}
	for i := 0; i < len(row); i += 1000 {
		row[i] = float32(math.Inf(-1))
	}
	return row
}

func widen(row []float32) []float64 {
	out := make([]float64, len(row))
	for i, v := range row {
		out[i] = float64(v)
	}
	return out
}

// warm is a strategy in the middle of an answer, with room in out.
func warm(tb testing.TB, name string, change values, in *temper.Input, out *temper.Output) temper.Strategy {
	tb.Helper()
	k, err := temper.Find(name)
	if err != nil {
		tb.Fatal(err)
	}
	v := defaults(change)
	v["qr_rba_buffer_n"] = 6 // full after the first steps
	s, err := k.New(v, bigVocab)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range int32(8) {
		step(tb, s, in, out, i*i)
	}
	return s
}

// step plans one token and chooses it.
func step(tb testing.TB, s temper.Strategy, in *temper.Input, out *temper.Output, token int32) {
	tb.Helper()
	*out = temper.Output{Row: out.Row[:0], Notes: out.Notes[:0]}
	if err := s.Plan(in, out); err != nil {
		tb.Fatal(err)
	}
	s.Chosen(token)
}

// bigInputs is the same row in both widths.
func bigInputs(flat bool) map[string]*temper.Input {
	row := bigRow(flat)
	h, vh := temper.Moments(row)
	in := temper.Input{H: h, VH: vh, HNorm: h / math.Log(bigVocab), Gate: &temper.Evidence{Z: 4, R: 0.8, Valid: true}}
	narrow, wide := in, in
	narrow.Row32, wide.Row64 = row, widen(row)
	return map[string]*temper.Input{"float32": &narrow, "float64": &wide}
}

func TestPlanAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
	for width, in := range bigInputs(false) {
		for _, k := range temper.Kinds() {
			inner := []string{"fixed"}
			if k.Name == "coherence_gate" {
				inner = k.Fields[0].Enum
			}
			for _, name := range inner {
				var out temper.Output
				s := warm(t, k.Name, values{"qr_coherence_inner_strategy": name}, in, &out)
				if n := testing.AllocsPerRun(3, func() { step(t, s, in, &out, 7) }); n != 0 {
					t.Errorf("%s (%s) over %s: %v allocations a token", k.Name, name, width, n)
				}
			}
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for shape, flat := range map[string]bool{"head": false, "flat": true} {
		in := bigInputs(flat)["float32"]
		for _, k := range temper.Kinds() {
			b.Run(k.Name+"/"+shape, func(b *testing.B) {
				var out temper.Output
				s := warm(b, k.Name, nil, in, &out)
				b.ReportAllocs()
				for b.Loop() {
					step(b, s, in, &out, 7)
				}
			})
		}
	}
}

func BenchmarkMoments(b *testing.B) {
	for shape, flat := range map[string]bool{"head": false, "flat": true} {
		row := bigRow(flat)
		wide := widen(row)
		b.Run("float32/"+shape, func(b *testing.B) {
			for b.Loop() {
				temper.Moments(row)
			}
		})
		b.Run("float64/"+shape, func(b *testing.B) {
			for b.Loop() {
				temper.Moments(wide)
			}
		})
	}
}
