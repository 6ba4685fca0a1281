package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"testing"
	"time"

	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
)

// played is a line without a socket: frames in, the newest frame out.
type played struct {
	r   *wire.Reader
	out []byte
}

func (p *played) next() (wire.Frame, error) { return p.r.Next(wire.MaxBody) }

func (p *played) send(frame []byte) error {
	p.out = append(p.out[:0], frame...)
	return nil
}

// session makes one without a connection.
func sessionOf(s *Server, n, rows int) *session {
	return newSession(s, &wire.Hello{Session: "x", Vocab: n, MaxRows: rows, MaxModelLen: 1 << 16})
}

// quiet is a server without addresses.
func quiet(change func(*Config)) *Server {
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	return unbound(cfg, Deps{Sources: supply.New(nil)})
}

// TestStepAllocatesNothing holds that a step takes no memory, with one row and with many, with bytes of the operating system.
func TestStepAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, rows := range []int{1, 32} {
		s := quiet(nil)
		c := sessionOf(s, vocab, 32)
		l := &played{}
		var shown []wire.Shown
		for i := range rows {
			g := wire.Begin{Handle: uint32(i + 1), RID: fmt.Sprint(i), Config: []byte(`{"qr_top_k":50}`)}
			c.now = time.Now()
			c.seats[g.Handle] = &seat{req: s.begin(context.Background(), c, &g)}
			shown = append(shown, sidecartest.Compact(g.Handle, 0, logits(vocab, uint64(i), 0), 256))
		}
		frame := wire.AppendStep(nil, 1, 0, shown)
		at := uint32(0)
		run := func() {
			f := wire.Frame{Header: wire.Header{Kind: wire.KindStep, Count: uint16(rows), Seq: uint64(at) + 1}, Body: frame[wire.HeaderSize:]}
			for i := range rows {
				putStep(f.Body, i, at)
			}
			at++
			if err := c.take(context.Background(), f, l); err != nil {
				t.Fatal(err)
			}
			if choice.Status(l.out[wire.HeaderSize+4]) != choice.Token {
				t.Fatalf("status %d", l.out[wire.HeaderSize+4])
			}
		}
		for range 300 { // room for choices and tokens is made now and then, the more rarely the longer an answer is
			run()
		}
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%d rows: %v allocations a step", rows, n)
		}
		c.end()
	}
}

// putStep makes row i of a step frame one of another step.
func putStep(body []byte, i int, step uint32) {
	for b := range 4 {
		body[32*i+4+b] = byte(step >> (8 * b))
	}
}

// TestDistribution holds that first tokens come as often as softmax says, from compact and from whole rows, with bytes of the operating system.
func TestDistribution(t *testing.T) {
	const n, shows = 64, 32
	draws := 20000
	if raceEnabled {
		draws = 3200
	}
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(3 * math.Sin(float64(i)))
	}
	var z float64
	for _, v := range row {
		z += math.Exp(float64(v))
	}
	r := start(t, func(cfg *Config, _ *Deps) { cfg.Top = 16 })
	for _, form := range []string{"compact", "full"} {
		p := r.dial(t, func(o *sidecartest.Options) { o.Vocab, o.MaxRows = n, shows })
		counts := make([]float64, n)
		for k := 0; k < draws; k += shows {
			for _, token := range firsts(t, p, form, k, shows, row) {
				counts[token]++
			}
			for i := range shows {
				r.finish(fmt.Sprintf("%s-%d", form, k+i), time.Now())
			}
		}
		var chi float64
		for i, c := range counts {
			e := float64(draws) * math.Exp(float64(row[i])) / z
			chi += (c - e) * (c - e) / e
		}
		// 63 degrees of freedom: a right sampler is over 120 once in 50,000 runs.
		if chi > 120 {
			t.Errorf("%s: chi-square is %.1f with %d degrees of freedom", form, chi, n-1)
		}
	}
}

// firsts are the first tokens of so many answers.
func firsts(t *testing.T, p *sidecartest.Plugin, form string, k, shows int, row []float32) (out []int32) {
	t.Helper()
	var handles []uint32
	var shown, whole []wire.Shown
	for i := range shows {
		h := begin(t, p, fmt.Sprintf("%s-%d", form, k+i), `{"qr_sample_count":4096}`)
		handles = append(handles, h)
		if form == "compact" {
			shown = append(shown, p.Compact(h, 0, row))
		} else {
			shown = append(shown, p.Shared(h, 0, i, row))
		}
	}
	got, err := p.Step(shown...)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range got {
		if choice.Status(a.Status) == choice.Whole {
			whole = append(whole, p.Shared(handles[i], 0, i, row))
			continue
		}
		want(t, a, choice.Token)
		out = append(out, a.Token)
	}
	if len(whole) > 0 {
		if got, err = p.Rest(whole...); err != nil {
			t.Fatal(err)
		}
		for _, a := range got {
			want(t, a, choice.Token)
			out = append(out, a.Token)
		}
	}
	if err := p.End(handles...); err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzSession plays any bytes to a session: it may end the connection with a reason, and never panics or hangs.
func FuzzSession(f *testing.F) {
	row := sidecartest.Compact(1, 0, logits(8, 1, 0), 4)
	again := sidecartest.Compact(1, 0, logits(8, 2, 0), 4)
	next := sidecartest.Compact(1, 1, logits(8, 2, 0), 4)
	far := sidecartest.Compact(1, 9, logits(8, 2, 0), 4)
	whole := wire.Shown{Row: wire.Row{Handle: 1, Form: wire.Inline}, Logits: logits(8, 1, 0)}
	b := (&wire.Begin{Handle: 1, RID: "r", Config: []byte(`{"qr_seed":1,"qr_repetition_penalty":1.2}`), Prompt: []int32{1, 2}}).Append(nil)
	resumed := (&wire.Begin{Handle: 2, Step: 2, RID: "r", Config: []byte(`{"qr_seed":1,"qr_repetition_penalty":1.2}`), Prompt: []int32{1, 2}, History: []int32{5, -1}}).Append(nil)
	for _, parts := range [][]wire.Shown{{row}, {row, next}, {row, again, next}, {row, far}, {whole, again}} {
		frames := append([]byte(nil), b...)
		for i, p := range parts {
			frames = wire.AppendStep(frames, uint64(i+1), 0, []wire.Shown{p})
		}
		f.Add(wire.AppendEnd(append(frames, resumed...), 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := quiet(func(c *Config) { c.Top, c.Requests, c.Deadline = 4, 8, 50*time.Millisecond })
		c := sessionOf(s, 8, 4)
		c.inline, c.hello.MaxModelLen = true, 64
		err := c.run(context.Background(), &played{r: wire.NewReader(bytesReader(data))})
		if _, refused := errors.AsType[*wire.RefusedError](err); err != nil && !refused {
			t.Fatalf("the session ended by %v", err)
		}
		s.work.Wait()
		s.forgetAll()
	})
}

type reading struct{ rest []byte }

func bytesReader(b []byte) io.Reader { return &reading{b} }

func (r *reading) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
