package local

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

// recording writes data to a file.
func recording(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "recording")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openReplay(t *testing.T, cfg ReplayConfig) *Replay {
	t.Helper()
	r, err := OpenReplay(t.Context(), "replay", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestReplay(t *testing.T) {
	data := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(data)
	path := recording(t, data)
	entropytest.Run(t, func(t *testing.T) entropy.Source {
		return openReplay(t, ReplayConfig{Path: path, Format: FormatRaw})
	})
}

func TestReplayGivesEachByteOnce(t *testing.T) {
	data := []byte("0123456789abcdef")
	text := " 30 31\n" + hex.EncodeToString(data[2:9]) + "\t" + hex.EncodeToString(data[9:]) + "\n"
	for name, cfg := range map[string]ReplayConfig{
		"raw": {Path: recording(t, data), Format: FormatRaw, Offset: 2},
		"hex": {Path: recording(t, []byte(text)), Format: FormatHex, Offset: 2},
	} {
		r := openReplay(t, cfg)
		if got := fill(t, r, 10); !bytes.Equal(got, data[2:12]) {
			t.Errorf("%s: got %q", name, got)
		}
		_, err := r.Draw(t.Context(), make([]byte, 5))
		if entropy.KindOf(err) != entropy.KindRefused || !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "4 bytes left, 5") {
			t.Errorf("%s: past the end: %v", name, err)
		}
		if got := fill(t, r, 4); !bytes.Equal(got, data[12:]) {
			t.Errorf("%s: the last bytes are %q", name, got)
		}
		if _, err := r.Draw(t.Context(), make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: it starts again: %v", name, err)
		}
	}
}

func TestRefusedRecordings(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	good := recording(t, []byte("abc"))
	for name, row := range map[string]struct {
		cfg  ReplayConfig
		want string
	}{
		"directory":   {ReplayConfig{Path: t.TempDir(), Format: FormatRaw}, "is a directory"},
		"FIFO":        {ReplayConfig{Path: pipe, Format: FormatRaw}, "a FIFO"},
		"/dev/random": {ReplayConfig{Path: "/dev/random", Format: FormatRaw}, "is a device"},
		"nothing":     {ReplayConfig{Path: good + "x", Format: FormatRaw}, "no such file"},
		"no path":     {ReplayConfig{Format: FormatRaw}, "path is empty"},
		"format":      {ReplayConfig{Path: good, Format: "json"}, "want raw or hex"},
		"no hex":      {ReplayConfig{Path: recording(t, []byte("30 3")), Format: FormatHex}, "after 1 bytes"},
		"offset":      {ReplayConfig{Path: good, Format: FormatRaw, Offset: 3}, "offset is 3"},
		"negative":    {ReplayConfig{Path: good, Format: FormatRaw, Offset: -1}, "offset is -1"},
		"empty":       {ReplayConfig{Path: recording(t, nil), Format: FormatRaw}, "0 bytes"},
	} {
		_, err := OpenReplay(t.Context(), "rec", row.cfg)
		if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "rec") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseHex(f *testing.F) {
	f.Add([]byte("30 31\nff"))
	f.Add([]byte("3"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseHex(text)
		if err != nil {
			return
		}
		if want := strings.ToLower(strings.Join(strings.Fields(string(text)), "")); hex.EncodeToString(got) != want {
			t.Errorf("%q gives %x", text, got)
		}
	})
}
