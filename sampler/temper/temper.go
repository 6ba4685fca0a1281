// Package temper has the temperature strategies: what the temperature, and with some the min-p, of one token is, given the distribution
// at hand. A strategy is one file and one line in the table of kinds; its parameters are declared beside it and appear in the one
// parameter table. A [Strategy] holds the state of one answer and belongs to one goroutine; the table is never changed.
//
//	kind, err := temper.Find("edt")
//	strategy, err := kind.New(&params, nVocab)
//	h, vh := temper.Moments(row)
//	in := temper.Input{Row32: row, H: h, VH: vh, HNorm: h / math.Log(float64(nVocab))}
//	err = strategy.Plan(&in, &out) // out.Temperature, out.MinP
//	strategy.Chosen(token)
package temper

import "qr-gateway/sampler/param"

// Kind is one line of the table of strategies.
type Kind struct {
	Name   string
	Help   string
	Fields []param.Field // its own parameters; PerRequest and Group are filled in by the table
	// New makes a strategy for one answer. It reads its parameters once, here; they are within their ranges.
	New func(v param.Values, nVocab int) (Strategy, error)
}

// Input is what a strategy sees of one token. Nothing of it is kept or changed.
type Input struct {
	// Row has the logits after penalties, bias and masks. What is not finite is absent. Exactly one of the two is set.
	Row32 []float32
	Row64 []float64
	// H is the Shannon entropy of softmax(Row) over what is present, in nats; VH its varentropy sum p (-ln p - H)^2, in nats^2.
	H, VH float64
	// HNorm is H / ln(nVocab), where nVocab is the size of the vocabulary, present or not.
	HNorm float64
	// Gate is what the server said about the number of the token before: nil where there was none, or the draw failed.
	Gate *Evidence
}

// Evidence is what a server that integrates its own draws says about one.
type Evidence struct {
	Z     float64
	R     float64
	Valid bool
}

// Output is what a strategy decides. The caller resets it before every token; slices keep their memory.
type Output struct {
	Temperature float64   // finite; 0 or below is greedy
	MinP        float64   // between 0 and 1
	HasMinP     bool      // false: the request's qr_min_p applies
	Row         []float64 // transformed logits to select from instead, one per token of the row, -Inf where absent; empty: none
	Notes       []Note    // diagnostics, for the record
}

// Note is one diagnostic value, finite, or a word.
type Note struct {
	Name  string
	Value float64
	Text  string // in place of Value where it is not empty
}

// Strategy sets the temperature of the tokens of one answer, in order. It allocates nothing per token once warm.
type Strategy interface {
	// Plan decides for one token.
	Plan(in *Input, out *Output) error
	// Chosen tells the token that was chosen after the last Plan.
	Chosen(token int32)
}
