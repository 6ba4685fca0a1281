package temper

import "qr-gateway/sampler/param"

func belltempFields() []param.Field {
	return []param.Field{
		number("belltemp_t_base", 0, 5, 0.7, "belltemp: temperature before the bell."),
		number("belltemp_t_peak", 0, 1.5, 0.6, "belltemp: height of the bell."),
		number("belltemp_mu", -1, 2, 0.35, "belltemp: normalised entropy at the top of the bell."),
		above0(number("belltemp_sigma", 0, 10, 0.15, "belltemp: width of the bell, in normalised entropy.")),
		number("belltemp_vh_weight", -10, 10, 0.0, "belltemp: temperature that high varentropy adds."),
		above0(number("belltemp_lambda_vh", 0, 1000, 10.0, "belltemp: varentropy, in nat^2, at which 63 % of that is reached.")),
		number("belltemp_min_p_base", -1, 1, 0.0, "belltemp: min-p at temperature 0.3."),
		number("belltemp_min_p_scale", -10, 10, 0.0, "belltemp: what is added to min-p at temperature 2.2; linear between."),
	}
}

// belltemp is a Gaussian over the normalised entropy plus a share of varentropy; min-p follows the temperature.
type belltemp struct {
	tBase            float64
	bell             bell
	weight, lambda   float64
	minPBase, minPSc float64
}

func newBelltemp(v param.Values, nVocab int) (Strategy, error) {
	s := &belltemp{
		tBase:  v.Number("qr_belltemp_t_base"),
		bell:   bell{v.Number("qr_belltemp_t_peak"), v.Number("qr_belltemp_mu"), v.Number("qr_belltemp_sigma")},
		weight: v.Number("qr_belltemp_vh_weight"), lambda: v.Number("qr_belltemp_lambda_vh"),
		minPBase: v.Number("qr_belltemp_min_p_base"), minPSc: v.Number("qr_belltemp_min_p_scale"),
	}
	return s, needTwo("belltemp", nVocab)
}

// Plan implements [Strategy].
func (s *belltemp) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	h, vh := clamp(in.HNorm, 0, 1), saturate(in.VH, s.lambda)
	peak := s.bell.at(h)
	t := s.tBase + peak + s.weight*vh
	share := (clamp(t, leastT, mostT) - leastT) / (mostT - leastT)
	if err := out.box(t, s.minPBase+s.minPSc*share); err != nil {
		return err
	}
	out.note("h_norm", h)
	out.note("vh_norm", vh)
	out.note("bell", peak)
	return nil
}

// Chosen implements [Strategy].
func (s *belltemp) Chosen(int32) {}
