package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"qr-gateway/entropy"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is a fresh one with a path short enough for sockets.
func folder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "qr") //nolint:usetesting // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// running is a server that runs.
type running struct {
	*server.Server
	stop func() error // ends it and returns what Run did
}

// start runs a server on a socket of its own, of the system's generator unless told otherwise.
func start(tb testing.TB, src entropy.Source, change func(*server.Config)) running {
	tb.Helper()
	cfg := server.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(folder(tb), "s")}
	if change != nil {
		change(&cfg)
	}
	if src == nil {
		src = local.NewSystem()
	}
	s, err := server.New(cfg, server.Deps{Source: src})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = s.Run(ctx)
	}()
	stop := func() error {
		cancel()
		<-ended
		return result
	}
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
	return running{s, stop}
}

// dial connects to a server.
func dial(tb testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	if !strings.HasPrefix(address, "unix") {
		address = "passthrough:///" + address
	}
	cc, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cc.Close() })
	return cc
}
