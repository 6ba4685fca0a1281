package temper

import (
	"errors"
	"fmt"
	"math"

	"qr-gateway/sampler/param"
)

// ErrBounds says that the least temperature of edt is over the largest.
var ErrBounds = errors.New("qr_edt_min_temp is over qr_edt_max_temp")

func edtFields() []param.Field {
	return []param.Field{
		number("edt_base_temp", 0, 5, 0.8, "edt: temperature of a token whose distribution is uniform."),
		number("edt_exponent", -10, 10, 0.5, "edt: power of the normalised entropy; 0 makes the temperature constant, a negative one turns it around."),
		number("edt_min_temp", 0, 5, 0.1, "edt: least temperature."),
		number("edt_max_temp", 0, 5, 2.0, "edt: largest temperature; not under qr_edt_min_temp."),
	}
}

// edt is entropy-based dynamic temperature: T = base * HNorm^exponent within [least, most].
type edt struct{ base, exponent, least, most float64 }

func newEDT(v param.Values, nVocab int) (Strategy, error) {
	e := &edt{v.Number("qr_edt_base_temp"), v.Number("qr_edt_exponent"), v.Number("qr_edt_min_temp"), v.Number("qr_edt_max_temp")}
	if e.least > e.most {
		return nil, fmt.Errorf("%w: %v > %v; lower the one or raise the other", ErrBounds, e.least, e.most)
	}
	return e, needTwo("edt", nVocab)
}

// Plan implements [Strategy].
func (e *edt) Plan(in *Input, out *Output) error { return e.PlanRaised(in, out, 0) }

// PlanRaised implements [Raiser]. With a negative exponent and no entropy the formula has no value but a limit, infinity, which the
// bounds make the largest temperature.
func (e *edt) PlanRaised(in *Input, out *Output, by float64) error {
	if err := in.check(); err != nil {
		return err
	}
	t := e.base + by
	if t != 0 {
		t *= math.Pow(max(in.HNorm, 0), e.exponent)
	}
	if err := out.decide(clamp(t, e.least, e.most)); err != nil {
		return err
	}
	out.note("h_norm", in.HNorm)
	out.note("pre_clamp_temp", t)
	return nil
}

// Chosen implements [Strategy].
func (e *edt) Chosen(int32) {}
