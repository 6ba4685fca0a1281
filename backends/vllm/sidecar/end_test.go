package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
)

// TestFinishedAnswersHoldNothing holds that a spent rid keeps neither choices nor records, while the one who follows still reads what there was.
func TestFinishedAnswersHoldNothing(t *testing.T) {
	const answers, tokens = 20, 30
	r := start(t, nil)
	p := r.dial(t, nil)
	row := logits(vocab, 4, 1)
	for i := range answers {
		rid := fmt.Sprint("r", i)
		f := follow(t, r, rid)
		h := begin(t, p, rid, `{"qr_seed":5,"qr_diagnostic_mode":true}`)
		for at := range tokens {
			step(t, p, h, at, row)
		}
		if s := finish(t, f); s.Tokens != tokens || len(s.Records) != tokens || s.EntropySource != "seed" {
			t.Fatalf("account of %d tokens with %d records from %q, want %d", s.Tokens, len(s.Records), s.EntropySource, tokens)
		}
		for at := range tokens {
			if c := next(t, f); c.Step != at {
				t.Fatalf("after the end: step %d, want %d", c.Step, at)
			}
		}
		if _, err := f.Next(context.Background()); !errors.Is(err, io.EOF) {
			t.Errorf("after the last choice: %v, want io.EOF", err)
		}
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if len(r.book.rids) != answers {
		t.Errorf("%d rids are refused, want %d", len(r.book.rids), answers)
	}
	for rid, e := range r.book.rids {
		if !e.finished || e.trail != nil || e.req != nil {
			t.Errorf("of %s is kept: finished %v, trail %p, request %p", rid, e.finished, e.trail, e.req)
		}
	}
}

// stuck are sources that take no notice of the time they are given to open.
type stuck struct {
	opening, release chan struct{}
}

func (s *stuck) Open(_ context.Context, name string, _ hub.Blocks) (supply.Opened, error) {
	close(s.opening)
	<-s.release
	return supply.Opened{Source: s, Name: name, Policy: "strict"}, nil
}

func (s *stuck) Fill(context.Context, []byte) (sampler.Block, error) { return sampler.Block{}, io.EOF }

// TestFinishWaitsForNoSource holds that an answer can be finished while its source is being opened, and that its row is stopped then.
func TestFinishWaitsForNoSource(t *testing.T) {
	source := &stuck{opening: make(chan struct{}), release: make(chan struct{})}
	r := start(t, func(cfg *Config, d *Deps) { d.Sources, cfg.Deadline = source, 20*time.Millisecond })
	t.Cleanup(func() { close(source.release) }) // before the sidecar ends, which waits for it
	p := r.dial(t, nil)
	f := follow(t, r, "s")
	h := begin(t, p, "s", fromLab)
	<-source.opening
	if s := finish(t, f); s.Tokens != 0 {
		t.Errorf("account %+v", s)
	}
	want(t, one(t, p, p.Compact(h, 0, logits(vocab, 1, 0))), choice.Stop)
	if n := r.Stats().Failed; n != 0 {
		t.Errorf("%d failed rows of a finished answer, want 0", n)
	}
}

// wall passes connections on to an address until it is cut: then they stay open, and nothing comes through any more.
type wall struct {
	net.Listener
	cut   chan struct{}
	conns []net.Conn
	work  sync.WaitGroup
	mu    sync.Mutex // guards conns
}

func newWall(t *testing.T, to net.Addr) *wall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wall{Listener: l, cut: make(chan struct{})}
	w.work.Go(func() { w.accept(to) })
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.work.Wait()
	})
	return w
}

func (w *wall) accept(to net.Addr) {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(to.Network(), to.String())
		if err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, near, far)
		w.mu.Unlock()
		w.work.Go(func() { w.pass(near, far) })
		w.work.Go(func() { w.pass(far, near) })
	}
}

func (w *wall) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 1<<12)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-w.cut: // it is read, so that the network acknowledges it, and goes nowhere
		default:
			_, _ = to.Write(buf[:n])
		}
	}
}

// TestHalfOpenConnectionIsFoundOut holds that a sidecar whose machine is gone is not listed with its engines for as long as TCP hopes.
func TestHalfOpenConnectionIsFoundOut(t *testing.T) {
	t.Parallel()
	r := start(t, withRPC)
	w := newWall(t, r.Addr())
	c := r.client(t, func(c *ClientConfig) {
		c.Address, c.Connect = w.Addr().String(), time.Second
	})
	r.dial(t, nil)
	until(t, "the plugin is there", func() bool { return len(c.Engines()) == 1 })
	close(w.cut)
	begun := time.Now()
	for tick := time.Tick(50 * time.Millisecond); len(c.Engines()) != 0; <-tick {
		if time.Since(begun) > 2*pulse+patience {
			t.Fatal("engines of a sidecar that is gone are listed still")
		}
	}
}

// TestErrorForEverybody holds that a client of the gateway isn't told where the sidecar is; the log is.
func TestErrorForEverybody(t *testing.T) {
	r := start(t, withRPC)
	c := r.client(t, func(c *ClientConfig) { c.Address, c.Connect = "127.0.0.1:1", time.Second })
	_, err := c.Follow(context.Background(), "e", 0)
	e, ok := errors.AsType[*backends.Error](err)
	if !ok || e.Code != "sidecar_unavailable" || strings.Contains(e.Error(), "127.0.0.1") || strings.Contains(e.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	if cause := fmt.Sprint(errors.Unwrap(err)); !strings.Contains(cause, "127.0.0.1:1") || !strings.Contains(cause, "refused") {
		t.Errorf("cause %s; it should name address and reason", cause)
	}
}
