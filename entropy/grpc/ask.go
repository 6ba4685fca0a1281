package grpc

import (
	"context"
	"errors"
	"io"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// asker sends a request for one message.
type asker interface {
	// send puts the request on its way. ctx bounds it, and in modes with a call per request the answer too. limit is what the answer may
	// have in bytes. retry says to wait for a connection instead of failing at once.
	send(ctx context.Context, q request) (*pending, error)
	// ready reports whether send would not have to wait for a connection or stream.
	ready(limit int) bool
}

// request is one message to the server.
type request struct {
	seq   int64
	msg   []byte
	limit int
	wait  bool // for a connection, instead of failing at once
}

// answer is what came: a message, whose buffer the receiver frees, or an error.
type answer struct {
	buf  mem.Buffer
	sent time.Time // the request
	at   time.Time // the answer
	err  error
}

func (a answer) free() {
	if a.buf != nil {
		a.buf.Free()
	}
}

// pending is a request on its way.
type pending struct {
	sent   time.Time
	reply  <-chan answer
	giveUp func(late bool) // called when no answer is wanted any more: it is late, or the caller has gone
	wrong  func(err error) // called when the answer breaks the contract: nothing more is to be had from there
}

// await waits for the answer as long as ctx allows. caller is the context of the one who asked: if that is still alive the answer is late.
func (p *pending) await(ctx, caller context.Context) answer {
	select {
	case a := <-p.reply:
		a.sent = p.sent
		return a
	case <-ctx.Done():
		p.giveUp(caller.Err() == nil)
		return answer{err: ctx.Err()}
	}
}

// calls asks with one call per request: unary, or a stream that is left after the first message.
type calls struct {
	line   *line
	method string
	stream bool
}

func (c *calls) ready(int) bool { return true }

// send implements asker. The goroutine ends with ctx at the latest; the line waits for it.
func (c *calls) send(ctx context.Context, q request) (*pending, error) {
	conn, err := c.line.take()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	reply := make(chan answer, 1)
	sent := time.Now()
	go func() {
		defer c.line.give(conn)
		defer cancel()
		var f frame
		call := one
		if !c.stream {
			call = invoke
		}
		err := call(ctx, conn.cc, c.method, q, &f)
		reply <- answer{buf: f.buf, at: time.Now(), err: err}
	}()
	return &pending{sent, reply, func(bool) { cancel() }, func(error) { cancel() }}, nil
}

func invoke(ctx context.Context, cc *rpc.ClientConn, method string, q request, f *frame) error {
	return cc.Invoke(ctx, method, q.msg, f, options(q)...)
}

// one opens a stream, asks once and leaves.
func one(ctx context.Context, cc *rpc.ClientConn, method string, q request, f *frame) error {
	s, err := cc.NewStream(ctx, &rpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, options(q)...)
	if err != nil {
		return err
	}
	if err := s.SendMsg(q.msg); err != nil && !errors.Is(err, io.EOF) { // at EOF the reason comes with RecvMsg
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(f)
}

func options(q request) []rpc.CallOption {
	return []rpc.CallOption{rpc.ForceCodecV2(codec{}), rpc.MaxCallRecvMsgSize(q.limit), rpc.WaitForReady(q.wait)}
}
