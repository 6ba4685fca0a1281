// Package entropytest is what every entropy source must pass. A test of a source calls [Run] with a function that makes one.
package entropytest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// Options fit the suite to a source.
type Options struct {
	// Largest is the biggest draw that is made, 20,480 bytes where it is 0. A slow source may ask for less.
	Largest int
	// Rounds is how often the largest draw is made, 64 where it is 0.
	Rounds int
	// Soon is how long after its context has ended a draw may take to return, 2 s where it is 0.
	Soon time.Duration
	// LowEntropy says that blocks may be alike and bytes may never be written with some bit: raw sources.
	LowEntropy bool
	// OtherProbe says that the probe does not describe the source of the blocks, as with a test's stand-in for one of the two.
	OtherProbe bool
}

func (o Options) orDefaults() Options {
	if o.Largest == 0 {
		o.Largest = 20480
	}
	if o.Rounds == 0 {
		o.Rounds = 64
	}
	if o.Soon == 0 {
		o.Soon = 2 * time.Second
	}
	return o
}

// Run checks that the sources made by open keep the obligations of [entropy.Source]. open is called once per check; what it opens it
// closes with t.Cleanup, unless a check has closed it before: Close can be called twice.
func Run(t *testing.T, open func(t *testing.T) entropy.Source) {
	RunWith(t, Options{}, open)
}

// RunWith is Run fitted to a source.
func RunWith(t *testing.T, o Options, open func(t *testing.T) entropy.Source) {
	o = o.orDefaults()
	for _, c := range []struct {
		name  string
		check func(*testing.T, Options, entropy.Source)
	}{
		{"fills the buffer", fills},
		{"describes the block", describes},
		{"orders its times", ordersTimes},
		{"never repeats", neverRepeats},
		{"honours the context", honoursContext},
		{"returns soon when cancelled in a draw", returnsSoon},
		{"never writes late", neverWritesLate},
		{"serves many at once", servesMany},
		{"takes an empty buffer", takesNothing},
		{"leaves what is not asked", leavesRest},
		{"can be probed", canBeProbed},
		{"closes for good", closesForGood},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, o, open(t)) })
	}
}

func draw(t *testing.T, s entropy.Source, n int) entropy.Block {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fills: a byte that was never written would be 0 in all draws.
func fills(t *testing.T, o Options, s entropy.Source) {
	for _, n := range []int{1, 2, 255, o.Largest} {
		written := make([]byte, n)
		for range o.Rounds {
			b := draw(t, s, n)
			if len(b.Bytes) != n {
				t.Fatalf("asked for %d bytes, got %d", n, len(b.Bytes))
			}
			for i, v := range b.Bytes {
				written[i] |= v
			}
		}
		if i := bytes.IndexByte(written, 0); i >= 0 && !o.LowEntropy {
			t.Fatalf("byte %d of %d is never written", i, n)
		}
	}
}

func describes(t *testing.T, _ Options, s entropy.Source) {
	buf := make([]byte, 16)
	b, err := s.Draw(t.Context(), buf)
	if err != nil {
		t.Fatal(err)
	}
	if &b.Bytes[0] != &buf[0] {
		t.Error("the block is not the caller's buffer")
	}
	if b.Source == "" {
		t.Errorf("source is missing: %+v", b)
	}
	if !b.Class.Known() {
		t.Errorf("class is %q", b.Class)
	}
	if b.Pipelined || b.Fallback {
		t.Errorf("a plain draw is neither pipelined nor a second choice: %+v", b)
	}
	if next := draw(t, s, 16); next.Sequence <= b.Sequence {
		t.Errorf("sequence %d comes after %d", next.Sequence, b.Sequence)
	}
}

// ordersTimes: just in time means that the request leaves after the draw began.
func ordersTimes(t *testing.T, _ Options, s entropy.Source) {
	for range 8 {
		before := time.Now()
		b := draw(t, s, 64)
		after := time.Now()
		if b.Requested.Before(before) || b.Arrived.Before(b.Requested) || after.Before(b.Arrived) {
			t.Errorf("drawn %v to %v, requested %v, arrived %v", before, after, b.Requested, b.Arrived)
		}
	}
}

func neverRepeats(t *testing.T, o Options, s entropy.Source) {
	size := 16
	if o.LowEntropy {
		size = 1024
	}
	seen := map[string]bool{}
	for range 500 {
		b := draw(t, s, size)
		if seen[string(b.Bytes)] {
			t.Fatalf("block %x was handed out twice", b.Bytes)
		}
		seen[string(b.Bytes)] = true
	}
}

func honoursContext(t *testing.T, _ Options, s entropy.Source) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Draw(ctx, make([]byte, 16)); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: error %v", err)
	}
	if b := draw(t, s, 16); len(b.Bytes) != 16 {
		t.Error("the next draw fails")
	}
}

// cancelled starts a draw, ends its context after a moment that grows with i, and returns its buffer, how long it took to return, and its error.
func cancelled(t *testing.T, o Options, s entropy.Source, i int) (buf []byte, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	buf = make([]byte, o.Largest)
	done := make(chan error, 1)
	go func() {
		_, err := s.Draw(ctx, buf)
		done <- err
	}()
	wait := time.NewTimer(time.Duration(i) * 100 * time.Microsecond)
	defer wait.Stop()
	select {
	case err := <-done: // it was quicker
		return buf, 0, err
	case <-wait.C:
	}
	ended := time.Now()
	cancel()
	err = <-done
	return buf, time.Since(ended), err
}

func returnsSoon(t *testing.T, o Options, s entropy.Source) {
	for i := range 10 {
		_, took, err := cancelled(t, o, s, i)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in a draw: %v", err)
		}
		if took > o.Soon {
			t.Errorf("it took %v to return after its context had ended", took)
		}
	}
	if b := draw(t, s, 16); len(b.Bytes) != 16 {
		t.Error("the next draw fails")
	}
}

// neverWritesLate: after a draw has returned, its buffer is the caller's. The draws that follow flush what may still be on its way.
func neverWritesLate(t *testing.T, o Options, s entropy.Source) {
	mark := bytes.Repeat([]byte{0xa5}, o.Largest)
	var given [][]byte
	for i := range 10 {
		buf, _, _ := cancelled(t, o, s, i)
		copy(buf, mark)
		given = append(given, buf)
	}
	for range 10 {
		draw(t, s, 256)
	}
	for i, buf := range given {
		if !bytes.Equal(buf, mark) {
			t.Errorf("draw %d wrote to its buffer after it had returned", i)
		}
	}
}

func servesMany(t *testing.T, o Options, s entropy.Source) {
	const users, each = 8, 50
	size := 16
	if o.LowEntropy {
		size = 1024
	}
	blocks := make([][]string, users)
	var group sync.WaitGroup
	for u := range users {
		group.Go(func() {
			for range each {
				b, err := s.Draw(t.Context(), make([]byte, size))
				if err != nil {
					t.Error(err)
					return
				}
				blocks[u] = append(blocks[u], string(b.Bytes))
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, list := range blocks {
		for _, b := range list {
			if seen[b] {
				t.Fatalf("block %x went to two users", b)
			}
			seen[b] = true
		}
	}
}

func takesNothing(t *testing.T, _ Options, s entropy.Source) {
	if b, err := s.Draw(t.Context(), nil); err != nil || len(b.Bytes) != 0 {
		t.Errorf("got %d bytes, error %v", len(b.Bytes), err)
	}
}

func leavesRest(t *testing.T, _ Options, s entropy.Source) {
	buf := bytes.Repeat([]byte{0xa5}, 64)
	if _, err := s.Draw(t.Context(), buf[16:48]); err != nil {
		t.Fatal(err)
	}
	rest := slices.Concat(buf[:16], buf[48:])
	if !bytes.Equal(rest, bytes.Repeat([]byte{0xa5}, 32)) {
		t.Errorf("wrote outside its buffer: %x", rest)
	}
}

func canBeProbed(t *testing.T, o Options, s entropy.Source) {
	p, ok := s.(entropy.Prober)
	if !ok {
		t.Skip("it has no probe")
	}
	caps, err := p.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.OtherProbe {
		return
	}
	b := draw(t, s, 64)
	if caps.Device != "" && b.Device != caps.Device {
		t.Errorf("the probe finds device %q, blocks name %q", caps.Device, b.Device)
	}
	if caps.Class != "" && b.Class != caps.Class {
		t.Errorf("the probe finds class %q, blocks name %q", caps.Class, b.Class)
	}
	if _, ok := s.(entropy.Numberer); caps.Number && !ok {
		t.Error("the probe finds numbers, and the source can't be asked for one")
	}
}

// closesForGood also ends draws that are waiting. That no goroutine stays is for goleak in the TestMain of the source's tests.
func closesForGood(t *testing.T, o Options, s entropy.Source) {
	c, ok := s.(io.Closer)
	if !ok {
		t.Skip("it holds nothing to close")
	}
	draw(t, s, 16)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if _, err := s.Draw(t.Context(), make([]byte, o.Largest)); err != nil {
					if entropy.KindOf(err) != entropy.KindClosed {
						t.Errorf("a draw while it was closed: %v", err)
					}
					return
				}
			}
		})
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	group.Wait()
	if _, err := s.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("a draw after Close: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// RunFailing checks what the errors of a source that can't serve are like. open makes sources that fail every draw.
func RunFailing(t *testing.T, want entropy.Kind, open func(t *testing.T) entropy.Source) {
	s := open(t)
	buf := make([]byte, 64)
	b, err := s.Draw(t.Context(), buf)
	e, ok := errors.AsType[*entropy.Error](err)
	switch {
	case !ok:
		t.Fatalf("want an *entropy.Error, got %T: %v", err, err)
	case e.Kind != want:
		t.Errorf("kind is %s, want %s: %v", e.Kind, want, err)
	case e.Source == "" || e.Message == "":
		t.Errorf("it names no source or thing: %#v", e)
	}
	if b.Bytes != nil {
		t.Errorf("a failed draw returns bytes: %+v", b)
	}
}
