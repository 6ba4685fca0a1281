package worker

import (
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/backends/llama/engine"
)

// pieces is how a prompt of n tokens is cut when keep are reused.
func pieces(p *policy, keep, n int) [][2]int {
	var out [][2]int
	for start := keep; start < n; {
		end := p.pieceEnd(start, n)
		out = append(out, [2]int{start, end})
		start = end
	}
	return out
}

func drawPolicy(t *rapid.T) *policy {
	return &policy{
		memory:   rapid.SampledFrom(memories).Draw(t, "memory"),
		chunk:    64 * rapid.IntRange(1, 8).Draw(t, "chunk/64"),
		minPiece: rapid.SampledFrom([]int{32, 64}).Draw(t, "minPiece"),
	}
}

func TestPiecesLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		all := pieces(p, 0, n)
		if all[len(all)-1][1] != n {
			t.Fatalf("pieces %v do not end at %d", all, n)
		}
		for i, piece := range all {
			size := piece[1] - piece[0]
			if size < 1 || size > p.largestPiece() {
				t.Fatalf("piece %v of %v has %d tokens", piece, all, size)
			}
			if len(all) > 1 && size < grid || (len(all) > 1 && i == len(all)-1 && size < p.minPiece) {
				t.Fatalf("piece %v of %v is too short for the kernels", piece, all)
			}
			if piece[0]%grid != 0 {
				t.Fatalf("piece %v of %v is off the grid", piece, all)
			}
		}
	})
}

func TestSeededReuseLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		common := rapid.IntRange(0, 1000).Draw(t, "common")
		own := rapid.IntRange(1, 200).Draw(t, "own")
		held := residue{tokens: prompt(common+rapid.IntRange(0, 50).Draw(t, "generated"), 1)}
		held.pure = rapid.IntRange(0, len(held.tokens)).Draw(t, "pure")
		wanted := prompt(common+own, 1)
		wanted[common] = 3 // differs from here on
		keep := p.reuse(held, wanted, true)
		switch {
		case keep > common || keep > held.pure:
			t.Fatalf("%d tokens reused, %d are common, %d pure", keep, common, held.pure)
		case keep%seededGrid != 0:
			t.Fatalf("%d tokens reused, not a multiple of %d", keep, seededGrid)
		case keep > 0 && len(wanted)-keep < p.minPiece:
			t.Fatalf("%d tokens reused leave a piece of %d", keep, len(wanted)-keep)
		case keep > 0 && p.recurs():
			t.Fatalf("%d tokens reused of a memory that can't go back", keep)
		}
		if pure := p.pure(held, wanted, keep); pure != len(wanted) {
			t.Fatalf("a seeded prompt leaves %d of %d tokens pure", pure, len(wanted))
		}
	})
}

func TestReuse(t *testing.T) {
	attention := policy{memory: engine.MemoryAttention, chunk: 64, minPiece: 32}
	recurrent := policy{memory: engine.MemoryRecurrent, chunk: 64, minPiece: 32}
	for name, c := range map[string]struct {
		p      *policy
		held   residue
		prompt []int32
		seeded bool
		want   int
	}{
		"nothing held":            {&attention, residue{}, prompt(100, 1), false, 0},
		"one token is left":       {&attention, residue{prompt(100, 1), 100}, prompt(100, 1), false, 99},
		"seeded, same prompt":     {&attention, residue{prompt(100, 1), 100}, prompt(100, 1), true, 64},
		"seeded, generated":       {&attention, residue{prompt(300, 1), 130}, prompt(290, 1), true, 128},
		"recurrent, goes on":      {&recurrent, residue{prompt(100, 1), 100}, prompt(130, 1), false, 100},
		"recurrent, same":         {&recurrent, residue{prompt(100, 1), 100}, prompt(100, 1), false, 0},
		"recurrent, turned off":   {&recurrent, residue{prompt(100, 1), 100}, prompt(130, 2), false, 0},
		"recurrent, seeded":       {&recurrent, residue{prompt(100, 1), 100}, prompt(130, 1), true, 0},
		"the rest would be short": {&attention, residue{prompt(200, 1), 200}, prompt(130, 1), true, 64},
	} {
		if got := c.p.reuse(c.held, c.prompt, c.seeded); got != c.want {
			t.Errorf("%s: %d tokens reused, want %d", name, got, c.want)
		}
	}
}

func TestUnseededReuseIsNotPure(t *testing.T) {
	p := policy{memory: engine.MemoryAttention, chunk: 64, minPiece: 32}
	held := residue{prompt(150, 1), 100}
	if got := p.pure(held, prompt(200, 1), 150); got != 100 {
		t.Errorf("%d tokens pure after generated ones were reused, want 100", got)
	}
}
