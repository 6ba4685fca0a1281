//go:build llama && cgo

package engine

import "testing"

// What can be taken out of a sequence of 40 tokens, and what is left.
func TestSeqRemove(t *testing.T) {
	whole := map[Memory]bool{MemoryHybrid: true, MemoryRecurrent: true}
	cases := []struct {
		p0, p1   int
		part     bool // a part, which recurrent states refuse
		min, max int  // what is left of an attention cache
	}{
		{39, -1, true, 0, 38},
		{39, 40, true, 0, 38},
		{36, -1, true, 0, 35},
		{30, -1, true, 0, 29},
		{10, 20, true, 0, 39},
		{0, 10, true, 10, 39},
		{40, -1, false, 0, 39},
		{-1, -1, false, -1, -1},
		{0, 40, false, -1, -1},
	}
	for name, memory := range kinds {
		m := tiny(t, name)
		c := open(t, m, exact())
		for _, tc := range cases {
			c.Clear()
			feed(t, c, 0, 0, script(40, 512)...)
			refused := tc.part && whole[memory]
			if memory == MemorySlidingWindow && tc.p0 == 10 {
				continue // a hole in a window is nobody's need
			}
			if ok := removeSeq(t, c, 0, tc.p0, tc.p1); ok == refused {
				t.Errorf("%s: remove [%d,%d) = %v", name, tc.p0, tc.p1, ok)
			}
			wantMin, wantMax := tc.min, tc.max
			if whole[memory] && tc.max >= 0 {
				wantMin, wantMax = 39, 39 // these show the last position only
			}
			if c.PosMin(0) != wantMin || c.PosMax(0) != wantMax {
				t.Errorf("%s: after [%d,%d) positions %d..%d, want %d..%d", name, tc.p0, tc.p1, c.PosMin(0), c.PosMax(0), wantMin, wantMax)
			}
		}
	}
}

// Once a neighbour has left, a sliding-window cache recycles cells behind the window. Cutting the tail back into what
// was recycled is accepted by llama.cpp and goes on wrongly, so it must be refused.
func TestTailBehindALostWindowIsRefused(t *testing.T) {
	m := tiny(t, "gemma3")
	cfg := exact()
	cfg.Context, cfg.Batch = 1024, 64
	c := open(t, m, cfg)
	ids := script(700, 512)
	feed(t, c, 1, 0, ids[:300]...)
	feed(t, c, 0, 0, ids[:300]...)
	removeSeq(t, c, 1, -1, -1)
	feed(t, c, 0, 300, ids[300:]...)
	if c.PosMin(0) == 0 {
		t.Skip("this llama.cpp recycled no cells: nothing to refuse")
	}
	window := m.Info().Window
	lost, kept := c.PosMin(0)+window-1, c.PosMin(0)+window
	if removeSeq(t, c, 0, lost, -1) || c.PosMax(0) != 699 {
		t.Errorf("cut back to %d although the sequence begins at %d now; its end is %d", lost, c.PosMin(0), c.PosMax(0))
	}
	if !removeSeq(t, c, 0, kept, -1) {
		t.Fatalf("cut back to %d, whose window is there, was refused", kept)
	}
	want := plainRows(t, m, ids[:kept], ids[kept:kept+1])[1]
	if d := distance(feed(t, c, 0, kept, ids[kept]), want); d > tolerance {
		t.Errorf("after the cut the row is off by %g", d)
	}
}
