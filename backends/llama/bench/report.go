package bench

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Report is what Decode measured.
type Report struct {
	Config Config  `json:"config"`
	Prompt int     `json:"prompt_tokens"`
	Modes  []Mode  `json:"modes"`
	Ratios []Ratio `json:"ratios"`
	Same   []Same  `json:"same,omitempty"` // seeded runs only
}

// Mode is one way of decoding.
type Mode struct {
	Name          string  `json:"name"`
	Tokens        int     `json:"tokens"`
	MSPerToken    float64 `json:"ms_per_token"`     // the median of the rounds
	MinMS         float64 `json:"min_ms_per_token"` // the quietest round
	PeeksPerToken float64 `json:"peeks_per_token"`
}

// Ratio compares two modes: the median over the rounds of the quotient of their times in the same round.
type Ratio struct {
	Of    string  `json:"of"`
	Over  string  `json:"over"`
	Value float64 `json:"value"`
}

// Same says whether two modes chose the same tokens, as they must.
type Same struct {
	A      string `json:"a"`
	B      string `json:"b"`
	Same   bool   `json:"same"`
	Tokens int    `json:"tokens"`          // compared
	Differ int    `json:"rounds_differ"`   // rounds that part somewhere
	First  int    `json:"first,omitempty"` // token of the first difference, from 0; see the near ties in the documentation
}

func (b *bed) report(measures []*measure) *Report {
	r := &Report{Config: b.cfg, Prompt: len(b.prompt)}
	by := map[string]*measure{}
	for _, m := range measures {
		by[m.name] = m
		peeks := 0.0
		if m.total.count > 0 {
			peeks = float64(m.total.peeks) / float64(m.total.count)
		}
		r.Modes = append(r.Modes, Mode{
			Name: m.name, Tokens: m.total.count, MSPerToken: median(m.ms), MinMS: slices.Min(m.ms), PeeksPerToken: peeks,
		})
		if m.name != Plain && by[Plain] != nil {
			r.Ratios = append(r.Ratios, ratio(m, by[Plain]))
		}
	}
	for _, name := range []string{ClassicArgmax, ClassicCut} {
		for _, lazy := range []string{LazyArgmax, LazySample} {
			if c, l := by[name], by[lazy]; c != nil && l != nil {
				r.Ratios = append(r.Ratios, ratio(c, l))
			}
		}
	}
	for _, pair := range [][2]string{{LazySample, FullSample}, {LazyArgmax, FullArgmax}, {BoundedSample, FullInverse}} {
		if x, y := by[pair[0]], by[pair[1]]; b.cfg.Seeded && x != nil && y != nil {
			r.Same = append(r.Same, same(x, y))
		}
	}
	return r
}

func ratio(a, b *measure) Ratio {
	var q []float64
	for i := range min(len(a.ms), len(b.ms)) {
		q = append(q, a.ms[i]/b.ms[i])
	}
	return Ratio{Of: a.name, Over: b.name, Value: median(q)}
}

func same(a, b *measure) Same {
	s := Same{A: a.name, B: b.name, Same: true}
	for i := range a.texts {
		x, y := a.texts[i], b.texts[i]
		n := min(len(x), len(y))
		at := 0
		for at < n && x[at] == y[at] {
			at++
		}
		s.Tokens += at
		if at == n && len(x) == len(y) {
			continue
		}
		if s.Same {
			s.First = at
		}
		s.Same = false
		s.Differ++
	}
	return s
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Print writes the report as tables.
func (r *Report) Print(w io.Writer) error {
	c := r.Config
	fmt.Fprintf(w, "k=%d alpha=%g min_p=%g group=%d threads=%d prompt=%d tokens=%d rounds=%d\n\n",
		c.K, c.Alpha, c.MinP, c.Group, c.Threads, r.Prompt, c.Tokens, c.Rounds)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "mode\tms/token\tquietest\tpeeks/token\ttokens\t")
	for _, m := range r.Modes {
		fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.2f\t%d\t\n", m.Name, m.MSPerToken, m.MinMS, m.PeeksPerToken, m.Tokens)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	fmt.Fprintln(w)
	for _, q := range r.Ratios {
		fmt.Fprintf(w, "%s / %s: %.2f\n", q.Of, q.Over, q.Value)
	}
	for _, s := range r.Same {
		fmt.Fprintf(w, "%s = %s: %v (%d tokens compared, %d rounds differ)\n", s.A, s.B, s.Same, s.Tokens, s.Differ)
	}
	return nil
}
