package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// session is one stream of a worker.
type session struct {
	server *Server
	hello  *linkpb.Hello
	peer   string
	since  time.Time
	stop   context.CancelCauseFunc
	done   chan struct{} // closed when nothing of it is delivered any more
	over   chan struct{} // closed when nothing is taken from it any more
	boxes  sync.WaitGroup

	mu      sync.Mutex // guards all below
	closed  bool
	inboxes map[run]*inbox
	asks    map[uint64]chan *linkpb.Prepared // by number; each has room for the answer
	number  uint64                           // of the newest of them
	models  []backends.Info
	warm    []uint64
	free    map[string]int
	warned  map[string]string // differences from other workers, by model and worker
	heard   time.Time
	out     post
}

func newSession(s *Server, h *linkpb.Hello, from string, stop context.CancelCauseFunc) *session {
	now := time.Now()
	return &session{
		server: s, hello: h, peer: from, since: now, heard: now, stop: stop, done: make(chan struct{}), over: make(chan struct{}),
		inboxes: map[run]*inbox{}, asks: map[uint64]chan *linkpb.Prepared{}, out: post{wake: make(chan struct{}, 1)},
	}
}

// serve runs the stream, and returns why it ended. Reading and writing end when the handler has returned, and only then: they may hang on a
// dead connection.
func (e *session) serve(ctx context.Context, stream linkpb.Link_ConnectServer) error {
	s := e.server
	welcome := &linkpb.Welcome{Gateway: s.own.name, Version: s.own.version, Schema: s.own.schema, MaxMessage: uint64(s.cfg.MaxMessage)}
	err := stream.Send(&linkpb.FromGateway{What: &linkpb.FromGateway_Welcome{Welcome: welcome}})
	if err == nil {
		s.counts.links.Add(1)
		s.deps.Log.InfoContext(ctx, "worker linked", "worker", e.hello.Worker, "peer", e.peer, "version", e.hello.Version)
		s.tails.Go(func() { e.write(ctx, stream) })
		s.tails.Go(func() { e.stop(e.read(ctx, stream)) })
		err = e.watch(ctx)
	}
	e.stop(err)
	e.close()
	e.boxes.Wait()
	return err
}

// watch returns why the stream is to end.
func (e *session) watch(ctx context.Context) error {
	t := time.NewTicker(e.server.cfg.Silence / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-t.C:
			if e.silent(now) {
				return errSilent
			}
		}
	}
}

func (e *session) silent(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Sub(e.heard) > e.server.cfg.Silence
}

// close ends what waits for the worker. Nothing begins afterwards.
func (e *session) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	close(e.over)
}

// read takes what the worker sends, until the stream ends. It never waits for anything else.
func (e *session) read(ctx context.Context, stream linkpb.Link_ConnectServer) error {
	j := joiner{most: e.server.cfg.MaxMessage}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if p := m.GetPart(); p != nil {
			e.hear()
			data, err := j.add(p)
			if err != nil {
				return err
			}
			if data == nil {
				continue
			}
			m = new(linkpb.FromWorker)
			if err := proto.Unmarshal(data, m); err != nil {
				return fmt.Errorf("%w: %w", errProtocol, err)
			}
		}
		if err := e.take(ctx, m); err != nil {
			return err
		}
	}
}

func (e *session) hear() {
	e.mu.Lock()
	e.heard = time.Now()
	e.mu.Unlock()
}

// take handles one message. Its error ends the stream.
func (e *session) take(ctx context.Context, m *linkpb.FromWorker) error {
	e.hear()
	switch what := m.What.(type) {
	case *linkpb.FromWorker_Frame:
		return e.frame(ctx, what.Frame)
	case *linkpb.FromWorker_Prepared:
		e.answer(what.Prepared)
	case *linkpb.FromWorker_Beat:
		e.out.echo(what.Beat)
	case *linkpb.FromWorker_Announce:
		return e.announce(ctx, what.Announce)
	default:
		return fmt.Errorf("%w: message %T has no place here", errProtocol, what)
	}
	return nil
}

// send has a message sent. A worker that doesn't read is cut off.
func (e *session) send(m *linkpb.FromGateway) {
	if !e.out.add(m) {
		e.stop(errBehind)
	}
}

// write sends what there is.
func (e *session) write(ctx context.Context, stream linkpb.Link_ConnectServer) {
	for {
		m, err := e.out.next()
		switch {
		case err != nil:
			e.stop(err)
			return
		case m != nil:
			if err := stream.Send(m); err != nil {
				e.stop(err)
				return
			}
			continue
		}
		select {
		case <-e.out.wake:
		case <-ctx.Done():
			return
		}
	}
}

// inbox has the frames of one run that are still to be delivered. It has a goroutine as long as there are any.
type inbox struct{ frames []*linkpb.Frame }

// maxRuns is how many runs of one worker may have frames in their inboxes.
const maxRuns = 1 << 14

// frame puts a frame into the inbox of its run.
func (e *session) frame(ctx context.Context, m *linkpb.Frame) error {
	r := run{m.Job, m.Epoch}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	box := e.inboxes[r]
	if box == nil {
		if len(e.inboxes) >= maxRuns {
			return fmt.Errorf("%w: it sends frames of more than %d jobs at once", errProtocol, maxRuns)
		}
		box = &inbox{}
		e.inboxes[r] = box
		e.boxes.Go(func() { e.deliver(ctx, r, box) })
	}
	if len(box.frames) >= window {
		return fmt.Errorf("%w: more than %d frames of job %s are on the way", errProtocol, window, m.Job)
	}
	box.frames = append(box.frames, m)
	return nil
}

// next takes a frame out of an inbox. When there is none, the inbox ends.
func (e *session) next(r run, box *inbox) *linkpb.Frame {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(box.frames) == 0 || e.closed {
		delete(e.inboxes, r)
		return nil
	}
	m := box.frames[0]
	box.frames = box.frames[1:]
	return m
}

// deliver hands the frames of an inbox on, in order, and tells the worker.
func (e *session) deliver(ctx context.Context, r run, box *inbox) {
	for m := e.next(r, box); m != nil; m = e.next(r, box) {
		err := e.server.deliver(ctx, m)
		switch {
		case err == nil:
			e.out.room(r, m.Seq)
		case errors.Is(err, dispatch.ErrGone):
			e.drop(r)
			e.send(&linkpb.FromGateway{What: &linkpb.FromGateway_Gone{Gone: &linkpb.Gone{Job: r.job, Epoch: r.epoch}}})
			return
		default: // the stream has ended
			e.drop(r)
			return
		}
	}
}

// drop ends an inbox with what is in it.
func (e *session) drop(r run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.inboxes, r)
}

// deliver hands one frame on. Its error is dispatch.ErrGone, or ctx's.
func (s *Server) deliver(ctx context.Context, m *linkpb.Frame) error {
	f, err := unpackFrame(m)
	if err == nil {
		err = s.deps.Frames.Deliver(ctx, f)
	}
	r := run{m.Job, m.Epoch}
	switch {
	case err == nil:
		s.counts.frames.Add(1)
		if final(m) {
			s.mu.Lock()
			s.finished.add(r, m.Seq)
			s.mu.Unlock()
		}
		return nil
	case errors.Is(err, dispatch.ErrGone):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.finished.has(r, m.Seq) {
			return nil
		}
		s.counts.gone.Add(1)
		return dispatch.ErrGone
	case ctx.Err() != nil:
		return err
	}
	s.deps.Log.ErrorContext(ctx, "deliver frame", "job", m.Job, "epoch", m.Epoch, "seq", m.Seq, "error", err)
	return dispatch.ErrGone // it would come again and again
}
