package openai

import (
	"context"
	"io"
	"net/http/httptrace"
	"sync"
	"time"

	"qr-gateway/backends"
)

// watch ends a request that takes longer than it may in one of its phases. The cause of its context is the error.
type watch struct {
	b      *Backend
	cancel context.CancelCauseFunc
	total  *time.Timer

	mu    sync.Mutex  // guards phase: the transport tells of a connection on any goroutine
	phase *time.Timer // of the present phase; nil for none
}

// follow makes the context of a request. Whoever calls it calls stop.
func (b *Backend) follow(ctx context.Context, stream bool) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{b: b, cancel: cancel}
	limits := b.cfg.Timeouts
	w.total = w.after(limits.Total, backends.KindTimeout, "total_timeout", "took longer than "+limits.Total.String()+" in all")
	w.enter(w.after(limits.Connect, backends.KindUpstream, "connect_timeout", "took no connection within "+limits.Connect.String()))
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if stream {
			w.enter(w.after(limits.FirstByte, backends.KindTimeout, "first_byte_timeout", "sent nothing within "+limits.FirstByte.String()))
		} else {
			w.enter(nil)
		}
	}}), w
}

func (w *watch) after(d time.Duration, kind backends.Kind, code, what string) *time.Timer {
	return time.AfterFunc(d, func() { w.cancel(w.b.fail(kind, code, what, tryLater, nil)) })
}

// enter goes on to a phase with its timer, or with none.
func (w *watch) enter(timer *time.Timer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase != nil {
		w.phase.Stop()
	}
	w.phase = timer
}

func (w *watch) stop() {
	w.total.Stop()
	w.enter(nil)
	w.cancel(nil)
}

// watched is a reply's body. Time counts only while somebody waits for a byte: a client that reads slowly is no fault of the server.
type watched struct {
	body  io.Reader
	w     *watch
	began bool // the first byte is there, or need not be waited for
	idle  *time.Timer
}

func (r *watched) Read(p []byte) (int, error) {
	limit := r.w.b.cfg.Timeouts.Idle
	switch {
	case r.idle != nil:
		r.idle.Reset(limit)
	case r.began:
		r.idle = r.w.after(limit, backends.KindTimeout, "idle_timeout", "sent nothing more within "+limit.String())
		r.w.enter(r.idle)
	}
	n, err := r.body.Read(p)
	if r.idle != nil {
		r.idle.Stop()
	} else if n > 0 {
		r.began = true
		r.w.enter(nil)
	}
	return n, err
}
