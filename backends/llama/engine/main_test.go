//go:build llama && cgo

package engine

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if err := Init(slog.LevelError); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// kinds are the tiny models, one per kind of memory.
var kinds = map[string]Memory{
	"llama": MemoryAttention, "gemma3": MemorySlidingWindow, "lfm2": MemoryHybrid, "mamba": MemoryRecurrent,
}

// need returns the value of an environment variable that make test sets.
func need(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" && os.Getenv("CI") != "" {
		t.Fatalf("%s is not set: run the tests with make test", name)
	}
	if v == "" {
		t.Skipf("%s is not set: run the tests with make test", name)
	}
	return v
}

func load(t testing.TB, path string) *Model {
	t.Helper()
	m, err := LoadModel(ModelConfig{Path: path, MMap: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func tinyPath(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(need(t, "QR_TEST_TINY"), "tiny-"+name+".gguf")
}

func tiny(t testing.TB, name string) *Model { return load(t, tinyPath(t, name)) }

func realModel(t testing.TB) *Model { return load(t, need(t, "QR_TEST_MODEL")) }

// exact is a context in which float noise is small: F32 cache, no flash attention, one thread.
func exact() ContextConfig {
	return ContextConfig{
		Context: 512, Batch: 256, UBatch: 64, Sequences: 8, Outputs: 16, Threads: 1,
		KVType: F32, Unified: true, SWAFull: true,
	}
}

// open makes a context for the calling test's goroutine, which stays on its thread.
func open(t testing.TB, m *Model, cfg ContextConfig) *Context {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	pool, err := NewThreadPool(cfg.Threads, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c, err := m.NewContext(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// feed decodes tokens into seq from position p0 on, in batches, and returns a copy of the last row.
func feed(t testing.TB, c *Context, seq, p0 int, tokens ...int32) []float32 {
	t.Helper()
	var row []float32
	for at := 0; at < len(tokens); {
		c.Batch().Reset()
		for at < len(tokens) && c.Batch().Len() < c.Info().Batch {
			add(t, c, tokens[at], p0+at, seq, at == len(tokens)-1)
			at++
		}
		decode(t, c)
		if at == len(tokens) {
			row = append(row, logits(t, c, c.Batch().Len()-1)...)
		}
	}
	return row
}

func add(t testing.TB, c *Context, token int32, pos, seq int, output bool) {
	t.Helper()
	if err := c.Batch().Add(token, pos, seq, output); err != nil {
		t.Fatal(err)
	}
}

func decode(t testing.TB, c *Context) {
	t.Helper()
	if err := c.Decode(); err != nil {
		t.Fatal(err)
	}
}

func logits(t testing.TB, c *Context, i int) []float32 {
	t.Helper()
	row, err := c.Logits(i)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func copySeq(t testing.TB, c *Context, src, dst, p0, p1 int) {
	t.Helper()
	if err := c.SeqCopy(src, dst, p0, p1); err != nil {
		t.Fatal(err)
	}
}

func removeSeq(t testing.TB, c *Context, seq, p0, p1 int) bool {
	t.Helper()
	ok, err := c.SeqRemove(seq, p0, p1)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// script is n tokens, the same every time and different at most places.
func script(n, vocabulary int) []int32 {
	ids := make([]int32, n)
	x := uint32(12345)
	for i := range ids {
		x = x*1664525 + 1013904223
		ids[i] = int32(x>>8) % int32(vocabulary)
	}
	return ids
}

// distance is the largest difference between two rows.
func distance(a, b []float32) float64 {
	far := 0.0
	for i := range a {
		far = max(far, float64(max(a[i]-b[i], b[i]-a[i])))
	}
	return far
}
