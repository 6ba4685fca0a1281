//go:build llama && cgo

package engine

/*
#cgo LDFLAGS: -lqrllama -Wl,-rpath,$ORIGIN
#include <stdlib.h>
#include "qr.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"unsafe"
)

// errText receives the text of a failure from C.
type errText [1024]C.char

func (e *errText) buf() (*C.char, C.size_t) { return &e[0], C.size_t(len(e)) }

func (e *errText) String() string { return C.GoString(&e[0]) }

// withCString runs f with a C copy of s, which is freed afterwards.
func withCString(s string, f func(*C.char)) {
	c := C.CString(s)
	defer C.free(unsafe.Pointer(c))
	f(c)
}

// bytesOf lends the bytes of s to one C call, without a copy.
func bytesOf(s string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// goText copies a text that C owns.
func goText(p *C.char, n C.size_t) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n)))
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// Init starts the library and must be called before all else: it sets the lowest level of llama.cpp's messages that
// reach stderr and checks that the library is the one this package was compiled for. Calling it again only sets the level.
func Init(minLevel slog.Level) error {
	if have := C.qr_abi(); have != C.QR_ABI {
		return fmt.Errorf("start engine: libqrllama has interface %d, want %d: rebuild it with make engine", have, C.QR_ABI)
	}
	var text errText
	buf, n := text.buf()
	if C.qr_init(levelOf(minLevel), buf, n) != C.QR_OK {
		return fmt.Errorf("start engine: %s", &text)
	}
	return nil
}

func levelOf(l slog.Level) C.int32_t {
	switch {
	case l <= slog.LevelDebug:
		return C.QR_DEBUG
	case l <= slog.LevelInfo:
		return C.QR_INFO
	case l <= slog.LevelWarn:
		return C.QR_WARN
	case l <= slog.LevelError:
		return C.QR_ERROR
	default:
		return C.QR_SILENT
	}
}

// Version names the versions of llama.cpp and ggml.
func Version() string { return C.GoString(C.qr_version()) }

// SystemInfo lists the CPU features and back ends compiled in, in llama.cpp's words.
func SystemInfo() string { return C.GoString(C.qr_system_info()) }

// codeError is the error of a return code with its text, or nil for success.
func codeError(doing string, code C.int32_t, text string) error {
	if code == C.QR_OK {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", doing, sentinel(code), text)
}

func sentinel(code C.int32_t) error {
	switch code {
	case C.QR_NO_CELLS:
		return ErrNoCells
	case C.QR_INTERRUPTED:
		return ErrInterrupted
	case C.QR_CONTEXT_FULL:
		return ErrContextFull
	case C.QR_BAD_BATCH:
		return ErrBadBatch
	case C.QR_STALE:
		return ErrStale
	case C.QR_BAD_ARGUMENT:
		return ErrBadArgument
	case C.QR_COMPUTE:
		return ErrCompute
	default:
		return errFailed
	}
}

var errFailed = errors.New("llama.cpp failed")
