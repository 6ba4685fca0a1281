package temper

import (
	"math"

	"qr-gateway/sampler/param"
)

func dynatempFields() []param.Field {
	return []param.Field{
		number("dynatemp_t_center", 0, 5, 1.31, "dynatemp: middle of the temperatures."),
		number("dynatemp_t_range", 0, 5, 0.38, "dynatemp: distance of the ends from the middle."),
		above0(number("dynatemp_exponent", 0, 10, 1.0, "dynatemp: power of the normalised entropy.")),
		number("dynatemp_min_p", 0, 0.15, 0.026, "dynatemp: min-p of every token."),
	}
}

// dynatemp goes from center-spread without entropy to center+spread at the uniform distribution.
type dynatemp struct{ center, spread, exponent, minP float64 }

func newDynatemp(v param.Values, nVocab int) (Strategy, error) {
	s := &dynatemp{
		v.Number("qr_dynatemp_t_center"), v.Number("qr_dynatemp_t_range"),
		v.Number("qr_dynatemp_exponent"), v.Number("qr_dynatemp_min_p"),
	}
	return s, needTwo("dynatemp", nVocab)
}

// Plan implements [Strategy].
func (s *dynatemp) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	h := clamp(in.HNorm, 0, 1)
	t := s.center - s.spread + 2*s.spread*math.Pow(h, s.exponent)
	if err := out.box(t, s.minP); err != nil {
		return err
	}
	out.note("h_norm", h)
	return nil
}

// Chosen implements [Strategy].
func (s *dynatemp) Chosen(int32) {}
