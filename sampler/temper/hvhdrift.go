package temper

import "qr-gateway/sampler/param"

func hvhFields() []param.Field {
	return []param.Field{
		number("hvh_t_base", 0, 5, 1.35, "hvh_drift: temperature before the terms below."),
		number("hvh_alpha_h", -10, 10, 0.3, "hvh_drift: temperature per nat of entropy."),
		number("hvh_alpha_vh", -10, 10, -0.2, "hvh_drift: temperature per nat^2 of varentropy."),
		number("hvh_gamma_dh", -10, 10, 1.0, "hvh_drift: temperature per nat that entropy is over its running mean."),
		number("hvh_delta_dvh", -10, 10, 0.5, "hvh_drift: temperature per nat^2 that varentropy is over its running mean."),
		number("hvh_lambda_ema", 0, 1, 0.02, "hvh_drift: weight of a new token in the running means; 0 keeps the first token's, 1 the last one's."),
		number("hvh_min_p_base", -1, 1, 0.025, "hvh_drift: min-p before the terms below."),
		number("hvh_kappa_h", -10, 10, 0.03, "hvh_drift: min-p per nat of entropy."),
		number("hvh_nu_dh", -10, 10, 0.02, "hvh_drift: min-p per nat that entropy is over its running mean."),
	}
}

// hvhDrift is linear in entropy, varentropy and the distance of both from their exponential means over the answer so far. The first
// token is its own mean; later ones are compared with the mean before it takes them in.
type hvhDrift struct {
	tBase, alphaH, alphaVH, gammaDH, deltaDVH, lambda float64
	minPBase, kappaH, nuDH                            float64

	means        // of the answer so far,
	marked means // and at the latest Mark
}

// means are the running ones.
type means struct {
	begun         bool
	meanH, meanVH float64
}

func newHVHDrift(v param.Values, _ int) (Strategy, error) {
	return &hvhDrift{
		tBase: v.Number("qr_hvh_t_base"), alphaH: v.Number("qr_hvh_alpha_h"), alphaVH: v.Number("qr_hvh_alpha_vh"),
		gammaDH: v.Number("qr_hvh_gamma_dh"), deltaDVH: v.Number("qr_hvh_delta_dvh"), lambda: v.Number("qr_hvh_lambda_ema"),
		minPBase: v.Number("qr_hvh_min_p_base"), kappaH: v.Number("qr_hvh_kappa_h"), nuDH: v.Number("qr_hvh_nu_dh"),
	}, nil
}

// Plan implements [Strategy].
func (s *hvhDrift) Plan(in *Input, out *Output) error { return s.PlanRaised(in, out, 0) }

// PlanRaised implements [Raiser]. The means move only where it succeeds.
func (s *hvhDrift) PlanRaised(in *Input, out *Output, by float64) error {
	if err := in.check(); err != nil {
		return err
	}
	meanH, meanVH := s.meanH, s.meanVH
	if !s.begun {
		meanH, meanVH = in.H, in.VH
	}
	dH, dVH := in.H-meanH, in.VH-meanVH
	t := s.tBase + by + s.alphaH*in.H + s.alphaVH*in.VH + s.gammaDH*dH + s.deltaDVH*dVH
	if err := out.box(t, s.minPBase+s.kappaH*in.H+s.nuDH*dH); err != nil {
		return err
	}
	s.begun = true
	s.meanH = (1-s.lambda)*meanH + s.lambda*in.H
	s.meanVH = (1-s.lambda)*meanVH + s.lambda*in.VH
	out.note("h_ema", s.meanH)
	out.note("vh_ema", s.meanVH)
	out.note("d_h", dH)
	out.note("d_vh", dVH)
	return nil
}

// Chosen implements [Strategy].
func (s *hvhDrift) Chosen(int32) {}
