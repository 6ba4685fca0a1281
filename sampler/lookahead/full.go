package lookahead

import "context"

// full evaluates every candidate. It is what the other modes are measured against.
func (d *Decoder) full(ctx context.Context, st *Step) (int, error) {
	if d.s.inverse {
		return d.fullInverse(ctx, st)
	}
	best := -1
	for next := 0; next < len(d.order); next += len(d.batch) {
		d.batch = append(d.batch[:0], d.order[next:min(next+d.s.group, len(d.order))]...)
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

// fullInverse evaluates every candidate and finds the one that holds u in the CDF over descending probability.
func (d *Decoder) fullInverse(ctx context.Context, st *Step) (int, error) {
	d.bounds.start(d)
	for next := 0; next < len(d.cands); next += len(d.batch) {
		d.batch = d.batch[:0]
		for at := next; at < min(next+d.s.group, len(d.cands)); at++ {
			d.batch = append(d.batch, at)
		}
		if err := d.peek(ctx, st); err != nil {
			return 0, err
		}
		d.bounds.update(d)
		d.hold(st, d.bounds.guess(d.s.u, d.plan.model.power(d.s.b/d.s.t)))
	}
	return d.bounds.decide(d), nil
}
