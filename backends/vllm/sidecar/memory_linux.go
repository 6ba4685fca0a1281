package sidecar

import (
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is a plugin's memory with whole rows, mapped for reading. What is in it may change at any time, but it can't go away: its file is sealed
// against shrinking.
type memory struct {
	bytes  []byte
	stride int
	slots  int
}

// mapShared maps a memfd of at least rows x stride bytes.
func mapShared(fd, stride, rows int) (*memory, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("it is no memfd: %w", err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("it may shrink: seals are %#x", seals)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("find its size: %w", err)
	}
	if stat.Size < int64(rows)*int64(stride) {
		return nil, fmt.Errorf("it has %d bytes; %d rows of %d take %d", stat.Size, rows, stride, int64(rows)*int64(stride))
	}
	bytes, err := unix.Mmap(fd, 0, rows*stride, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map it: %w", err)
	}
	return &memory{bytes: bytes, stride: stride, slots: rows}, nil
}

// row is the row in a slot, which there must be.
func (m *memory) row(slot, vocab int) []float32 {
	b := m.bytes[slot*m.stride:][:4*vocab]
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), vocab)
}

func (m *memory) close() error {
	if m == nil {
		return nil
	}
	if err := unix.Munmap(m.bytes); err != nil {
		return fmt.Errorf("unmap a plugin's memory: %w", err)
	}
	return nil
}

// userOf is the user at the other end.
func userOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return -1, err
	}
	if failed != nil {
		return -1, failed
	}
	return int(cred.Uid), nil
}
