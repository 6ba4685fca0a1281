package sampler_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/sampler"
)

// TestHeadHoldsItsNumber: one number a step, drawn once the head is there, whoever decides by it and however often it is asked.
func TestHeadHoldsItsNumber(t *testing.T) {
	row := bell(2000, 1)
	h := headOf(row, 256, rand.New(rand.NewPCG(1, 1)), 0)
	p := params(nil)
	src := &rig{value: 180} // a number near 1: the tail
	noise := noise(t, p, src, nil)
	s := begin(t, len(row), p)
	for range 3 {
		if _, err := s.NextHead(context.Background(), h, nil, noise); err != sampler.ErrWholeRow { //nolint:errorlint // it is promised bare
			t.Fatalf("error %v, want %v", err, sampler.ErrWholeRow)
		}
	}
	d, err := s.Next(context.Background(), row, nil, noise)
	if err != nil || len(src.calls) != 1 || s.Step() != 1 {
		t.Fatalf("got %+v, error %v, asked %v", d, err, src.calls)
	}
	if r := s.Record(); r.Source != "first" || float64(r.U) != d.U || r.Covered != 0 || r.Bytes != 1000 {
		t.Errorf("record %+v", r)
	}
	if _, err := s.NextHead(context.Background(), h, nil, noise); !errors.Is(err, sampler.ErrWholeRow) || len(src.calls) != 2 {
		t.Errorf("the next step: error %v, asked %v", err, src.calls)
	}
	if err := s.Void(1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(context.Background(), row, nil, noise); err != nil || len(src.calls) != 3 {
		t.Errorf("after the step was voided: error %v, asked %v", err, src.calls)
	}
}

// TestHeadRecord: the record of a token that a head decided says so.
func TestHeadRecord(t *testing.T) {
	row := bigRow("zipf")
	h := headOf(to32(row), 256, rand.New(rand.NewPCG(1, 1)), 0.5)
	p := params(nil)
	s := begin(t, len(row), p)
	s.Observe(true)
	if _, err := s.NextHead(context.Background(), h, nil, noise(t, p, &rig{value: 127}, nil)); err != nil {
		t.Fatal(err)
	}
	r := s.Record()
	if got := names(t, &r); got["covered_mass"] == nil || got["token_prob_error"] == nil || got["entropy_source_used"] != "first" || got["varentropy"] != nil {
		t.Errorf("got %v", got)
	}
	mass := 0.0
	for _, v := range h.Logits {
		mass += math.Exp(float64(v) - float64(h.LSE))
	}
	if math.Abs(float64(r.Covered)-mass) > 1e-6 || float64(r.H) != float64(h.Entropy) || r.Candidates != len(row) || !(r.ProbError > 0 && r.ProbError < 1e-4) {
		t.Errorf("got %+v, want %v covered", r, mass)
	}
}

// TestHeadNeedsRow: where the strategy looks at the row no number is drawn for a head, and greedy never draws one.
func TestHeadNeedsRow(t *testing.T) {
	row := bell(500, 1)
	h := headOf(row, 64, rand.New(rand.NewPCG(1, 1)), 0)
	for _, strategy := range strategies() {
		p := sampler.Defaults()
		p.Strategy = strategy
		s, noise := begin(t, len(row), &p), &given{u: 1e-9}
		_, err := s.NextHead(context.Background(), h, nil, noise)
		if fixed := strategy == "fixed"; s.TakesHead() != fixed || errors.Is(err, sampler.ErrWholeRow) == fixed || noise.asked > 0 != fixed {
			t.Errorf("%s: error %v, asked %d times", strategy, err, noise.asked)
		}
		p.Bypass = true
		if err := s.Begin(&p, nil); err != nil || !s.TakesHead() {
			t.Errorf("%s, bypassed: takes no head, error %v", strategy, err)
		}
	}
	p := sampler.Defaults()
	p.Temperature = 0
	p.LogitBias = []sampler.TokenBias{{Token: rest(row, h), Bias: 50}}
	s, noise := begin(t, len(row), &p), &given{u: 0.5}
	if _, err := s.NextHead(context.Background(), h, nil, noise); !errors.Is(err, sampler.ErrWholeRow) || noise.asked > 0 {
		t.Errorf("a raised token that isn't shown: error %v, asked %d times", err, noise.asked)
	}
}

// rest is a token that h doesn't show.
func rest(row []float32, h *sampler.Head) int32 {
	shown := sampler.NewMask(h.IDs...)
	for id := range int32(len(row)) {
		if !shown.Has(id) {
			return id
		}
	}
	return -1
}

// state is what an answer's later tokens depend on, seen from outside: a later token from each of two rows, and the record.
func state(t rapid.TB, s *sampler.Stream, rows [][]float32) []string {
	t.Helper()
	var out []string
	for i, row := range rows {
		u := &given{u: 0.37 + 0.2*float64(i)}
		d, err := s.Next(context.Background(), row, nil, u)
		if err != nil {
			t.Fatal(err)
		}
		r := s.Record()
		out = append(out, fmt.Sprintf("%+v %d %d %v %v", d, r.Step, r.Previous, r.Temperature, r.Diagnostics))
	}
	return out
}

// TestLawVoid: an answer in which steps were voided goes on as one in which they never were.
func TestLawVoid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "rows"), 5))
		n := 40
		p := sampler.Defaults()
		p.Strategy = rapid.SampledFrom(strategies()).Draw(t, "strategy")
		p.FrequencyPenalty, p.PresencePenalty = 0.3, 0.1
		p.RepetitionPenalty = rapid.SampledFrom([]float64{1, 1.2}).Draw(t, "repetition")
		set(t, &p, map[string]any{"qr_rba_buffer_n": 3, "qr_coherence_inner_strategy": rapid.SampledFrom([]string{"fixed", "hvh_drift", "ring_buffer_ar"}).Draw(t, "inner")})
		prompt := []int32{1, 2, 3}
		x := newPair(t, &p, n, prompt, nil)
		for step := range rapid.IntRange(1, 8).Draw(t, "steps") {
			row, u := rowOf("bell", n, r), r.Float64()
			for range rapid.IntRange(0, 2).Draw(t, "voids") {
				other := &given{u: r.Float64(), ev: coherent(r)}
				if _, err := x.head.Next(context.Background(), rowOf("bell", n, r), nil, other); err != nil {
					t.Fatal(err)
				}
				if err := x.head.Void(step); err != nil || x.head.Step() != step {
					t.Fatalf("is at token %d, error %v", x.head.Step(), err)
				}
			}
			if rapid.Bool().Draw(t, "only planned") {
				if _, err := x.head.Plan(rowOf("bell", n, r), nil); err != nil {
					t.Fatal(err)
				}
				if err := x.head.Void(step); err != nil {
					t.Fatal(err)
				}
			}
			ev := coherent(r)
			for _, s := range []*sampler.Stream{x.head, x.whole} {
				if _, err := s.Next(context.Background(), row, nil, &given{u: u, ev: ev}); err != nil {
					t.Fatal(err)
				}
			}
		}
		rows := [][]float32{rowOf("bell", n, r), rowOf("bell", n, r), rowOf("bell", n, r)}
		if diff := cmp.Diff(state(t, x.whole, rows), state(t, x.head, rows)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// coherent is evidence of a server that says its draw was coherent, or none.
func coherent(r *rand.Rand) sampler.Evidence {
	if r.IntN(3) == 0 {
		return sampler.Evidence{}
	}
	return sampler.Evidence{Number: &sampler.Number{CoherenceZ: 2 + 3*r.Float64(), CoherenceR: r.Float64(), Coherent: r.IntN(4) > 0}}
}

func set(t rapid.TB, p *sampler.Params, values map[string]any) {
	t.Helper()
	for key, v := range values {
		if err := p.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVoidRefuses: only the step under way and the one before can be voided, and that one once.
func TestVoidRefuses(t *testing.T) {
	row := bell(40, 1)
	p := sampler.Defaults()
	p.Strategy = "hvh_drift"
	if err := sampler.NewStream(3).Void(0); err == nil {
		t.Error("no answer was begun: no error")
	}
	s := begin(t, len(row), &p)
	next := func() {
		if _, err := s.Next(context.Background(), row, nil, &given{u: 0.5}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Void(-1); err == nil {
		t.Error("before the first token: no error")
	}
	next()
	next()
	for _, step := range []int{0, 3} {
		if err := s.Void(step); err == nil || s.Step() != 2 {
			t.Errorf("token %d of 2: error %v, is at %d", step, err, s.Step())
		}
	}
	if err := s.Void(1); err != nil || s.Step() != 1 {
		t.Errorf("error %v, is at %d", err, s.Step())
	}
	if err := s.Void(0); err == nil || s.Step() != 1 {
		t.Errorf("a second one: error %v, is at %d", err, s.Step())
	}
	next()
	if _, err := s.Plan(row, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Void(1); err == nil {
		t.Error("the strategy has seen the next row: no error")
	}
	if err := errors.Join(s.Void(2), s.Void(2)); err != nil {
		t.Error(err)
	}
}
