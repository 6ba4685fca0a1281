//go:build llama && cgo

package engine

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file cut short anywhere is refused, with its name and a reason.
func TestTruncatedModels(t *testing.T) {
	data, err := os.ReadFile(tinyPath(t, "lfm2"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.gguf")
	for _, n := range []int{4, 8, 23, 24, 25, 100, 1000, 4000, len(data) / 2, len(data) - 4096, len(data) - 1} {
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := LoadModel(ModelConfig{Path: path, MMap: true})
		var me *ModelError
		if !errors.As(err, &me) || !strings.Contains(err.Error(), path) || !strings.Contains(me.Reason, "truncated") {
			t.Errorf("%d of %d bytes: %v", n, len(data), err)
		}
		if m != nil {
			m.Close()
		}
	}
}

// Garbage behind a right beginning is refused or loads; it does not end the process.
func TestDamagedHeaders(t *testing.T) {
	data, err := os.ReadFile(tinyPath(t, "llama"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.gguf")
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		bad := append([]byte(nil), data[:4096]...)
		for range 1 + random.IntN(8) {
			bad[8+random.IntN(1000)] = byte(random.Uint32())
		}
		if err := os.WriteFile(path, append(bad, data[4096:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := LoadModel(ModelConfig{Path: path})
		if err == nil {
			m.Close()
			continue
		}
		var me *ModelError
		if !errors.As(err, &me) || me.Reason == "" {
			t.Errorf("got %v", err)
		}
	}
}
