package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/gateway/config"
)

// TestStopLetsStreamsEnd holds that a server that is told to stop finishes what it has begun.
func TestStopLetsStreamsEnd(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 2048\n"))
	lines := s.stream(t, 100)
	s.signal(t)
	last := ""
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if last != "data: [DONE]" {
		t.Errorf("the stream ended with %q", last)
	}
	if <-s.ended; s.err != nil {
		t.Errorf("the server ended with %v, want status 0", s.err)
	}
}

// TestSecondSignalEndsAtOnce holds that nobody has to wait for a long answer, and that the engine goes too.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 8192\n    workers: 1\n"))
	s.stream(t, 8000)
	for range 4 { // the first story may be short, but not all that wait behind it
		res, err := s.open(t.Context(), chat("Tell a long story.", 8000, map[string]any{"stream": true}))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	s.signal(t)
	s.signal(t)
	select {
	case <-s.ended:
		var exit *exec.ExitError
		if !errors.As(s.err, &exit) {
			t.Errorf("the server ended with %v, want the signal", s.err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server goes on after a second signal")
	}
	gone := time.After(10 * time.Second)
	for {
		// A process that is gone has no such file, one that nobody has collected yet an empty one.
		if cmdline, err := os.ReadFile(filepath.Join("/proc", s.enginePIDs(t)[0], "cmdline")); err != nil || len(cmdline) == 0 {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-gone:
			t.Fatal("the engine outlives the server")
		}
	}
}

// stream starts a long answer and returns it when text comes.
func (s *server) stream(t *testing.T, tokens int) *bufio.Scanner {
	t.Helper()
	body := chat("Tell a long story.", tokens, map[string]any{"stream": true, "qr_decoder": "plain"})
	res, err := s.open(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"content":"`) && !strings.Contains(lines.Text(), `"role"`) {
			return lines
		}
	}
	t.Fatalf("no text came: %v", lines.Err())
	return nil
}

// signal tells the server to stop, and returns when it has heard.
func (s *server) signal(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.log.wait(ctx, regexp.MustCompile("stopping")); err != nil {
		t.Fatal(err)
	}
}

// cancelWriter cancels something at the first byte.
type cancelWriter struct{ cancel context.CancelFunc }

func (w cancelWriter) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}

// TestInterruptedGenerate holds that a script can tell a whole text from one that was cut.
func TestInterruptedGenerate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{
		"generate", "--engine", need(t, "QR_TEST_ENGINE"), "--model", need(t, "QR_TEST_MODEL"),
		"--prompt", "Once upon a time", "--max-tokens", "4000",
	}
	if code := run(ctx, args, cancelWriter{cancel}, io.Discard); code != 130 {
		t.Errorf("status %d, want 130", code)
	}
}

// TestLocalURL holds that the commands printed at the start work on this machine.
func TestLocalURL(t *testing.T) {
	for ip, want := range map[string]string{"0.0.0.0": "http://127.0.0.1:80", "::": "http://127.0.0.1:80", "192.0.2.1": "http://192.0.2.1:80", "::1": "http://[::1]:80"} {
		if got := localURL(&net.TCPAddr{IP: net.ParseIP(ip), Port: 80}); got != want {
			t.Errorf("%s: got %s, want %s", ip, got, want)
		}
	}
}

// TestWaitsAreNested holds that the wait that knows the reason is over first.
func TestWaitsAreNested(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute} {
		cfg := config.Default()
		cfg.Engine.WaitReady, cfg.Engine.StallTimeout = wait, wait
		if got := edgeConfig(cfg).PrepareTimeout; got <= wait {
			t.Errorf("a prompt may take %s in all, the wait for its engine alone %s", got, wait)
		}
		if got := queueConfig(cfg).Stall; got <= wait {
			t.Errorf("the queue gives up after %s, the engine's watch after %s", got, wait)
		}
	}
}
