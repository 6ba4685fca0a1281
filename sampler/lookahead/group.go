package lookahead

import "math"

const (
	bins = 32
	// horizon is how many candidates ahead a plan looks. Later ones are planned for when their turn comes.
	horizon = 24
	// priorWeight is how many observations the built-in idea of H is worth.
	priorWeight = 40
	// memory is the number of observations after which old ones count half.
	memory = 512
)

// builtinCost is the time of one Peek of 1, 2, ... tokens in units of a Peek of one, measured with a model of 135M parameters on two cores.
func builtinCost() []float64 {
	return []float64{1, 1.97, 2.34, 2.75, 3.3, 3.9, 4.1, 4.3, 4.7, 5.1, 5.45, 5.8, 6.2, 6.6, 7, 7.4, 7.8, 8.15, 8.5, 8.9}
}

// planner decides how many candidates to look at in one batch. It never decides which token is chosen, only what it costs to know.
type planner struct {
	builtin  []float64
	measured []float64
	seeded   bool
	model    model

	left []float64 // left[m]: the chance that m more peeks do not settle the step
	cost []float64 // cost[m]: expected cost from there on
}

// batchCost is the cost of one Peek of n; past the end of the table it goes on with the last slope.
func (p *planner) batchCost(n int) float64 {
	table := p.builtin
	if !p.seeded && len(p.measured) > 0 {
		table = p.measured
	}
	last := len(table) - 1
	switch {
	case n <= last+1:
		return table[n-1]
	case last == 0:
		return table[0] * float64(n)
	}
	return table[last] + float64(n-1-last)*max(table[last]-table[last-1], 0)
}

// group returns how many of d.order, from next on, to look at in the next batch: the first move of the plan with the least expected cost.
//
// With the bounds known and H drawn independently from the model, the step is not settled after m more peeks if each of their values stays
// under the bound of the one after them: the product of P(H <= e^((bound_m - bound_j) T/b)). A plan is a chain of batches, so the best one
// follows by going backwards over m.
func (p *planner) group(d *Decoder, best, next int) int {
	rest := d.order[next:]
	n := 1
	for n < len(rest) && n < horizon && !d.beatsBound(best, rest[n]) {
		n++
	}
	if n == 1 || d.s.group == 1 {
		return 1
	}
	p.chances(d, rest[:n])
	p.cost = append(p.cost[:0], make([]float64, n+1)...)
	first := 1
	for m := n - 1; m >= 0; m-- {
		p.cost[m] = math.Inf(1)
		for g := 1; g <= min(d.s.group, n-m); g++ {
			c := p.batchCost(g)
			if m+g < n && p.left[m] > 0 {
				c += p.left[m+g] / p.left[m] * p.cost[m+g]
			}
			if c < p.cost[m] {
				p.cost[m], first = c, g
			}
		}
	}
	return first
}

// chances fills left for the candidates in rest.
func (p *planner) chances(d *Decoder, rest []int) {
	p.left = append(p.left[:0], 1)
	scale := d.s.t / d.s.b
	for m := 1; m < len(rest); m++ {
		chance, bound := 1.0, d.cands[rest[m]].bound
		for _, j := range rest[:m] {
			chance *= p.model.below(math.Exp((bound - d.cands[j].bound) * scale))
		}
		p.left = append(p.left, chance)
	}
}

// model is the distribution of H, as the request has shown it so far on top of a built-in guess. It starts anew with each request, so
// that a seeded one does not depend on those before it.
type model struct {
	count [bins]float64
	cum   [bins + 1]float64
}

// reset goes back to the guess: a hump around 0.55, as small language models show.
func (m *model) reset() {
	sum := 0.0
	for i := range m.count {
		x := (float64(i) + 0.5) / bins
		m.count[i] = x * x * (1 - x) * math.Sqrt(1-x)
		sum += m.count[i]
	}
	for i := range m.count {
		m.count[i] *= priorWeight / sum
	}
	m.add()
}

func (m *model) learn(h float64) {
	m.count[min(int(h*bins), bins-1)]++
	m.add()
	if m.cum[bins] > memory {
		for i := range m.count {
			m.count[i] /= 2
		}
		m.add()
	}
}

func (m *model) add() {
	for i, c := range m.count {
		m.cum[i+1] = m.cum[i] + c
	}
}

// below is the chance that H is at most h.
func (m *model) below(h float64) float64 {
	x := min(max(h, 0), 1) * bins
	i := min(int(x), bins-1)
	return (m.cum[i] + (x-float64(i))*m.count[i]) / m.cum[bins]
}

// power is the mean of H^e.
func (m *model) power(e float64) float64 {
	sum := 0.0
	for i, c := range m.count {
		sum += c * math.Pow((float64(i)+0.5)/bins, e)
	}
	return sum / m.cum[bins]
}
