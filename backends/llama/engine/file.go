package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// checkFile finds what is wrong with a model file before llama.cpp reads it, so that the common mistakes are told in
// the user's words.
func checkFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return &ModelError{Path: path, Reason: openReason(err), Hint: "check the path", Err: err}
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return &ModelError{Path: path, Reason: "unreadable", Err: err}
	case st.IsDir():
		return &ModelError{Path: path, Reason: "is a directory", Hint: "name the .gguf file in it"}
	case st.Size() == 0:
		return &ModelError{Path: path, Reason: "is empty", Hint: "fetch it again"}
	}
	return checkMagic(path, f, st.Size())
}

func openReason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	default:
		return "can't be opened"
	}
}

// ggufHeader is the size of magic, version, tensor count and key count.
const ggufHeader = 24

func checkMagic(path string, r io.Reader, size int64) error {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil || string(magic[:]) != "GGUF" {
		return &ModelError{Path: path, Reason: fmt.Sprintf("not a GGUF file: it begins with %q", magic[:]), Hint: "convert the model to GGUF"}
	}
	if size < ggufHeader {
		return &ModelError{Path: path, Reason: fmt.Sprintf("truncated: %d bytes", size), Hint: "fetch it again"}
	}
	return nil
}
