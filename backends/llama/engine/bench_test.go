//go:build llama && cgo

package engine

import (
	"fmt"
	"testing"
)

// One token of the real model behind a prompt of 200, by threads, poll level and flash attention.
func BenchmarkOneToken(b *testing.B) {
	m := realModel(b)
	ids := script(200, m.Info().Vocabulary)
	for _, s := range []struct {
		threads, poll int
		flash         bool
	}{{1, 0, false}, {1, 0, true}, {2, 0, false}, {2, 0, true}, {2, 50, false}, {2, 50, true}} {
		b.Run(fmt.Sprintf("threads=%d/poll=%d/flash=%v", s.threads, s.poll, s.flash), func(b *testing.B) {
			pool, err := NewThreadPool(s.threads, s.poll)
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			c, err := m.NewContext(ContextConfig{
				Context: 512, Batch: 256, UBatch: 256, Sequences: 1, Outputs: 1, Threads: s.threads, FlashAttention: s.flash, Unified: true, SWAFull: true,
			}, pool)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			feed(b, c, 0, 0, ids...)
			for b.Loop() {
				feed(b, c, 0, 200, 7)
				removeSeq(b, c, 0, 200, -1)
			}
		})
	}
}
