package temper

import "qr-gateway/sampler/param"

// fixed is the request's own temperature for every token.
type fixed struct{ t float64 }

func newFixed(v param.Values, _ int) (Strategy, error) {
	return &fixed{v.Number("qr_temperature")}, nil
}

// Plan implements [Strategy].
func (f *fixed) Plan(in *Input, out *Output) error { return f.PlanRaised(in, out, 0) }

// PlanRaised implements [Raiser].
func (f *fixed) PlanRaised(in *Input, out *Output, by float64) error {
	if err := in.check(); err != nil {
		return err
	}
	return out.decide(f.t + by)
}

// Chosen implements [Strategy].
func (f *fixed) Chosen(int32) {}
