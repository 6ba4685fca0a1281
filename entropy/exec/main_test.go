package exec

import (
	"bytes"
	"cmp"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
)

// TestMain also is the child program of the tests: childMode says how it is to behave.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		behave(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// logged keeps what a source logs.
type logged struct {
	mu    sync.Mutex // guards buf
	buf   bytes.Buffer
	wrote chan struct{} // holds one
}

func newLogged() *logged { return &logged{wrote: make(chan struct{}, 1)} }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// await waits until the log has text.
func (l *logged) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !bytes.Contains([]byte(l.String()), []byte(text)) {
		select {
		case <-l.wrote:
		case <-late:
			t.Fatalf("the log has no %q:\n%s", text, l)
		}
	}
}

func (l *logged) deps() Deps { return Deps{Log: slog.New(slog.NewTextHandler(l, nil))} }

// quick are times that suit a test.
func quick() Config {
	cfg := DefaultConfig()
	cfg.Timeout = 10 * time.Second
	cfg.BackoffMin = time.Millisecond
	cfg.BackoffMax = 20 * time.Millisecond
	return cfg
}

func open(t *testing.T, cfg Config) (*Source, *logged) {
	t.Helper()
	log := newLogged()
	s, err := Open(t.Context(), "test", cfg, log.deps())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return s, log
}

// python is the interpreter that the tests use.
func python(t *testing.T) string {
	t.Helper()
	path, err := osexec.LookPath(cmp.Or(os.Getenv("QR_TEST_PYTHON"), "python3"))
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("no python3; set QR_TEST_PYTHON")
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// class hosts a class of testdata/sources.
func class(t *testing.T, spec string) Config {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", "sources"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.PythonClass, cfg.Python = spec, python(t)
	cfg.Dir = dir
	return cfg
}

func draw(t *testing.T, s *Source, n int) entropy.Block {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fails checks the error of a draw.
func fails(t *testing.T, s *Source, n int, kind entropy.Kind, text string) {
	t.Helper()
	_, err := s.Draw(t.Context(), make([]byte, n))
	if entropy.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Fatalf("error is %v (%s), want kind %s with %q", err, entropy.KindOf(err), kind, text)
	}
}

// recovers waits until draws work again; the pauses between are the source's own.
func recovers(t *testing.T, s *Source) entropy.Block {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		b, err := s.Draw(t.Context(), make([]byte, 16))
		if err == nil {
			return b
		}
		// A time limit that suits a test may be short for a machine that is busy.
		if k := entropy.KindOf(err); k != entropy.KindOpen && k != entropy.KindTransport && k != entropy.KindTimeout {
			t.Fatalf("error %v while it starts again", err)
		}
		select {
		case <-late:
			t.Fatalf("does not start again: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}
