package sampler_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler"
)

// begin starts an answer of p on a stream for rows of n.
func begin(t testing.TB, n int, p *sampler.Params, prompt ...int32) *sampler.Stream {
	t.Helper()
	s := sampler.NewStream(n)
	if err := s.Begin(p, prompt); err != nil {
		t.Fatal(err)
	}
	return s
}

// adjusted is the row as the stream adjusts it after the tokens of an answer.
func adjusted(t testing.TB, s *sampler.Stream, row []float32, answer ...int32) []float32 {
	t.Helper()
	for _, token := range answer {
		if _, err := s.Plan(row, nil); err != nil {
			t.Fatal(err)
		}
		s.Accept(token, nil)
	}
	plan, err := s.Plan(row, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Row
}

func TestPenalties(t *testing.T) {
	inf := float32(math.Inf(-1))
	row := []float32{2, -1, 0, 4, inf, 1}
	for _, c := range []struct {
		name           string
		freq, pres     float64
		rep            float64
		bias           []sampler.TokenBias
		prompt, answer []int32
		want           []float32
	}{
		{"none", 0, 0, 1, nil, []int32{0}, []int32{3, 3}, row},
		{"frequency counts the answer", 0.5, 0, 1, nil, []int32{0, 1}, []int32{3, 3, 1}, []float32{2, -1.5, 0, 3, inf, 1}},
		{"presence counts once", 0, 0.5, 1, nil, []int32{0}, []int32{3, 3, 1}, []float32{2, -1.5, 0, 3.5, inf, 1}},
		{"below 0 they invite", -0.5, -1, 1, nil, nil, []int32{0, 0}, []float32{4, -1, 0, 4, inf, 1}},
		{"repetition divides or multiplies", 0, 0, 2, nil, []int32{0, 1, 2, 4}, []int32{3}, []float32{1, -2, 0, 2, inf, 1}},
		{"repetition once", 0, 0, 2, nil, []int32{3, 3}, []int32{3, 3}, []float32{2, -1, 0, 2, inf, 1}},
		{"the prompt is no occurrence", 1, 1, 2, nil, []int32{3, 3, 3}, nil, []float32{2, -1, 0, 2, inf, 1}},
		{"repetition below 1 invites", 0, 0, 0.5, nil, []int32{0, 1}, nil, []float32{4, -0.5, 0, 4, inf, 1}},
		{"repetition comes first", 0.25, 0.5, 2, nil, []int32{0}, []int32{3, 3}, []float32{1, -1, 0, 1, inf, 1}},
		{
			"bias comes last", 0, 0, 2,
			[]sampler.TokenBias{{Token: 3, Bias: 1}, {Token: 4, Bias: 100}, {Token: 5, Bias: -100}},
			nil,
			[]int32{3},
			[]float32{2, -1, 0, 3, inf, -99},
		},
		{"strangers have no logit", 1, 1, 2, nil, []int32{-1, 6, 1 << 30}, []int32{-2, 6}, row},
	} {
		p := sampler.Defaults()
		p.FrequencyPenalty, p.PresencePenalty, p.RepetitionPenalty, p.LogitBias = c.freq, c.pres, c.rep, c.bias
		got := adjusted(t, begin(t, len(row), &p, c.prompt...), row, c.answer...)
		for i := range row {
			if got[i] != c.want[i] {
				t.Errorf("%s: got %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

// TestPenaltiesStartAnew: a second answer knows nothing of the first.
func TestPenaltiesStartAnew(t *testing.T) {
	row := []float32{1, 1, 1, 1}
	p := sampler.Defaults()
	p.FrequencyPenalty, p.RepetitionPenalty = 1, 2
	s := begin(t, len(row), &p, 0)
	if got := adjusted(t, s, row, 1, 1); got[0] != 0.5 || got[1] != -1.5 || got[2] != 1 {
		t.Errorf("first answer: %v", got)
	}
	if err := s.Begin(&p, []int32{2}); err != nil {
		t.Fatal(err)
	}
	if got := adjusted(t, s, row); got[0] != 1 || got[1] != 1 || got[2] != 0.5 {
		t.Errorf("second answer: %v", got)
	}
}

// TestPenaltiesOff: without anything to adjust the caller's row is used as it is, and it is never changed.
func TestPenaltiesOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := genRow(t)
		for i, v := range row {
			if !(v <= math.MaxFloat32) {
				row[i] = float32(math.Inf(-1))
			}
		}
		before := append([]float32{}, row...)
		p := sampler.Defaults()
		s := sampler.NewStream(len(row))
		on := rapid.Bool().Draw(t, "on")
		if on {
			p.FrequencyPenalty, p.PresencePenalty, p.RepetitionPenalty = 0.3, -0.2, 1.3
		}
		if err := s.Begin(&p, []int32{0}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			plan, err := s.Plan(row, nil)
			if err != nil {
				t.Fatal(err)
			}
			if same := &plan.Row[0] == &row[0]; same == on {
				t.Fatalf("penalties %v, caller's own row %v", on, same)
			}
			s.Accept(rapid.Int32Range(0, int32(len(row)-1)).Draw(t, "token"), nil)
		}
		for i := range row {
			if row[i] != before[i] {
				t.Fatalf("the row has changed at %d", i)
			}
		}
	})
}

func TestBiasOutsideOfVocabulary(t *testing.T) {
	p := sampler.Defaults()
	p.LogitBias = []sampler.TokenBias{{Token: 3, Bias: 1}, {Token: 8, Bias: 1}}
	err := sampler.NewStream(8).Begin(&p, nil)
	e, ok := errors.AsType[*sampler.ParamError](err)
	if !ok || e.Key != "qr_logit_bias" || !strings.Contains(err.Error(), "token 8") || !strings.Contains(err.Error(), "8 tokens") {
		t.Errorf("got %v", err)
	}
	if err := sampler.NewStream(9).Begin(&p, nil); err != nil {
		t.Errorf("a vocabulary of 9: %v", err)
	}
}

// TestBanTakesOut: a banned token is never chosen and has no part in the entropy, whether the row is copied for it or not.
func TestBanTakesOut(t *testing.T) {
	row := []float32{9, 1, 1, 1, 1}
	for _, strategy := range []string{"fixed", "edt"} {
		for _, freq := range []float64{0, 1} {
			p := sampler.Defaults()
			p.Strategy, p.FrequencyPenalty = strategy, freq
			s := begin(t, len(row), &p)
			for i := range 64 {
				plan, err := s.Plan(row, sampler.NewMask(0, 77))
				if err != nil {
					t.Fatal(err)
				}
				if strategy == "edt" && i == 0 && math.Abs(plan.H-math.Log(4)) > 1e-12 {
					t.Errorf("H is %v, want ln 4: the banned token counts", plan.H)
				}
				d, err := s.Choose((float64(i) + 0.5) / 64)
				if err != nil || d.Token == 0 || d.Candidates != 4 {
					t.Fatalf("%s, frequency penalty %v: got %+v, error %v", strategy, freq, d, err)
				}
				s.Accept(d.Token, nil)
			}
		}
	}
	p := sampler.Defaults()
	s := begin(t, len(row), &p)
	if _, err := s.Plan(row, sampler.NewMask(0, 1, 2, 3, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Choose(0.5); !errors.Is(err, sampler.ErrNoCandidates) {
		t.Errorf("everything is banned: error %v", err)
	}
}
