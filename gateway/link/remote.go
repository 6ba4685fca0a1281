package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// remote is a model that workers host, as the gateway's edge sees it.
type remote struct {
	server *Server
	model  string
}

// Backend is a model that workers host. It prepares requests on one of them. It generates nothing: jobs go through the queue. The model need not be
// known yet.
func (s *Server) Backend(model string) backends.Backend { return &remote{s, model} }

// Info implements [backends.Backend], from what the workers have announced.
func (r *remote) Info() backends.Info { return r.server.info(r.model) }

// Generate implements [backends.Backend]. It is an error.
func (r *remote) Generate(context.Context, *backends.Prepared, func(backends.Event) error) (*backends.Result, error) {
	return nil, &backends.Error{
		Kind: backends.KindInternal, Code: "internal_error", Message: fmt.Sprintf("model %s runs on workers only, by way of the queue", r.model),
	}
}

// What ends the preparing on one worker, so that another one may do it.
var (
	errWorkerGone = errors.New("the link to the worker ended while it prepared the request")
	errSlow       = errors.New("the worker took too long to prepare the request")
)

// Prepare implements [backends.Backend]. It waits a while for a worker, and asks another one when the first fails.
func (r *remote) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	data, err := packRequest(req)
	if err != nil {
		return nil, err
	}
	s := r.server
	search := search{server: s, model: r.model, until: time.Now().Add(s.cfg.Wait), tried: map[*session]bool{}}
	for {
		e, others, err := search.next(ctx)
		if err != nil {
			return nil, err
		}
		p, err := s.prepareOn(ctx, e, others, &linkpb.Prepare{Model: r.model, Request: data})
		if err == nil || !elsewhere(ctx, err) {
			return p, err
		}
		search.tried[e], search.last = true, err
		s.counts.retries.Add(1)
		s.deps.Log.InfoContext(ctx, "prepare on another worker", "model", r.model, "request", req.ID, "worker", e.hello.Worker, "reason", err)
	}
}

// elsewhere reports an error that another worker may not have.
func elsewhere(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if e, ok := errors.AsType[*backends.Error](err); ok {
		return e.Kind == backends.KindUnavailable || e.Kind == backends.KindLost
	}
	return errors.Is(err, errWorkerGone) || errors.Is(err, errSlow)
}

// search looks for workers, one after the other.
type search struct {
	server *Server
	model  string
	until  time.Time
	tried  map[*session]bool
	last   error // of the worker tried last
}

// next waits for a worker that was not tried, and reports whether there are more.
func (s *search) next(ctx context.Context) (e *session, others bool, err error) {
	late := time.NewTimer(time.Until(s.until))
	defer late.Stop()
	for {
		s.server.mu.Lock()
		changed := s.server.changed
		s.server.mu.Unlock()
		if fit := s.fit(); len(fit) > 0 {
			return fit[0].session, len(fit) > 1, nil
		}
		if s.last != nil && !errors.Is(s.last, errWorkerGone) {
			return nil, false, s.failed()
		}
		select {
		case <-changed:
		case <-late.C:
			return nil, false, s.failed()
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (s *search) fit() []host {
	var out []host
	for _, h := range s.server.hosts(s.model) {
		if !s.tried[h.session] && h.asks < s.server.cfg.MaxPrepares {
			out = append(out, h)
		}
	}
	return out
}

// failed says why there is no worker.
func (s *search) failed() error {
	if e, ok := errors.AsType[*backends.Error](s.last); ok {
		return e
	}
	why := s.server.info(s.model)
	message := fmt.Sprintf("model %s can't serve now: %s", s.model, why.Reason)
	switch {
	case s.last != nil:
		message = fmt.Sprintf("model %s can't serve now: %v", s.model, s.last)
	case why.State != "unreachable":
		message = fmt.Sprintf("model %s can't serve now: all its workers are busy preparing requests", s.model)
	}
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "model_unavailable", Param: "model", Message: message, Hint: "try again in a while", Err: s.last,
	}
}

// prepareOn has one worker prepare a request, within a limit if there is another one.
func (s *Server) prepareOn(ctx context.Context, e *session, others bool, m *linkpb.Prepare) (*backends.Prepared, error) {
	if others {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, s.cfg.PrepareTry, errSlow)
		defer stop()
	}
	s.counts.prepares.Add(1)
	answer, err := e.ask(ctx, m)
	if err != nil {
		return nil, err
	}
	switch what := answer.What.(type) {
	case *linkpb.Prepared_Prepared:
		return dispatch.Unpack(what.Prepared)
	case *linkpb.Prepared_Error:
		failure, err := unpackError(what.Error)
		if err != nil {
			return nil, fmt.Errorf("decode error of worker %s: %w", e.hello.Worker, err)
		}
		return nil, failure
	default:
		return nil, fmt.Errorf("prepare on worker %s: %w: the answer is empty", e.hello.Worker, errProtocol)
	}
}

// ask sends a request to the worker and waits for its answer. When ctx ends first, the worker is told.
func (e *session) ask(ctx context.Context, m *linkpb.Prepare) (*linkpb.Prepared, error) {
	if err := checkSize("request", m, limitOf(e.server.cfg.MaxMessage, e.hello.MaxMessage)); err != nil {
		return nil, requestTooLarge(err)
	}
	got := e.begin(m)
	if got == nil {
		return nil, errWorkerGone
	}
	defer e.forget(m.Number)
	e.send(&linkpb.FromGateway{What: &linkpb.FromGateway_Prepare{Prepare: m}})
	select {
	case a := <-got:
		return a, nil
	case <-e.over:
		return nil, errWorkerGone
	case <-ctx.Done():
		e.send(&linkpb.FromGateway{What: &linkpb.FromGateway_Drop{Drop: &linkpb.Drop{Number: m.Number}}})
		return nil, context.Cause(ctx)
	}
}

// begin numbers a request and returns where its answer will be; nil where the stream is over.
func (e *session) begin(m *linkpb.Prepare) <-chan *linkpb.Prepared {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.number++
	m.Number = e.number
	got := make(chan *linkpb.Prepared, 1)
	e.asks[m.Number] = got
	return got
}

// forget gives a request's place up, and tells those who wait for one.
func (e *session) forget(number uint64) {
	e.mu.Lock()
	delete(e.asks, number)
	e.mu.Unlock()
	e.server.mu.Lock()
	e.server.tell()
	e.server.mu.Unlock()
}

// answer takes an answer. One that nobody waits for is dropped.
func (e *session) answer(a *linkpb.Prepared) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if got := e.asks[a.Number]; got != nil {
		delete(e.asks, a.Number)
		got <- a
	}
}
