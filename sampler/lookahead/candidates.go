package lookahead

import (
	"cmp"
	"math"
	"slices"

	"qr-gateway/sampler"
	"qr-gateway/sampler/internal/vec"
)

// collect leaves the candidates in cands and the end-of-generation tokens among them in ends, both by descending probability. Banned tokens
// are taken out first, then the k largest are kept, then those with at least min-p of the largest probability. All of it needs
// differences of logits only, no normalisation.
func (d *Decoder) collect(st *Step) error {
	p := st.Params
	d.top.Reset(max(1, min(p.LookaheadK, d.nVocab)))
	vec.Segments(st.row(), st.Ban.IDs(), d.top.Scan)
	d.keys = append(d.keys[:0], d.top.Keys()...)
	if len(d.keys) == 0 {
		return sampler.ErrNoCandidates
	}
	vec.Sort(d.keys)
	d.cands, d.ends = d.cands[:0], d.ends[:0]
	largest, floor := float64(d.keys[0].Value()), math.Log(p.LookaheadMinP)
	for _, k := range d.keys {
		lp := float64(k.Value()) - largest
		if lp < floor {
			break
		}
		c := candidate{id: k.ID(), lp: lp, h: math.NaN()}
		if st.EOG.Has(c.id) {
			d.ends = append(d.ends, c)
		} else {
			d.cands = append(d.cands, c)
		}
	}
	return nil
}

// confident reports whether the largest probability of the row, bans taken out, reaches the threshold.
func (d *Decoder) confident(st *Step) bool {
	c := st.Params.ConfidenceThreshold
	if c <= 0 || d.s.b == 0 {
		return false
	}
	d.hist.Reset(d.keys[0].Value(), 1, 0)
	sum := 0.0
	vec.Segments(st.row(), st.Ban.IDs(), func(_ int32, seg []float32) { sum += d.hist.SumExp(seg) })
	return 1/sum >= c
}

// sortByBound sets each candidate's bound and the order to visit them in. us holds one number per candidate, or nothing for argmax.
func (d *Decoder) sortByBound(us []float64) {
	d.order = d.order[:0]
	for i := range d.cands {
		c := &d.cands[i]
		c.bound = d.s.a * c.lp / d.s.t
		if len(us) > 0 {
			c.bound += gumbel(us[i])
		}
		d.order = append(d.order, i)
	}
	slices.SortFunc(d.order, func(i, j int) int {
		x, y := &d.cands[i], &d.cands[j]
		return cmp.Or(cmp.Compare(y.bound, x.bound), cmp.Compare(x.id, y.id))
	})
}

// gumbel turns a uniform number into standard Gumbel noise: the largest of ln w + noise is a draw from the weights w.
func gumbel(u float64) float64 { return -math.Log(-math.Log(u)) }
