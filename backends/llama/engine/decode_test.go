//go:build llama && cgo

package engine

import (
	"testing"
)

// tolerance is over the float noise of F32 caches (0.004) and far under the effect of any wrong token (0.16).
const tolerance = 0.01

// plainRows decodes a prompt and then one token at a time, in a fresh context, and returns the row after each.
func plainRows(t *testing.T, m *Model, prompt, then []int32) [][]float32 {
	t.Helper()
	c := open(t, m, exact())
	rows := [][]float32{feed(t, c, 0, 0, prompt...)}
	for i, id := range then {
		rows = append(rows, feed(t, c, 0, len(prompt)+i, id))
	}
	return rows
}

func TestModelInfoNamesTheMemory(t *testing.T) {
	for name, memory := range kinds {
		info := tiny(t, name).Info()
		if info.Memory != memory || info.Vocabulary != 512 || info.HasTokenizer || info.HasTemplate {
			t.Errorf("%s: info %+v", name, info)
		}
		if (info.Window > 0) != (memory == MemorySlidingWindow) {
			t.Errorf("%s: window %d", name, info.Window)
		}
	}
}

// A fork made with SeqCopy must go on as the sequence it was copied from would, on every kind of memory.
func TestForkEqualsPlain(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			ids := script(120, m.Info().Vocabulary)
			prompt, then := ids[:80], ids[80:]
			plain := plainRows(t, m, prompt, then)
			c := open(t, m, exact())
			far := distance(feed(t, c, 0, 0, prompt...), plain[0])
			cur := 0
			for i, id := range then {
				far = max(far, distance(commitFork(t, c, cur, 1-cur, len(prompt)+i, id, ids[i]), plain[i+1]))
				cur = 1 - cur
			}
			if far > tolerance {
				t.Errorf("fork differs from plain by %g", far)
			}
		})
	}
}

// commitFork forks cur into next and into a loser, decodes both, drops cur and the loser, and returns next's row.
func commitFork(t *testing.T, c *Context, cur, next, pos int, id, other int32) []float32 {
	t.Helper()
	copySeq(t, c, cur, next, -1, -1)
	copySeq(t, c, cur, 5, -1, -1)
	c.Batch().Reset()
	add(t, c, id, pos, next, true)
	add(t, c, other, pos, 5, true)
	decode(t, c)
	row := append([]float32(nil), logits(t, c, 0)...)
	removeSeq(t, c, cur, -1, -1)
	removeSeq(t, c, 5, -1, -1)
	return row
}

func TestEqualForksGiveEqualRows(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			c := open(t, m, exact())
			ids := script(50, m.Info().Vocabulary)
			feed(t, c, 0, 0, ids...)
			for seq := 1; seq < 8; seq++ {
				copySeq(t, c, 0, seq, -1, -1)
			}
			c.Batch().Reset()
			for seq := range 8 {
				add(t, c, 7, 50, seq, true)
			}
			decode(t, c)
			first := logits(t, c, 0)
			for seq := 1; seq < 8; seq++ {
				if d := distance(first, logits(t, c, seq)); d > 1e-5 {
					t.Errorf("fork %d differs from fork 0 by %g", seq, d)
				}
			}
		})
	}
}

// Rows are told apart by batch entry, whatever order llama.cpp computed them in.
func TestRowsBelongToTheirEntries(t *testing.T) {
	m := tiny(t, "llama")
	c := open(t, m, exact())
	want := make([][]float32, 3)
	for i := range want {
		want[i] = feed(t, c, i, 0, 3, int32(10+i))
	}
	c.Clear()
	c.Batch().Reset()
	for i := range want {
		add(t, c, 3, 0, i, false)
	}
	for i := range want {
		add(t, c, int32(10+i), 1, i, true)
	}
	decode(t, c)
	c.Batch().Reset() // the rows stay
	for i := range want {
		if d := distance(want[i], logits(t, c, 3+i)); d > tolerance {
			t.Errorf("row of entry %d differs by %g", 3+i, d)
		}
		if _, err := c.Logits(i); err == nil {
			t.Errorf("entry %d has a row that was not asked for", i)
		}
	}
}
