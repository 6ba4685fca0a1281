//go:build linux

package device

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func urandom() Config {
	cfg := DefaultConfig()
	cfg.Path, cfg.AllowUrandom = "/dev/urandom", true
	return cfg
}

func TestSuite(t *testing.T) {
	t.Run("char", func(t *testing.T) {
		entropytest.Run(t, func(t *testing.T) entropy.Source { return opened(t, urandom()) })
	})
	t.Run("serial", func(t *testing.T) {
		entropytest.Run(t, func(t *testing.T) entropy.Source { return opened(t, serial(plug(t, streams).path)) })
	})
	t.Run("qcicada", func(t *testing.T) {
		entropytest.Run(t, func(t *testing.T) entropy.Source { return opened(t, cicada(plug(t, new(qcicada).play).path)) })
	})
}

func TestUrandomIsAPool(t *testing.T) {
	b := draw(t, opened(t, urandom()), 20480)
	if b.Class != entropy.ClassPool || b.Device != "/dev/urandom" || b.Shots != 1 {
		t.Errorf("got %+v", b)
	}
	cfg := urandom()
	cfg.AllowUrandom, cfg.Class, cfg.MaxDraw = false, entropy.ClassPool, 5000
	if b := draw(t, opened(t, cfg), 20480); b.Shots != 5 {
		t.Errorf("got %+v", b)
	}
}

// The real one, where this machine has it and lets us.
func TestHWRNG(t *testing.T) {
	if unix.Access("/dev/hwrng", unix.R_OK) != nil {
		t.Skip("no /dev/hwrng that can be read here")
	}
	cfg := DefaultConfig()
	cfg.Recipe = "hwrng"
	s, err := Open(t.Context(), "test", cfg, quiet())
	if err != nil && strings.Contains(err.Error(), "names no source") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closes(t, s)
	b := draw(t, s, 64)
	if !strings.HasPrefix(b.Device, "/dev/hwrng:") || b.Class != entropy.ClassBuffer || bytes.Equal(b.Bytes, make([]byte, 64)) {
		t.Errorf("got %+v", b)
	}
	cfg.RNG = "another"
	if _, err := Open(t.Context(), "test", cfg, quiet()); err == nil || !strings.Contains(err.Error(), `not "another"`) {
		t.Errorf("error %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	fifo, plain := filepath.Join(dir, "fifo"), filepath.Join(dir, "plain")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(plain, []byte("0123"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		text   string
	}{
		"no path":           {func(c *Config) { c.Path = "" }, "path is empty"},
		"relative":          {func(c *Config) { c.Path = "hwrng" }, "is relative"},
		"missing":           {func(c *Config) { c.Path = "/dev/no-such" }, "does not exist"},
		"directory":         {func(c *Config) { c.Path = dir }, "is a directory"},
		"FIFO":              {func(c *Config) { c.Path = fifo }, "is a FIFO"},
		"regular file":      {func(c *Config) { c.Path = plain }, "type replay"},
		"below a file":      {func(c *Config) { c.Path = plain + "/x" }, "not a directory"},
		"/dev/random":       {func(c *Config) { c.Path = "/dev/random" }, "may block"},
		"/dev/random, any":  {func(c *Config) { c.Path, c.AllowAny, c.AllowUrandom = "/dev/random", true, true }, "may block"},
		"/dev/urandom":      {func(c *Config) { c.Path = "/dev/urandom" }, "allow_urandom"},
		"/dev/zero":         {func(c *Config) { c.Path, c.AllowAny = "/dev/zero", true }, "nothing but zeros"},
		"/dev/full":         {func(c *Config) { c.Path = "/dev/full" }, "nothing but zeros"},
		"/dev/null":         {func(c *Config) { c.Path = "/dev/null" }, "memory devices"},
		"terminal":          {func(c *Config) { c.Path = "/dev/tty" }, "terminal"},
		"unknown kind":      {func(c *Config) { c.Path = "/dev/fuse" }, "allow_any"},
		"serial on char":    {func(c *Config) { c.Path, c.Kind = "/dev/fuse", KindSerial }, "no serial port"},
		"urandom is no jit": {func(c *Config) { c.Path, c.AllowUrandom, c.Class = "/dev/urandom", true, entropy.ClassJIT }, "must be pool"},
		"jit needs a drain": {func(c *Config) { c.Class = entropy.ClassJIT }, "class jit needs"},
		"recipe":            {func(c *Config) { c.Recipe = "lava_lamp" }, "truerng"},
		"kind":              {func(c *Config) { c.Kind = "usb" }, `kind is "usb"`},
		"class":             {func(c *Config) { c.Class = "fresh" }, "fresh"},
		"baud of char":      {func(c *Config) { c.Baud = 9600 }, "for kind serial"},
		"baud":              {func(c *Config) { c.Kind, c.Baud = KindSerial, -1 }, "baud is -1"},
		"dtr":               {func(c *Config) { c.Kind, c.DTR = KindSerial, "on" }, `dtr is "on"`},
		"protocol":          {func(c *Config) { c.Protocol = "qcicada" }, "protocol"},
		"discard":           {func(c *Config) { c.Discard = -1 }, "discard is -1"},
		"ready file":        {func(c *Config) { c.ReadyFile = "/sys/../etc/passwd" }, "below /sys"},
		"command":           {func(c *Config) { c.Start = []string{"hex:zz"} }, "hexadecimal"},
		"empty command":     {func(c *Config) { c.Stop = []string{""} }, "empty"},
		"escape":            {func(c *Config) { c.Stop = []string{`\q`} }, "escape"},
		"rng":               {func(c *Config) { c.RNG = "x" }, "check_rng"},
		"timeout":           {func(c *Config) { c.Timeout = 0 }, "timeout"},
		"rate":              {func(c *Config) { c.Rate = 0.1 }, "rate"},
		"draw":              {func(c *Config) { c.MaxDraw = -1 }, "max_draw"},
		"long shot":         {func(c *Config) { c.Recipe, c.MaxDraw = "qcicada", qcicadaShot+1 }, "1 to 13440"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Path = "/dev/hwrng"
			c.change(&cfg)
			s, err := Open(t.Context(), "test", cfg, quiet())
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q has no %q", err, c.text)
			}
		})
	}
}

func TestRecipesAreSound(t *testing.T) {
	for _, r := range Recipes() {
		cfg := DefaultConfig()
		cfg.Recipe = r.Name
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		if c := cfg.resolve(); c.Path == "" || c.Kind == "" || c.Class == "" || r.Help == "" {
			t.Errorf("%s: %+v", r.Name, c)
		}
	}
}

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
	cfg.Start, cfg.Timeout = []string{"s"}, 300*time.Millisecond
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

// stuckPort is a driver that does not let go of a read, as no real one here does on demand.
type stuckPort struct {
	port
	entered, release chan struct{}
	once             sync.Once
}

func (p *stuckPort) Read(b []byte) (int, error) {
	p.once.Do(func() { close(p.entered) })
	<-p.release
	return len(b), nil
}
func (p *stuckPort) SetDeadline(time.Time) {}
func (p *stuckPort) Close() error          { return nil }

// A read that does not return keeps no caller, marks the device dead, and is waited for when it does return.
func TestStuckRead(t *testing.T) {
	p := &stuckPort{entered: make(chan struct{}), release: make(chan struct{})}
	deps := quiet()
	deps.open = func(Config) (port, error) { return p, nil }
	cfg := urandom()
	cfg.Timeout = time.Millisecond
	s, err := Open(t.Context(), "test", cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, s)
	for range 2 {
		if _, err := s.Draw(t.Context(), make([]byte, 16)); entropy.KindOf(err) != entropy.KindTimeout || !strings.Contains(err.Error(), "dead until it does") {
			t.Errorf("error %v", err)
		}
	}
	<-p.entered
	close(p.release)
	draw(t, s, 16)
}
