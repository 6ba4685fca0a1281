package sidecar

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
)

// large is the vocabulary of the benchmark.
const large = 151936

// measured is one case: a plugin that shows so many rows in every step.
type measured struct {
	name  string
	rows  int
	p     *sidecartest.Plugin
	frame []byte
	at    uint32
	took  []time.Duration
}

// measure connects a plugin and begins its requests.
func (r *running) measure(b *testing.B, form string, rows int, cfg string, row []float32) *measured {
	b.Helper()
	c := &measured{name: fmt.Sprintf("%s-%d", form, rows), rows: rows}
	c.p = r.dial(b, func(o *sidecartest.Options) { o.Vocab, o.MaxRows = large, 32 })
	if err := c.p.Conn.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	var shown []wire.Shown
	for i := range rows {
		h := begin(b, c.p, fmt.Sprintf("%s-%d", c.name, i), cfg)
		if form == "full" {
			shown = append(shown, c.p.Shared(h, 0, i, row))
		} else {
			shown = append(shown, c.p.Compact(h, 0, row))
		}
	}
	c.frame = wire.AppendStep(nil, 1, 0, shown)
	return c
}

// step shows the rows as those of the next step.
func (c *measured) step(b *testing.B) {
	for i := range c.rows {
		putStep(c.frame[wire.HeaderSize:], i, c.at)
	}
	c.at++
	h := wire.Header{Size: uint32(len(c.frame) - wire.HeaderSize), Kind: wire.KindStep, Count: uint16(c.rows), Seq: uint64(c.at)}
	h.Append(c.frame[:0])
	begun := time.Now()
	got, err := c.p.Exchange(c.frame)
	c.took = append(c.took, time.Since(begun))
	if err != nil || choice.Status(got[0].Status) != choice.Token {
		b.Fatal(got, err)
	}
}

// BenchmarkStep measures steps over the socket as a plugin sees them, with V = 151,936 and 1 and 32 rows: compact ones and whole ones with the default
// 20,480 bytes of the operating system a number, and compact ones of seeded requests, which take none. The cases go in turns, so that they
// can be compared on a machine that does other work too, and medians are told. The way alone is a step with nobody's row.
func BenchmarkStep(b *testing.B) {
	r := start(b, nil)
	row := logits(large, 1, 0)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 { // a head, as models have it
		row[rng.IntN(large)] = 14 - float32(i)/20
	}
	var all []*measured
	for _, rows := range []int{1, 32} {
		all = append(all,
			r.measure(b, "compact", rows, `{"qr_top_k":50,"qr_top_p":0.95}`, row),
			r.measure(b, "seeded", rows, `{"qr_top_k":50,"qr_top_p":0.95,"qr_seed":1}`, row),
			r.measure(b, "full", rows, `{"qr_top_k":50,"qr_top_p":0.95}`, row))
	}
	empty := r.dial(b, nil)
	if err := empty.Conn.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	var way []time.Duration
	for b.Loop() {
		for _, c := range all {
			c.step(b)
		}
		begun := time.Now()
		if _, err := empty.Step(wire.Shown{Row: wire.Row{Handle: 9, Form: wire.Shared}}); err != nil {
			b.Fatal(err)
		}
		way = append(way, time.Since(begun))
	}
	b.ReportMetric(median(way), "us/way")
	for _, c := range all {
		b.ReportMetric(median(c.took)/float64(c.rows), "us/row-"+c.name)
	}
}

// median is in microseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}
