package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Stream writes server-sent events. Each write has its own deadline, so that a client that stops reading frees the worker
// after that time. Nothing is sent before the first call, which sends the headers as well.
type Stream struct {
	timeout time.Duration // for one write; 0 is none

	// mu guards all below: the answer and the keep-alive comments come from two goroutines.
	mu      sync.Mutex
	w       http.ResponseWriter
	ctl     *http.ResponseController
	buf     bytes.Buffer
	enc     *json.Encoder
	started bool
	err     error // of the first write that failed; nothing is written after it
}

// NewStream makes a stream over w. timeout bounds each write; 0 is no bound.
func NewStream(w http.ResponseWriter, timeout time.Duration) *Stream {
	s := &Stream{timeout: timeout, w: w, ctl: http.NewResponseController(innermost(w))}
	s.enc = json.NewEncoder(&s.buf)
	s.enc.SetEscapeHTML(false)
	return s
}

// innermost unwraps w, because wrappers tend to lose the error of a flush.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// Data sends v as one event. It doesn't allocate for a v that is a pointer to a chunk.
func (s *Stream) Data(v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString("data: ")
	if err := s.enc.Encode(v); err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	s.buf.WriteByte('\n')
	return s.send()
}

// Comment sends a line that clients skip. It keeps the connection from being cut as idle.
func (s *Stream) Comment(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString(": ")
	s.buf.WriteString(oneLine(text))
	s.buf.WriteString("\n\n")
	return s.send()
}

// Done says that the answer is whole. Never send it after an error.
func (s *Stream) Done() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString("data: [DONE]\n\n")
	return s.send()
}

// Fail sends e as the last event, in the same envelope as an HTTP error.
func (s *Stream) Fail(e *Error) error { return s.Data(e.Envelope()) }

// Started says that the status and headers are out, so that a failure has to go into the stream.
func (s *Stream) Started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Close takes the deadline off the connection, which the next request may use.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && s.timeout > 0 && s.err == nil {
		_ = s.ctl.SetWriteDeadline(time.Time{}) // a connection that is gone needs none
	}
}

func (s *Stream) send() error {
	if s.err != nil {
		return s.err
	}
	s.start()
	if s.timeout > 0 {
		_ = s.ctl.SetWriteDeadline(time.Now().Add(s.timeout)) // a writer without deadlines, as in tests, has no client to get stuck
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		s.err = fmt.Errorf("write event: %w", err)
		return s.err
	}
	if err := s.ctl.Flush(); err != nil {
		s.err = fmt.Errorf("flush event: %w", err)
	}
	return s.err
}

func (s *Stream) start() {
	if s.started {
		return
	}
	s.started = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold tokens back
	s.w.WriteHeader(http.StatusOK)
}

// oneLine keeps a comment from ending early.
func oneLine(text string) string {
	if !strings.ContainsAny(text, "\r\n") {
		return text
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
}
