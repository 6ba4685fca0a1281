package temper

import "qr-gateway/sampler/param"

func evdtFields() []param.Field {
	return []param.Field{
		number("evdt_t_base", 0, 5, 1.25, "evdt_tt: temperature before the terms below."),
		number("evdt_alpha", -10, 10, 0.35, "evdt_tt: temperature per nat of entropy."),
		number("evdt_beta", -10, 10, -0.10, "evdt_tt: temperature per nat^2 of varentropy."),
		number("evdt_min_p_base", -1, 1, 0.008, "evdt_tt: min-p before the terms below."),
		number("evdt_min_p_scale", -10, 10, 0.015, "evdt_tt: min-p per nat of entropy."),
		number("evdt_min_p_vh", -10, 10, 0.005, "evdt_tt: min-p per nat^2 of varentropy."),
	}
}

// evdt is linear in entropy and varentropy.
type evdt struct{ tBase, alpha, beta, minPBase, minPScale, minPVH float64 }

func newEVDT(v param.Values, _ int) (Strategy, error) {
	return &evdt{
		v.Number("qr_evdt_t_base"), v.Number("qr_evdt_alpha"), v.Number("qr_evdt_beta"),
		v.Number("qr_evdt_min_p_base"), v.Number("qr_evdt_min_p_scale"), v.Number("qr_evdt_min_p_vh"),
	}, nil
}

// Plan implements [Strategy].
func (s *evdt) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	return out.box(s.tBase+s.alpha*in.H+s.beta*in.VH, s.minPBase+s.minPScale*in.H+s.minPVH*in.VH)
}

// Chosen implements [Strategy].
func (s *evdt) Chosen(int32) {}
