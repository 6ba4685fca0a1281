package measure

import (
	"time"

	"qr-gateway/entropy"
)

// Word is a verdict.
type Word string

// The verdicts. They are about what was drawn: a source that passes may still be biased by less than so many bytes can show.
const (
	Good  Word = "as expected"
	Again Word = "look again"      // 1 perfect source in 100 looks like this; measure once more
	Bad   Word = "fails"           // 1 perfect source in a million looks like this
	Info  Word = "for information" // a raw source need not be uniform
)

// The chances below which a finding is no longer what a perfect source shows.
const (
	againBelow = 0.01
	badBelow   = 1e-6
)

// Verdict is one test's outcome.
type Verdict struct {
	Name  string   `json:"name"`
	Value string   `json:"value"`       // what was measured, in words
	P     *float64 `json:"p,omitempty"` // the chance that a perfect source looks as far off
	Word  Word     `json:"verdict"`
}

// Report is what an examination found.
type Report struct {
	Source     string        `json:"source"`
	Device     string        `json:"device,omitempty"`
	Class      entropy.Class `json:"class"`
	When       time.Time     `json:"when"`
	Blocks     int           `json:"blocks"`
	BlockBytes int           `json:"block_bytes"`
	Rate       float64       `json:"bytes_per_second"` // while drawing
	Latency    Latency       `json:"latency_seconds"`  // of a block
	Mean       float64       `json:"byte_mean"`
	Std        float64       `json:"byte_std"`
	MeanZ      float64       `json:"byte_mean_z"`      // against the baseline
	Ones       float64       `json:"ones"`             // share of bits that are 1
	OnesByBit  [8]float64    `json:"ones_by_bit"`      // the lowest bit first
	Lags       [8]float64    `json:"autocorrelation"`  // of bytes 1 to 8 apart
	MinEntropy float64       `json:"min_entropy_bits"` // per byte, most common value with its 99 % bound
	ZVariance  float64       `json:"z_variance"`       // of blocks about the baseline; 1 is right
	Duplicates int           `json:"duplicate_blocks"`

	Verdicts []Verdict      `json:"verdicts"`
	Flags    map[string]int `json:"flags,omitempty"` // on the blocks, by the guard

	// Series are for plots.
	Series Series `json:"series"`
}

// Latency are percentiles in seconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Series are what plots show.
type Series struct {
	ByteCounts []uint64  `json:"byte_counts"`     // 256
	UCounts    []int     `json:"u_counts"`        // of bins of equal width
	UExpected  []float64 `json:"u_expected"`      // exact, of uniform bytes or the baseline
	Latency    []float64 `json:"latency_seconds"` // of each block
	Z          []float64 `json:"z"`               // of each block
	Sums       []uint64  `json:"sums"`            // of the bytes of each block
}

// Failed says whether a test fails.
func (r *Report) Failed() bool {
	for _, v := range r.Verdicts {
		if v.Word == Bad {
			return true
		}
	}
	return false
}
