package lookahead

import (
	"context"
	"math"

	"qr-gateway/sampler"
)

// settleEnd decides whether the text ends here, and takes the step's noise on the way. What would follow an end-of-generation token is
// meaningless, so it has no score. It is decided first, by plain probability:
//
//   - argmax ends where an end-of-generation token is the most probable token of all;
//   - a sampled choice ends with the probability of the end-of-generation tokens, renormalised over the candidates (top k, after the min-p
//     cut, end-of-generation tokens included). With alpha = -1 and temperature 1 the whole is plain truncated sampling.
func (d *Decoder) settleEnd(ctx context.Context, st *Step) (bool, error) {
	switch {
	case len(d.cands) == 0:
		return true, nil
	case d.s.argmax:
		d.sortByBound(nil)
		return len(d.ends) > 0 && d.ends[0].id == d.keys[0].ID(), nil
	case len(d.cands) == 1 && len(d.ends) == 0:
		return false, nil // nothing to decide, so nothing is drawn
	case d.s.inverse:
		return d.endByWhole(ctx, st)
	}
	return d.endByOwn(ctx, st)
}

// endByWhole lets the one number of the step decide. The text's end is the first share of the CDF; the rest of the number goes on to the
// candidates, so that the token is a monotone function of it.
func (d *Decoder) endByWhole(ctx context.Context, st *Step) (bool, error) {
	u, err := st.Noise.One(ctx, st.Index)
	if err != nil {
		return false, err
	}
	end := d.endShare()
	if u <= end {
		return true, nil
	}
	d.s.u = min((u-end)/(1-end), 1)
	return false, nil
}

// endByOwn draws one number per candidate and one for the end, if there is one to decide.
func (d *Decoder) endByOwn(ctx context.Context, st *Step) (bool, error) {
	d.ids = d.ids[:0]
	for i := range d.cands {
		d.ids = append(d.ids, d.cands[i].id)
	}
	n := len(d.ids)
	if len(d.ends) > 0 {
		d.ids = append(d.ids, sampler.EndToken)
	}
	for len(d.us) < len(d.ids) {
		d.us = append(d.us, 0)
	}
	us := d.us[:len(d.ids)]
	if err := st.Noise.Each(ctx, st.Index, d.ids, us); err != nil {
		return false, err
	}
	if len(d.ends) > 0 && us[n] <= d.endShare() {
		return true, nil
	}
	d.sortByBound(us[:n])
	return false, nil
}

// endShare is the probability of the end-of-generation tokens among all candidates.
func (d *Decoder) endShare() float64 {
	var end, rest float64
	for i := range d.ends {
		end += math.Exp(d.ends[i].lp)
	}
	for i := range d.cands {
		rest += math.Exp(d.cands[i].lp)
	}
	return end / (end + rest)
}
