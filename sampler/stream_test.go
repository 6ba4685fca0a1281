package sampler_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"qr-gateway/sampler"
)

// strategies are all of them, with a row that each does something to.
func strategies() []string {
	return []string{
		"fixed", "edt", "hvh_drift", "tt_exchange", "evdt_tt", "gdt", "dynatemp", "belltemp", "mix_temperatures", "ring_buffer_ar", "coherence_gate",
	}
}

// TestStreamByHand goes through an answer as the parts themselves would: the strategy's T and min-p cut the row that penalties have adjusted.
func TestStreamByHand(t *testing.T) {
	row := []float32{2, 1, 0, -1, -2}
	p := sampler.Defaults()
	p.Strategy, p.TopK, p.MinP = "edt", 4, 0.03
	s := begin(t, len(row), &p)
	plan, err := s.Plan(row, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]float64{
		"T": plan.Temperature - 0.630589845433, "H": plan.H - 0.999972828275399, "VH": plan.VH - 0.749931772202991,
		"H/ln V": plan.HNorm - 0.621318051818, "min-p": plan.MinP - 0.03,
	} {
		if math.Abs(d) > 1e-9 {
			t.Errorf("%s is off by %g: %+v", name, d, plan)
		}
	}
	want, err := sampler.NewExact(5).Choose([]float64{2, 1, 0, -1, -2}, nil, sampler.Cut{Temperature: plan.Temperature, TopK: 4, TopP: 1, MinP: 0.03}, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := s.Choose(0.9); err != nil || got.Token != want.Token || got.Candidates != want.Candidates || math.Abs(got.Prob-want.Prob) > 1e-9 {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
}

// TestStreamMoments: the fast pass over a row of a real vocabulary gives the entropy that adding up in float64 gives.
func TestStreamMoments(t *testing.T) {
	for _, shape := range []string{"zipf", "slope", "bulk", "heavy"} {
		row := bigRow(shape)
		p := sampler.Defaults()
		s := begin(t, len(row), &p)
		s.Observe(true)
		for i := range row {
			row[i] = float64(float32(row[i]))
		}
		fast, err := s.Plan(to32(row), nil)
		if err != nil {
			t.Fatal(err)
		}
		exact, err := s.Plan64(row, nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(fast.H-exact.H) > 1e-9 || math.Abs(fast.VH-exact.VH) > 1e-9*(1+exact.VH) {
			t.Errorf("%s: H %v, VH %v; exactly H %v, VH %v", shape, fast.H, fast.VH, exact.H, exact.VH)
		}
	}
}

// TestEntropyOnlyWhereWanted: the fixed temperature doesn't look at the row, unless it is observed. Bans have no part in its entropy then.
func TestEntropyOnlyWhereWanted(t *testing.T) {
	row := []float32{1, 1, 7, 1, 1}
	p := sampler.Defaults()
	s := begin(t, len(row), &p)
	plan, err := s.Plan(row, nil)
	if err != nil || !math.IsNaN(plan.H) || !math.IsNaN(plan.VH) || !math.IsNaN(plan.HNorm) || &plan.Row[0] != &row[0] {
		t.Errorf("got %+v, error %v, want no entropy", plan, err)
	}
	s.Observe(true)
	plan, err = s.Plan(row, sampler.NewMask(2))
	if err != nil || math.Abs(plan.H-math.Log(4)) > 1e-9 || math.Abs(plan.VH) > 1e-9 || &plan.Row[0] != &row[0] {
		t.Errorf("got %+v, error %v, want H = ln 4", plan, err)
	}
}

// TestStrategyMinPReplaces: the request's min-p and the strategy's are never combined.
func TestStrategyMinPReplaces(t *testing.T) {
	row := []float32{2, 1, 0, -1, -2}
	for strategy, want := range map[string]float64{"fixed": 0.5, "edt": 0.5, "dynatemp": 0.026, "gdt": 0.070668487762, "tt_exchange": 0.029999320707} {
		p := sampler.Defaults()
		p.Strategy, p.MinP = strategy, 0.5
		plan, err := begin(t, len(row), &p).Plan(row, nil)
		if err != nil || math.Abs(plan.MinP-want) > 1e-9 {
			t.Errorf("%s: min-p %v, error %v, want %v", strategy, plan.MinP, err, want)
		}
	}
}

// TestTransformedRow: what mix_temperatures and ring_buffer_ar make of the row is what is chosen from, and what the lookahead sees.
func TestTransformedRow(t *testing.T) {
	row := []float32{2, 1, 0, -1, -2}
	p := sampler.Defaults()
	p.Strategy, p.Decoder = "ring_buffer_ar", sampler.DecoderLookahead
	s := begin(t, len(row), &p)
	got := adjusted(t, s, row, 1, 3)
	if want := []float32{2, 0.125, 0, -1.875, -2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d, err := s.Choose(0.9)
	total, share := 0.0, 0.0
	for i, v := range got {
		total += math.Exp(float64(v))
		if int32(i) == d.Token {
			share = math.Exp(float64(v))
		}
	}
	if err != nil || math.Abs(d.Prob-share/total) > 1e-12 || d.Token != 2 {
		t.Errorf("got %+v, error %v, want token 2 of probability %v", d, err, share/total)
	}
}

// TestPlan64 agrees with Plan where float32 holds the row.
func TestPlan64(t *testing.T) {
	row := []float32{2, 1, 0.5, -1, -2, 0.25}
	wide := make([]float64, len(row))
	for i, v := range row {
		wide[i] = float64(v)
	}
	ban := sampler.NewMask(4)
	for _, strategy := range strategies() {
		p := sampler.Defaults()
		p.Strategy, p.FrequencyPenalty, p.TopP = strategy, 0.5, 0.95
		a, b := begin(t, len(row), &p), begin(t, len(row), &p)
		for i := range 40 {
			x, err := a.Plan(row, ban)
			if err != nil {
				t.Fatal(err)
			}
			y, err := b.Plan64(wide, ban)
			if err != nil {
				t.Fatal(err)
			}
			u := math.Mod(0.137+float64(i)*0.618033988749895, 1)
			d, errA := a.Choose(u)
			e, errB := b.Choose(u)
			if errA != nil || errB != nil || d.Token != e.Token || math.Abs(d.Prob-e.Prob) > 1e-6 || math.Abs(x.Temperature-y.Temperature) > 1e-6 {
				t.Fatalf("%s, token %d: got %+v and %+v, errors %v, %v", strategy, i, d, e, errA, errB)
			}
			a.Accept(d.Token, nil)
			b.Accept(e.Token, nil)
		}
	}
}

func TestStreamRefuses(t *testing.T) {
	p := sampler.Defaults()
	if _, err := sampler.NewStream(3).Plan([]float32{1, 2, 3}, nil); err == nil {
		t.Error("no answer was begun: no error")
	}
	s := begin(t, 3, &p)
	if _, err := s.Plan([]float32{1, 2}, nil); err == nil {
		t.Error("a short row: no error")
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		if _, err := s.Plan([]float32{1, bad, 3}, nil); !errors.Is(err, sampler.ErrLogits) {
			t.Errorf("a logit of %v: error %v", bad, err)
		}
	}
	// The next answer goes on as if nothing had happened.
	if _, err := s.Plan([]float32{1, 2, 3}, nil); err != nil {
		t.Error(err)
	}
	p.Strategy = "nonesuch"
	if err := s.Begin(&p, nil); err == nil {
		t.Error("an unknown strategy: no error")
	}
}

// TestBrokenRows finds one bad logit wherever it stands, and none where the logits are only large or absent.
func TestBrokenRows(t *testing.T) {
	p := sampler.Defaults()
	for n := 1; n < 20; n++ {
		s := begin(t, n, &p)
		for at := range n {
			for bad, want := range map[float64]error{
				math.NaN(): sampler.ErrLogits, math.Inf(1): sampler.ErrLogits, math.Inf(-1): nil, math.MaxFloat32: nil, -math.MaxFloat32: nil,
			} {
				row, wide := make([]float32, n), make([]float64, n)
				for i := range row {
					row[i], wide[i] = -math.MaxFloat32, -math.MaxFloat64
				}
				row[at], wide[at] = float32(bad), bad
				if _, err := s.Plan(row, nil); !errors.Is(err, want) {
					t.Errorf("%v at %d of %d: error %v", bad, at, n, err)
				}
				if _, err := s.Plan64(wide, nil); !errors.Is(err, want) {
					t.Errorf("%v at %d of %d, float64: error %v", bad, at, n, err)
				}
			}
		}
	}
}

// counted counts how often it is asked.
type counted struct {
	sampler.Noise
	asked int
}

func (c *counted) One(ctx context.Context, step int) (float64, error) {
	c.asked++
	return c.Noise.One(ctx, step)
}

// TestGreedyDrawsNothing: no number is asked for where none is needed, whoever decides so.
func TestGreedyDrawsNothing(t *testing.T) {
	row := []float32{0, 3, 1}
	for name, set := range map[string]func(*sampler.Params){
		"temperature 0": func(p *sampler.Params) { p.Temperature = 0 },
		"top-k 1":       func(p *sampler.Params) { p.TopK = 1 },
		"top-p 0":       func(p *sampler.Params) { p.TopP = 0 },
	} {
		p := sampler.Defaults()
		set(&p)
		noise := &counted{Noise: sampler.NewSeeded(1)}
		s := begin(t, len(row), &p)
		d, err := s.Next(context.Background(), row, nil, noise)
		if err != nil || d.Token != 1 || noise.asked != 0 {
			t.Errorf("%s: got %+v, error %v, asked %d times", name, d, err, noise.asked)
		}
		if r := s.Record(); r.Source != "none" || r.Amplifier != "none" || !math.IsNaN(float64(r.U)) || r.Token != 1 {
			t.Errorf("%s: record %+v", name, r)
		}
	}
}

// TestNextIsItsParts: Next takes the tokens that Plan, One, Choose and Accept take.
func TestNextIsItsParts(t *testing.T) {
	row := bell(500, 3)
	ctx, noise := context.Background(), sampler.NewSeeded(5)
	for _, strategy := range strategies() {
		p := sampler.Defaults()
		p.Strategy, p.PresencePenalty, p.RepetitionPenalty = strategy, 0.5, 1.1
		a, b := begin(t, len(row), &p, 3, 4), begin(t, len(row), &p, 3, 4)
		for i := range 60 {
			x, err := a.Next(ctx, row, nil, noise)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Plan(row, nil); err != nil {
				t.Fatal(err)
			}
			u, _ := noise.One(ctx, i)
			y, err := b.Choose(u)
			if err != nil || x != y || a.Step() != i+1 {
				t.Fatalf("%s, token %d: got %+v and %+v, error %v", strategy, i, x, y, err)
			}
			b.Accept(y.Token, noise.Last())
		}
	}
}

// TestStreamAllocatesNothing holds every strategy to it, and penalties over a growing answer.
func TestStreamAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	row := bell(20000, 3)
	ban := sampler.NewMask(0, 5, 17)
	ctx, noise := context.Background(), sampler.NewSeeded(1)
	for _, strategy := range strategies() {
		for _, penalties := range []bool{false, true} {
			p := sampler.Defaults()
			p.Strategy = strategy
			if penalties {
				p.FrequencyPenalty, p.PresencePenalty, p.RepetitionPenalty = 0.1, 0.1, 1.1
				p.LogitBias = []sampler.TokenBias{{Token: 9, Bias: 1}}
			}
			s := begin(t, len(row), &p, 1, 2, 3)
			next := func() {
				if _, err := s.Next(ctx, row, ban, noise); err != nil {
					t.Fatal(err)
				}
			}
			for range 50 {
				next()
			}
			if n := testing.AllocsPerRun(100, next); n != 0 {
				t.Errorf("%s, penalties %v: %v allocations a token", strategy, penalties, n)
			}
		}
	}
}

// BenchmarkStream is a token from its row to the history, numbers apart.
func BenchmarkStream(b *testing.B) {
	row := to32(bigRow("zipf"))
	ctx, noise := context.Background(), sampler.NewSeeded(1)
	for name, set := range map[string]func(*sampler.Params){
		"fixed":     func(*sampler.Params) {},
		"edt":       func(p *sampler.Params) { p.Strategy = "edt" },
		"mix":       func(p *sampler.Params) { p.Strategy = "mix_temperatures" },
		"penalties": func(p *sampler.Params) { p.FrequencyPenalty = 0.1 },
	} {
		b.Run(name, func(b *testing.B) {
			p := sampler.Defaults()
			set(&p)
			s := begin(b, len(row), &p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(ctx, row, nil, noise); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
