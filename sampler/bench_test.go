package sampler_test

import (
	"crypto/rand"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

const (
	benchVocab = 151936
	benchBytes = 20480
)

// headHeavy is a Zipf-like row: rank t has about the probability t^-1.8.
func headHeavy() []float32 {
	row := make([]float32, benchVocab)
	for i := range row {
		t := uint32(i*7919) % 151967
		row[i] = float32(-1.25*float64(bits.Len32(t)) - float64(t)/65536)
	}
	return row
}

// flat is a bell of standard deviation 2.3: most of the probability is in thousands of tokens.
func flat() []float32 {
	row := make([]float32, benchVocab)
	for i := range row {
		h := uint32(i)*2654435761 + 12345
		g := h*2246822519 + 3266489917
		row[i] = float32(float64(h>>16+h&0xffff+g>>16+g&0xffff)-131072) / 16384
	}
	return row
}

type benchCase struct {
	name string
	cut  sampler.Cut
	edt  bool // the temperature follows from the entropy
}

func benchCases() []benchCase {
	return []benchCase{
		{"T 1", sampler.Cut{Temperature: 1, TopP: 1}, false},
		{"T 0.7", sampler.Cut{Temperature: 0.7, TopP: 1}, false},
		{"edt", sampler.Cut{TopP: 1}, true},
		{"top-k 50, top-p 0.9", sampler.Cut{Temperature: 1, TopK: 50, TopP: 0.9}, false},
		{"top-p 0.9", sampler.Cut{Temperature: 1, TopP: 0.9}, false},
	}
}

// token is all that one token takes: system bytes, the number made of them, the strategy, and the choice.
func (c benchCase) token(tb testing.TB, s *sampler.Sampler, row []float32, amp amplify.Amplifier, buf []byte) {
	if _, err := rand.Read(buf); err != nil {
		tb.Fatal(err)
	}
	r, err := amp.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Load(row, nil); err != nil {
		tb.Fatal(err)
	}
	cut := c.cut
	if c.edt {
		norm := s.Moments().H / math.Log(benchVocab)
		cut.Temperature = min(max(0.8*math.Sqrt(norm), 0.1), 2)
	}
	if _, err := s.Pick(cut, r.U); err != nil {
		tb.Fatal(err)
	}
}

// bench is a thing to measure.
type bench struct {
	name string
	run  func()
	took []time.Duration
}

// BenchmarkToken measures whole tokens at a large vocabulary, beside reading the row once, in interleaved short rounds; it reports the least and
// the middle of each.
func BenchmarkToken(b *testing.B) {
	for name, row := range map[string][]float32{"head-heavy": headHeavy(), "flat": flat()} {
		b.Run(name, func(b *testing.B) {
			all := benches(b, row)
			for b.Loop() {
				for _, x := range all {
					x.round()
				}
			}
			b.Log(table(all))
		})
	}
}

func benches(b *testing.B, row []float32) []*bench {
	amp, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	buf, s, sum := make([]byte, benchBytes), sampler.New(benchVocab), float32(0)
	all := []*bench{{name: "read the row", run: func() { sum += readRow(row) }}}
	for _, c := range benchCases() {
		all = append(all, &bench{name: c.name, run: func() { c.token(b, s, row, amp, buf) }})
	}
	return all
}

// round runs x once to warm up and then five times.
func (x *bench) round() {
	x.run()
	for range 5 {
		start := time.Now()
		x.run()
		x.took = append(x.took, time.Since(start))
	}
}

func readRow(row []float32) (sum float32) {
	for i := 0; i+4 <= len(row); i += 4 {
		y := (*[4]float32)(row[i:])
		sum += (y[0] + y[1]) + (y[2] + y[3])
	}
	return sum
}

func table(all []*bench) string {
	var out strings.Builder
	for _, x := range all {
		slices.Sort(x.took)
		fmt.Fprintf(&out, "\n%-20s least %.3f ms, middle %.3f ms", x.name, x.took[0].Seconds()*1e3, x.took[len(x.took)/2].Seconds()*1e3)
	}
	return out.String()
}
