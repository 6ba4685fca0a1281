package lookahead

// proof fills d.batch with candidates that, if H turns out as expected, prove which one holds u. Two inequalities make the proof for the
// likely winner i: the candidates before it do not reach u even with their largest weights, and those up to it do even if all after
// it have their largest weights. A candidate before i lowers the left side of the first and feeds the second; one after i feeds the
// first and lowers the right side of the second; i feeds both. Those that close most of the two gaps are taken first.
func (p *planner) proof(d *Decoder) {
	v, u := &d.bounds, d.s.u
	h := p.model.power(d.s.b / d.s.t)
	win := v.guess(u, h)
	before, reach := v.gaps(u, win)
	d.batch = d.batch[:0]
	for len(d.batch) < d.s.group && (before > 0 || reach > 0 || len(d.batch) == 0) {
		at, gain := -1, -1.0
		for j := range d.cands {
			if d.cands[j].seen || contains(d.batch, j) {
				continue
			}
			x, y := v.closes(u, h, win, j)
			if g := min(x, max(before, 0)) + min(y, max(reach, 0)); g > gain {
				at, gain = j, g
			}
		}
		if at < 0 {
			return
		}
		x, y := v.closes(u, h, win, at)
		before, reach = before-x, reach-y
		d.batch = append(d.batch, at)
	}
}

// gaps are what is missing to the two inequalities for winner i; a gap of 0 or less is closed.
func (v *interval) gaps(u float64, i int) (before, reach float64) {
	if i > 0 {
		before = (1-u)*v.sumHi[i] - u*(v.lo[i]+v.restLo[i])
	}
	return before, u*v.restHi[i] - (1-u)*v.sumLo[i+1]
}

// closes is how much of the two gaps a look at j is expected to close for winner i.
func (v *interval) closes(u, h float64, i, j int) (before, reach float64) {
	w := v.hi[j]
	switch {
	case j < i:
		return (1 - u) * (1 - h) * w, (1 - u) * h * w
	case j > i:
		return u * h * w, u * (1 - h) * w
	}
	return u * h * w, (1 - u) * h * w
}

func contains(batch []int, j int) bool {
	for _, b := range batch {
		if b == j {
			return true
		}
	}
	return false
}
