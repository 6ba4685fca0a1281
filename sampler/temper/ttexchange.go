package temper

import (
	"math"

	"qr-gateway/sampler/param"
)

func ttFields() []param.Field {
	return []param.Field{
		number("tt_t_base", 0, 5, 1.0, "tt_exchange: temperature where min-p takes nothing away."),
		number("tt_gamma", -10, 10, 0.6, "tt_exchange: temperature per nat of entropy that min-p takes away."),
		number("tt_min_p_base", -1, 1, 0.005, "tt_exchange: min-p of a token without entropy."),
		number("tt_min_p_scale", -10, 10, 0.025, "tt_exchange: min-p per nat of entropy."),
	}
}

// ttExchange measures the entropy that min-p would take away and gives it back as temperature. It only measures: the selection cuts.
type ttExchange struct{ tBase, gamma, minPBase, minPScale float64 }

func newTTExchange(v param.Values, _ int) (Strategy, error) {
	return &ttExchange{
		v.Number("qr_tt_t_base"), v.Number("qr_tt_gamma"),
		v.Number("qr_tt_min_p_base"), v.Number("qr_tt_min_p_scale"),
	}, nil
}

// Plan implements [Strategy].
func (s *ttExchange) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	minP := s.minPBase + s.minPScale*in.H
	var kept sums
	if in.Row32 != nil {
		kept = gather(in.Row32, math.Log(clampMinP(minP)))
	} else {
		kept = gather(in.Row64, math.Log(clampMinP(minP)))
	}
	h := kept.entropy()
	removed := max(0, in.H-h)
	if err := out.box(s.tBase+s.gamma*removed, minP); err != nil {
		return err
	}
	out.note("h_kept", h)
	out.note("entropy_removed", removed)
	out.note("n_kept", float64(kept.n))
	return nil
}

// Chosen implements [Strategy].
func (s *ttExchange) Chosen(int32) {}
