package sampler_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"qr-gateway/sampler"
)

// TestHeadRefuses: what can't be a head is refused, and the next one is taken as if nothing had happened.
func TestHeadRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := func() *sampler.Head {
		return &sampler.Head{IDs: []int32{4, 2, -1}, Logits: []float32{1, 0, -inf}, Max: 1, LSE: 1.8, Entropy: 1, Finite: 5}
	}
	p := sampler.Defaults()
	s := begin(t, 6, &p)
	for name, c := range map[string]struct {
		change func(h *sampler.Head)
		want   error
	}{
		"NaN":                {func(h *sampler.Head) { h.Logits[1] = nan }, sampler.ErrLogits},
		"+Inf":               {func(h *sampler.Head) { h.Logits[2] = inf }, sampler.ErrLogits},
		"NaN as largest":     {func(h *sampler.Head) { h.Max = nan }, sampler.ErrLogits},
		"+Inf as sum":        {func(h *sampler.Head) { h.LSE = inf }, sampler.ErrLogits},
		"lengths":            {func(h *sampler.Head) { h.IDs = h.IDs[:2] }, sampler.ErrHead},
		"too large an id":    {func(h *sampler.Head) { h.IDs[0] = 6 }, sampler.ErrHead},
		"too small an id":    {func(h *sampler.Head) { h.IDs[2] = -2 }, sampler.ErrHead},
		"twice":              {func(h *sampler.Head) { h.IDs[1] = 4 }, sampler.ErrHead},
		"too few finite":     {func(h *sampler.Head) { h.Finite = 1 }, sampler.ErrHead},
		"too many finite":    {func(h *sampler.Head) { h.Finite = 7 }, sampler.ErrHead},
		"none shown":         {func(h *sampler.Head) { h.IDs, h.Logits = nil, nil }, sampler.ErrHead},
		"another's largest":  {func(h *sampler.Head) { h.Max = 2 }, sampler.ErrHead},
		"nothing finite":     {func(h *sampler.Head) { *h = sampler.Head{Max: -inf, LSE: -inf, Entropy: nan} }, sampler.ErrNoCandidates},
		"too small a sum":    {func(h *sampler.Head) { h.LSE = 1 }, sampler.ErrWholeRow},
		"too large a sum":    {func(h *sampler.Head) { h.LSE = 3 }, sampler.ErrWholeRow},
		"no sum":             {func(h *sampler.Head) { h.LSE = -inf }, sampler.ErrWholeRow},
		"no entropy":         {func(h *sampler.Head) { h.Entropy = nan }, nil},
		"all that is finite": {func(h *sampler.Head) { h.Finite = 2 }, nil},
	} {
		h, noise := good(), &given{u: 0.01}
		c.change(h)
		step := s.Step()
		_, err := s.NextHead(context.Background(), h, nil, noise)
		if !errors.Is(err, c.want) || (err == nil) != (s.Step() > step) || err != nil && noise.asked > 0 {
			t.Errorf("%s: error %v, want %v; asked %d times", name, err, c.want, noise.asked)
		}
		if _, err := s.NextHead(context.Background(), good(), nil, &given{u: 0.01}); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	if _, err := sampler.NewStream(6).NextHead(context.Background(), good(), nil, &given{}); err == nil {
		t.Error("no answer was begun: no error")
	}
	h := good()
	h.Finite = 2
	if _, err := s.NextHead(context.Background(), h, sampler.NewMask(2, 4), &given{u: 0.5}); !errors.Is(err, sampler.ErrNoCandidates) {
		t.Errorf("all are banned: error %v", err)
	}
}

// FuzzHead reads heads of any content. What is decided is a token that is shown and not banned; a head that is of a row, with its sums put right,
// is decided as the row is.
func FuzzHead(f *testing.F) {
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x00\x00\x00\x00\x80\xbf"), uint16(12), float32(1.4), float32(0.8), 0.5, 1.0)
	f.Add([]byte("\xff\xff\x7f\x7f\x00\x00\xc0\x7f\x00\x00\x80\x7f"), uint16(3), float32(math.Inf(1)), float32(0), 0.1, 0.5)
	f.Fuzz(func(t *testing.T, data []byte, finite uint16, lse, entropy float32, u, temperature float64) {
		if !(u > 0 && u < 1 && temperature >= 0 && temperature <= 5) {
			return
		}
		const n = 64
		h := &sampler.Head{LSE: lse, Entropy: entropy, Finite: int(finite)}
		row := slices.Repeat([]float32{float32(math.Inf(-1))}, n)
		for i := 0; i+5 <= len(data) && len(h.IDs) < n; i += 5 {
			id, v := int32(int8(data[i])), math.Float32frombits(binary.LittleEndian.Uint32(data[i+1:]))
			h.IDs, h.Logits = append(h.IDs, id), append(h.Logits, v)
			if id >= 0 && id < n {
				row[id] = v
			}
		}
		h.Max = slices.Max(append(slices.Clone(h.Logits), float32(math.Inf(-1))))
		p := sampler.Defaults()
		p.Temperature = temperature
		s := begin(t, n, &p)
		d, err := s.NextHead(context.Background(), h, sampler.NewMask(5), &given{u: u})
		if err != nil {
			return
		}
		if !slices.Contains(h.IDs, d.Token) || d.Token == 5 || !(d.Prob >= 0 && d.Prob <= 1+1e-9) {
			t.Fatalf("%+v of %+v", d, h)
		}
		if _, _, all := moments(row); all == h.Finite {
			want, err := begin(t, n, &p).Next(context.Background(), row, sampler.NewMask(5), &given{u: u})
			if err != nil || want.Token != d.Token {
				t.Fatalf("the head gives %+v, the row %+v, error %v", d, want, err)
			}
		}
	})
}
