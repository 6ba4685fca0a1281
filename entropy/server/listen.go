package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"qr-gateway/entropy/grpc/address"
)

// listener is one bound address.
type listener struct {
	net.Listener
	addr address.Address
	file os.FileInfo // of a Unix socket's file, to know it again
}

// String is the address in the form that clients take.
func (l *listener) String() string {
	switch {
	case l.addr.Network == "tcp":
		return l.Addr().String()
	case l.file == nil:
		return "unix-abstract:" + l.addr.Path[1:]
	}
	return "unix://" + l.addr.Path
}

// remove deletes the socket's file, unless somebody else has put another there.
func (l *listener) remove() error {
	if l.file == nil {
		return nil
	}
	now, err := os.Lstat(l.addr.Path)
	if err == nil && os.SameFile(now, l.file) {
		err = os.Remove(l.addr.Path)
	}
	if err = ignoreMissing(err); err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}

// listenAll binds all addresses or none.
func listenAll(cfg Config) ([]*listener, error) {
	var all []*listener
	for _, text := range cfg.Listen {
		l, err := listen(text, cfg.SocketMode)
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close(), l.remove())
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

func listen(text string, mode fs.FileMode) (*listener, error) {
	a, err := address.Parse(text)
	if err != nil {
		return nil, err
	}
	if a.Network == "unix" && a.Path[0] != '@' {
		return listenFile(a, mode)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), a.Network, a.Dial())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", text, err)
	}
	return &listener{Listener: l, addr: a}, nil
}

// listenFile binds a Unix socket under another name, sets its mode, and puts it in its place: nobody ever meets it with a wider mode, and
// the file that a dead server left is replaced in one step. The folder is locked meanwhile against others that do the same.
func listenFile(a address.Address, mode fs.FileMode) (_ *listener, err error) {
	folder, err := os.Open(filepath.Dir(a.Path))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: open its folder: %w", a.Text, err)
	}
	defer folder.Close()
	if err := lock(folder); err != nil {
		return nil, fmt.Errorf("listen on %s: lock its folder: %w", a.Text, err)
	}
	if err := checkFree(a); err != nil {
		return nil, err
	}
	own := filepath.Join(filepath.Dir(a.Path), fmt.Sprintf(".%d", os.Getpid()))
	_ = os.Remove(own) // of a process that had this number before
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: own, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a.Text, err)
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("listen on %s: %w", a.Text, err), l.Close(), ignoreMissing(os.Remove(own)))
		}
	}()
	if err := os.Chmod(own, mode); err != nil {
		return nil, err
	}
	if err := os.Rename(own, a.Path); err != nil {
		return nil, err
	}
	info, err := os.Lstat(a.Path)
	if err != nil {
		return nil, err
	}
	return &listener{l, a, info}, nil
}

// lockTime is how long another server may take to bind its socket; it does nothing else meanwhile.
const lockTime = 2 * time.Second

// lock waits for a folder's lock, which ends with the file.
func lock(folder *os.File) error {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); ; <-pause.C {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case time.Since(began) > lockTime:
			return errors.New("another process holds the lock: choose a folder of its own for the socket")
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkFree says why the path can't be had: something else is there, or a server that lives.
func checkFree(a address.Address) error {
	info, err := os.Lstat(a.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", a.Text, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: there is a file of another kind (%s): remove it or choose another path", a.Text, info.Mode())
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(context.Background(), "unix", a.Path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("listen on %s: another server uses it: stop that one or choose another path", a.Text)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("listen on %s: find out whether another server uses it: %w", a.Text, err)
}
