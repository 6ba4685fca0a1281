package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// client is the one who waits for an answer. When it leaves, the job ends with it: except one that it may ask for again
// (Idempotency-Key), which goes on to its end, or to that of the server.
type client struct {
	dispatch.Sink
	ctx      context.Context //nolint:containedctx // the request's own: it lasts as long as this does
	cancel   context.CancelCauseFunc
	outlived bool        // the job goes on without it
	joined   atomic.Bool // it follows the job of another request
	left     atomic.Bool
}

// serverKey is where the context of a request has that of the server.
type serverKey struct{}

// attend returns the client of a request with a context for its job. done is to be called when that has ended.
func attend(c *gin.Context, job *dispatch.Job) (cl *client, ctx context.Context, done func()) {
	request := c.Request.Context()
	cl = &client{ctx: request, outlived: job.Repeat != ""}
	if !cl.outlived {
		ctx, cl.cancel = context.WithCancelCause(request)
		return cl, ctx, func() { cl.cancel(nil) }
	}
	ctx, cl.cancel = context.WithCancelCause(context.WithoutCancel(request))
	stops := []func() bool{context.AfterFunc(request, func() { cl.leave(context.Cause(request)) })}
	if server, ok := request.Value(serverKey{}).(context.Context); ok {
		stops = append(stops, context.AfterFunc(server, func() { cl.cancel(context.Cause(server)) }))
	}
	return cl, ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cl.cancel(nil)
	}
}

// leave notes that the client is gone.
func (c *client) leave(why error) {
	c.left.Store(true)
	if !c.outlived || c.joined.Load() {
		c.cancel(why)
	}
}

// Joined implements dispatch.Joiner. The job of another request does not depend on this client.
func (c *client) Joined(first string) {
	c.joined.Store(true)
	if c.ctx.Err() != nil {
		c.cancel(context.Cause(c.ctx))
	}
	if s, ok := c.Sink.(dispatch.Joiner); ok {
		s.Joined(first)
	}
}

// Room implements dispatch.RoomSink.
func (c *client) Room(r queue.Room) {
	if s, ok := c.Sink.(dispatch.RoomSink); ok {
		s.Room(r)
	}
}

// Queued implements dispatch.Sink.
func (c *client) Queued(position int, wait time.Duration) {
	if !c.left.Load() {
		c.Sink.Queued(position, wait)
	}
}

// Event implements dispatch.Sink.
func (c *client) Event(e backends.Event) error {
	if c.left.Load() && c.outlived {
		return nil
	}
	err := c.Sink.Event(e)
	if err == nil || !c.outlived || c.joined.Load() {
		return err
	}
	c.leave(err)
	return nil
}
