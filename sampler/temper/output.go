package temper

import (
	"errors"
	"fmt"
	"math"
)

// ErrInput says that entropy or varentropy of a row is not a number.
var ErrInput = errors.New("entropy of the row is not finite")

// ErrNotFinite says that the formula of a strategy gave no temperature.
var ErrNotFinite = errors.New("temperature is not finite")

// ErrVocab says that a strategy which divides by the logarithm of the vocabulary was given one of a single token.
var ErrVocab = errors.New("strategy needs a vocabulary of 2 tokens or more")

// The box that bounds the strategies which set min-p as well. fixed, edt and what coherence_gate adds are outside it.
const (
	leastT, mostT = 0.3, 2.2
	mostMinP      = 0.15
)

// check reports an input that no strategy can decide on.
func (in *Input) check() error {
	if !finite(in.H) || !finite(in.VH) || !finite(in.HNorm) {
		return fmt.Errorf("%w: H %v, VH %v, H/ln V %v", ErrInput, in.H, in.VH, in.HNorm)
	}
	return nil
}

// decide sets a temperature that is bounded already, or refuses one that is not a number.
func (o *Output) decide(t float64) error {
	if !finite(t) {
		return fmt.Errorf("%w: %v", ErrNotFinite, t)
	}
	o.Temperature = t
	return nil
}

// box sets temperature and min-p within the box, and notes both as the formula gave them. Infinite values, which extreme parameters
// reach, are bounded like others.
func (o *Output) box(t, minP float64) error {
	if math.IsNaN(t) || math.IsNaN(minP) {
		return fmt.Errorf("%w: %v, min-p %v", ErrNotFinite, t, minP)
	}
	o.Temperature = clamp(t, leastT, mostT)
	o.MinP, o.HasMinP = clampMinP(minP), true
	o.note("pre_clamp_temp", t)
	o.note("pre_clamp_min_p", minP)
	return nil
}

// note adds a diagnostic. What is not finite has no JSON form and is bounded.
func (o *Output) note(name string, value float64) {
	o.Notes = append(o.Notes, Note{Name: name, Value: clamp(value, -math.MaxFloat64, math.MaxFloat64)})
}

// say adds a diagnostic in words.
func (o *Output) say(name, text string) {
	o.Notes = append(o.Notes, Note{Name: name, Text: text})
}

// row returns out.Row with n places.
func (o *Output) row(n int) []float64 {
	if cap(o.Row) < n {
		o.Row = make([]float64, n)
	}
	o.Row = o.Row[:n]
	return o.Row
}

func finite(v float64) bool { return v-v == 0 }

func clamp(v, low, high float64) float64 { return min(max(v, low), high) }

func clampMinP(v float64) float64 { return clamp(v, 0, mostMinP) }

// needTwo refuses a vocabulary whose logarithm is 0.
func needTwo(name string, nVocab int) error {
	if nVocab < 2 {
		return fmt.Errorf("%s: %w, not %d", name, ErrVocab, nVocab)
	}
	return nil
}

// bell is a Gaussian of height peak over the normalised entropy.
type bell struct{ peak, mu, sigma float64 }

func (b bell) at(h float64) float64 {
	d := (h - b.mu) / b.sigma
	return b.peak * math.Exp(-d*d/2)
}

// saturate maps varentropy to [0,1): 1 - e^(-vh/lambda).
func saturate(vh, lambda float64) float64 { return -math.Expm1(-vh / lambda) }
