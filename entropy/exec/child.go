package exec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readBuffer = 8 << 10
	// lastWords is how long the end of a program may come after the end of its output, and its log after its end.
	lastWords = time.Second
	// killGrace is what a program gets that broke the contract: it is asked to end, so that it may set its device right, and then killed.
	killGrace = 300 * time.Millisecond
)

// program is what is started, again and again.
type program struct {
	path string
	args []string
	dir  string
	env  []string
	log  *slog.Logger
}

// child is a running program. Its pipes belong to the owner goroutine; reap, the child's own goroutine, reads its log and collects it.
type child struct {
	pid     int
	raw     bool // it only writes
	stdin   *os.File
	stdout  *os.File
	reader  *bufio.Reader // of stdout
	hello   hello
	unhook  func() bool      // takes interrupt off the owner's context
	conn    syscall.RawConn  // of stdout
	look    func(fd uintptr) // asks what waits in the pipe; made once
	pipe    [1]unix.PollFd
	lookErr error
	done    chan struct{} // closed by reap once the process has ended, its group was killed and its log was read
	state   string        // how it ended; written before done is closed
}

// start runs the program in a process group of its own, so that all of its children can be ended with it, and no Ctrl-C at the gateway's
// terminal hits it.
func (p *program) start() (*child, error) {
	var ours, theirs [3]*os.File
	defer func() { closeAll(theirs[:]) }()
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:])
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	// No context: how it is ended, politely first, is the owner's.
	cmd := osexec.CommandContext(context.Background(), p.path, p.args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		closeAll(ours[:])
		return nil, fmt.Errorf("start program: %w", err)
	}
	c := &child{
		pid: cmd.Process.Pid, stdin: ours[0], stdout: ours[1],
		reader: bufio.NewReaderSize(ours[1], readBuffer),
		done:   make(chan struct{}),
	}
	c.conn, _ = c.stdout.SyscallConn() // an open file has one
	c.look = func(fd uintptr) {
		c.pipe[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		_, c.lookErr = unix.Poll(c.pipe[:], 0)
	}
	go c.reap(cmd, ours[2], p.log)
	return c, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // pipes of a program that never ran, or the ends it has
		}
	}
}

// reap waits for the process, kills what is left of its group and reads its log to the end.
func (c *child) reap(cmd *osexec.Cmd, stderr *os.File, log *slog.Logger) {
	defer close(c.done)
	words := make(chan string, 1)
	go func() { words <- forward(stderr, log.With("pid", c.pid)) }()
	err := collect(cmd)
	// A grandchild that left the group may hold the log open.
	_ = stderr.SetReadDeadline(time.Now().Add(lastWords)) // a pipe: it can
	last := <-words
	_ = stderr.Close() // was only read
	c.state = "it ended by itself"
	if err != nil {
		c.state = err.Error()
	}
	if last != "" {
		c.state += ": " + last
	}
}

// signal sends a signal to the process and all its children.
func (c *child) signal(sig syscall.Signal) {
	_ = syscall.Kill(-c.pid, sig) // it may have ended
}

// end ends the process and waits until it has. Politely: its input is closed, then SIGTERM, then SIGKILL, each after grace. If it is not to
// be trusted any more the first two come at once.
func (c *child) end(polite bool, grace time.Duration) {
	_ = c.stdin.Close()
	if c.raw {
		_ = c.stdout.Close() // which it hears better
	}
	if !polite {
		grace = min(grace, killGrace)
	}
	if !polite || !c.endsWithin(grace) {
		c.signal(syscall.SIGTERM)
		if !c.endsWithin(grace) {
			c.signal(syscall.SIGKILL)
		}
	}
	<-c.done
	_ = c.stdout.Close() // what is still in it is given up
}

func (c *child) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

// deadline bounds all reading and writing that is going on, and that follows.
func (c *child) deadline(t time.Time) error {
	return errors.Join(c.stdin.SetWriteDeadline(t), c.stdout.SetReadDeadline(t))
}

// interrupt ends all reading and writing at once.
func (c *child) interrupt() { _ = c.deadline(time.Unix(1, 0)) } // pipes have deadlines

// ahead reports whether the program has written bytes that nobody asked for.
func (c *child) ahead() (bool, error) {
	if err := errors.Join(c.conn.Control(c.look), c.lookErr); err != nil {
		return false, fmt.Errorf("look into pipe: %w", err)
	}
	return c.pipe[0].Revents&unix.POLLIN != 0 || c.reader.Buffered() > 0, nil
}

// exited says how the process ended if it does so soon; after the end of its output.
func (c *child) exited() string {
	if c.endsWithin(lastWords) {
		return c.state
	}
	return "its output ended"
}

// isEnd reports an error that the end of the process explains.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed)
}
