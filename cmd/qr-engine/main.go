// Command qr-engine owns one GGUF model. It serves the engine protocol on a Unix socket to the qr-gateway that started it,
// and ends when its standard input does: a gateway that dies takes its engines with it. Log lines are JSON on standard
// error; llama.cpp writes there too, in the same form.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/llama/service"
	"qr-gateway/backends/supply"
	"qr-gateway/entropy/hub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		report(os.Stderr, os.Args[1:], err)
		os.Exit(1)
	}
}

// measures says that the program was asked to measure, not to serve.
func measures(args []string) bool {
	return len(args) > 0 && (args[0] == benchDecode || args[0] == benchWorkers)
}

// run serves until ctx or stdin ends, or measures.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if measures(args) {
		return runBench(ctx, args[0], args[1:], stdout, stderr)
	}
	flags := flag.NewFlagSet("qr-engine", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", "", "path of the Unix socket to serve on")
	hubSocket := flags.String("entropy-socket", "", "path of the Unix socket that the gateway lends its entropy sources on; empty: the operating system alone")
	level := slog.LevelInfo
	flags.TextVar(&level, "log-level", level, "lowest level to log: debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level})).With("source", "qr-engine")
	if err := engine.Init(llamaLevel(level)); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	l, err := listen(ctx, *socket)
	if err != nil {
		return err
	}
	lent, err := borrow(*hubSocket, log)
	if err != nil {
		return err
	}
	svc := service.New(service.Deps{Entropy: supply.New(lent), Log: log, Processors: func(n int) { runtime.GOMAXPROCS(n) }})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Reading stdin can't be cancelled; the goroutine ends with the process.
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	return serve(ctx, svc, l, lent)
}

// borrow makes the client of the gateway's entropy sources; nil where there is no socket.
func borrow(socket string, log *slog.Logger) (*hub.Client, error) {
	if socket == "" {
		return nil, nil
	}
	cfg := hub.DefaultClientConfig()
	cfg.Socket = socket
	return hub.NewClient(cfg, log)
}

// serve runs the service, and the client of the entropy sources for as long.
func serve(ctx context.Context, svc *service.Service, l net.Listener, lent *hub.Client) error {
	client, release := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	if lent != nil {
		group.Go(func() { _ = lent.Run(client) }) // it ends by its context alone
	}
	err := svc.Run(ctx, l)
	release()
	group.Wait()
	return err
}

// llamaLevel is the lowest level of llama.cpp's own lines: it tells at INFO what others tell at DEBUG.
func llamaLevel(level slog.Level) slog.Level {
	if level <= slog.LevelDebug {
		return level
	}
	return max(level, slog.LevelWarn)
}

// listen makes the socket, for this user alone, in a directory for this user alone.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("no socket: give --socket PATH")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make socket directory: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("protect socket: %w", err)
	}
	return l, nil
}

// report writes an error: for a gateway as a line of the log, for a person who measures as it is.
func report(w io.Writer, args []string, err error) {
	if measures(args) {
		_, _ = fmt.Fprintf(w, "error: %v\n", err)
		return
	}
	line, _ := json.Marshal(map[string]string{
		"time": time.Now().Format(time.RFC3339Nano), "level": "ERROR", "source": "qr-engine", "msg": err.Error(),
	})
	_, _ = fmt.Fprintf(w, "%s\n", line)
}
