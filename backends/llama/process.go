package llama

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Launcher starts engine processes.
type Launcher interface {
	// Launch starts an engine that will serve on the given Unix socket.
	Launch(socket string) (Process, error)
}

// Process is a running engine.
type Process interface {
	// Done is closed when the process has ended and its log was read.
	Done() <-chan struct{}
	// Err says how it ended; it is read after Done.
	Err() error
	// Terminate asks it to end, Kill makes it. Both may be called when it has.
	Terminate()
	Kill()
}

// launchError says that a process could not be started at all.
type launchError struct{ err error }

func (e *launchError) Error() string { return "start engine: " + e.err.Error() }

// Unwrap returns the cause.
func (e *launchError) Unwrap() error { return e.err }

// program starts the engine program.
type program struct {
	path    string
	level   string // log level of the engine, or empty
	entropy string // path of the entropy hub's socket, or empty
	log     *slog.Logger
}

// Launch implements Launcher.
func (p *program) Launch(socket string) (Process, error) {
	args := []string{"--socket", socket}
	if p.level != "" {
		args = append(args, "--log-level", p.level)
	}
	if p.entropy != "" {
		args = append(args, "--entropy-socket", p.entropy)
	}
	// No context: how a process is ended, politely first, is the supervisor's.
	cmd := exec.CommandContext(context.Background(), p.path, args...)
	// A group of its own: a Ctrl-C at the terminal is for the gateway, which still has answers to finish.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make stdin: %w", err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("make stderr: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with `make engine`", err)
	}
	p.log.Info("engine started", "program", p.path, "pid", cmd.Process.Pid)
	c := &child{cmd: cmd, stdin: stdin, done: make(chan struct{}), log: p.log}
	go c.wait(stderr)
	return c, nil
}

// child is a started engine program. Its goroutine, wait, ends with the process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer // the engine ends when it is closed, also by the end of this process
	log   *slog.Logger
	last  string        // line that told of the latest error; belongs to wait
	burst bool          // the line before told of an error; belongs to wait
	done  chan struct{} // closed by wait
	err   error         // written before done is closed
}

// wait forwards the log and collects the process.
func (c *child) wait(stderr io.Reader) {
	defer close(c.done)
	c.forward(stderr)
	err := c.cmd.Wait()
	if err == nil {
		err = errors.New("it stopped by itself")
	}
	if c.last != "" {
		err = fmt.Errorf("%w: %s", err, c.last)
	}
	c.err = err
}

// Done implements Process.
func (c *child) Done() <-chan struct{} { return c.done }

// Err implements Process.
func (c *child) Err() error { return c.err }

// Terminate implements Process.
func (c *child) Terminate() {
	_ = c.stdin.Close()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
}

// Kill implements Process.
func (c *child) Kill() { _ = c.cmd.Process.Kill() }

// maxLine bounds a log line in bytes; what is longer is cut.
const maxLine = 64 << 10

// forward logs the engine's lines: JSON with its level, anything else, which is what a dying C library writes, as an error.
func (c *child) forward(stderr io.Reader) {
	r := bufio.NewReaderSize(stderr, maxLine)
	for {
		line, cut, err := r.ReadLine()
		if len(line) > 0 {
			c.logLine(line)
		}
		for cut && err == nil {
			_, cut, err = r.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

// logLine logs one line of the engine.
func (c *child) logLine(line []byte) {
	level, msg, attrs := parseLine(line)
	c.remember(level, msg, attrs)
	c.log.LogAttrs(context.Background(), level, msg, attrs...)
}

// remember keeps the latest error. A line that is not the engine's own counts only if it begins a run of errors: a dying
// process says what is wrong first, and pages of stack and registers after that.
func (c *child) remember(level slog.Level, msg string, attrs []slog.Attr) {
	failed := level >= slog.LevelError
	foreign := slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Equal(foreignSource()) })
	if failed && !(foreign && c.burst) {
		c.last = msg
	}
	c.burst = failed
}

// foreignSource marks a line that is not in the engine's form.
func foreignSource() slog.Attr { return slog.String("source", "engine stderr") }

// parseLine reads a log line. The time is left out: the lines are logged as they come.
func parseLine(line []byte) (slog.Level, string, []slog.Attr) {
	var fields map[string]any
	level := slog.LevelError
	if json.Unmarshal(line, &fields) != nil {
		return level, string(line), []slog.Attr{foreignSource()}
	}
	name, _ := fields["level"].(string)
	if level.UnmarshalText([]byte(name)) != nil {
		level = slog.LevelError
	}
	msg, _ := fields["msg"].(string)
	// llama.cpp compares its own cells, which hold a group of candidates besides the request; the engine compares the request.
	if fields["source"] == "llama.cpp" && strings.Contains(msg, "n_ctx_train") {
		level = slog.LevelDebug
	}
	delete(fields, "level")
	delete(fields, "msg")
	delete(fields, "time")
	attrs := make([]slog.Attr, 0, len(fields))
	for k, v := range fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	return level, msg, attrs
}
