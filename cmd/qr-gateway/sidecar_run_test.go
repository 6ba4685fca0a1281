package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// untilSaid is what a command prints; told is called at each line that has the text.
type untilSaid struct {
	strings.Builder
	text string
	told func()
}

func (s *untilSaid) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		s.told()
	}
	return s.Builder.Write(b)
}

// TestSidecarSaysWhereItIs: it names what it listens on, and nothing else.
func TestSidecarSaysWhereItIs(t *testing.T) {
	dir := t.TempDir()
	plugs, rpc := filepath.Join(dir, "p.sock"), filepath.Join(dir, "g.sock")
	for _, socket := range []string{"", plugs} {
		file := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(file, []byte("sidecar: {socket: \""+socket+"\", listen: \"unix://"+rpc+"\"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		out := &untilSaid{text: "listening on", told: stop}
		cmd := newSidecarCommand()
		cmd.SetArgs([]string{"--config", file})
		cmd.SetOut(out)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Errorf("socket %q: %v", socket, err)
		}
		want := "listening on " + rpc + "\n"
		if socket != "" {
			want = "plugins dial " + socket + "\n" + want
		}
		if out.String() != want {
			t.Errorf("socket %q: it says %q, want %q", socket, out.String(), want)
		}
		stop()
	}
}
