//go:build llama && cgo

package engine

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A step of decoding, forks included, allocates nothing in Go.
func TestDecodeDoesNotAllocate(t *testing.T) {
	c := open(t, tiny(t, "llama"), exact())
	feed(t, c, 0, 0, 1, 2, 3)
	sum := float32(0)
	allocs := testing.AllocsPerRun(50, func() {
		b := c.Batch()
		b.Reset()
		err := errors.Join(c.SeqCopy(0, 1, -1, -1), b.Add(4, 3, 0, true), b.Add(5, 3, 1, true), c.Decode())
		for i := range 2 {
			row, e := c.Logits(i)
			err = errors.Join(err, e)
			sum += row[0]
		}
		_, e0 := c.SeqRemove(1, -1, -1)
		_, e1 := c.SeqRemove(0, 3, -1)
		if errors.Join(err, e0, e1) != nil || c.PosMax(0) != 2 {
			panic(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a step", allocs)
	}
}

func TestConcurrentUseOfAModel(t *testing.T) {
	m := realModel(t)
	text := strings.Repeat("Many hands, one wörld. ", 40)
	prompt := apply(t, m, `[{"role":"user","content":"Hi"}]`)
	want, err := m.Tokenize(text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				ids, err := m.Tokenize(text, true, true)
				msg, err2 := m.ParseChat(prompt.Format, text, true)
				if err != nil || err2 != nil || len(ids) != len(want) || msg.Content != text {
					t.Errorf("%d tokens, %v; %v", len(ids), err, err2)
				}
			}
		})
	}
	wg.Wait()
}

// Contexts that share a pool may decode at once: they take turns.
func TestConcurrentDecodesOnOnePool(t *testing.T) {
	m := tiny(t, "llama")
	ids := script(20, 512)
	want := plainRows(t, m, ids, nil)[0]
	pool, err := NewThreadPool(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	cfg := exact()
	cfg.Threads = 2
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			c, err := m.NewContext(cfg, pool)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range 3 {
				c.Clear()
				if d := distance(feed(t, c, 0, 0, ids...), want); d > tolerance {
					t.Errorf("off by %g", d)
				}
			}
		})
	}
	wg.Wait()
}

// resident is the process's resident memory in bytes.
func resident(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestNothingLeaks(t *testing.T) {
	cycle := func() {
		for name := range kinds {
			m, err := LoadModel(ModelConfig{Path: tinyPath(t, name)})
			if err != nil {
				t.Fatal(err)
			}
			pool, err := NewThreadPool(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			c, err := m.NewContext(exact(), pool)
			if err != nil {
				t.Fatal(err)
			}
			// The order in which they are closed does not matter.
			m.Close()
			pool.Close()
			feed(t, c, 0, 0, 1, 2, 3)
			c.Close()
		}
		runtime.GC()
	}
	for range 3 {
		cycle()
	}
	// What is lost is lost every time; memory that the allocator keeps for later stops growing.
	grown := 0
	for range 4 {
		before := resident(t)
		for range 5 {
			cycle()
		}
		if grown = resident(t) - before; grown <= 8<<20 {
			return
		}
	}
	t.Errorf("20 models loaded and closed, four times over: %d KiB more are resident each time", grown>>10)
}

func TestCallsOnAClosedModel(t *testing.T) {
	m := realModel(t)
	m.Close()
	m.Close()
	_, err := m.Tokenize("a", true, true)
	_, err1 := m.ApplyTemplate(ChatInput{Messages: []byte(`[]`)})
	_, err2 := m.ParseChat(nil, "a", true)
	_, err3 := m.NewContext(exact(), nil)
	for _, e := range []error{err, err1, err2, err3} {
		if !errors.Is(e, ErrClosed) {
			t.Error(e)
		}
	}
	if string(m.Vocab().Piece(19556)) != "Hello" {
		t.Error("the vocabulary went with the model")
	}
}
