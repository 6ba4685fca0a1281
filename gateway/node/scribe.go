package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// Appender writes into the logs of jobs.
type Appender interface {
	// Append is as in [queue.Log].
	Append(ctx context.Context, lease queue.Lease, entries ...[]byte) error
}

// LogLosses is told of each run whose log is not whole, by its model. It must not block.
type LogLosses interface {
	LogLost(model string)
}

const (
	copyBytes   = 16 << 10  // of a copy that are written without waiting for more
	backlog     = 1 << 20   // bytes that a run may be ahead of its log
	recordBytes = 512 << 10 // of a result; a larger one goes without the records of its tokens
)

// errBehind ends a copy: the queue takes too long, and the answer is not to wait for it.
var errBehind = errors.New("the queue takes the log more slowly than the answer is made")

// scribe writes the frames of one run into the log of its job. A copy is written in batches, and never holds up the run; frames that go through
// the log alone are written as soon as the last ones are, and a run that is too far ahead of them waits. A nil one writes nothing.
type scribe struct {
	log   Appender
	lease queue.Lease
	pause time.Duration // before a write is tried again
	every time.Duration // between the batches of a copy
	only  bool          // the frames go no other way

	wake chan struct{} // has a value when there is something to write
	full chan struct{} // has a value when it is to be written at once
	room chan struct{} // has a value when something was written
	done chan struct{} // closed when nothing is written any more
	stop context.CancelFunc

	mu    sync.Mutex // guards all below
	batch []byte     // an entry of the log
	spare []byte
	piece piece // what comes behind it
	over  bool  // nothing more comes
	err   error // why nothing is written any more
}

// piece is text of successive frames.
type piece struct {
	first, last        int64
	content, reasoning []byte
	tokens             []int32
}

// newScribe starts to write for a run. end ends it.
func newScribe(ctx context.Context, n *Node, lease queue.Lease, only bool) *scribe {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &scribe{
		log: n.deps.Logs, lease: lease, pause: n.cfg.Pause, every: n.cfg.Batch, only: only, stop: stop,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
	return s
}

// say puts what was said before the run at the beginning.
func (s *scribe) say(said *dispatch.Said) error {
	return s.put(dispatch.Logged{Said: said, Frame: dispatch.Frame{Job: s.lease.Job.ID}})
}

// add takes a frame. Its error ends the run: of a copy there is none.
func (s *scribe) add(ctx context.Context, f dispatch.Frame) error {
	if s == nil {
		return nil
	}
	for s.only {
		size, err := s.ahead()
		if err != nil {
			return err
		}
		if size < backlog {
			break
		}
		select {
		case <-s.room:
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.take(f); err != nil && s.only {
		return err
	}
	return nil
}

// alone says that frames go no other way.
func (s *scribe) alone() bool { return s != nil && s.only }

// broken is why nothing is written any more.
func (s *scribe) broken() error {
	_, err := s.ahead()
	return err
}

// ahead is how many bytes wait to be written.
func (s *scribe) ahead() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size(), s.err
}

func (s *scribe) size() int {
	return len(s.batch) + len(s.piece.content) + len(s.piece.reasoning) + 4*len(s.piece.tokens)
}

func (s *scribe) take(f dispatch.Frame) error {
	if f.Result != nil {
		f.Result = light(f.Result)
	}
	if s.only || !plain(&f) {
		return s.put(dispatch.Logged{First: f.Seq, Frame: f})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.piece
	if p.first == 0 {
		p.first = f.Seq
	}
	p.last = f.Seq
	p.content, p.reasoning = append(p.content, f.Event.Content...), append(p.reasoning, f.Event.Reasoning...)
	p.tokens = append(p.tokens, f.Event.Tokens...)
	return s.grown()
}

// plain says that a frame is text, which can be put together with other text.
func plain(f *dispatch.Frame) bool {
	return f.Result == nil && f.Err == nil && f.Event.Started == nil && f.Event.Raw == nil
}

// light is a result that a log can hold.
func light(r *backends.Result) *backends.Result {
	const record = 512 // bytes, more or less
	n := len(r.Stats.Records)
	if n*record < recordBytes {
		return r
	}
	out := *r
	out.Stats.Records, out.Stats.RecordsDropped = nil, r.Stats.RecordsDropped+n
	return &out
}

// put adds a stretch of frames behind all before.
func (s *scribe) put(l dispatch.Logged) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.join(); err != nil {
		return s.failed(err)
	}
	var err error
	if s.batch, err = dispatch.AppendLogged(s.begun(), l); err != nil {
		return s.failed(err)
	}
	return s.grown()
}

// begun is the batch, with its beginning.
func (s *scribe) begun() []byte {
	if len(s.batch) == 0 {
		return dispatch.StartEntry(s.batch, s.only)
	}
	return s.batch
}

// join puts the piece into the batch.
func (s *scribe) join() (err error) {
	p := &s.piece
	if p.first == 0 {
		return nil
	}
	e := backends.Event{Content: string(p.content), Reasoning: string(p.reasoning), Tokens: p.tokens}
	f := dispatch.Frame{Job: s.lease.Job.ID, Seq: p.last, Event: e}
	s.batch, err = dispatch.AppendLogged(s.begun(), dispatch.Logged{First: p.first, Frame: f})
	p.first, p.content, p.reasoning, p.tokens = 0, p.content[:0], p.reasoning[:0], p.tokens[:0]
	return err
}

// grown tells the writer. A copy that is too far behind is given up.
func (s *scribe) grown() error {
	size := s.size()
	if s.err == nil && !s.only && size > backlog {
		s.err = errBehind
	}
	if s.err != nil {
		s.batch, s.piece = nil, piece{}
		return s.err
	}
	nudge(s.wake)
	if size >= copyBytes {
		nudge(s.full)
	}
	return nil
}

func (s *scribe) failed(err error) error {
	if s.err == nil {
		s.err = err
	}
	return s.err
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// end writes the rest, for so long at most, and says why the log is not whole, if it isn't.
func (s *scribe) end(within time.Duration) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	nudge(s.wake)
	nudge(s.full)
	late := time.AfterFunc(within, s.stop)
	defer late.Stop()
	<-s.done
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// run writes until all is written.
func (s *scribe) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		if !s.only {
			s.gather(ctx)
		}
		entry, over, err := s.next()
		if err == nil && len(entry) > 0 {
			err = s.write(ctx, entry)
		}
		if err != nil {
			s.mu.Lock()
			_ = s.failed(err)
			s.mu.Unlock()
			return
		}
		nudge(s.room)
		if over {
			return
		}
	}
}

// gather waits for more to be written at once.
func (s *scribe) gather(ctx context.Context) {
	t := time.NewTimer(s.every)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.full:
	case <-ctx.Done():
	}
}

// next takes what there is. What it returns is good until it is called again.
func (s *scribe) next() (entry []byte, over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.join(); err != nil {
		return nil, false, err
	}
	entry = s.batch
	s.batch, s.spare = s.spare[:0], entry
	return entry, s.over, s.err
}

// write tries until the queue has the entry: what it has twice is dropped by whoever reads it.
func (s *scribe) write(ctx context.Context, entry []byte) error {
	for {
		err := s.log.Append(ctx, s.lease, entry)
		if !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if pause(ctx, s.pause) != nil {
			return err
		}
	}
}
