package sidecar

import (
	"context"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/vllm/wire"
)

// begin finds or makes the request that a plugin begins. It is never nil: one that can't be served has failed.
func (s *Server) begin(ctx context.Context, from *session, g *wire.Begin) *request {
	if e := checkRID(g.RID); e != nil {
		return s.turnDown(from, g, e)
	}
	r, fresh, e := s.find(from, g)
	switch {
	case e != nil:
		return s.turnDown(from, g, e)
	case fresh:
		s.start(ctx, r, g)
	case !r.adopt(s, from, g):
		return s.turnDown(from, g, invalid("rid_reused", "qr_rid", "use another one for each choice", "qr_rid %s belongs to another request", g.RID))
	}
	return r
}

// find is the request under its rid, or a new one that is its plugin's already.
func (s *Server) find(from *session, g *wire.Begin) (r *request, fresh bool, e *backends.Error) {
	s.book.mu.Lock()
	known, forget := s.book.at(g.RID, from.now)
	defer forget.forget()
	defer s.book.mu.Unlock()
	switch {
	case known == nil:
		return nil, false, full()
	case known.finished:
		return nil, false, spent(g.RID)
	case known.req == nil:
		known.req = newRequest(g, known.trail, from.shape, s.deps.Log, from.now)
		known.req.own(from, g.Handle)
		return known.req, true, nil
	}
	return known.req, false, nil
}

func full() *backends.Error {
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "sidecar_full", Message: "the sidecar has as many requests as it may keep", Hint: "try again later, or raise the sidecar's requests",
	}
}

func spent(rid string) *backends.Error {
	return invalid("rid_finished", "qr_rid", "use another one for each choice", "the answer to qr_rid %s has finished", rid)
}

// turnDown is a request whose every row is answered with a stop. Nobody follows it: the rid, if it is one, is another's.
func (s *Server) turnDown(from *session, g *wire.Begin, e *backends.Error) *request {
	r := &request{rid: g.RID, trail: &trail{}, opened: make(chan struct{}), cancel: func() {}, quick: true, failed: e, told: true}
	close(r.opened)
	r.own(from, g.Handle)
	s.reject(g.RID, e.Error())
	return r
}

// reject notes a request that can't be served.
func (s *Server) reject(rid, reason string) {
	s.counts.rejected.Add(1)
	s.deps.Log.Warn("request refused", "rid", rid, "reason", reason)
}

// openTime is how long a source may take to be opened and measured. No row waits that long, but the next request finds it done.
const openTime = 30 * time.Second

// start makes a new request ready: at once, or while its prompt is computed.
func (s *Server) start(ctx context.Context, r *request, g *wire.Begin) {
	if r.failed != nil {
		s.counts.rejected.Add(1)
		close(r.opened)
		return
	}
	if r.quick {
		r.open(ctx, s.deps.Sources)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	r.cancel = cancel
	s.work.Go(func() {
		defer cancel()
		r.open(ctx, s.deps.Sources)
	})
}

// adopt makes from the owner of a request that it or another connection had before. It is false where another plugin has it still, and where it
// is not the same request.
func (r *request) adopt(s *Server, from *session, g *wire.Begin) bool {
	if r.mark != markOf(g) || len(r.ids) != from.shape.K || r.vocab != from.shape.Vocab {
		return false
	}
	r.work.Lock()
	defer r.work.Unlock()
	if o := r.owner; r.finished || o != nil && o != from && !o.gone.Load() && o.hello.Session != from.hello.Session {
		return false
	}
	r.own(from, g.Handle)
	r.seen.Store(from.now.UnixNano())
	wrong := r.wrong
	rebuilt, err := r.again(g, from.hello.Session)
	s.counts.mismatched.Add(uint64(r.wrong - wrong))
	if err != nil {
		r.failed, r.told = asError(context.Background(), int(g.Step), err), false
	}
	if rebuilt {
		r.resumed = append(r.resumed, int(g.Step))
	}
	return true
}

func (r *request) own(s *session, handle uint32) {
	r.owner, r.handle = s, handle
	r.held.Store(s != nil)
}

// release takes the request from its owner.
func (r *request) release(s *session, handle uint32) {
	r.work.Lock()
	defer r.work.Unlock()
	if r.owner == s && r.handle == handle {
		r.own(nil, 0)
	}
}

// owned reports whether s is to answer for the request under that handle.
func (r *request) owned(s *session, handle uint32) bool {
	r.work.Lock()
	defer r.work.Unlock()
	return r.owner == s && r.handle == handle && !r.finished
}

// forget ends the request for good, and returns the account of it. A source that is still being opened is not waited for: open ends it. A plugin that
// is idle has the request's handle for long: what is large is let go of.
func (r *request) forget() *backends.DecodeStats {
	r.cancel()
	r.work.Lock()
	defer r.work.Unlock()
	stats := r.stats()
	r.finished = true
	if r.tap != nil {
		r.tap.End()
	}
	r.stream, r.whole, r.tokens = nil, nil, nil
	r.trail, r.tap, r.ledger = &trail{}, nil, nil
	return stats
}

// follow finds or makes the trail of a rid.
func (s *Server) follow(rid string, from int, now time.Time) (*trail, *reader, error) {
	if e := checkRID(rid); e != nil {
		return nil, nil, e
	}
	s.book.mu.Lock()
	e, forget := s.book.at(rid, now)
	defer forget.forget()
	defer s.book.mu.Unlock()
	switch {
	case e == nil:
		return nil, nil, full()
	case e.finished:
		return nil, nil, spent(rid)
	}
	return e.trail, e.trail.follow(from), nil
}

// finish ends the answer to rid: its account, and the rid is spent.
func (s *Server) finish(rid string, now time.Time) *backends.DecodeStats {
	r := s.book.close(rid, now)
	if r == nil {
		return &backends.DecodeStats{Decoder: "plain"}
	}
	return r.forget()
}

// close marks a rid as spent and returns its request; nil where there is none. The book lets go of the trail: whoever still reads it has it, and
// its choices shall not be held for as long as the rid is refused.
func (b *book) close(rid string, now time.Time) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.rids[rid]
	if e == nil || e.finished {
		return nil
	}
	r := e.req
	e.finished, e.req, e.made = true, nil, now
	e.trail.finish()
	e.trail = nil
	return r
}

// stats is the account of the answer.
func (r *request) stats() *backends.DecodeStats {
	s := &backends.DecodeStats{Decoder: "plain", Native: r.native, Mismatched: r.wrong, ContinuedAt: r.resumed}
	if !r.first.IsZero() {
		s.PromptMS, s.DecodeMS = millis(r.begun, r.first), millis(r.first, r.latest)
	}
	if r.tap != nil {
		r.forgetRow()
		account.Describe(s, &r.params, r.tap, r.ledger)
	}
	return s
}

func millis(from, to time.Time) float64 { return float64(to.Sub(from).Microseconds()) / 1000 }
