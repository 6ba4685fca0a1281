package lookahead_test

import (
	"context"
	"fmt"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// peekCost is what a batch costs in single peeks; the same table that the planner has built in.
func peekCost(g int) float64 {
	table := []float64{0, 1, 1.97, 2.34, 2.75, 3.3, 3.9, 4.1, 4.3, 4.7, 5.1, 5.45, 5.8, 6.2, 6.6, 7, 7.4, 7.8, 8.15, 8.5, 8.9}
	return table[g]
}

// simulate decodes steps tokens and returns peeks, rounds and cost per token.
func simulate(t testing.TB, p sampler.Params, group, steps int) (peeks, rounds, cost float64) {
	t.Helper()
	seed := int64(5)
	p.Seed = &seed
	m := lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: 512})
	e := lookaheadtest.New(m, 3, group)
	d, err := lookahead.New(512, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st := lookahead.Step{Row: e.Row(), Params: &p, Noise: sampler.NewSeeded(seed), Eval: e}
	for ; st.Index < steps; st.Index++ {
		out, err := d.Next(context.Background(), &st)
		if err != nil {
			t.Fatal(err)
		}
		st.Row = out.Row
		peeks, rounds = peeks+float64(out.Peeks), rounds+float64(out.Rounds)
	}
	n := float64(steps)
	return peeks / n, rounds / n, e.Cost(peekCost) / n
}

// BenchmarkCost reports what a token costs in plain tokens, on synthetic steps.
func BenchmarkCost(b *testing.B) {
	for _, choice := range []string{"argmax", "sample"} {
		for _, mode := range []string{"lazy", "bounded"} {
			for _, alpha := range []float64{0, 0.3, 0.5} {
				for _, group := range []int{1, 4, 8, 20} {
					if choice == "argmax" && mode == "bounded" {
						continue
					}
					b.Run(fmt.Sprintf("%s/%s/alpha=%v/group=%d", choice, mode, alpha, group), func(b *testing.B) {
						p := sampler.Defaults()
						p.Alpha, p.LookaheadChoice, p.Lookahead = &alpha, choice, mode
						var peeks, rounds, cost float64
						for b.Loop() {
							peeks, rounds, cost = simulate(b, p, group, 2000)
						}
						b.ReportMetric(peeks, "peeks/token")
						b.ReportMetric(rounds, "rounds/token")
						b.ReportMetric(cost, "cost/token")
					})
				}
			}
		}
	}
}
