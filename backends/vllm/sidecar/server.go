// Package sidecar chooses tokens for vLLM. A plugin in the engine process shows the rows of logits of each step, and is told the tokens; see package
// wire for what they say to each other. Whoever sent a request to the engine follows what is chosen for it, in this process or over gRPC.
//
// A [Server] has one goroutine for each connection, which owns that connection's state; requests belong to the server and outlive
// connections. See design.md for the life of both.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/vllm/choice"
)

// Deps are what a sidecar works with. Log may be nil.
type Deps struct {
	Sources account.Supplier
	Log     *slog.Logger
}

// Server is a sidecar.
type Server struct {
	cfg    Config
	deps   Deps
	plugs  *net.UnixListener // nil: none
	rpc    *grpc.Server      // nil: none
	listen net.Listener      // of rpc
	book   *book
	counts counts
	slow   slowSources
	rows   scratch
	users  map[int]bool                     // that may connect
	user   func(*net.UnixConn) (int, error) // of a connection
	work   sync.WaitGroup                   // everything that Run started

	mu       sync.Mutex // guards all below
	sessions map[*session]struct{}
	changed  chan struct{} // closed when a plugin comes or goes, and replaced
}

// New checks the configuration, reads its files and binds the addresses; plugins are served once Run is called. A server that is never run is
// closed with Close.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make sidecar: %w", err)
	}
	s := unbound(cfg, deps)
	if err := s.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("make sidecar: %w", err), s.Close())
	}
	return s, nil
}

// unbound is a server without addresses.
func unbound(cfg Config, deps Deps) *Server {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, deps: deps, book: newBook(cfg.Keep, cfg.Requests), users: users(cfg.UIDs), user: userOf,
		sessions: map[*session]struct{}{}, changed: make(chan struct{}),
	}
}

func (s *Server) bind() (err error) {
	if s.cfg.Socket != "" {
		if s.plugs, err = listenPlugs(s.cfg.Socket, len(s.cfg.UIDs) > 0); err != nil {
			return err
		}
	}
	if s.cfg.Listen != "" {
		return s.bindRPC()
	}
	return nil
}

// Addr is the bound address of the gRPC service; nil where there is none.
func (s *Server) Addr() net.Addr {
	if s.listen == nil {
		return nil
	}
	return s.listen.Addr()
}

// Close gives the addresses up, of a server that is never run.
func (s *Server) Close() error {
	var err error
	if s.plugs != nil {
		err = s.plugs.Close()
	}
	if s.listen != nil {
		err = errors.Join(err, s.listen.Close())
	}
	return err
}

// Run serves until ctx ends or an address fails, and returns when all that it started has ended. Plugins whose connection is cut know what to do.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer s.forgetAll()
	defer s.work.Wait()
	defer stop()
	failed := make(chan error, 2)
	if s.plugs != nil {
		s.work.Go(func() { failed <- s.accept(ctx) })
	}
	if s.rpc != nil {
		s.work.Go(func() { failed <- s.serveRPC(ctx) })
	}
	sweep := time.NewTicker(max(s.cfg.Keep/4, time.Second/4))
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case now := <-sweep.C:
			s.book.sweep(now)
		}
	}
}

// forgetAll ends every request and trail.
func (s *Server) forgetAll() {
	s.book.mu.Lock()
	all := s.book.rids
	s.book.rids = map[string]*entry{}
	s.book.mu.Unlock()
	for _, e := range all {
		e.forget()
	}
}

// join and leave keep account of the connections.
func (s *Server) join(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[c] = struct{}{}
	s.announce()
}

func (s *Server) leave(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	s.announce()
}

func (s *Server) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stats is what was done and what there is now.
func (s *Server) Stats() Stats {
	out := s.counts.stats()
	out.Kept = s.book.size()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Sessions = len(s.sessions)
	for c := range s.sessions {
		out.Live += int(c.live.Load())
	}
	return out
}

// Engines are the engine processes whose plugins are connected now.
func (s *Server) Engines() []choice.Engine {
	all, _ := s.engines()
	return all
}

// engines also returns what is closed once there are others.
func (s *Server) engines() ([]choice.Engine, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []choice.Engine
	for c := range s.sessions {
		h := c.hello
		all = append(all, choice.Engine{
			Session: h.Session, VLLM: h.VLLM, Runner: h.Runner, Rows: h.Rows, Model: h.Model, Vocab: h.Vocab, MaxModelLen: h.MaxModelLen, DPRank: h.DPRank,
			Live: int(c.live.Load()),
		})
	}
	return all, s.changed
}

// following is a trail that is followed in this process.
type following struct {
	server *Server
	rid    string
	trail  *trail
	reader *reader
}

// Follow reads the choices of the answer to rid, from the token with that index on. It is called before the request is sent to the engine, and is the
// only one that follows. Errors are *[backends.Error].
func (s *Server) Follow(_ context.Context, rid string, from int) (choice.Trail, error) {
	t, r, err := s.follow(rid, from, time.Now())
	if err != nil {
		return nil, err
	}
	return &following{s, rid, t, r}, nil
}

// Next implements [choice.Trail]. The error is [ErrFollowed] where somebody else has begun to follow the answer.
func (t *following) Next(ctx context.Context) (choice.Choice, error) {
	return t.trail.next(ctx, t.reader)
}

// Finish implements [choice.Trail]. It waits for no source: for the row that is being decided at most.
func (t *following) Finish(context.Context) (*backends.DecodeStats, error) {
	return t.server.finish(t.rid, time.Now()), nil
}
