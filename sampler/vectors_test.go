package sampler_test

import (
	"math"
	"testing"

	"qr-gateway/sampler"
)

// TestSelectorVectors holds the decoder of float32 rows to the published choices that precision can't change: those marked f32.
func TestSelectorVectors(t *testing.T) {
	all, compared := loadCuts(t), 0
	for i := range all.Cases {
		c := &all.Cases[i]
		row := to32(all.row(c.Vector))
		s := sampler.New(len(row))
		for j, u := range c.U {
			if c.F32[j] == 0 {
				continue
			}
			compared++
			d, err := s.Choose(row, nil, c.cut(), u)
			if err != nil {
				t.Fatalf("%v, u %v: %v", c, u, err)
			}
			if d.Rank != c.Rank[j] || c.Token[j] != nil && d.Token != *c.Token[j] || math.Abs(d.Prob-c.Prob[j]) > 1e-6 {
				t.Errorf("%v, u %v: got %+v, want rank %d, probability %v", c, u, d, c.Rank[j], c.Prob[j])
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d choices were compared", compared)
	}
}

// TestLargeTail holds the exact tail of a large vocabulary: a running sum in float32 would give the last token here.
func TestLargeTail(t *testing.T) {
	const n = 151936
	row := make([]float32, n)
	for i := range row {
		x := (i * 7919) % 151967
		bits := 0
		for y := x; y > 0; y >>= 1 {
			bits++
		}
		row[i] = float32(-1.25*float64(bits) - float64(x)/65536)
	}
	s, p := sampler.New(n), sampler.Defaults()
	for u, rank := range map[float64]int{0.5: 0, 0.9: 6, 0.99: 106, 0.999: 1611, 0.9995: 3351, 0.9999: 14159, 0.99998: 39698, 0.99999: 56544} {
		d, err := s.Choose(row, nil, p.Cut(), u)
		if err != nil || math.Abs(float64(d.Rank-rank)) > 1+float64(rank)/1000 {
			t.Errorf("u %v: got %+v, error %v, want rank %d", u, d, err, rank)
		}
	}
}
