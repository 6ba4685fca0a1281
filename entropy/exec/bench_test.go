package exec

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkPython draws what a token takes by default from a class in the Python host.
func BenchmarkPython(b *testing.B) {
	path, err := osexec.LookPath("python3")
	if err != nil {
		b.Skip(err)
	}
	cfg := DefaultConfig()
	cfg.PythonClass, cfg.Python = "lab:Good", path
	if cfg.Dir, err = filepath.Abs(filepath.Join("testdata", "sources")); err != nil {
		b.Fatal(err)
	}
	benchmark(b, cfg)
}

// BenchmarkProgram is the same from a program in Go.
func BenchmarkProgram(b *testing.B) {
	cfg := goProgram("good")
	cfg.Env = append(os.Environ(), cfg.Env...)
	cfg.MaxDraw = 1000 // as the program says
	benchmark(b, cfg)
}

func benchmark(b *testing.B, cfg Config) {
	s, err := Open(b.Context(), "bench", cfg, newLogged().deps())
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 20480)
	for b.Loop() {
		if _, err := s.Draw(b.Context(), buf); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
