package sampler_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"qr-gateway/sampler"
)

// selectorCases are choices worked out elsewhere in float64, away from every edge that precision could move: for each parameter set, points
// of u, rank, token (null where it shares its logit with another) and probability.
type selectorCases struct {
	Vectors map[string][]any
	Cases   []selectorCase
}

type selectorCase struct {
	Vector      string
	Temperature float64
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	Points      [][4]*float64
}

// logits turns numbers, and "-inf", into a row.
func logits(t *testing.T, values []any) []float32 {
	t.Helper()
	row := make([]float32, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case float64:
			row[i] = float32(v)
		case string:
			if _, err := fmt.Sscan(v, &row[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return row
}

func TestSelectorVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/selector.json")
	if err != nil {
		t.Fatal(err)
	}
	var all selectorCases
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all.Cases {
		row, p := logits(t, all.Vectors[c.Vector]), sampler.Defaults()
		p.Temperature, p.TopK, p.TopP, p.MinP = c.Temperature, max(0, c.TopK), c.TopP, c.MinP
		s := sampler.New(len(row))
		for _, pt := range c.Points {
			d, err := s.Choose(row, nil, p.Cut(), *pt[0])
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			if float64(d.Rank) != *pt[1] || pt[2] != nil && float64(d.Token) != *pt[2] || math.Abs(d.Prob-*pt[3]) > 1e-6 {
				t.Errorf("%s T=%v top-k %d top-p %v min-p %v, u %v: got %+v, want rank %v, probability %v",
					c.Vector, c.Temperature, c.TopK, c.TopP, c.MinP, *pt[0], d, *pt[1], *pt[3])
			}
		}
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
