// Package lookaheadtest has a synthetic language model for tests of the lookahead decoder: rows depend on the whole history of tokens by
// hashing, so that a wrong history gives a wrong row. Its evaluator checks the contract it is called under and counts what a real
// one would spend. Everything belongs to one goroutine.
package lookaheadtest

import "math"

// Shape says what rows look like.
type Shape struct {
	Vocab int
	// Zero is the share of histories after which one token has all the probability, so that H is 0.
	Zero float64
	// Level, if not 0, makes every row equal: all logits 0.
	Level bool
}

// Model maps a history to a row of logits.
type Model struct {
	shape Shape
	zipf  []float64 // ln(rank+1)
	known map[uint64][]float32
}

// remember is how many rows a model keeps: a test that decides one step many times asks for the same few.
const remember = 256

// NewModel returns a model of shape.
func NewModel(shape Shape) *Model {
	m := &Model{shape: shape, zipf: make([]float64, shape.Vocab), known: map[uint64][]float32{}}
	for r := range m.zipf {
		m.zipf[r] = math.Log(float64(r + 1))
	}
	return m
}

// Start is the state of an empty history, for a seed.
func Start(seed uint64) uint64 { return mix(seed + 1) }

// Next is the state after one more token.
func Next(state uint64, token int32) uint64 { return mix(state ^ mix(uint64(token)+0x51ed270b)) }

// Row fills row with the logits that follow state.
func (m *Model) Row(state uint64, row []float32) {
	if r, ok := m.known[state]; ok {
		copy(row, r)
		return
	}
	m.make(state, row)
	if len(m.known) < remember {
		m.known[state] = append([]float32(nil), row...)
	}
}

// make computes a row. Three kinds of rows take turns: peaked, medium and open, as in real text; ranks fall
// on ids by a permutation of the state's own.
func (m *Model) make(state uint64, row []float32) {
	n := uint64(len(row))
	h := mix(state)
	if m.shape.Level {
		clear(row)
		return
	}
	if unit(mix(h+7)) < m.shape.Zero {
		for i := range row {
			row[i] = -1e6
		}
		row[h%n] = 0
		return
	}
	slope := 0.9 + 2.2*unit(mix(h+1))
	head := 4 * unit(mix(h+2)) * unit(mix(h+3))
	step := h>>32%n | 1
	for gcd(step, n) != 1 {
		step += 2
	}
	for r := range row {
		at := (h%n + uint64(r)*step) % n
		row[at] = float32(-slope*m.zipf[r] + 0.6*unit(mix(h^uint64(r)*0x9e3779b97f4a7c15)))
	}
	row[h%n] += float32(head)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func unit(x uint64) float64 { return (float64(x>>12) + 0.5) / (1 << 52) }
