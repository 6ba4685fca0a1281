package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Waiting for a device that says it is ready and then has nothing, as those do whose driver can't tell.
const (
	leastWait = time.Millisecond
	mostWait  = 20 * time.Millisecond
)

// file is a device that was opened without blocking. Waiting is done here, not by the runtime: that can't wait for every kind of device.
type file struct {
	path     string
	fd       int
	wake     int // readable once the source is closed
	deadline time.Time
}

// openPort opens what checkPath has seen; wake is a descriptor that becomes readable when the port is to let go.
func openPort(cfg Config, wake int) (port, error) {
	for _, baud := range cfg.Knock {
		if err := knock(cfg, wake, baud); err != nil {
			return nil, fmt.Errorf("knock at %d baud: %w", baud, err)
		}
	}
	f, err := openFile(cfg, wake)
	if err != nil {
		return nil, err
	}
	if cfg.Kind == KindSerial {
		err = f.makeRaw(cfg.Baud)
	}
	if err == nil && cfg.DTR == DTRGate {
		err = f.SetDTR(false)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func knock(cfg Config, wake, baud int) error {
	f, err := openFile(cfg, wake)
	if err != nil {
		return err
	}
	return errors.Join(f.makeRaw(baud), f.Close())
}

func openFile(cfg Config, wake int) (*file, error) {
	flags := unix.O_RDONLY
	if cfg.Kind == KindSerial || len(cfg.Start)+len(cfg.Stop) > 0 {
		flags = unix.O_RDWR
	}
	fd, err := unix.Open(cfg.Path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: cfg.Path, Err: err}
	}
	f := &file{path: cfg.Path, fd: fd, wake: wake}
	if err := f.check(cfg); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// check looks at what was opened, which may have been put in the place of what checkPath saw. Nobody else is to take bytes of a serial port.
func (f *file) check(cfg Config) error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return fmt.Errorf("look at %s: %w", f.path, err)
	}
	if err := checkStat(cfg, &st); err != nil {
		return err
	}
	if cfg.Kind != KindSerial {
		return nil
	}
	if err := unix.IoctlSetInt(f.fd, unix.TIOCEXCL, 0); err != nil {
		return fmt.Errorf("claim %s as a serial port: %w", f.path, err)
	}
	return nil
}

// makeRaw sets 8 data bits, no parity, and that nothing is changed or echoed.
func (f *file) makeRaw(baud int) error {
	t, err := unix.IoctlGetTermios(f.fd, unix.TCGETS2)
	if err != nil {
		return fmt.Errorf("read settings of %s: %w", f.path, err)
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON | unix.IXOFF
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB | unix.CSTOPB | unix.CRTSCTS
	t.Cflag |= unix.CS8 | unix.CREAD | unix.CLOCAL
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if baud > 0 {
		t.Cflag = t.Cflag&^unix.CBAUD | unix.BOTHER
		t.Ispeed, t.Ospeed = uint32(baud), uint32(baud)
	}
	if err := unix.IoctlSetTermios(f.fd, unix.TCSETS2, t); err != nil {
		return fmt.Errorf("set %s to raw at %d baud: %w", f.path, baud, err)
	}
	return nil
}

// SetDeadline implements port.
func (f *file) SetDeadline(t time.Time) { f.deadline = t }

// Read implements port.
func (f *file) Read(p []byte) (int, error) {
	return f.transfer(unix.POLLIN, func() (int, error) { return unix.Read(f.fd, p) })
}

// Write implements port.
func (f *file) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := f.transfer(unix.POLLOUT, func() (int, error) { return unix.Write(f.fd, p[done:]) })
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (f *file) transfer(event int16, try func() (int, error)) (int, error) {
	for idle := 0; ; idle++ {
		n, err := try()
		switch {
		case err == nil && n > 0:
			return n, nil
		case err == nil, errors.Is(err, unix.EIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
			return 0, fmt.Errorf("%s: %w", f.path, errors.Join(errGone, err))
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, fmt.Errorf("%s: %w", f.path, err)
		}
		if err := f.wait(event, idle); err != nil {
			return 0, err
		}
	}
}

// wait waits until the device is ready. From the second time on it waits a while first.
func (f *file) wait(event int16, idle int) error {
	if idle > 0 {
		pause := min(leastWait<<min(idle-1, 10), mostWait, max(0, time.Until(f.deadline)))
		if err := f.poll(pause, unix.PollFd{Fd: int32(f.wake), Events: unix.POLLIN}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return f.poll(time.Until(f.deadline), unix.PollFd{Fd: int32(f.wake), Events: unix.POLLIN}, unix.PollFd{Fd: int32(f.fd), Events: event})
}

// poll waits for one of the descriptors, the first of which is wake.
func (f *file) poll(d time.Duration, fds ...unix.PollFd) error {
	if d <= 0 {
		return os.ErrDeadlineExceeded
	}
	n, err := unix.Poll(fds, int((d + time.Millisecond - 1).Milliseconds()))
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("wait for %s: %w", f.path, err)
	case fds[0].Revents != 0:
		return errInterrupted
	case n == 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Flush implements port.
func (f *file) Flush() error {
	if err := unix.IoctlSetInt(f.fd, unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return fmt.Errorf("flush input of %s: %w", f.path, err)
	}
	return nil
}

// SetDTR implements port.
func (f *file) SetDTR(on bool) error {
	req, word := uint(unix.TIOCMBIC), "off"
	if on {
		req, word = unix.TIOCMBIS, "on"
	}
	if err := unix.IoctlSetPointerInt(f.fd, req, unix.TIOCM_DTR); err != nil {
		return fmt.Errorf("turn DTR of %s %s: %w", f.path, word, err)
	}
	return nil
}

// Close implements port.
func (f *file) Close() error {
	if err := unix.Close(f.fd); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	return nil
}
