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

// Open waits for a device no longer than its context allows.
func TestOpenHonoursContext(t *testing.T) {
	cfg := cicada(plug(t, func(*bench) {}).path)
	cfg.Timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, "test", cfg, quiet()); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("error %v", err)
	}
}

// Nothing stays open when a source is closed, or was never opened.
func TestLeavesNoDescriptors(t *testing.T) {
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	wrong := urandom()
	wrong.Path = "/dev/zero"
	before := count()
	for range 20 {
		s, err := Open(t.Context(), "test", urandom(), quiet())
		if err != nil {
			t.Fatal(err)
		}
		draw(t, s, 16)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), "test", wrong, quiet()); err == nil {
			t.Fatal("it was opened")
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
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

// FuzzCommand: what is taken as a command is one, and no text breaks the reading of it.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{"cmdO\n", `cmdO\n`, "hex:e0", "hex:", `\x`, `"`, "\\\""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := command(text)
		if err == nil && len(b) == 0 && text != "" {
			t.Fatalf("%q is taken as nothing", text)
		}
		if err == nil && !strings.Contains(text, `\`) && !strings.HasPrefix(text, "hex:") && string(b) != text {
			t.Fatalf("%q became %q", text, b)
		}
	})
}
