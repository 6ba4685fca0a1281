package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(path, 4); err == nil || !strings.Contains(err.Error(), "longer than 4 bytes") {
		t.Errorf("too long: %v", err)
	}
	if _, err := Read(path+"x", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(link, 5); err != nil || string(text) != "12345" {
		t.Errorf("by a link: %q, %v", text, err)
	}
}

func TestOtherKindsAreRefused(t *testing.T) {
	dir, err := os.MkdirTemp("", "regular-") //nolint:usetesting // its paths have the test's name in them, and are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, what := range map[string]string{dir: "a directory", fifo: "a FIFO", socket: "a socket", "/dev/zero": "a device"} {
		if _, err := Read(path, 10); !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), path+" is "+what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
