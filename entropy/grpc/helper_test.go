package grpc_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/server"
)

// helperEnv makes this test program a server in a process of its own: its value is the address, then faults, parted by spaces. With the
// fault "plain" its blocks carry no seal.
const helperEnv = "QR_TEST_GRPC_HELPER"

// helper serves until its standard input ends, so that it never outlives the test.
func helper() int {
	signal.Ignore(os.Interrupt)
	words := strings.Fields(os.Getenv(helperEnv))
	cfg := server.DefaultConfig()
	cfg.Listen = words[:1]
	var src entropy.Source = sealed{local.NewSystem()}
	for _, w := range words[1:] {
		if w == "plain" {
			src = local.NewSystem()
			continue
		}
		f, err := server.ParseFault(w)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		cfg.Faults = append(cfg.Faults, f)
	}
	s, err := server.New(cfg, server.Deps{Source: src})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println(s.Addrs()[0])
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a helper process.
type process struct {
	cmd     *exec.Cmd
	address string
}

// spawn starts a helper and waits until it listens.
func spawn(tb testing.TB, address string, faults ...string) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperEnv+"="+strings.Join(append([]string{address}, faults...), " "))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	p := &process{cmd: cmd}
	if _, err := fmt.Fscanln(stdout, &p.address); err != nil {
		tb.Fatalf("the helper does not start: %v", err)
	}
	return p
}

// What a process can be sent.
const sigStop, sigCont = syscall.SIGSTOP, syscall.SIGCONT

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }
