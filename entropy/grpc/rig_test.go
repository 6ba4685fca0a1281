package grpc_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/server"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	goleak.VerifyTestMain(m)
}

// socket is a fresh address.
func socket(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "qr") //nolint:usetesting // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "s")
}

// serve runs a server until the test ends and returns its address.
func serve(tb testing.TB, src entropy.Source, change func(*server.Config)) string {
	tb.Helper()
	cfg := server.DefaultConfig()
	cfg.Listen = []string{socket(tb)}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg, server.Deps{Source: src})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return s.Addrs()[0]
}

// open opens a source that is closed when the test ends.
func open(tb testing.TB, address string, change func(*grpc.Config)) *grpc.Source {
	tb.Helper()
	return openWith(tb, address, grpc.Deps{}, change)
}

func openWith(tb testing.TB, address string, d grpc.Deps, change func(*grpc.Config)) *grpc.Source {
	tb.Helper()
	cfg := grpc.DefaultConfig()
	cfg.Address = address
	cfg.Breaker.Timeout, cfg.Breaker.Floor = 20*time.Second, 20*time.Second // whatever else the machine does
	if change != nil {
		change(&cfg)
	}
	s, err := grpc.Open(context.Background(), "remote", cfg, d)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

var modes = []string{grpc.ModeUnary, grpc.ModeServer, grpc.ModeBidi}

func inMode(mode string) func(*grpc.Config) { return func(c *grpc.Config) { c.Mode = mode } }

// system is the source that most servers of the tests serve.
func system(tb testing.TB) entropy.Source {
	tb.Helper()
	return local.NewSystem()
}
