// Command qr-gateway is an OpenAI-compatible gateway for people who care how a language model's tokens are chosen.
//
// It is pure Go. Each GGUF model runs in a child process, qr-engine, that this program starts, watches and restarts.
// main.go is wiring only; each subcommand has a file of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue/redis"
)

func main() {
	redis.LogTo(slog.New(slog.DiscardHandler)) // what its driver prints beside the errors that it returns
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go stopOn(signals, cancel)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// stopOn ends things in order at the first signal and all at once, by the signal itself, at the second; the engines end by
// themselves when this process does. Both are read from one channel, so that a second one right behind the first is not lost.
func stopOn(signals chan os.Signal, cancel context.CancelFunc) {
	<-signals
	cancel()
	second := <-signals
	signal.Reset(second)
	_ = syscall.Kill(os.Getpid(), second.(syscall.Signal)) // a process may always signal itself
}

// run executes one command line and returns the exit status: 0, 1 for a failure, 130 when it was interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 130
	}
	report(stderr, err)
	return 1
}

// report prints err as `error:` and, where there is one, `hint:`.
func report(w io.Writer, err error) {
	var be *backends.Error
	if errors.As(err, &be) && be.Hint != "" {
		fmt.Fprintf(w, "error: %s\nhint: %s\n", be.Message, be.Hint)
		return
	}
	fmt.Fprintf(w, "error: %v\n", err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "qr-gateway",
		Short: "OpenAI-compatible gateway for future-entropy decoding and external entropy",
		Long: "qr-gateway serves local GGUF models behind an OpenAI-compatible endpoint and lets every request say how its\n" +
			"tokens are chosen: plainly, by looking one token ahead, with entropy from a source of your choice.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServe(), newGateway(), newWorker(), newStatus(), newGenerate(), newBench(), newSample(), newValidate(), newParams(), newEntropy(), newSidecarCommand(), newFilter(), newVersion())
	return root
}
