package sampler

import (
	"fmt"
	"math"
	"slices"
)

// Exact is the plain decoder over float64 rows: for logits that a strategy has transformed, for programs that hold float64, and to check
// [Sampler] against. It decides what Sampler decides, step by step as [Exact.Choose] says, with nothing approximated. It owns its scratch
// memory and belongs to one goroutine.
type Exact struct {
	nVocab int
	cells  []cell
}

// cell is one token that may be chosen.
type cell struct {
	id     int32
	logit  float64
	weight float64 // its probability, relative to the largest
}

// before is the order of choice: by descending logit, the lower id first where two are equal.
func (c *cell) before(d *cell) bool { return c.logit > d.logit || c.logit == d.logit && c.id < d.id }

// inOrder is the same for sorting. No two cells are equal.
func inOrder(a, b cell) int {
	if a.before(&b) {
		return -1
	}
	return 1
}

// NewExact returns a decoder for rows of nVocab logits.
func NewExact(nVocab int) *Exact { return &Exact{nVocab: nVocab} }

// Choose picks a token of row, which has one logit per token and is not changed. Steps, in this order:
//
//   - banned ids, and logits that are not finite, are taken out; where none is left the error is [ErrNoCandidates]
//   - a temperature of 0 or below takes the first token of the order. There, and with a top-k of 1 or a top-p of 0, u is not read
//   - top-k keeps the first k; equal logits at the border go by id
//   - p = softmax(logit/T); with TruncateFirst, softmax(logit). A p that is 0 in float64 is out
//   - min-p keeps p >= min-p * p_max, the largest in any case; with TruncateFirst, p becomes softmax(logit/T) of what is left
//   - top-p keeps the first tokens, in the order, whose sum reaches it
//   - with cdf the running sum of p over what is left, divided by its own total, the first token with cdf >= u is chosen
//
// The order is descending logit, the lower id first among equals. u lies in (0,1).
func (e *Exact) Choose(row []float64, ban *Mask, c Cut, u float64) (Draw, error) {
	if err := e.check(row, c, u); err != nil {
		return Draw{}, fmt.Errorf("choose token: %w", err)
	}
	e.collect(row, ban)
	if len(e.cells) == 0 {
		return Draw{}, ErrNoCandidates
	}
	if c.Temperature <= 0 {
		lead(e.cells, func(int, float64) bool { return true })
		return Draw{Token: e.cells[0].id, Prob: 1, Candidates: 1}, nil
	}
	d := Draw{U: u}
	if !c.NeedsU() {
		d.U, u = 0, 0.5 // one token will be left
	}
	left := firstK(e.cells, c.TopK)
	d.AfterTopK = len(left)
	left = minP(left, c)
	d.AfterMinP = len(left)
	left = topP(left, c.TopP)
	d.Candidates = len(left)
	total := mass(left)
	n, _ := lead(left, func(_ int, sum float64) bool { return sum/total >= u })
	d.Token, d.Rank, d.Prob = left[n-1].id, n-1, left[n-1].weight/total
	return d, nil
}

func (e *Exact) check(row []float64, c Cut, u float64) error {
	switch {
	case len(row) != e.nVocab:
		return fmt.Errorf("row has %d logits, the vocabulary %d", len(row), e.nVocab)
	case math.IsNaN(c.Temperature) || math.IsInf(c.Temperature, 1):
		return fmt.Errorf("temperature is %v; it must be a finite number", c.Temperature)
	case c.NeedsU() && !(u > 0 && u < 1):
		return fmt.Errorf("u is %v; it must lie between 0 and 1", u)
	}
	return nil
}

// collect fills cells with the tokens that may be chosen.
func (e *Exact) collect(row []float64, ban *Mask) {
	if cap(e.cells) < len(row) {
		e.cells = make([]cell, 0, len(row))
	}
	e.cells = e.cells[:0]
	banned := ban.IDs()
	for i, v := range row {
		if len(banned) > 0 && int(banned[0]) == i {
			banned = banned[1:]
			continue
		}
		if math.Abs(v) <= math.MaxFloat64 {
			e.cells = append(e.cells, cell{id: int32(i), logit: v})
		}
	}
}

// firstK keeps the first k of the order; 0 is off.
func firstK(cells []cell, k int) []cell {
	if k <= 0 || k >= len(cells) {
		return cells
	}
	lead(cells, func(n int, _ float64) bool { return n >= k })
	return cells[:k]
}

// minP weighs cells and keeps those that min-p lets through.
func minP(cells []cell, c Cut) []cell {
	largest := math.Inf(-1)
	for i := range cells {
		largest = max(largest, cells[i].logit)
	}
	t := c.Temperature
	if c.TruncateFirst {
		t = 1
	}
	weigh(cells, largest, t)
	least := min(c.MinP, 1) // the largest has a weight of 1
	cells = slices.DeleteFunc(cells, func(x cell) bool { return x.weight < least || x.weight == 0 })
	if c.TruncateFirst {
		weigh(cells, largest, c.Temperature)
		cells = slices.DeleteFunc(cells, func(x cell) bool { return x.weight == 0 })
	}
	return cells
}

// weigh sets the weights at temperature t.
func weigh(cells []cell, largest, t float64) {
	for i := range cells {
		cells[i].weight = math.Exp((cells[i].logit - largest) / t)
	}
}

// topP keeps the first of the order whose share reaches p; 1 is off.
func topP(cells []cell, p float64) []cell {
	if p >= 1 {
		return cells
	}
	total := mass(cells)
	n, _ := lead(cells, func(_ int, sum float64) bool { return sum/total >= p })
	return cells[:n]
}

// mass adds the weights, by halves: the error grows with the logarithm of their number.
func mass(cells []cell) float64 {
	if n := len(cells); n > 64 {
		return mass(cells[:n/2]) + mass(cells[n/2:])
	}
	sum := 0.0
	for i := range cells {
		sum += cells[i].weight
	}
	return sum
}

// fewCells is the number of cells that are sorted rather than split further.
const fewCells = 48

// lead moves the first n cells of the order to the front and returns n, the least for which enough(n, their mass) holds, or all of them
// for none. enough must stay true once it is. The cell at n-1 is the last of the n in the order; the others may stand anywhere before it.
//
// It is a quick-select: cells are split at a pivot, and only the side that n falls into is looked at again.
func lead(cells []cell, enough func(n int, sum float64) bool) (n int, sum float64) {
	lo, hi := 0, len(cells) // n is over lo and at most hi; sum is the mass of cells[:lo]
	for hi-lo > fewCells {
		p := lo + split(cells[lo:hi])
		part := mass(cells[lo : p+1])
		if enough(p+1, sum+part) {
			hi = p + 1
		} else {
			lo, sum = p+1, sum+part
		}
	}
	slices.SortFunc(cells[lo:hi], inOrder)
	for n = lo; n < hi; {
		sum += cells[n].weight
		n++
		if enough(n, sum) {
			break
		}
	}
	return n, sum
}

// split moves the cells that come before some pivot to the front, the pivot behind them and the rest behind it, and returns the
// pivot's place. The pivot is the middle one of nine spread over cells, so that a sorted row is split in halves.
func split(cells []cell) int {
	last, eighth := len(cells)-1, (len(cells)-1)/8
	third := func(i int) int { return middle(cells, i*eighth, (i+1)*eighth, (i+2)*eighth) }
	m := middle(cells, third(0), third(3), third(6))
	cells[m], cells[last] = cells[last], cells[m]
	at := 0
	pivot := cells[last]
	for i := range last {
		if cells[i].before(&pivot) {
			cells[i], cells[at] = cells[at], cells[i]
			at++
		}
	}
	cells[at], cells[last] = cells[last], cells[at]
	return at
}

// middle is the one of three places whose cell stands between the others.
func middle(cells []cell, i, j, k int) int {
	if cells[j].before(&cells[i]) {
		i, j = j, i
	}
	switch {
	case cells[k].before(&cells[i]):
		return i
	case cells[j].before(&cells[k]):
		return j
	}
	return k
}
