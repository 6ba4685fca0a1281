package exec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func TestSuite(t *testing.T) {
	for _, mode := range []string{"good", "raw"} {
		t.Run(mode, func(t *testing.T) {
			cfg := goProgram(mode)
			if mode == "raw" {
				cfg.Framing = FramingRaw
			}
			entropytest.Run(t, func(t *testing.T) entropy.Source {
				s, _ := open(t, cfg)
				return s
			})
		})
	}
}

func TestBlock(t *testing.T) {
	s, _ := open(t, goProgram("good"))
	b := draw(t, s, 2500)
	if b.Source != "test" || b.Device != "device 1" || b.Class != entropy.ClassJIT || !b.Echoed || b.Flags != 0 {
		t.Errorf("got %+v", b)
	}
	if b.Shots != 3 {
		t.Errorf("%d requests for 2500 bytes at 1000 each", b.Shots)
	}
	if b.ServerTime.Before(b.Requested) || b.ServerTime.After(b.Arrived) {
		t.Errorf("made at %v, requested %v, arrived %v", b.ServerTime, b.Requested, b.Arrived)
	}
}

func TestConfigWins(t *testing.T) {
	cfg := goProgram("good")
	cfg.Class, cfg.MaxDraw = entropy.ClassBuffer, 100
	s, _ := open(t, cfg)
	if b := draw(t, s, 1000); b.Class != entropy.ClassBuffer || b.Shots != 10 {
		t.Errorf("got %+v", b)
	}
	if c, err := s.Probe(t.Context()); err != nil || c.Rate != 1e6 || c.Class != entropy.ClassBuffer || c.MaxDraw != 0 || c.Details["firmware"] != "7" {
		t.Errorf("got %+v, error %v", c, err)
	}
}

func TestSaysNothing(t *testing.T) {
	s, _ := open(t, goProgram("no device"))
	if b := draw(t, s, 10); b.Device != "" || !b.ServerTime.IsZero() {
		t.Errorf("got %+v", b)
	}
}

func TestRawIsAPool(t *testing.T) {
	cfg := goProgram("raw")
	cfg.Framing = FramingRaw
	s, _ := open(t, cfg)
	if b := draw(t, s, 100_000); b.Class != entropy.ClassPool || b.Echoed {
		t.Errorf("got %+v", b)
	}
	if c, err := s.Probe(t.Context()); err != nil || c.Class != entropy.ClassPool {
		t.Errorf("got %+v, error %v", c, err)
	}
}

// Each misdeed fails its draw, and the next draw is served by a new program.
func TestMisdeeds(t *testing.T) {
	for mode, want := range map[string]struct {
		kind entropy.Kind
		text string
	}{
		"old sequence":   {entropy.KindProtocol, "reply to request 1 came when 2 was asked"},
		"next sequence":  {entropy.KindProtocol, "reply to request 3 came when 2 was asked"},
		"short":          {entropy.KindProtocol, "12 bytes came when 13 were asked"},
		"long":           {entropy.KindProtocol, "14 bytes came when 13 were asked"},
		"huge":           {entropy.KindProtocol, "4294967295 bytes"},
		"no frame":       {entropy.KindProtocol, "no reply frame"},
		"unknown status": {entropy.KindProtocol, "unknown status 99"},
		"long device":    {entropy.KindProtocol, "longer than 256"},
		"long error":     {entropy.KindProtocol, "longer than 4096"},
		"dies":           {entropy.KindTransport, "exit status 7: out of luck"},
		"dies halfway":   {entropy.KindTransport, "exit status 7"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, log := open(t, goProgram(mode))
			draw(t, s, 10)
			fails(t, s, 13, want.kind, want.text)
			log.await(t, "program ended")
			recovers(t, s)
			if n := strings.Count(log.String(), "program started"); n != 2 {
				t.Errorf("started %d times", n)
			}
		})
	}
}

// A reply that nobody asked for would be taken for that to the next request, if its number were guessed.
func TestUnaskedReplyIsNeverUsed(t *testing.T) {
	s, log := open(t, goProgram("twice"))
	draw(t, s, 13)
	fails(t, s, 13, entropy.KindProtocol, "nobody asked for")
	log.await(t, "program ended")
	recovers(t, s)
}

// An error in step keeps the program.
func TestErrorReplies(t *testing.T) {
	for mode, kind := range map[string]entropy.Kind{
		"refused": entropy.KindRefused, "quota": entropy.KindQuota, "unavailable": entropy.KindTransport,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, log := open(t, goProgram(mode))
			fails(t, s, 13, kind, "")
			draw(t, s, 10)
			if n := strings.Count(log.String(), "program started"); n != 1 {
				t.Errorf("started %d times", n)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	cfg := goProgram("silent")
	cfg.Timeout = 300 * time.Millisecond
	s, log := open(t, cfg)
	fails(t, s, 13, entropy.KindTimeout, "13 bytes within 300ms")
	recovers(t, s)
	log.await(t, "program ended")
}

// A caller that leaves neither waits for the reply nor loses the program, and the bytes meant for it go nowhere.
func TestCallerLeaves(t *testing.T) {
	cfg := goProgram("silent")
	cfg.Timeout = 500 * time.Millisecond
	s, _ := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	buf := make([]byte, 13)
	if _, err := s.Draw(ctx, buf); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	recovers(t, s)
	if string(buf) != string(make([]byte, 13)) {
		t.Error("the buffer was written to")
	}
}

func TestBackoff(t *testing.T) {
	cfg := goProgram("dies")
	cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour
	s, log := open(t, cfg)
	fails(t, s, 13, entropy.KindTransport, "")
	fails(t, s, 13, entropy.KindTransport, "") // of the second program, which is started at once
	fails(t, s, 16, entropy.KindOpen, "out of luck")
	if _, err := s.Probe(t.Context()); entropy.KindOf(err) != entropy.KindOpen {
		t.Errorf("probe: %v", err)
	}
	log.await(t, "restart_in")
}

// A program that ends while nothing is asked is started again without a draw's help.
func TestStartsAgainByItself(t *testing.T) {
	s, log := open(t, goProgram("good"))
	b := draw(t, s, 16)
	c, err := s.Probe(t.Context())
	if err != nil || b.Sequence == 0 {
		t.Fatal(c, err)
	}
	pid := pidIn(t, log)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	log.await(t, "signal: killed")
	if again := recovers(t, s); again.Sequence <= b.Sequence {
		t.Errorf("sequence %d comes after %d", again.Sequence, b.Sequence)
	}
}

func TestCloseIsPolite(t *testing.T) {
	s, log := open(t, goProgram("good"))
	draw(t, s, 16)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fails(t, s, 16, entropy.KindClosed, "")
	if _, err := s.Probe(t.Context()); entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("probe: %v", err)
	}
	if strings.Contains(log.String(), "program ended") {
		t.Error("an end that was asked for is reported")
	}
	if err := syscall.Kill(pidIn(t, log), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the program is there: %v", err)
	}
}

func TestCloseKillsWhatWontEnd(t *testing.T) {
	cfg := goProgram("stubborn")
	cfg.Grace = 100 * time.Millisecond
	s, log := open(t, cfg)
	draw(t, s, 16)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pidIn(t, log), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the program is there: %v", err)
	}
}

// Close does not wait for a reply that doesn't come.
func TestCloseInADraw(t *testing.T) {
	cfg := goProgram("silent")
	cfg.Timeout = time.Hour
	s, _ := open(t, cfg)
	result := make(chan error, 1)
	go func() {
		_, err := s.Draw(t.Context(), make([]byte, 13))
		result <- err
	}()
	go s.Close()
	if err := <-result; entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("error %v", err)
	}
}

func TestLogIsBounded(t *testing.T) {
	s, log := open(t, goProgram("flood"))
	recovers(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "program says"); n == 0 || n > 2*maxLines {
		t.Errorf("%d lines were logged", n)
	}
	if !strings.Contains(log.String(), "left out lines") || len(log.String()) > 2*maxLines*(maxLine+200) {
		t.Errorf("the log has %d bytes", len(log.String()))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		text   string
	}{
		"no command":          {func(c *Config) { c.Command = nil }, "0 of command, python_class and python_entry_point"},
		"missing":             {func(c *Config) { c.Command = []string{"/no/such/program"} }, "does not exist"},
		"missing in PATH":     {func(c *Config) { c.Command = []string{"no-such-program"} }, "no-such-program in PATH"},
		"relative":            {func(c *Config) { c.Command = []string{"./exec.test"} }, "a relative path"},
		"directory":           {func(c *Config) { c.Command = []string{dir} }, "is a directory"},
		"not executable":      {func(c *Config) { c.Command = []string{plain} }, "not executable"},
		"FIFO":                {func(c *Config) { c.Command = []string{fifo} }, "no regular file"},
		"device":              {func(c *Config) { c.Command = []string{"/dev/random"} }, "no regular file"},
		"no working dir":      {func(c *Config) { c.Dir = filepath.Join(dir, "gone") }, "working directory"},
		"working dir a file":  {func(c *Config) { c.Dir = plain }, "is no directory"},
		"bad environment":     {func(c *Config) { c.Env = []string{"secret"} }, "entry 1 is not NAME=value"},
		"zero byte":           {func(c *Config) { c.Command = append(c.Command, "a\x00b") }, "zero byte"},
		"framing":             {func(c *Config) { c.Framing = "lines" }, `framing is "lines"`},
		"class":               {func(c *Config) { c.Class = "fresh" }, `class is "fresh"`},
		"raw and jit":         {func(c *Config) { c.Framing, c.Class = FramingRaw, entropy.ClassJIT }, "must be pool or replay"},
		"max_draw":            {func(c *Config) { c.MaxDraw = -1 }, "max_draw is -1"},
		"timeout":             {func(c *Config) { c.Timeout = 0 }, "timeout is 0s"},
		"back-off":            {func(c *Config) { c.BackoffMin = time.Minute }, "less than backoff_min"},
		"command and class":   {func(c *Config) { c.PythonClass = "a:B" }, "2 of command"},
		"class and entry":     {func(c *Config) { c.Command, c.PythonClass, c.PythonEntryPoint = nil, "a:B", "c" }, "2 of command"},
		"no class":            {func(c *Config) { c.Command, c.PythonClass = nil, "a.B" }, "MODULE:CLASS"},
		"option for class":    {func(c *Config) { c.Command, c.PythonClass = nil, "--list:x" }, "MODULE:CLASS"},
		"no interpreter":      {func(c *Config) { c.Command, c.PythonClass, c.Python = nil, "a:B", "/no/python" }, "does not exist"},
		"no JSON":             {func(c *Config) { c.Command, c.PythonClass, c.PythonConfig = nil, "a:B", "{secret" }, "python_config is no JSON"},
		"ends at once":        {func(c *Config) { c.Env = []string{childMode + "=exit"} }, "exit status 3: the port is taken"},
		"prints text":         {func(c *Config) { c.Env = []string{childMode + "=chatty"} }, `starts with "hello, I am`},
		"another version":     {func(c *Config) { c.Env = []string{childMode + "=version"} }, "speaks version 2"},
		"no name":             {func(c *Config) { c.Env = []string{childMode + "=nameless"} }, "name is 0 bytes"},
		"no hello":            {func(c *Config) { c.Env, c.StartTimeout = []string{childMode + "=mute"}, 200*time.Millisecond }, "not said hello within 200ms"},
		"program of no frame": {func(c *Config) { c.Command = []string{"true"} }, "ended before its hello"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goProgram("good")
			c.change(&cfg)
			s, err := Open(t.Context(), "test", cfg, newLogged().deps())
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q (%s) has no %q", err, entropy.KindOf(err), c.text)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Error("the error shows a value of the environment")
			}
		})
	}
}

func TestOpenHonoursContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, "test", goProgram("mute"), newLogged().deps()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// The context of Open is not that of the program.
func TestOutlivesTheContextOfOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Open(ctx, "test", goProgram("good"), newLogged().deps())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel()
	for range 10 {
		draw(t, s, 16)
	}
}

// Nothing stays open when programs end, however they do.
func TestLeavesNoDescriptors(t *testing.T) {
	count := func() int { return len(must(os.ReadDir("/dev/fd"))) }
	s, _ := open(t, goProgram("dies"))
	before := count()
	for range 10 {
		_, _ = s.Draw(t.Context(), make([]byte, 13))
		recovers(t, s)
		if _, err := Open(t.Context(), "test", goProgram("exit"), newLogged().deps()); err == nil {
			t.Fatal("it was opened")
		}
	}
	if after := count(); after > before+2 { // of a program that is just being replaced
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// pidIn returns the process number of the last program that was started.
func pidIn(t *testing.T, log *logged) int {
	t.Helper()
	text := log.String()
	_, text, _ = strings.Cut(text[strings.LastIndex(text, "program started"):], "pid=")
	pid := 0
	for _, r := range text {
		if r < '0' || r > '9' {
			break
		}
		pid = pid*10 + int(r-'0')
	}
	if pid == 0 {
		t.Fatal("no program was started")
	}
	return pid
}

func TestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, _ := open(t, goProgram("good"))
	buf, ctx := make([]byte, 20480), t.Context()
	n := testing.AllocsPerRun(50, func() {
		if _, err := s.Draw(ctx, buf); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations a draw", n)
	}
}
