package sampler_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

func TestSeededIsKeyedByToken(t *testing.T) {
	ctx, s := context.Background(), sampler.NewSeeded(42)
	a, b := make([]float64, 3), make([]float64, 3)
	if err := s.Each(ctx, 7, []int32{5, 9, sampler.EndToken}, a); err != nil {
		t.Fatal(err)
	}
	if err := s.Each(ctx, 7, []int32{sampler.EndToken, 5, 9}, b); err != nil {
		t.Fatal(err)
	}
	if a[0] != b[1] || a[1] != b[2] || a[2] != b[0] {
		t.Errorf("numbers moved with the rank: %v, %v", a, b)
	}
	if slices.Contains(a, 0) || a[0] == a[1] {
		t.Errorf("got %v", a)
	}
}

// TestSeededIsUniform cuts the numbers of neighbouring seeds, steps and tokens into 64 bins, and pairs of neighbours into 8 by 8.
func TestSeededIsUniform(t *testing.T) {
	const n = 1 << 17
	for name, key := range map[string]func(i int) (seed int64, step int, token int32){
		"seeds":  func(i int) (int64, int, int32) { return int64(i - n/2), 0, 0 },
		"steps":  func(i int) (int64, int, int32) { return 1, i, 3 },
		"tokens": func(i int) (int64, int, int32) { return 1, 3, int32(i) },
	} {
		var one, two [64]int
		last := 0.5
		for i := range n {
			seed, step, token := key(i)
			u := make([]float64, 1)
			if err := sampler.NewSeeded(seed).Each(context.Background(), step, []int32{token}, u); err != nil {
				t.Fatal(err)
			}
			if !(u[0] > 0 && u[0] < 1) {
				t.Fatalf("%s: %v", name, u[0])
			}
			one[int(u[0]*64)]++
			two[int(u[0]*8)*8+int(last*8)]++
			last = u[0]
		}
		for _, bins := range [][64]int{one, two} {
			chi := 0.0
			for _, c := range bins {
				chi += math.Pow(float64(c)-n/64, 2) / (n / 64)
			}
			if chi > 130 { // 63 degrees of freedom: once in two million
				t.Errorf("%s: chi-square %.1f", name, chi)
			}
		}
	}
}

// counter fills buffers with 0, 1, 2, ...
type counter struct {
	next byte
	err  error
}

func (c *counter) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	for i := range buf {
		buf[i] = c.next
		c.next++
	}
	return sampler.Block{Source: "counter"}, c.err
}

// share is an amplifier that makes a number of the first byte, and notes the blocks it saw.
type share struct{ blocks [][]byte }

func (s *share) Read(block []byte) (amplify.Reading, error) {
	s.blocks = append(s.blocks, slices.Clone(block))
	return amplify.Reading{U: float64(block[0]) / 10, Bytes: len(block)}, nil
}

func TestEntropyNoiseCutsOneDraw(t *testing.T) {
	src, amp := &counter{next: 1}, &share{}
	n := sampler.NewEntropyNoise(sampler.EntropyConfig{Source: "test", Amplifier: "first", Bytes: 7}, src, amp)
	if n.Last() != nil {
		t.Error("evidence of nothing")
	}
	if source, uSource, bytes := n.Info(); source != "test" || uSource != "first" || bytes != 0 {
		t.Errorf("info before a draw: %s, %s, %d", source, uSource, bytes)
	}
	u := make([]float64, 3)
	if err := n.Each(context.Background(), 0, []int32{8, 9, 10}, u); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u, []float64{0.1, 0.3, 0.5}) || len(amp.blocks) != 3 || !slices.Equal(amp.blocks[2], []byte{5, 6}) {
		t.Errorf("u %v of blocks %v, want three blocks of two bytes", u, amp.blocks)
	}
	if e := n.Last(); e.Bytes != 7 || !math.IsNaN(e.U) || e.For(9).U != 0.3 || !math.IsNaN(e.For(7).U) {
		t.Errorf("evidence of three: %+v", e)
	}
	if v, err := n.One(context.Background(), 1); err != nil || v != 0.8 || len(amp.blocks[3]) != 7 {
		t.Errorf("one: %v, error %v, of block %v", v, err, amp.blocks[3])
	}
	if e := n.Last(); e.For(9).U != 0.8 || len(e.Tokens) != 0 {
		t.Errorf("evidence of one: %+v", e)
	}
	if source, uSource, bytes := n.Info(); source != "counter" || uSource != "first" || bytes != 14 {
		t.Errorf("info: %s, %s, %d", source, uSource, bytes)
	}
}

func TestEntropyNoiseRefuses(t *testing.T) {
	ctx, boom := context.Background(), errors.New("boom")
	cfg := sampler.EntropyConfig{Source: "test", Bytes: 2}
	u := make([]float64, 3)
	if err := sampler.NewEntropyNoise(cfg, &counter{}, &share{}).Each(ctx, 0, []int32{1, 2, 3}, u); err == nil {
		t.Error("three numbers of two bytes: no error")
	}
	if _, err := sampler.NewEntropyNoise(cfg, &counter{next: 1, err: boom}, &share{}).One(ctx, 0); !errors.Is(err, boom) {
		t.Errorf("source fails: error %v", err)
	}
	if _, err := sampler.NewEntropyNoise(cfg, &counter{next: 10}, &share{}).One(ctx, 0); err == nil {
		t.Error("a number of 1: no error")
	}
	cfg.PerToken, cfg.Amplifier = true, "ecdf"
	if err := sampler.NewEntropyNoise(cfg, &counter{next: 1}, &share{}).Each(ctx, 0, []int32{1}, u[:1]); err == nil ||
		!strings.Contains(err.Error(), "qr_lookahead") {
		t.Errorf("a number per candidate of ecdf: error %v", err)
	}
}

func TestMask(t *testing.T) {
	m := sampler.NewMask(5, 1, 5, 3)
	if !slices.Equal(m.IDs(), []int32{1, 3, 5}) || m.Len() != 3 || !m.Has(3) || m.Has(4) || m.Has(6) {
		t.Errorf("got %v", m.IDs())
	}
	var none *sampler.Mask
	if none.Has(1) || none.Len() != 0 || none.IDs() != nil {
		t.Error("a nil mask is not empty")
	}
}
