package sampler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"qr-gateway/sampler"
)

// powerRow is a row of a large vocabulary whose probabilities fall off by a power of the rank, over a bell of logits that don't matter, as those of
// language models do.
func powerRow(power float64, r *rand.Rand) []float32 {
	row := make([]float32, benchVocab)
	for i, rank := range r.Perm(benchVocab) {
		row[i] = float32(14 - power*math.Log1p(float64(rank)) + 0.3*r.NormFloat64() - float64(rank)/40000)
	}
	return row
}

// headCase is a set of parameters and the least share of tokens that heads of 256 are to decide of rows of a model.
type headCase struct {
	name  string
	least float64
	set   func(p *sampler.Params)
}

func headCases() []headCase {
	return []headCase{
		{"T 1", 0.9, func(*sampler.Params) {}},
		{"T 0.7", 0.93, func(p *sampler.Params) { p.Temperature = 0.7 }},
		{"T 1.2", 0.5, func(p *sampler.Params) { p.Temperature = 1.2 }},
		{"greedy", 1, func(p *sampler.Params) { p.Temperature = 0 }},
		{"top-k 50, top-p 0.9", 1, func(p *sampler.Params) { p.TopK, p.TopP = 50, 0.9 }},
		{"top-p 0.9", 0.93, func(p *sampler.Params) { p.TopP = 0.9 }},
		{"T 0.7, top-p 0.9", 0.95, func(p *sampler.Params) { p.Temperature, p.TopP = 0.7, 0.9 }},
		{"min-p 0.05", 0.99, func(p *sampler.Params) { p.MinP = 0.05 }},
		{"penalties", 0.55, func(p *sampler.Params) { p.FrequencyPenalty, p.PresencePenalty = 0.2, 0.2 }},
		{"repetition", 0.5, func(p *sampler.Params) { p.RepetitionPenalty = 1.1 }},
	}
}

// TestHeadDecidesMost: of rows as models give them, heads of 256 decide most tokens without the whole row, and none of them wrongly. The history is
// of 300 different tokens.
func TestHeadDecidesMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var rows [][]float32
	var heads []*sampler.Head
	for _, power := range []float64{1.3, 1.5, 1.7, 2, 2.5} {
		rows = append(rows, powerRow(power, r))
		heads = append(heads, headOf(rows[len(rows)-1], 256, r, 1))
	}
	draws := 60
	if raceEnabled {
		draws = 6
	}
	for _, c := range headCases() {
		p, n := sampler.Defaults(), 0
		c.set(&p)
		for i, row := range rows {
			x := newPair(t, &p, benchVocab, nil, tokens(r, 300))
			for range draws {
				if x.agree(t, row, heads[i], nil, r.Float64()) {
					n++
				}
			}
		}
		share := float64(n) / float64(draws*len(rows))
		t.Logf("%-20s %.3f", c.name, share)
		if share < c.least && !raceEnabled { // too few draws to tell
			t.Errorf("%s: heads decide %.3f of the tokens, want %v", c.name, share, c.least)
		}
	}
}

// tokens are n tokens of the vocabulary.
func tokens(r *rand.Rand, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(r.IntN(benchVocab))
	}
	return out
}

// TestHeadAllocatesNothing holds a token to it, whether the head decides or not.
func TestHeadAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := rand.New(rand.NewPCG(1, 2))
	row := bell(20000, 3)
	h := headOf(row, 256, r, 0)
	ban := sampler.NewMask(0, 5, 17, h.IDs[3])
	ctx, noise := context.Background(), sampler.NewSeeded(1)
	for _, c := range headCases() {
		p := sampler.Defaults()
		c.set(&p)
		p.LogitBias = []sampler.TokenBias{{Token: 9, Bias: 0.1}, {Token: 11, Bias: -0.1}}
		s := begin(t, len(row), &p, 1, 2, 3)
		decided := 0
		next := func() {
			_, err := s.NextHead(ctx, h, ban, noise)
			if errors.Is(err, sampler.ErrWholeRow) {
				_, err = s.Next(ctx, row, ban, noise)
				decided--
			}
			if err != nil {
				t.Fatal(err)
			}
			decided++
		}
		for range 50 {
			next()
		}
		if n := testing.AllocsPerRun(100, next); n != 0 {
			t.Errorf("%s: %v allocations a token", c.name, n)
		}
		t.Logf("%s: decided %d", c.name, decided)
	}
}

// BenchmarkHead is a token from a head of 256 beside one from its whole row, in interleaved short rounds, with numbers apart. Each token is
// taken back, so that the history stays as long as it is.
func BenchmarkHead(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	row := powerRow(2, r)
	h := headOf(row, 256, r, 0)
	all := slices.Concat(headBenches(b, headCases(), row, h), headBenches(b, headCases()[:1], row, inOrder(h)))
	all[len(all)-2].name += " in order"
	for b.Loop() {
		for _, x := range all {
			x.round()
		}
	}
	b.Log(headTable(all))
}

// inOrder is h as torch.topk gives it.
func inOrder(h *sampler.Head) *sampler.Head {
	at := make([]int, len(h.IDs))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(h.Logits[b], h.Logits[a]) })
	o := *h
	o.IDs, o.Logits = nil, nil
	for _, i := range at {
		o.IDs, o.Logits = append(o.IDs, h.IDs[i]), append(o.Logits, h.Logits[i])
	}
	return &o
}

// headBenches are pairs: a token from the head, and one from the row.
func headBenches(b *testing.B, cases []headCase, row []float32, h *sampler.Head) (all []*bench) {
	ctx, history := context.Background(), tokens(rand.New(rand.NewPCG(3, 4)), 300)
	for _, c := range cases {
		p := sampler.Defaults()
		c.set(&p)
		x := newPair(b, &p, benchVocab, nil, history)
		noise := &given{u: 0.4}
		all = append(all,
			&bench{name: c.name + ", head", run: func() {
				_, err := x.head.NextHead(ctx, h, nil, noise)
				if err := errors.Join(err, x.head.Void(300)); err != nil {
					b.Fatal(err)
				}
			}},
			&bench{name: c.name + ", row", run: func() {
				_, err := x.whole.Next(ctx, row, nil, noise)
				if err := errors.Join(err, x.whole.Void(300)); err != nil {
					b.Fatal(err)
				}
			}})
	}
	return all
}

// headTable tells the middle times and how many times as long the row takes.
func headTable(all []*bench) (out string) {
	middle := func(x *bench) time.Duration { return slices.Sorted(slices.Values(x.took))[len(x.took)/2] }
	for i := 0; i+1 < len(all); i += 2 {
		head, row := middle(all[i]), middle(all[i+1])
		out += fmt.Sprintf("\n%-30s %8v, the whole row %8v: %.0f times as long", all[i].name, head, row, float64(row)/float64(head))
	}
	return out
}
