package device

import (
	"errors"
	"time"
)

// port is an open device. It belongs to one goroutine.
type port interface {
	// Read and Write wait until the deadline, or until the source is closed, and return os.ErrDeadlineExceeded or errInterrupted then.
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	SetDeadline(t time.Time)
	// Flush drops what waits in the input queue.
	Flush() error
	// SetDTR turns the line on or off.
	SetDTR(on bool) error
	Close() error
}

var (
	// errInterrupted says that the source is being closed.
	errInterrupted = errors.New("interrupted")
	// errGone says that the device is not there any more.
	errGone = errors.New("the device is gone")
)
