package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/hub/hubpb"
)

// session is the stream of one engine. The handler's goroutine reads; each draw has a goroutine of its own, which also sends its reply.
type session struct {
	server *Server
	stream hubpb.Hub_DrawServer
	draws  sync.WaitGroup

	sending sync.Mutex // one Send at a time

	mu     sync.Mutex // guards flight
	flight map[uint64]context.CancelFunc
}

// Draw implements the protocol.
func (s *Server) Draw(stream hubpb.Hub_DrawServer) error {
	e := &session{server: s, stream: stream, flight: map[uint64]context.CancelFunc{}}
	ctx, cancel := context.WithCancel(stream.Context())
	defer e.draws.Wait()
	defer cancel()
	if err := stream.SendHeader(nil); err != nil { // the client draws once it has it
		return fmt.Errorf("open stream: %w", err)
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("read draw: %w", err)
		}
		e.take(ctx, req)
	}
}

// take begins a draw, or gives one up. It never waits for a source.
func (e *session) take(ctx context.Context, req *hubpb.DrawRequest) {
	if req.GetCancel() {
		e.mu.Lock()
		if cancel, ok := e.flight[req.Sequence]; ok {
			cancel()
		}
		e.mu.Unlock()
		return
	}
	ctx, cancel := within(ctx, req.WithinUs)
	if err := e.begin(req, cancel); err != nil {
		cancel()
		e.send(&hubpb.DrawReply{Sequence: req.Sequence, Error: packError(req.Source, err)})
		return
	}
	e.draws.Go(func() {
		defer e.end(req.Sequence, cancel)
		e.serve(ctx, req)
	})
}

// within is the context of a draw whose caller waits for so many microseconds; 0 is no limit.
func within(ctx context.Context, us uint64) (context.Context, context.CancelFunc) {
	if us == 0 || us > uint64(longest.Microseconds()) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(us)*time.Microsecond)
}

// longest is a wait that is as good as no limit.
const longest = 24 * time.Hour

// begin notes a draw that is under way.
func (e *session) begin(req *hubpb.DrawRequest, cancel context.CancelFunc) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.flight) >= maxFlight {
		return refused(req.Source, fmt.Sprintf("%d draws are under way, which is the limit of one engine", maxFlight))
	}
	if _, taken := e.flight[req.Sequence]; taken {
		return refused(req.Source, fmt.Sprintf("draw %d is under way already", req.Sequence))
	}
	e.flight[req.Sequence] = cancel
	return nil
}

func (e *session) end(sequence uint64, cancel context.CancelFunc) {
	cancel()
	e.mu.Lock()
	delete(e.flight, sequence)
	e.mu.Unlock()
}

// serve answers one draw.
func (e *session) serve(ctx context.Context, req *hubpb.DrawRequest) {
	out := &hubpb.DrawReply{Sequence: req.Sequence}
	if err := e.fill(ctx, req, out); err != nil {
		out = &hubpb.DrawReply{Sequence: req.Sequence, Error: packError(req.Source, err)}
	}
	e.send(out)
}

// fill puts what was drawn into out. A source that panics fails this draw alone.
func (e *session) fill(ctx context.Context, req *hubpb.DrawRequest, out *hubpb.DrawReply) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e.server.deps.Log.Error("entropy source panicked", "entropy_source", req.Source, "panic", r, "stack", string(debug.Stack()))
			err = refused(req.Source, "the source hit a defect of its own")
		}
	}()
	src, ok := e.server.deps.Sources.Source(req.Source)
	if !ok {
		return unknown(req.Source)
	}
	if n := req.GetNumber(); n != nil {
		return number(ctx, src, req.Source, n, out)
	}
	if req.GetBytes() > maxDraw {
		return refused(req.Source, fmt.Sprintf("%d bytes were asked for; one draw takes up to %d", req.GetBytes(), maxDraw))
	}
	b, err := draw(ctx, src, req)
	if err != nil {
		return err
	}
	out.Block, out.Data = packBlock(&b), b.Bytes
	return nil
}

func draw(ctx context.Context, src entropy.Source, req *hubpb.DrawRequest) (entropy.Block, error) {
	buf := make([]byte, req.GetBytes())
	if !req.Pipelined {
		return src.Draw(ctx, buf)
	}
	if a, ok := src.(entropy.Ahead); ok {
		if t := a.Begin(len(buf), req.Nonce); t != nil {
			return t.Redeem(ctx, buf)
		}
	}
	return entropy.Block{}, refused(req.Source, "it can't be asked ahead now")
}

func number(ctx context.Context, src entropy.Source, name string, req *hubpb.NumberRequest, out *hubpb.DrawReply) error {
	from, ok := src.(entropy.Numberer)
	if !ok {
		return refused(name, "it does not make numbers of its own")
	}
	n, err := from.Number(ctx, entropy.NumberRequest{SourceID: req.SourceId, BlockBytes: int(req.BlockBytes)})
	if err != nil {
		return err
	}
	out.Block, out.Number = packBlock(&n.Block), packNumber(&n)
	return nil
}

func refused(source, message string) *entropy.Error {
	return &entropy.Error{Kind: entropy.KindRefused, Source: source, Message: message}
}

// send sends one reply. A stream that can't be sent on has ended, which the reader sees too.
func (e *session) send(r *hubpb.DrawReply) {
	e.sending.Lock()
	defer e.sending.Unlock()
	_ = e.stream.Send(r)
}
