package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/gateway/queue"
)

// timeline notes when things happened to a request.
type timeline struct {
	rec    *record
	now    func() time.Time
	header http.Header // of the reply
	head   *api.Head   // of the answer
}

// noteQueued notes where a request stands when it is queued. It reports whether that is news.
func (t timeline) noteQueued(position int, wait time.Duration) bool {
	if !t.rec.queued.IsZero() {
		return false
	}
	t.rec.queued = t.now()
	api.SetQueued(t.header, position, wait)
	return true
}

// Room implements dispatch.RoomSink.
func (t timeline) Room(r queue.Room) { api.SetRoom(t.header, r) }

// Joined implements dispatch.Joiner: the reply is that of the first request, by its id.
func (t timeline) Joined(first string) {
	t.rec.out.Joined = true
	t.rec.first, t.head.ID = first, first
	t.header.Set(api.ReplayedHeader, "true")
}

func (t timeline) noteEvent(e backends.Event) {
	if e.Started != nil && t.rec.out.QueueWait == 0 && !t.rec.queued.IsZero() {
		t.rec.out.QueueWait = t.now().Sub(t.rec.queued)
	}
	if t.rec.out.FirstToken == 0 && hasText(e) {
		t.rec.out.FirstToken = t.now().Sub(t.rec.began)
	}
}

// hasText says that e has something for the client.
func hasText(e backends.Event) bool { return e.Content != "" || e.Reasoning != "" || len(e.Raw) > 0 }

// collector is the sink of a reply in one piece.
type collector struct {
	timeline
	content, reasoning strings.Builder
	raw                json.RawMessage // of an answer that is passed on
}

func (c *collector) Queued(position int, wait time.Duration) { c.noteQueued(position, wait) }

func (c *collector) Event(e backends.Event) error {
	c.noteEvent(e)
	c.content.WriteString(e.Content)
	c.reasoning.WriteString(e.Reasoning)
	if len(e.Raw) > 0 {
		c.raw = e.Raw
	}
	return nil
}

// errClientGone is why a job ends whose client can't be written to.
var errClientGone = fmt.Errorf("write to client: %w", context.Canceled)

// streamer is the sink of a stream.
type streamer struct {
	timeline
	out    *api.Stream
	chunks chunker
	again  func() chunker
	opened bool // the first chunk is out

	queued   chan struct{} // closed when the job is
	position atomic.Int64  // in the queue; 0 is with a worker
	wait     atomic.Int64  // estimate in nanoseconds
}

func newStreamer(t timeline, out *api.Stream, chunks func() chunker) *streamer {
	return &streamer{timeline: t, out: out, chunks: chunks(), again: chunks, queued: make(chan struct{})}
}

// Joined implements dispatch.Joiner. Chunks have the id of the answer.
func (s *streamer) Joined(first string) {
	s.timeline.Joined(first)
	s.chunks = s.again()
}

// Queued opens the stream, so that the client and everything between it and us see that the request is alive.
func (s *streamer) Queued(position int, wait time.Duration) {
	s.position.Store(int64(position))
	s.wait.Store(int64(wait))
	if !s.noteQueued(position, wait) {
		return
	}
	_ = s.out.Comment(s.comment()) // the next write fails the same way, and can say so
	close(s.queued)
}

// Event sends a piece of the answer.
func (s *streamer) Event(e backends.Event) error {
	s.noteEvent(e)
	if e.Started != nil {
		s.position.Store(0)
	}
	if e.Started == nil && !hasText(e) {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	if !hasText(e) {
		return nil
	}
	return s.send(s.chunks.Delta(e))
}

func (s *streamer) open() error {
	if s.opened {
		return nil
	}
	s.opened = true
	if first := s.chunks.First(); first != nil {
		return s.send(first)
	}
	return nil
}

func (s *streamer) end(res *backends.Result, includeUsage bool) error {
	if err := s.open(); err != nil {
		return err
	}
	for _, chunk := range s.chunks.End(res, includeUsage) {
		if err := s.send(chunk); err != nil {
			return err
		}
	}
	if err := s.out.Done(); err != nil {
		return errors.Join(errClientGone, err)
	}
	return nil
}

func (s *streamer) send(chunk any) error {
	if err := s.write(chunk); err != nil {
		return errors.Join(errClientGone, err)
	}
	return nil
}

// write sends a chunk of ours, or one that came as JSON.
func (s *streamer) write(chunk any) error {
	if raw, ok := chunk.(json.RawMessage); ok {
		return s.out.Raw(raw)
	}
	return s.out.Data(chunk)
}

func (s *streamer) comment() string {
	position, wait := s.position.Load(), time.Duration(s.wait.Load())
	switch {
	case position == 0:
		return "ping"
	case wait == 0:
		return fmt.Sprintf("queued, position %d", position)
	default:
		return fmt.Sprintf("queued, position %d, about %d s", position, int64(wait.Round(time.Second).Seconds()))
	}
}

// keepAlive sends a comment at each interval once the job is queued, and ends the job when that fails. The function it returns
// stops it and waits for it.
func (s *streamer) keepAlive(ctx context.Context, every time.Duration, giveUp func(why error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pinger sync.WaitGroup
	pinger.Go(func() {
		select {
		case <-s.queued:
			s.ping(ctx, every, giveUp)
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		pinger.Wait()
	}
}

func (s *streamer) ping(ctx context.Context, every time.Duration, giveUp func(why error)) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			if err := s.out.Comment(s.comment()); err != nil {
				giveUp(errors.Join(errClientGone, err))
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
