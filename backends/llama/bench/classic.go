package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"qr-gateway/backends/llama/engine"
)

// classic is the method as it is usually written: a cache divided into k+1 parts, the whole prefix copied to a fork for
// each candidate, all decoded in one batch, all dropped, and the winner decoded again.
type classic struct {
	b    *bed
	ctx  *engine.Context
	top  []int32
	held int // tokens of sequence 0
}

// classicRun is the classic method with candidates cut at a part of the first one's probability; 0 is its usual form, k of them always.
type classicRun struct {
	*classic
	minP float64
}

func newClassic(b *bed) (*classic, error) {
	part := (len(b.prompt) + b.cfg.Tokens/b.cfg.Rounds + 8 + 255) / 256 * 256
	seqs := b.cfg.K + 1
	c, err := b.model.NewContext(engine.ContextConfig{
		Context: part * seqs, Batch: chunk, UBatch: chunk, Sequences: seqs, Outputs: seqs,
		Threads: b.cfg.Threads, FlashAttention: b.cfg.Flash, Unified: false, SWAFull: true,
	}, b.pool)
	if err != nil {
		return nil, fmt.Errorf("make the classic method's context: %w", err)
	}
	return &classic{b: b, ctx: c, top: make([]int32, 0, b.cfg.K)}, nil
}

func (c *classic) close() { c.ctx.Close() }

// run decodes tokens behind the prompt. The prompt is decoded once and cut back to between the rounds where the memory allows.
func (c classicRun) run(ctx context.Context, _, tokens int) (took, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	row, err := c.rewind(ctx)
	if err != nil {
		return took{}, err
	}
	t := took{}
	begun := time.Now()
	for range tokens {
		best, err := c.choose(row)
		if err != nil {
			return took{}, err
		}
		t.tokens = append(t.tokens, best)
		t.peeks += len(c.top)
		if row, err = c.feed(ctx, []int32{best}); err != nil {
			return took{}, err
		}
	}
	t.ms, t.count = float64(time.Since(begun).Microseconds())/1000, tokens
	return t, nil
}

// rewind leaves the prompt in sequence 0 and returns the row that follows it.
func (c *classic) rewind(ctx context.Context) ([]float32, error) {
	last := len(c.b.prompt) - 1
	if c.held > last {
		if ok, err := c.ctx.SeqRemove(0, last, -1); err == nil && ok {
			c.held = last
			return c.feed(ctx, c.b.prompt[last:])
		}
	}
	c.ctx.Clear()
	c.held = 0
	return c.feed(ctx, c.b.prompt)
}

// feed decodes tokens on sequence 0.
func (c *classic) feed(ctx context.Context, tokens []int32) (row []float32, err error) {
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		piece := tokens[:min(len(tokens), chunk)]
		tokens = tokens[len(piece):]
		batch := c.ctx.Batch()
		batch.Reset()
		for i, token := range piece {
			if err := batch.Add(token, c.held+i, 0, i == len(piece)-1); err != nil {
				return nil, err
			}
		}
		if err := c.ctx.Decode(); err != nil {
			return nil, err
		}
		c.held += len(piece)
		if row, err = c.ctx.Logits(len(piece) - 1); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// choose forks for every candidate and returns the one with the best score.
func (c classicRun) choose(row []float32) (int32, error) {
	c.candidates(row)
	weights := make([]float64, len(c.top))
	for i, id := range c.top {
		weights[i] = math.Exp(float64(row[id] - row[c.top[0]]))
	}
	batch := c.ctx.Batch()
	batch.Reset()
	for i, id := range c.top {
		if err := c.ctx.SeqCopy(0, i+1, -1, -1); err != nil {
			return 0, err
		}
		if err := batch.Add(id, c.held, i+1, true); err != nil {
			return 0, err
		}
	}
	if err := c.ctx.Decode(); err != nil {
		return 0, err
	}
	best, most := c.top[0], -1.0
	for i, id := range c.top {
		next, err := c.ctx.Logits(i)
		if err != nil {
			return 0, err
		}
		alpha := c.b.cfg.Alpha
		s := math.Pow(weights[i], 1-max(0, alpha)) * math.Pow(openness(next), 1-max(0, -alpha))
		if s > most {
			best, most = id, s
		}
		if _, err := c.ctx.SeqRemove(i+1, -1, -1); err != nil {
			return 0, err
		}
	}
	return best, nil
}

// candidates fills top with the most probable tokens.
func (c classicRun) candidates(row []float32) {
	c.top = topOf(row, c.top[:0], c.b.cfg.K)
	for n := len(c.top); c.minP > 0 && float64(row[c.top[n-1]]-row[c.top[0]]) < math.Log(c.minP); n-- {
		c.top = c.top[:n-1]
	}
}

// topOf appends the ids of the k largest logits, largest first.
func topOf(row []float32, top []int32, k int) []int32 {
	for id, x := range row {
		if len(top) == k && x <= row[top[k-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, x, func(t int32, x float32) int {
			if row[t] >= x {
				return -1
			}
			return 1
		})
		if len(top) == k {
			top = top[:k-1]
		}
		top = slices.Insert(top, at, int32(id))
	}
	return top
}

// openness is the entropy of the 30 most probable tokens, over ln 30.
func openness(row []float32) float64 {
	const n = 30
	ids := topOf(row, make([]int32, 0, n), n)
	sum, dot := 0.0, 0.0
	for _, id := range ids {
		x := float64(row[id] - row[ids[0]])
		sum += math.Exp(x)
		dot += x * math.Exp(x)
	}
	return (math.Log(sum) - dot/sum) / math.Log(n)
}
