//go:build llama && cgo

package engine

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// asChild runs one test of this binary in a process of its own, whose stderr is llama.cpp's log.
func asChild(t *testing.T, name string) []byte {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), "QR_TEST_CHILD=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v\n%s", err, stderr.Bytes())
	}
	return stderr.Bytes()
}

func TestLogIsOneJSONLinePerMessage(t *testing.T) {
	path := tinyPath(t, "llama")
	if os.Getenv("QR_TEST_CHILD") != "" {
		if err := Init(slog.LevelDebug); err != nil {
			t.Fatal(err)
		}
		load(t, path)
		return
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(asChild(t, t.Name()))) {
		var entry struct {
			Time               time.Time
			Level, Source, Msg string
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if entry.Time.IsZero() || entry.Source != "llama.cpp" || entry.Msg == "" || strings.HasSuffix(entry.Msg, "\n") {
			t.Errorf("line %q", line)
		}
		seen[entry.Level]++
	}
	if seen["INFO"] < 10 {
		t.Errorf("levels seen: %v", seen)
	}
}

func TestLogLevelAndErrorsAreHeld(t *testing.T) {
	path := tinyPath(t, "llama")
	if os.Getenv("QR_TEST_CHILD") != "" {
		if err := Init(slog.LevelError); err != nil {
			t.Fatal(err)
		}
		m := load(t, path)
		open(t, m, exact())
		// What is returned as an error is not logged as well.
		cut := t.TempDir() + "/cut.gguf"
		if data, err := os.ReadFile(path); err != nil || os.WriteFile(cut, data[:5000], 0o600) != nil {
			t.Fatal(err)
		}
		if _, err := LoadModel(ModelConfig{Path: cut}); err == nil {
			t.Fatal("no error")
		}
		return
	}
	if log := asChild(t, t.Name()); len(log) != 0 {
		t.Errorf("logged: %s", log)
	}
}
