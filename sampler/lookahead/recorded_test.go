package lookahead_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
)

// recorded are the 20 most probable tokens of real steps (SmolLM2-135M-Instruct, stories and answers, alpha 0.3): ln(p/p_max) and the entropy
// that follows each, over 30 tokens. End-of-generation tokens were left out.
type recorded struct {
	LP []float64 `json:"lp"`
	H  []float64 `json:"h"`
}

// recordedVocab is the vocabulary of a replay: token i is the candidate of rank i, the rest fills rows up to 30.
const recordedVocab = 32

// replay is an evaluator that plays recorded steps back, and counts batches by size.
type replay struct {
	steps   []recorded
	sharp   [][]float32 // how sharp the row after a candidate must be to have its entropy
	at      int
	held    int32
	row     []float32
	decoded [21]int
	group   int
}

func newReplay(t testing.TB, group int) *replay {
	t.Helper()
	data, err := os.ReadFile("testdata/steps.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{group: group, held: -1, row: make([]float32, recordedVocab)}
	if err := json.Unmarshal(data, &r.steps); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.steps {
		var sharp []float32
		for _, h := range s.H {
			sharp = append(sharp, sharpness(h))
		}
		r.sharp = append(r.sharp, sharp)
	}
	return r
}

// sharpness is the x for which one logit of x among 29 of 0 has the entropy h.
func sharpness(h float64) float32 {
	lo, hi := 0.0, 60.0
	for range 60 {
		x := (lo + hi) / 2
		z := math.Exp(x) + 29
		if (math.Log(z)-x*math.Exp(x)/z)/math.Log(30) > h {
			lo = x
		} else {
			hi = x
		}
	}
	return float32(lo)
}

func (r *replay) Group() int { return r.group }
func (r *replay) Hold(t int32) {
	r.held = t
}

func (r *replay) Peek(_ context.Context, tokens []int32, visit func(int, []float32)) error {
	r.decoded[len(tokens)]++
	for i, t := range tokens {
		clear(r.row)
		r.row[0], r.row[30], r.row[31] = r.sharp[r.at][t], -1e6, -1e6
		visit(i, r.row)
	}
	return nil
}

func (r *replay) Commit(_ context.Context, t int32) ([]float32, error) {
	if r.held != t {
		r.decoded[1]++
	}
	r.held, r.at = -1, (r.at+1)%len(r.steps)
	return r.base(), nil
}

func (r *replay) base() []float32 {
	for i := range r.row {
		r.row[i] = -1e6
	}
	for i, lp := range r.steps[r.at].LP {
		r.row[i] = float32(lp)
	}
	return r.row
}

// run replays every step times times and returns peeks, rounds and cost per token.
func (r *replay) run(t testing.TB, p sampler.Params, times int) (peeks, rounds, cost float64) {
	t.Helper()
	seed := int64(5)
	p.Seed = &seed
	d, err := lookahead.New(recordedVocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.decoded = [21]int{}
	n := times * len(r.steps)
	st := lookahead.Step{Row: r.base(), Params: &p, Noise: sampler.NewSeeded(seed), Eval: r}
	for ; st.Index < n; st.Index++ {
		out, err := d.Next(context.Background(), &st)
		if err != nil {
			t.Fatal(err)
		}
		st.Row = out.Row
		peeks, rounds = peeks+float64(out.Peeks), rounds+float64(out.Rounds)
	}
	for g, c := range r.decoded {
		if c > 0 {
			cost += float64(c) * peekCost(g)
		}
	}
	return peeks / float64(n), rounds / float64(n), cost / float64(n)
}

// BenchmarkRecorded reports what a token costs in plain tokens, on recorded steps.
func BenchmarkRecorded(b *testing.B) {
	for _, c := range []struct{ choice, mode string }{{"argmax", "lazy"}, {"sample", "lazy"}, {"sample", "bounded"}} {
		for _, alpha := range []float64{0, 0.3, 0.5} {
			for _, group := range []int{1, 3, 4, 8, 20} {
				b.Run(fmt.Sprintf("%s/%s/alpha=%v/group=%d", c.choice, c.mode, alpha, group), func(b *testing.B) {
					p := sampler.Defaults()
					p.Alpha, p.LookaheadChoice, p.Lookahead = &alpha, c.choice, c.mode
					r := newReplay(b, group)
					var peeks, rounds, cost float64
					for b.Loop() {
						peeks, rounds, cost = r.run(b, p, 5)
					}
					b.ReportMetric(peeks, "peeks/token")
					b.ReportMetric(rounds, "rounds/token")
					b.ReportMetric(cost, "cost/token")
				})
			}
		}
	}
}
