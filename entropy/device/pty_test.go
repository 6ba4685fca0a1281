//go:build linux

package device

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"qr-gateway/entropy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is the other end of a pseudo-terminal: the device.
type bench struct {
	t      *testing.T
	master *os.File
	path   string // of the serial port
	done   sync.WaitGroup
}

// plug makes a pseudo-terminal and lets play be the device. play ends when the port is unplugged.
func plug(t *testing.T, play func(b *bench)) *bench {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, master: os.NewFile(uintptr(fd), "ptmx"), path: "/dev/pts/" + strconv.Itoa(n)}
	b.done.Go(func() { play(b) })
	t.Cleanup(b.unplug)
	return b
}

func (b *bench) unplug() {
	_ = b.master.Close() // may be closed already
	b.done.Wait()
}

// streams sends random bytes all the time.
func streams(b *bench) {
	p := make([]byte, 512)
	for {
		_, _ = rand.Read(p)
		if _, err := b.master.Write(p); err != nil {
			return
		}
	}
}

// listens hands what is written to the device to hear, byte by byte, until it is unplugged.
func listens(hear func(b *bench, c byte)) func(*bench) {
	return func(b *bench) {
		p := make([]byte, 64)
		for {
			n, err := b.master.Read(p)
			for _, c := range p[:n] {
				hear(b, c)
			}
			if err != nil && !os.IsTimeout(err) {
				// The master of a port that nobody has open reads EIO.
				if !errors.Is(err, unix.EIO) {
					return
				}
				<-time.After(time.Millisecond)
			}
		}
	}
}

// starts is a device that sends on the byte s, until it hears e.
func starts(s, e byte) func(*bench) {
	return func(b *bench) {
		var mu sync.Mutex // guards stop
		var stop chan struct{}
		var sending sync.WaitGroup
		halt := func() {
			mu.Lock()
			defer mu.Unlock()
			if stop != nil {
				close(stop)
				stop = nil
			}
		}
		defer sending.Wait()
		defer halt()
		listens(func(b *bench, c byte) {
			switch c {
			case e:
				halt()
				sending.Wait()
			case s:
				halt()
				sending.Wait()
				mine := make(chan struct{})
				stop = mine
				sending.Go(func() { sendUntil(b.master, mine) })
			}
		})(b)
	}
}

func sendUntil(w io.Writer, stop <-chan struct{}) {
	p := make([]byte, 64)
	for {
		select {
		case <-stop:
			return
		default:
		}
		_, _ = rand.Read(p)
		if f, ok := w.(*os.File); ok {
			_ = f.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		}
		if _, err := w.Write(p); err != nil && !os.IsTimeout(err) {
			return
		}
	}
}

func serial(path string) Config {
	cfg := DefaultConfig()
	cfg.Path, cfg.Kind, cfg.Baud, cfg.Flush = path, KindSerial, 115200, true
	cfg.Timeout = 3 * time.Second
	return cfg
}

func quiet() Deps { return Deps{Log: slog.New(slog.DiscardHandler)} }

func opened(t *testing.T, cfg Config) *Source {
	t.Helper()
	s, err := Open(t.Context(), "test", cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	closes(t, s)
	return s
}

func closes(t *testing.T, s *Source) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func draw(t *testing.T, s *Source, n int) entropy.Block {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
