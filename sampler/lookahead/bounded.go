package lookahead

import (
	"context"
	"math"
)

// margin keeps sums whose terms are added in different states of knowledge from disagreeing by rounding.
const margin = 1e-12

// interval holds, for each candidate by descending probability, the least and the largest weight that is still possible. The weight is the
// score to the power 1/T with p relative to the largest. A candidate not yet seen lies in [0, p^(a/T)].
//
// Candidate i is the answer if it is the first for which (1-u) (w_0+...+w_i) >= u (w_{i+1}+...). The left side grows with i and the right
// side falls, so the answer lies between the first i for which this is possible and the first for which it is certain.
type interval struct {
	lo, hi []float64
	unseen int
	// sumLo[i] and sumHi[i] add what stands before i, restLo[i] and restHi[i] what stands after it. Each is summed from its own end:
	// a difference of sums would lose the digits of a small rest.
	sumLo, sumHi, restLo, restHi []float64
}

// start sets every interval to what is known without a peek.
func (v *interval) start(d *Decoder) {
	v.lo, v.hi, v.unseen = v.lo[:0], v.hi[:0], len(d.cands)
	for i := range d.cands {
		v.lo = append(v.lo, 0)
		v.hi = append(v.hi, math.Exp(d.s.a*d.cands[i].lp/d.s.t))
	}
	v.sum()
}

// exact makes every weight the largest possible: b is 0.
func (v *interval) exact() {
	copy(v.lo, v.hi)
	v.unseen = 0
	v.sum()
}

// update takes in the latest batch.
func (v *interval) update(d *Decoder) {
	for _, at := range d.batch {
		w := v.hi[at] * math.Pow(d.cands[at].h, d.s.b/d.s.t)
		v.lo[at], v.hi[at] = w, w
		v.unseen--
	}
	v.sum()
}

func (v *interval) sum() {
	n := len(v.lo)
	v.sumLo, v.sumHi = append(v.sumLo[:0], 0), append(v.sumHi[:0], 0)
	for i := range n {
		v.sumLo = append(v.sumLo, v.sumLo[i]+v.lo[i])
		v.sumHi = append(v.sumHi, v.sumHi[i]+v.hi[i])
	}
	v.restLo, v.restHi = append(v.restLo[:0], v.lo...), append(v.restHi[:0], v.hi...)
	v.restLo[n-1], v.restHi[n-1] = 0, 0
	for i := n - 2; i >= 0; i-- {
		v.restLo[i] = v.restLo[i+1] + v.lo[i+1]
		v.restHi[i] = v.restHi[i+1] + v.hi[i+1]
	}
}

// first is the answer where every weight is known.
func (v *interval) first(u float64) int {
	n := len(v.lo)
	for i := range n {
		if (1-u)*v.sumLo[i+1] >= u*v.restLo[i] {
			return i
		}
	}
	return n - 1
}

// between returns the first candidate that may be the answer and the first that comes no later than the answer could.
func (v *interval) between(u float64) (from, to int) {
	n := len(v.lo)
	for from < n-1 && (1-u)*v.sumHi[from+1]*(1+margin) < u*v.restLo[from] {
		from++
	}
	for to = from; to < n-1 && (1-u)*v.sumLo[to+1]*(1-margin) < u*v.restHi[to]; {
		to++
	}
	return from, to
}

// settled reports whether the answer is certain. While every weight may be 0 it is not: then probability decides.
func (v *interval) settled(u float64) (at int, ok bool) {
	from, to := v.between(u)
	return from, from == to && v.sumLo[len(v.lo)] > 0
}

// guess is the answer if every candidate not seen has the share h of its largest weight.
func (v *interval) guess(u, h float64) int {
	n := len(v.lo)
	all, sum := 0.0, 0.0
	for i := range n {
		all += v.likely(i, h)
	}
	for i := range n {
		if sum += v.likely(i, h); (1-u)*sum >= u*(all-sum) {
			return i
		}
	}
	return n - 1
}

func (v *interval) likely(i int, h float64) float64 {
	if v.lo[i] == v.hi[i] {
		return v.lo[i]
	}
	return h * v.hi[i]
}

// decide is the answer once every candidate has been seen. Where every score is 0, probability decides.
func (v *interval) decide(d *Decoder) int {
	if v.sumLo[len(v.lo)] == 0 {
		for i := range d.cands {
			v.lo[i] = math.Exp(d.cands[i].lp / d.s.t)
		}
		v.sum()
	}
	return v.first(d.s.u)
}

// bounded evaluates until the candidate that holds u is certain. It is the candidate that fullInverse finds for the same u.
func (d *Decoder) bounded(ctx context.Context, st *Step) (int, error) {
	v := &d.bounds
	v.start(d)
	for v.unseen > 0 {
		if at, ok := v.settled(d.s.u); ok {
			return at, nil
		}
		d.plan.proof(d)
		if err := d.peek(ctx, st); err != nil {
			return 0, err
		}
		v.update(d)
		d.hold(st, v.guess(d.s.u, d.plan.model.power(d.s.b/d.s.t)))
	}
	return v.decide(d), nil
}

// hold has the evaluator keep the likely winner, if the latest batch has shown it.
func (d *Decoder) hold(st *Step, at int) {
	for _, b := range d.batch {
		if b == at {
			st.Eval.Hold(d.cands[at].id)
			return
		}
	}
}
