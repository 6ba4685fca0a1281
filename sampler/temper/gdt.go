package temper

import "qr-gateway/sampler/param"

func gdtFields() []param.Field {
	return []param.Field{
		number("gdt_t_base", 0, 5, 0.582, "gdt: temperature before bell and boost."),
		number("gdt_t_peak", 0, 1.5, 1.402, "gdt: height of the bell."),
		number("gdt_mu", -1, 2, 0.397, "gdt: normalised entropy at the top of the bell."),
		above0(number("gdt_sigma", 0, 10, 0.283, "gdt: width of the bell, in normalised entropy.")),
		number("gdt_alpha", -10, 10, 0.952, "gdt: temperature that high varentropy adds where there is no entropy."),
		above0(number("gdt_lambda_vh", 0, 1000, 10.0, "gdt: varentropy, in nat^2, at which 63 % of the boost is reached.")),
		number("gdt_min_p_base", -1, 1, 0.01, "gdt: min-p where the temperature is the base."),
		number("gdt_min_p_scale", -10, 10, 0.081, "gdt: min-p that a temperature qr_gdt_t_peak over the base adds."),
	}
}

// gdt is a Gaussian over the normalised entropy, plus a boost where varentropy is high and entropy low.
type gdt struct {
	tBase            float64
	bell             bell
	alpha, lambda    float64
	minPBase, minPSc float64
}

func newGDT(v param.Values, nVocab int) (Strategy, error) {
	s := &gdt{
		tBase:  v.Number("qr_gdt_t_base"),
		bell:   bell{v.Number("qr_gdt_t_peak"), v.Number("qr_gdt_mu"), v.Number("qr_gdt_sigma")},
		alpha:  v.Number("qr_gdt_alpha"),
		lambda: v.Number("qr_gdt_lambda_vh"), minPBase: v.Number("qr_gdt_min_p_base"), minPSc: v.Number("qr_gdt_min_p_scale"),
	}
	return s, needTwo("gdt", nVocab)
}

// Plan implements [Strategy].
func (s *gdt) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	h, vh := clamp(in.HNorm, 0, 1), saturate(in.VH, s.lambda)
	peak, boost := s.bell.at(h), s.alpha*vh*(1-h)
	t := s.tBase + peak + boost
	minP := s.minPBase
	if s.bell.peak > 0 {
		minP += s.minPSc * max(0, t-s.tBase) / s.bell.peak
	}
	if err := out.box(t, minP); err != nil {
		return err
	}
	out.note("h_norm", h)
	out.note("vh_norm", vh)
	out.note("bell", peak)
	out.note("vh_boost", boost)
	return nil
}

// Chosen implements [Strategy].
func (s *gdt) Chosen(int32) {}
