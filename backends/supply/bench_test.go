package supply

import (
	"math"
	"math/rand/v2"
	"testing"

	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
)

// BenchmarkToken is all that a token of plain decoding takes besides the model: 20,480 bytes of the operating system, the strategy, the choice.
func BenchmarkToken(b *testing.B) {
	const vocabulary = 49152
	row := make([]float32, vocabulary)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range row {
		row[i] = float32(rng.NormFloat64() * 3)
	}
	for name, change := range map[string]func(*sampler.Params){
		"default": func(*sampler.Params) {},
		"edt":     func(p *sampler.Params) { p.Strategy = "edt" },
		"t=1":     func(p *sampler.Params) { p.Temperature, p.TopP, p.TopK, p.MinP = 1, 1, 0, 0 },
	} {
		b.Run(name, func(b *testing.B) {
			p := sampler.Defaults()
			change(&p)
			o, err := New(nil).Open(b.Context(), "", hub.Blocks{})
			if err != nil {
				b.Fatal(err)
			}
			noise, err := sampler.NewNoise(&p, o.Source, o.Calibration)
			if err != nil {
				b.Fatal(err)
			}
			s := sampler.NewStream(vocabulary)
			if err := s.Begin(&p, nil); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				d, err := s.Next(b.Context(), row, nil, noise)
				if err != nil || math.IsNaN(d.Prob) {
					b.Fatal(err)
				}
			}
		})
	}
}
