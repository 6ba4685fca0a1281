package lookahead_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// same is three tokens whose futures are all alike, so that probability decides.
func same() map[int32][]float32 {
	return map[int32][]float32{0: flat(), 1: flat(), 2: flat(), 3: flat()}
}

// planned makes a step of p's plan for row, after the tokens of an answer.
func planned(t *testing.T, p *sampler.Params, row []float32, ban *sampler.Mask, answer ...int32) (lookahead.Step, *sampler.Stream) {
	t.Helper()
	s := sampler.NewStream(len(row))
	if err := s.Begin(p, nil); err != nil {
		t.Fatal(err)
	}
	for _, token := range answer {
		if _, err := s.Plan(row, ban); err != nil {
			t.Fatal(err)
		}
		s.Accept(token, nil)
	}
	plan, err := s.Plan(row, ban)
	if err != nil {
		t.Fatal(err)
	}
	return lookahead.Step{Index: len(answer), Row: row, Params: p, Plan: &plan, Noise: sampler.NewSeeded(1), Ban: ban}, s
}

// TestPlanMovesCandidates: penalties, bias and a transformed row decide which tokens are candidates at all, and their order.
func TestPlanMovesCandidates(t *testing.T) {
	row := []float32{1, 0.9, 0.8, -9}
	for _, c := range []struct {
		name   string
		set    func(*sampler.Params)
		answer []int32
		want   int32
	}{
		{"nothing", func(*sampler.Params) {}, []int32{0}, 0},
		{"frequency penalty", func(p *sampler.Params) { p.FrequencyPenalty = 2 }, []int32{0}, 1},
		{"repetition penalty", func(p *sampler.Params) { p.RepetitionPenalty = 2 }, []int32{0, 1}, 2},
		{"bias", func(p *sampler.Params) { p.LogitBias = []sampler.TokenBias{{Token: 3, Bias: 50}} }, nil, 3},
		{"ring buffer", func(p *sampler.Params) { p.Strategy = "ring_buffer_ar" }, []int32{0, 2}, 1},
	} {
		p := argmaxParams(0)
		c.set(p)
		st, _ := planned(t, p, row, nil, c.answer...)
		st.Eval = &rows{group: 4, after: same()}
		out, err := next(t, st)
		if err != nil || out.Token != c.want || out.Rank != 0 {
			t.Errorf("%s: got %+v, error %v, want token %d", c.name, out, err, c.want)
		}
	}
}

// TestPlanSetsTemperature: the strategy's temperature replaces the request's, down to none at all.
func TestPlanSetsTemperature(t *testing.T) {
	row := []float32{1, 0.9, 0.8, 0.7}
	p := argmaxParams(0.3)
	p.LookaheadChoice, p.Strategy = sampler.ChoiceSample, "edt"
	law := func(plan *sampler.Plan) map[int32]int {
		counts := map[int32]int{}
		for seed := range int64(2000) {
			st := lookahead.Step{Row: row, Params: p, Plan: plan, Noise: sampler.NewSeeded(seed), Eval: &rows{group: 4, after: same()}}
			out, err := next(t, st)
			if err != nil {
				t.Fatal(err)
			}
			counts[out.Token]++
		}
		return counts
	}
	cold, warm, none := law(&sampler.Plan{Row: row, Temperature: 0.05}), law(&sampler.Plan{Row: row, Temperature: 1}), law(&sampler.Plan{Row: row})
	if none[0] != 2000 || cold[0] < warm[0]+300 || warm[3] < 200 {
		t.Errorf("token 0 comes %d times without temperature, %d at 0.05, %d at 1; token 3 %d times at 1", none[0], cold[0], warm[0], warm[3])
	}
	// The law at T: s^(1/T), here p^(0.7/T).
	total, share := 0.0, 0.0
	for i, v := range row {
		w := math.Exp(0.7 * float64(v) / 0.05)
		if total += w; i == 0 {
			share = w
		}
	}
	if got, want := float64(cold[0])/2000, share/total; math.Abs(got-want) > 5*math.Sqrt(want*(1-want)/2000) {
		t.Errorf("token 0 has a share of %v at 0.05, want %v", got, want)
	}
}

// TestNothingPlannedIsNoPlan: a plan that adjusts nothing decides what no plan decides.
func TestNothingPlannedIsNoPlan(t *testing.T) {
	shape := lookaheadtest.Shape{Vocab: 60}
	for _, mode := range []string{sampler.ModeLazy, sampler.ModeFull, sampler.ModeBounded, sampler.ModeFullInverse} {
		p := sampler.Defaults()
		alpha, seed := 0.3, int64(3)
		p.Alpha, p.Seed, p.Lookahead, p.Temperature = &alpha, &seed, mode, 0.8
		var texts [2][]int32
		for i := range texts {
			e := lookaheadtest.New(lookaheadtest.NewModel(shape), 5, 4)
			d, err := lookahead.New(shape.Vocab, lookahead.Config{})
			if err != nil {
				t.Fatal(err)
			}
			s := sampler.NewStream(shape.Vocab)
			if err := s.Begin(&p, nil); err != nil {
				t.Fatal(err)
			}
			st := lookahead.Step{Row: e.Row(), Params: &p, Noise: sampler.NewSeeded(seed), Eval: e}
			for ; st.Index < 40; st.Index++ {
				plan, err := s.Plan(st.Row, nil)
				if err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					st.Plan = &plan
				}
				out, err := d.Next(context.Background(), &st)
				if err != nil {
					t.Fatal(err)
				}
				s.Accept(out.Token, st.Noise.Last())
				texts[i], st.Row = append(texts[i], out.Token), out.Row
			}
		}
		if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
	}
}

// TestDescribe: the record of a token chosen by what follows it.
func TestDescribe(t *testing.T) {
	row := []float32{1, 0.9, 0, -20}
	after := map[int32][]float32{0: sharp(), 1: flat(), 2: sharp()}
	p := argmaxParams(0)
	st, s := planned(t, p, row, nil)
	st.Eval = &rows{group: 4, after: after}
	out, err := next(t, st)
	if err != nil || out.Token != 1 {
		t.Fatalf("got %+v, error %v", out, err)
	}
	s.Accept(out.Token, nil)
	r := s.Record()
	out.Describe(&r)
	share := math.Exp(-0.1) / (1 + math.Exp(-0.1) + math.Exp(-1))
	if r.Token != 1 || r.Rank != 1 || r.Candidates != 3 || math.Abs(float64(r.Prob)-share) > 1e-6 || r.Source != "none" {
		t.Errorf("got %+v, want rank 1 of 3, share %v", r, share)
	}
	want := &sampler.Lookahead{Score: sampler.Maybe(math.Exp(-0.1)), H: 1, Peeks: out.Peeks, Rounds: out.Rounds}
	if diff := cmp.Diff(want, r.Lookahead, cmpopts.EquateApprox(0, 1e-6), cmp.Transformer("number", func(m sampler.Maybe) float64 { return float64(m) })); diff != "" {
		t.Error(diff)
	}
	if _, err := json.Marshal(&r); err != nil {
		t.Error(err)
	}
}

// TestRankOfEquals: of equally probable tokens the lower id has the lower rank.
func TestRankOfEquals(t *testing.T) {
	for token := range int32(3) {
		after := map[int32][]float32{0: sharp(), 1: sharp(), 2: sharp()}
		after[token] = flat()
		out, err := next(t, lookahead.Step{Row: []float32{1, 1, 1, -20}, Params: argmaxParams(0), Eval: &rows{group: 4, after: after}})
		if err != nil || out.Token != token || out.Rank != int(token) || math.Abs(out.Prob-1.0/3) > 1e-12 {
			t.Errorf("got %+v, error %v, want token %d of that rank", out, err, token)
		}
	}
}

// TestNumbersInRecords: with a number per candidate the record has that of the token chosen, and that of the end where the text ends.
func TestNumbersInRecords(t *testing.T) {
	row := []float32{1, 0.9, 0.8, -20}
	p := argmaxParams(0.3)
	p.LookaheadChoice = sampler.ChoiceSample
	st, s := planned(t, p, row, nil)
	src := &ramp{}
	n, err := sampler.NewNoise(p, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	st.Noise, st.Eval, st.EOG = n, &rows{group: 4, after: same()}, sampler.NewMask(2)
	for range 20 {
		out, err := next(t, st)
		if err != nil {
			t.Fatal(err)
		}
		s.Accept(out.Token, n.Last())
		r := s.Record()
		want := n.Last().For(out.Token).U
		if out.End {
			want = n.Last().For(sampler.EndToken).U
		}
		if float64(r.U) != want || math.IsNaN(want) || r.Source != "ramp" || r.Bytes != p.SampleCount {
			t.Fatalf("%+v: got %+v, want u %v", out, r, want)
		}
		if _, err := s.Plan(row, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// ramp is a source of bytes that go up and differ from draw to draw.
type ramp struct{ at uint64 }

func (r *ramp) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	for i := range buf {
		r.at = r.at*6364136223846793005 + 1442695040888963407
		buf[i] = byte(r.at >> 56)
	}
	return sampler.Block{Source: "ramp"}, nil
}
