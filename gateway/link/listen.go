package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"qr-gateway/entropy/grpc/address"
)

// listen binds the address. A Unix socket is this user's alone, and the file that a dead gateway left is replaced.
func listen(text string) (net.Listener, error) {
	a, err := address.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	file := a.Network == "unix" && !strings.HasPrefix(a.Path, "@")
	if file {
		if err := vacate(a); err != nil {
			return nil, err
		}
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), a.Network, a.Dial())
	if err != nil {
		return nil, fmt.Errorf("listen for workers on %s: %w", text, err)
	}
	if file {
		if err := os.Chmod(a.Path, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("listen for workers on %s: %w", text, err), l.Close())
		}
	}
	return l, nil
}

// vacate removes the socket's file, unless it is something else or somebody listens.
func vacate(a address.Address) error {
	info, err := os.Lstat(a.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen for workers on %s: %w", a.Text, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen for workers on %s: there is a file of another kind: remove it, or choose another path", a.Text)
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	c, err := new(net.Dialer).DialContext(ctx, "unix", a.Path)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen for workers on %s: another process uses it: stop that one, or choose another path", a.Text)
	}
	if err := os.Remove(a.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen for workers on %s: remove old socket: %w", a.Text, err)
	}
	return nil
}
