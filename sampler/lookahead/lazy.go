package lookahead

import (
	"context"
	"math"
)

// lazy visits the candidates by descending bound and stops as soon as the best value is known to be the best of all: since H is at most 1,
// no candidate is worth more than its bound. How many are looked at in one batch is the planner's matter and changes nothing but speed.
func (d *Decoder) lazy(ctx context.Context, st *Step) (int, error) {
	best := -1
	for next := 0; next < len(d.order) && !d.beatsBound(best, d.order[next]); next += len(d.batch) {
		n := d.plan.group(d, best, next)
		d.batch = append(d.batch[:0], d.order[next:next+n]...)
		if err := d.peek(ctx, st); err != nil {
			return 0, err
		}
		best = d.improve(st, best)
	}
	if best < 0 {
		best = d.fallback()
	}
	return best, nil
}

// improve returns the best of best and the latest batch, and has the evaluator keep it. A score of 0 is never the best.
func (d *Decoder) improve(st *Step, best int) int {
	was := best
	for _, at := range d.batch {
		if !math.IsInf(d.cands[at].value, -1) && (best < 0 || d.better(at, best)) {
			best = at
		}
	}
	if best != was {
		st.Eval.Hold(d.cands[best].id)
	}
	return best
}

// better reports whether candidate i wins over j, both seen; of equals the lower id wins.
func (d *Decoder) better(i, j int) bool {
	x, y := &d.cands[i], &d.cands[j]
	return x.value > y.value || x.value == y.value && x.id < y.id
}

// beatsBound reports whether best wins over candidate j whatever follows j.
func (d *Decoder) beatsBound(best, j int) bool {
	if best < 0 {
		return false
	}
	x, y := &d.cands[best], &d.cands[j]
	return x.value > y.bound || x.value == y.bound && x.id < y.id
}

// fallback chooses by probability alone, with the same noise, where every score is 0.
func (d *Decoder) fallback() int {
	best, most := 0, math.Inf(-1)
	for i := range d.cands {
		c := &d.cands[i]
		if v := c.bound + (1-d.s.a)*c.lp/d.s.t; v > most {
			best, most = i, v
		}
	}
	return best
}

// withoutPeek chooses where b is 0 and so every value is its bound.
func (d *Decoder) withoutPeek() int {
	if d.s.inverse {
		d.bounds.start(d)
		d.bounds.exact()
		return d.bounds.first(d.s.u)
	}
	return d.order[0]
}
