//go:build llama && cgo

package engine

import (
	"errors"
	"math"
	"testing"
)

// sound fails the test unless c still decodes as a fresh context does: the proof that a refused call did no harm.
func sound(t *testing.T, m *Model, c *Context) {
	t.Helper()
	c.Clear()
	ids := script(20, m.Info().Vocabulary)
	want := plainRows(t, m, ids, nil)[0]
	if d := distance(feed(t, c, 0, 0, ids...), want); d > tolerance {
		t.Errorf("after the refusals the context is off by %g", d)
	}
}

func TestBadBatchesAreRefused(t *testing.T) {
	type entry struct {
		token    int32
		pos, seq int
		output   bool
	}
	run := func(n int, f func(i int) entry) []entry {
		es := make([]entry, n)
		for i := range es {
			es[i] = f(i)
		}
		return es
	}
	one := func(e entry) []entry { return []entry{e} }
	cases := map[string]struct {
		batch []entry
		want  error
	}{
		"empty":              {nil, ErrBadBatch},
		"token negative":     {one(entry{-1, 5, 0, true}), ErrBadBatch},
		"token too large":    {one(entry{512, 5, 0, true}), ErrBadBatch},
		"sequence too large": {one(entry{1, 0, 8, true}), ErrBadBatch},
		"sequence 256":       {one(entry{1, 0, 256, true}), ErrBadBatch},
		"gap":                {one(entry{1, 7, 0, true}), ErrBadBatch},
		"repeat":             {one(entry{1, 4, 0, true}), ErrBadBatch},
		"past":               {one(entry{1, 0, 0, true}), ErrBadBatch},
		"two at one place":   {[]entry{{1, 5, 0, true}, {2, 5, 0, true}}, ErrBadBatch},
		"gap in the batch":   {[]entry{{1, 5, 0, true}, {2, 7, 0, true}}, ErrBadBatch},
		"too many rows":      {run(17, func(i int) entry { return entry{1, 5 + i, 0, true} }), ErrBadBatch},
		"past the context":   {one(entry{1, 512, 0, true}), ErrContextFull},
		"far past":           {one(entry{1, math.MaxInt32, 0, true}), ErrContextFull},
	}
	for name := range kinds {
		m := tiny(t, name)
		c := open(t, m, exact())
		feed(t, c, 0, 0, 1, 2, 3, 4, 5)
		for what, tc := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				c.Batch().Reset()
				for _, e := range tc.batch {
					add(t, c, e.token, e.pos, e.seq, e.output)
				}
				if err := c.Decode(); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if c.PosMax(0) != 4 {
					t.Errorf("last position is %d, want 4", c.PosMax(0))
				}
				if _, err := c.Logits(0); err == nil {
					t.Error("a row is left of a refused decode")
				}
			})
		}
		sound(t, m, c)
	}
}

func TestBatchRefusesMoreThanItHolds(t *testing.T) {
	c := open(t, tiny(t, "llama"), exact())
	for i := range c.Batch().Cap() {
		add(t, c, 1, i, 0, false)
	}
	if err := c.Batch().Add(1, 256, 0, true); !errors.Is(err, ErrBatchFull) {
		t.Errorf("one too many: %v", err)
	}
	decode(t, c)
	c.Batch().Reset()
	for _, bad := range [][2]int{{-1, 0}, {0, -1}, {math.MaxInt32 + 1, 0}, {0, math.MaxInt64}} {
		if err := c.Batch().Add(1, bad[0], bad[1], true); !errors.Is(err, ErrBadBatch) {
			t.Errorf("position %d of sequence %d: %v", bad[0], bad[1], err)
		}
	}
}

func TestBadSequenceCallsAreRefused(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			c := open(t, m, exact())
			feed(t, c, 0, 0, 1, 2, 3)
			for _, id := range []int{-1, 8, 200, 255, 256, 1 << 40, math.MinInt64} {
				if err := c.SeqCopy(0, id, -1, -1); !errors.Is(err, ErrBadArgument) {
					t.Errorf("copy to %d: %v", id, err)
				}
				if err := c.SeqCopy(id, 1, -1, -1); !errors.Is(err, ErrBadArgument) {
					t.Errorf("copy from %d: %v", id, err)
				}
				if _, err := c.SeqRemove(id, -1, -1); !errors.Is(err, ErrBadArgument) {
					t.Errorf("remove %d: %v", id, err)
				}
				if c.PosMin(id) != -1 || c.PosMax(id) != -1 || c.StateSize(id) != 0 {
					t.Errorf("sequence %d exists", id)
				}
			}
			if err := c.SeqCopy(0, 1, 3, 2); !errors.Is(err, ErrBadArgument) {
				t.Errorf("copy of a backward range: %v", err)
			}
			if _, err := c.SeqRemove(0, 3, 2); !errors.Is(err, ErrBadArgument) {
				t.Errorf("removal of a backward range: %v", err)
			}
			if c.PosMax(0) != 2 || c.PosMax(1) != -1 {
				t.Errorf("refused calls moved sequences to %d and %d", c.PosMax(0), c.PosMax(1))
			}
			sound(t, m, c)
		})
	}
}

func TestBadContextsAreRefused(t *testing.T) {
	change := map[string]func(*ContextConfig){
		"context 0":            func(c *ContextConfig) { c.Context = 0 },
		"context 255":          func(c *ContextConfig) { c.Context = 255 },
		"context huge":         func(c *ContextConfig) { c.Context = 1 << 40 },
		"batch over context":   func(c *ContextConfig) { c.Batch = 513 },
		"batch < sequences":    func(c *ContextConfig) { c.Batch, c.UBatch, c.Outputs = 7, 7, 7 },
		"ubatch over batch":    func(c *ContextConfig) { c.UBatch = 257 },
		"ubatch 0":             func(c *ContextConfig) { c.UBatch = 0 },
		"outputs < sequences":  func(c *ContextConfig) { c.Outputs = 7 },
		"outputs over batch":   func(c *ContextConfig) { c.Outputs = 257 },
		"sequences 0":          func(c *ContextConfig) { c.Sequences = 0 },
		"sequences 257":        func(c *ContextConfig) { c.Sequences, c.Batch, c.Outputs, c.Context = 257, 257, 257, 512 },
		"threads 0":            func(c *ContextConfig) { c.Threads = 0 },
		"threads over pool":    func(c *ContextConfig) { c.Threads = 2 },
		"threads huge":         func(c *ContextConfig) { c.Threads = 1 << 20 },
		"kv type":              func(c *ContextConfig) { c.KVType = 7 },
		"more than the memory": func(c *ContextConfig) { c.Context = 1 << 30 },
	}
	m := tiny(t, "llama")
	pool, err := NewThreadPool(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for what, f := range change {
		cfg := exact()
		f(&cfg)
		if c, err := m.NewContext(cfg, pool); !errors.Is(err, ErrBadArgument) {
			t.Errorf("%s: %v", what, err)
			c.Close()
		}
	}
	for _, bad := range [][2]int{{0, 0}, {-1, 0}, {513, 0}, {1, -1}, {1, 101}, {1 << 40, 0}} {
		if _, err := NewThreadPool(bad[0], bad[1]); !errors.Is(err, ErrBadArgument) {
			t.Errorf("pool of %d threads, poll %d: %v", bad[0], bad[1], err)
		}
	}
}

// A full context is an error on every memory, also on recurrent ones, which would go on for ever.
func TestContextFull(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			c := open(t, m, exact())
			feed(t, c, 0, 0, script(512, 512)...)
			c.Batch().Reset()
			add(t, c, 1, 512, 0, true)
			if err := c.Decode(); !errors.Is(err, ErrContextFull) {
				t.Errorf("token 513 of 512: %v", err)
			}
			if !removeSeq(t, c, 0, -1, -1) {
				t.Error("a full sequence can't be removed")
			}
			sound(t, m, c)
		})
	}
}

func TestNoCellsLeavesForksAsTheyWere(t *testing.T) {
	m := tiny(t, "llama")
	c := open(t, m, exact())
	feed(t, c, 0, 0, script(509, 512)...)
	fork := func(n int) error {
		c.Batch().Reset()
		for seq := 1; seq <= n; seq++ {
			copySeq(t, c, 0, seq, -1, -1)
			add(t, c, int32(seq), 509, seq, true)
		}
		return c.Decode()
	}
	if err := fork(4); !errors.Is(err, ErrNoCells) {
		t.Fatalf("4 forks into 3 cells: %v", err)
	}
	if c.PosMax(1) != 508 {
		t.Errorf("fork moved to %d", c.PosMax(1))
	}
	removeSeq(t, c, 4, -1, -1)
	if err := fork(3); err != nil {
		t.Errorf("3 forks into 3 cells: %v", err)
	}
	sound(t, m, c)
}

func TestSplitCacheCopiesWholeSequencesOnly(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			cfg := exact()
			cfg.Unified, cfg.Context = false, 256*cfg.Sequences
			c := open(t, m, cfg)
			if c.Info().Context != 256 {
				t.Fatalf("a sequence holds %d tokens, want 256", c.Info().Context)
			}
			ids := script(40, 512)
			feed(t, c, 0, 0, ids...)
			for _, r := range [][2]int{{5, 10}, {39, 40}, {-1, 20}, {1, -1}} {
				if err := c.SeqCopy(0, 1, r[0], r[1]); !errors.Is(err, ErrBadArgument) {
					t.Errorf("copy of %v: %v", r, err)
				}
			}
			copySeq(t, c, 0, 1, 0, 40)
			want := plainRows(t, m, ids, []int32{9})[1]
			if d := distance(feed(t, c, 1, 40, 9), want); d > tolerance {
				t.Errorf("the copy is off by %g", d)
			}
		})
	}
}
