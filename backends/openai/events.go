package openai

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventLimit bounds one event, in bytes: a chunk with the log-probabilities of many tokens is long.
const eventLimit = 4 << 20

var errEventTooLong = errors.New("an event is longer than 4 MiB")

// events reads server-sent events. Only the field data counts: comments, names and ids are skipped.
type events struct {
	in    *bufio.Reader
	limit int
	began bool   // the first line has been read
	line  []byte // of a line that the buffer can't hold
	data  []byte // of the event so far
	full  bool   // the event has data
}

func newEvents(r io.Reader, limit int) *events {
	return &events{in: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next returns the data of the next event that has some; it is valid until the next call. At the end the error is io.EOF, after an event that
// lacks its empty line.
func (e *events) next() ([]byte, error) {
	e.data, e.full = e.data[:0], false
	for {
		line, err := e.readLine()
		if errors.Is(err, io.EOF) && e.full {
			return e.data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if e.full {
				return e.data, nil
			}
			continue
		}
		if err := e.field(line); err != nil {
			return nil, err
		}
	}
}

// field takes one line.
func (e *events) field(line []byte) error {
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) > 0 && value[0] != ':' {
		return nil
	}
	value = bytes.TrimPrefix(value, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	if len(e.data)+len(value) > e.limit {
		return errEventTooLong
	}
	if e.full {
		e.data = append(e.data, '\n')
	}
	e.data, e.full = append(e.data, value...), true
	return nil
}

// readLine returns a line without its end. A last line without one counts; io.EOF comes after it.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.in.ReadSlice('\n')
		if len(e.line)+len(part) > e.limit+len("data: \r\n") {
			return nil, errEventTooLong
		}
		switch {
		case err == nil && len(e.line) == 0:
			return e.trim(part), nil
		case errors.Is(err, bufio.ErrBufferFull):
			e.line = append(e.line, part...)
			continue
		}
		e.line = append(e.line, part...)
		if err != nil && (!errors.Is(err, io.EOF) || len(e.line) == 0) {
			return nil, err
		}
		return e.trim(e.line), nil
	}
}

// trim takes the line's end off, and the mark that a text may begin with.
func (e *events) trim(line []byte) []byte {
	if !e.began {
		e.began = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}
