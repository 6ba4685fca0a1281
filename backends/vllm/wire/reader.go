package wire

import (
	"bufio"
	"errors"
	"io"
)

const (
	readAhead = 128 << 10 // bytes
	keepBody  = 4 << 20   // a larger buffer is not kept for the next frame
	growBy    = 1 << 20   // a body is believed to be as large as it says only as it comes
)

// Frame is one frame as it was read.
type Frame struct {
	Header
	Body []byte // valid until the next one is read
}

// Reader reads frames. It belongs to one goroutine.
type Reader struct {
	r    *bufio.Reader
	body []byte
	head [HeaderSize]byte
}

// NewReader returns a reader of the frames that r brings.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, readAhead)} }

// Next reads one frame with a body of at most limit bytes, limit being at most [MaxBody]. The error is io.EOF where the stream ends between two frames, a
// *[RefusedError] for a frame that there can't be, and else the stream's.
func (r *Reader) Next(limit int) (Frame, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return Frame{}, ended(err)
	}
	h, err := ParseHeader(r.head[:])
	if err != nil {
		return Frame{}, err
	}
	if int(h.Size) > limit {
		return Frame{}, refuse(CodeOversized, "a %s frame has %d bytes; it takes at most %d", h.Kind, h.Size, limit)
	}
	if err := r.fill(int(h.Size)); err != nil {
		return Frame{}, err
	}
	return Frame{h, r.body}, nil
}

// fill reads a body of n bytes.
func (r *Reader) fill(n int) error {
	if cap(r.body) > keepBody && n <= keepBody {
		r.body = nil
	}
	r.body = r.body[:0]
	for len(r.body) < n {
		from, more := len(r.body), min(n-len(r.body), growBy)
		if cap(r.body) < from+more {
			r.body = append(make([]byte, 0, min(n, 2*(from+more))), r.body...)
		}
		r.body = r.body[:from+more]
		if _, err := io.ReadFull(r.r, r.body[from:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return ended(err)
		}
	}
	return nil
}

// ended says that a frame was cut off.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(CodeTruncated, "the stream ended within a frame")
	}
	return err
}
