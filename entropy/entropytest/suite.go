// Package entropytest is what every entropy source must pass. A test of a source calls [Run] with a function that makes one.
package entropytest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"qr-gateway/entropy"
)

// Run checks that the sources made by open keep the obligations of [entropy.Source]. open is called once per check; what it opens it
// closes with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) entropy.Source) {
	for name, check := range map[string]func(*testing.T, entropy.Source){
		"fills the buffer":         fills,
		"describes the block":      describes,
		"never repeats":            neverRepeats,
		"honours the context":      honoursContext,
		"serves many at once":      servesMany,
		"takes an empty buffer":    takesNothing,
		"passes bytes through":     passesThrough,
		"leaves what is not asked": leavesRest,
	} {
		t.Run(name, func(t *testing.T) { check(t, open(t)) })
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

// fills: a byte that was never written would be 0 in all of 64 draws.
func fills(t *testing.T, s entropy.Source) {
	for _, n := range []int{1, 2, 255, 20480} {
		written := make([]byte, n)
		for range 64 {
			b := draw(t, s, n)
			if len(b.Bytes) != n {
				t.Fatalf("asked for %d bytes, got %d", n, len(b.Bytes))
			}
			for i, v := range b.Bytes {
				written[i] |= v
			}
		}
		if i := bytes.IndexByte(written, 0); i >= 0 {
			t.Fatalf("byte %d of %d is never written", i, n)
		}
	}
}

func describes(t *testing.T, s entropy.Source) {
	buf := make([]byte, 16)
	b, err := s.Draw(t.Context(), buf)
	if err != nil {
		t.Fatal(err)
	}
	if &b.Bytes[0] != &buf[0] {
		t.Error("the block is not the caller's buffer")
	}
	if b.Source == "" || b.Class == "" {
		t.Errorf("source or freshness is missing: %+v", b)
	}
	if b.Requested.IsZero() || b.Arrived.Before(b.Requested) {
		t.Errorf("requested %v, arrived %v", b.Requested, b.Arrived)
	}
	if next := draw(t, s, 16); next.Sequence <= b.Sequence {
		t.Errorf("sequence %d comes after %d", next.Sequence, b.Sequence)
	}
}

func neverRepeats(t *testing.T, s entropy.Source) {
	seen := map[string]bool{}
	for range 1000 {
		b := draw(t, s, 16)
		if seen[string(b.Bytes)] {
			t.Fatalf("block %x was handed out twice", b.Bytes)
		}
		seen[string(b.Bytes)] = true
	}
}

func honoursContext(t *testing.T, s entropy.Source) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Draw(ctx, make([]byte, 16)); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: error %v", err)
	}
	if b := draw(t, s, 16); len(b.Bytes) != 16 {
		t.Error("the next draw fails")
	}
}

func servesMany(t *testing.T, s entropy.Source) {
	const users, each = 8, 50
	blocks := make([][]string, users)
	var group sync.WaitGroup
	for u := range users {
		group.Go(func() {
			for range each {
				b, err := s.Draw(t.Context(), make([]byte, 16))
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

func takesNothing(t *testing.T, s entropy.Source) {
	if b, err := s.Draw(t.Context(), nil); err != nil || len(b.Bytes) != 0 {
		t.Errorf("got %d bytes, error %v", len(b.Bytes), err)
	}
}

func passesThrough(t *testing.T, s entropy.Source) {
	a, b := make([]byte, 32), make([]byte, 32)
	f := entropy.Filler{Source: s}
	if err := errors.Join(f.Fill(t.Context(), a), f.Fill(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a, b) || bytes.Equal(a, make([]byte, 32)) {
		t.Errorf("got %x and %x", a, b)
	}
}

func leavesRest(t *testing.T, s entropy.Source) {
	buf := bytes.Repeat([]byte{0xa5}, 64)
	if _, err := s.Draw(t.Context(), buf[16:48]); err != nil {
		t.Fatal(err)
	}
	rest := slices.Concat(buf[:16], buf[48:])
	if !bytes.Equal(rest, bytes.Repeat([]byte{0xa5}, 32)) {
		t.Errorf("wrote outside its buffer: %x", rest)
	}
}
