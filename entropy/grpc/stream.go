package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// Reasons for which a stream is left.
var (
	errLate     = errors.New("the stream was ended: an answer on it was late")
	errLeft     = errors.New("the stream was ended: a request on it was given up")
	errReplaced = errors.New("the stream was replaced")
	errEnded    = errors.New("the server ended the stream")
	errShared   = errors.New("the stream was ended: another request on it failed")
)

// protocolError is an answer that breaks the contract.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return e.text }

func protocolf(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

// pipe asks on one stream for all requests and opens the next when one has ended. Streams are never used again after an answer that is
// late or wrong: what comes on them later belongs to nobody.
type pipe struct {
	line   *line
	method string
	echo   func(msg []byte) (int64, error) // nil: the server sends no number back
	budget func() time.Duration            // that an answer gets; what nobody waits for any more is given as long

	opening chan struct{} // held by the one who opens a stream

	mu      sync.Mutex // guards current
	current *stream
}

func newPipe(l *line, method string, echo func([]byte) (int64, error), budget func() time.Duration) *pipe {
	return &pipe{line: l, method: method, echo: echo, budget: budget, opening: make(chan struct{}, 1)}
}

// usable returns the stream if it can take a request whose answer has limit bytes.
func (p *pipe) usable(limit int) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil || p.current.limit < limit || !p.current.alive() {
		return nil
	}
	return p.current
}

func (p *pipe) ready(limit int) bool { return p.usable(limit) != nil }

// send implements asker.
func (p *pipe) send(ctx context.Context, q request) (*pending, error) {
	s := p.usable(q.limit)
	if s == nil {
		select {
		case p.opening <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-p.opening }()
		if s = p.usable(q.limit); s == nil {
			var err error
			if s, err = p.open(ctx, q); err != nil {
				return nil, err
			}
		}
	}
	return s.ask(q.seq, q.msg)
}

// open makes a stream that outlives ctx, which bounds the opening only.
func (p *pipe) open(ctx context.Context, q request) (*stream, error) {
	c, err := p.line.take()
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	unbind := context.AfterFunc(ctx, cancel)
	q.limit = roundUp(q.limit)
	cs, err := c.cc.NewStream(life, &rpc.StreamDesc{ClientStreams: true, ServerStreams: true}, p.method, options(q)...)
	if !unbind() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		p.line.give(c)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	s := &stream{cs: cs, cancel: cancel, limit: q.limit, echo: p.echo, budget: p.budget, waiting: map[int64]*waiter{}}
	go func() {
		defer p.line.give(c)
		s.read()
	}()
	p.mu.Lock()
	last := p.current
	p.current = s
	p.mu.Unlock()
	if last != nil {
		last.leave()
	}
	return s, nil
}

// roundUp leaves room for requests that grow a little, so that they don't need another stream.
func roundUp(limit int) int {
	size := 64 << 10
	for size < limit {
		size *= 2
	}
	return size
}

// waiter is who waits for an answer, or has done so.
type waiter struct {
	reply chan answer
	turn  uint64    // of those on the stream
	due   time.Time // of one whose caller has gone: when the stream is given up if the answer did not come
}

// stream is one stream and its one reader. A generation ends with it: a request is bound to the stream that it was sent on.
type stream struct {
	cs     rpc.ClientStream
	cancel context.CancelFunc
	limit  int
	echo   func([]byte) (int64, error)
	budget func() time.Duration

	sending sync.Mutex // one sender at a time

	mu      sync.Mutex // guards all below
	waiting map[int64]*waiter
	turns   uint64
	due     time.Time // the earliest of the waiters that were left
	dead    error
	left    bool // takes no more requests
}

// alive reports whether the stream takes requests. One on which an answer that nobody waits for is overdue does not.
func (s *stream) alive() bool {
	s.mu.Lock()
	overdue := !s.due.IsZero() && time.Now().After(s.due)
	ok := s.dead == nil && !s.left && !overdue
	s.mu.Unlock()
	if overdue {
		s.end(errLate)
	}
	return ok
}

// ask sends a request. Sending does not block: there are fewer requests under way than the send window takes.
func (s *stream) ask(seq int64, msg []byte) (*pending, error) {
	w := &waiter{reply: make(chan answer, 1)}
	s.mu.Lock()
	switch {
	case s.dead != nil:
		s.mu.Unlock()
		return nil, errShared
	case s.waiting[seq] != nil:
		s.mu.Unlock()
		return nil, protocolf("number %d is under way already", seq)
	}
	s.turns++
	w.turn = s.turns
	s.waiting[seq] = w
	s.mu.Unlock()
	sent := time.Now()
	s.sending.Lock()
	err := s.cs.SendMsg(msg)
	s.sending.Unlock()
	if err != nil && !errors.Is(err, io.EOF) { // at EOF the reader learns the reason
		s.end(err)
	}
	return &pending{sent, w.reply, func(late bool) { s.giveUp(seq, late) }, s.end}, nil
}

// giveUp is told that nobody waits for seq any more. If the answer is late the stream ends; if its caller has gone the answer may still
// come and is dropped, where it can be told from others.
func (s *stream) giveUp(seq int64, late bool) {
	s.mu.Lock()
	w := s.waiting[seq]
	keep := w != nil && !late && s.echo != nil
	if keep {
		w.due = time.Now().Add(s.budget())
		if s.due.IsZero() || w.due.Before(s.due) {
			s.due = w.due
		}
	}
	s.mu.Unlock()
	switch {
	case w == nil || keep: // w is nil where the answer crossed with this call
	case late:
		s.end(errLate)
	default:
		s.end(errLeft)
	}
}

// leave takes no more requests; those under way end in peace.
func (s *stream) leave() {
	s.mu.Lock()
	s.left = true
	idle := len(s.waiting) == 0
	s.mu.Unlock()
	if idle {
		s.end(errReplaced)
	}
}

// end ends the stream and tells all who wait. Servers answer in order, so the reason belongs to the one who has waited longest; the
// others only shared the stream, and may ask again.
func (s *stream) end(why error) {
	s.mu.Lock()
	if s.dead == nil {
		s.dead = why
	}
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	s.cancel()
	first := uint64(math.MaxUint64)
	for _, w := range waiting {
		first = min(first, w.turn)
	}
	for _, w := range waiting {
		if w.turn == first {
			w.reply <- answer{err: why}
		} else {
			w.reply <- answer{err: errShared}
		}
	}
}

// read is the one reader.
func (s *stream) read() {
	for {
		var f frame
		err := s.cs.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		if err == nil {
			err = s.deliver(f.buf)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// deliver gives a message to the one who waits for it.
func (s *stream) deliver(buf mem.Buffer) error {
	at := time.Now()
	seq, err := s.match(buf.ReadOnlyData())
	if err != nil {
		buf.Free()
		return err
	}
	s.mu.Lock()
	w := s.waiting[seq]
	delete(s.waiting, seq)
	if w != nil && !w.due.IsZero() {
		s.restDue()
	}
	done := s.left && len(s.waiting) == 0
	s.mu.Unlock()
	switch {
	case w == nil:
		buf.Free()
		return protocolf("an answer to request %d came, which nobody asked or which was answered before", seq)
	case !w.due.IsZero():
		buf.Free()
	default:
		w.reply <- answer{buf: buf, at: at}
	}
	if done {
		return errReplaced
	}
	return nil
}

// match finds the request that msg answers. Without an echo it is the only one there is.
func (s *stream) match(msg []byte) (int64, error) {
	if s.echo != nil {
		seq, err := s.echo(msg)
		if err != nil {
			err = &protocolError{err.Error()}
		}
		return seq, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range s.waiting {
		return seq, nil
	}
	return 0, nil
}

// restDue finds the earliest of those left. mu is held.
func (s *stream) restDue() {
	s.due = time.Time{}
	for _, w := range s.waiting {
		if !w.due.IsZero() && (s.due.IsZero() || w.due.Before(s.due)) {
			s.due = w.due
		}
	}
}
