package server_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/entropy/local"
	"qr-gateway/entropy/server"
)

func TestSockets(t *testing.T) {
	dir := folder(t)
	at := func(name string) (string, func(*server.Config)) {
		path := filepath.Join(dir, name)
		return path, func(c *server.Config) { c.Listen = []string{"unix://" + path} }
	}
	try := func(change func(*server.Config)) error {
		cfg := server.DefaultConfig()
		change(&cfg)
		s, err := server.New(cfg, server.Deps{Source: local.NewSystem()})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return s.Run(ctx)
	}
	path, here := at("live")
	s := start(t, nil, func(c *server.Config) { here(c); c.SocketMode = 0o600 })
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode: %v, %v", info, err)
	}
	if err := try(here); err == nil || !strings.Contains(err.Error(), "another server uses it") {
		t.Errorf("a live socket: %v", err)
	}
	if _, err := get(t, dial(t, s.Addrs()[0]), 4); err != nil {
		t.Errorf("the live server after that: %v", err)
	}

	path, here = at("stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := try(here); err != nil {
		t.Errorf("a stale socket: %v", err)
	}

	path, here = at("file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(here); err == nil || !strings.Contains(err.Error(), "another kind") {
		t.Errorf("a file: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, here = at("missing/s"); try(here) == nil {
		t.Error("a folder that is not there is accepted")
	}
}

// TestLockedFolder: whoever holds the lock of a socket's folder keeps no server from saying so.
func TestLockedFolder(t *testing.T) {
	dir := folder(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cfg := server.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(dir, "s")}
	made := make(chan error, 1)
	go func() {
		_, err := server.New(cfg, server.Deps{Source: local.NewSystem()})
		made <- err
	}()
	select {
	case err := <-made:
		if err == nil || !strings.Contains(err.Error(), "lock its folder") {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for ever")
	}
}
