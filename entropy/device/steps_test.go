//go:build linux

package device

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"qr-gateway/entropy"
)

// What waited before the request is never handed out.
func TestGarbageIsDrained(t *testing.T) {
	wrote := make(chan struct{})
	b := plug(t, func(b *bench) {
		defer close(wrote)
		_, _ = b.master.Write(bytes.Repeat([]byte("old"), 300))
	})
	cfg := serial(b.path)
	cfg.Timeout = 200 * time.Millisecond
	<-wrote
	s := opened(t, cfg)
	if _, err := s.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindTimeout {
		t.Fatalf("bytes from before, or %v", err)
	}
	cfg.Flush = false
	_ = s.Close()
}

// Of what comes after the flush, discard is thrown away.
func TestDiscard(t *testing.T) {
	b := plug(t, listens(func(b *bench, c byte) {
		if c == 's' {
			_, _ = b.master.Write(append(bytes.Repeat([]byte{0xee}, 100), "0123456789abcdef"...))
		}
	}))
	cfg := serial(b.path)
	cfg.Start, cfg.Discard = []string{"s"}, 100
	if got := draw(t, opened(t, cfg), 16); string(got.Bytes) != "0123456789abcdef" {
		t.Errorf("got %q", got.Bytes)
	}
}

// The commands of a draw go out in their order, with their bytes.
func TestCommands(t *testing.T) {
	heard := make(chan byte, 1000)
	b := plug(t, listens(func(b *bench, c byte) {
		heard <- c
		if c == 'O' {
			_, _ = b.master.Write(make([]byte, 300))
		}
	}))
	cfg := serial(b.path)
	cfg.Start, cfg.Stop = []string{"cmd0\n", `cmdO\n`}, []string{"cmdo\n", "hex:e096"}
	draw(t, opened(t, cfg), 16)
	var got []byte
	for range len("cmdo\n..cmd0\ncmdO\ncmdo\n..") {
		got = append(got, <-heard)
	}
	if want := "cmdo\n\xe0\x96cmd0\ncmdO\ncmdo\n\xe0\x96"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A device that was started and stopped for each draw, as those of ComScire.
func TestStartAndStop(t *testing.T) {
	b := plug(t, starts(0x96, 0xe0))
	cfg := serial(b.path)
	cfg.Recipe, cfg.Timeout = "comscire", 3*time.Second
	s := opened(t, cfg)
	seen := map[string]bool{}
	for range 20 {
		got := draw(t, s, 1000)
		if got.Class != entropy.ClassJIT || seen[string(got.Bytes)] {
			t.Fatalf("got %+v", got)
		}
		seen[string(got.Bytes)] = true
	}
}

// Bytes may come in any pieces.
func TestPartialReads(t *testing.T) {
	b := plug(t, listens(func(b *bench, _ byte) {
		for i := range 300 {
			_, _ = b.master.Write([]byte{byte(i)})
		}
	}))
	cfg := serial(b.path)
	cfg.Start = []string{"s"}
	got := draw(t, opened(t, cfg), 300)
	for i, v := range got.Bytes {
		if v != byte(i) {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
}

// A device that stops in the middle fails its draw, and the next one starts anew.
func TestStall(t *testing.T) {
	first := true
	b := plug(t, listens(func(b *bench, _ byte) {
		n := 300
		if first {
			n = 20
		}
		first = false
		_, _ = b.master.Write(bytes.Repeat([]byte{byte(n)}, n))
	}))
	cfg := serial(b.path)
	cfg.Start, cfg.Timeout = []string{"s"}, time.Second
	s := opened(t, cfg)
	if _, err := s.Draw(t.Context(), make([]byte, 100)); entropy.KindOf(err) != entropy.KindTimeout {
		t.Fatalf("error %v", err)
	}
	if got := draw(t, s, 100); !bytes.Equal(got.Bytes, bytes.Repeat([]byte{44}, 100)) {
		t.Errorf("got %x", got.Bytes)
	}
}

func TestSilence(t *testing.T) {
	cfg := serial(plug(t, func(*bench) {}).path)
	cfg.Timeout = 100 * time.Millisecond
	_, err := opened(t, cfg).Draw(t.Context(), make([]byte, 16))
	if e, ok := errors.AsType[*entropy.Error](err); !ok || e.Kind != entropy.KindTimeout || !strings.Contains(e.Hint, "speed") {
		t.Errorf("error %v", err)
	}
}

func TestUnplug(t *testing.T) {
	b := plug(t, streams)
	s := opened(t, serial(b.path))
	draw(t, s, 100)
	b.unplug()
	for range 2 {
		if _, err := s.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindTransport {
			t.Errorf("error %v", err)
		}
	}
}

// A device that waits on a read is let go by Close.
func TestCloseInADraw(t *testing.T) {
	asked := make(chan struct{}, 1)
	b := plug(t, listens(func(*bench, byte) { asked <- struct{}{} }))
	cfg := serial(b.path)
	cfg.Start, cfg.Timeout = []string{"s"}, time.Hour
	s := opened(t, cfg)
	result := make(chan error, 1)
	go func() {
		_, err := s.Draw(t.Context(), make([]byte, 16))
		result <- err
	}()
	<-asked
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("error %v", err)
	}
}

func TestCallerLeaves(t *testing.T) {
	asked := make(chan struct{}, 2)
	b := plug(t, listens(func(b *bench, _ byte) { asked <- struct{}{} }))
	cfg := serial(b.path)
	cfg.Start, cfg.Timeout = []string{"s"}, 300*time.Millisecond
	s := opened(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := s.Draw(ctx, make([]byte, 16)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A pseudo-terminal has no DTR line: a device that needs it is refused when it is opened.
func TestNoDTR(t *testing.T) {
	cfg := serial(plug(t, streams).path)
	cfg.DTR = DTRGate
	if _, err := Open(t.Context(), "test", cfg, quiet()); entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "turn DTR") {
		t.Errorf("error %v", err)
	}
}

// While we have a port nobody else takes bytes of it; root may, so the test looks at the flag.
func TestIsExclusive(t *testing.T) {
	b := plug(t, streams)
	opened(t, serial(b.path))
	fd, err := unix.Open(b.path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if on, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL); err != nil || on == 0 {
		t.Errorf("exclusive %d, %v", on, err)
	}
}

func TestKnock(t *testing.T) {
	cfg := serial(plug(t, streams).path)
	cfg.Knock = []int{110, 300, 110}
	draw(t, opened(t, cfg), 16)
}

// sys is a sysfs of the test's own.
func sys(t *testing.T, file, text string) (deps Deps, set func(string)) {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, strings.TrimPrefix(file, "/sys/"))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	set = func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	set(text)
	deps = quiet()
	deps.Sys = root
	return deps, set
}

func TestSourceBehindHWRNGChanges(t *testing.T) {
	deps, set := sys(t, rngCurrent, "tpm-rng-0\n")
	b := plug(t, listens(func(b *bench, c byte) {
		if c == 'x' {
			set("virtio_rng.0\n")
		}
		_, _ = b.master.Write(make([]byte, 64))
	}))
	cfg := serial(b.path)
	cfg.CheckRNG, cfg.Start = true, []string{"s"}
	s, err := Open(t.Context(), "test", cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if got := draw(t, s, 16); got.Device != b.path+":tpm-rng-0" {
		t.Errorf("got %+v", got)
	}
	_ = s.Close()
	cfg.Start = []string{"x"}
	s, err = Open(t.Context(), "test", cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, s)
	if _, err := s.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindProtocol || !strings.Contains(err.Error(), "from tpm-rng-0 to virtio_rng.0") {
		t.Errorf("error %v", err)
	}
	set("none")
	if _, err := s.Draw(t.Context(), make([]byte, 16)); err == nil || !strings.Contains(err.Error(), "names no source") {
		t.Errorf("error %v", err)
	}
}

func TestReadyCount(t *testing.T) {
	const file = "/sys/class/dragonfly/ready"
	deps, set := sys(t, file, "5\n")
	b := plug(t, listens(func(b *bench, _ byte) { _, _ = b.master.Write(append(make([]byte, 20), "0123456789abcdef"...)) }))
	cfg := serial(b.path)
	cfg.ReadyFile, cfg.ReadyUnit, cfg.Start = file, 4, []string{"s"}
	s, err := Open(t.Context(), "test", cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, s)
	if got := draw(t, s, 16); string(got.Bytes) != "0123456789abcdef" {
		t.Errorf("got %q", got.Bytes)
	}
	for _, text := range []string{"", "-1", "many", "99999999999"} {
		set(text)
		if _, err := s.Draw(t.Context(), make([]byte, 16)); err == nil || !strings.Contains(err.Error(), "the count in") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
