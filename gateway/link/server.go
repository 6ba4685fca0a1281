package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
	"qr-gateway/entropy/grpc/certs"
	"qr-gateway/entropy/grpc/secret"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// Frames takes frames to the jobs that wait for them: the dispatcher.
type Frames interface {
	// Deliver blocks while the client is behind, until ctx ends. dispatch.ErrGone means that nobody waits for the job any more.
	Deliver(ctx context.Context, frame dispatch.Frame) error
}

// Deps are what a server works with. Log may be nil.
type Deps struct {
	Frames Frames
	Log    *slog.Logger
}

// Server is a gateway's end of its links.
type Server struct {
	linkpb.UnimplementedLinkServer
	cfg    Config
	deps   Deps
	own    side
	secret *secret.Digest // nil: none is asked for
	listen net.Listener
	rpc    *grpc.Server
	counts counts
	tails  sync.WaitGroup // goroutines that outlive their stream's handler for a moment

	mu       sync.Mutex // guards all below
	workers  map[string]*session
	known    map[string]backends.Info // models, as they were announced last
	changed  chan struct{}            // closed when a worker comes, goes or announces, and replaced
	finished finished
}

// New checks the configuration, reads its files and binds the address; workers are served once Run is called. A server that is never run
// is closed with Close.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make link server: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, deps: deps, own: side{"gateway", cfg.Gateway, cfg.Version, Schema()},
		workers: map[string]*session{}, known: map[string]backends.Info{}, changed: make(chan struct{}),
	}
	text, err := secret.Read(cfg.Secret, cfg.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("make link server: %w", err)
	}
	s.secret = secret.DigestOf(text)
	opts, err := s.options(time.Now())
	if err != nil {
		return nil, fmt.Errorf("make link server: %w", err)
	}
	if s.listen, err = listen(cfg.Listen); err != nil {
		return nil, err
	}
	s.rpc = grpc.NewServer(opts...)
	linkpb.RegisterLinkServer(s.rpc, s)
	return s, nil
}

func (s *Server) options(now time.Time) ([]grpc.ServerOption, error) {
	c := &s.cfg
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(messageLimit), grpc.MaxConcurrentStreams(4), grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(c.Handshake), grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(streamWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: c.Silence / 2, Timeout: c.Silence / 2, MaxConnectionIdle: c.Handshake}),
	}
	if c.TLSCert == "" {
		return opts, nil
	}
	tls, err := certs.Server(c.files(), now)
	if err != nil {
		return nil, err
	}
	return append(opts, grpc.Creds(newTold(tls, s.deps.Log, &s.counts.refused))), nil
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.listen.Addr() }

// Owner is the address that workers dial, to be carried by jobs.
func (s *Server) Owner() string { return s.cfg.owner(s.Addr()) }

// Close gives the address up, of a server that is never run.
func (s *Server) Close() error { return s.listen.Close() }

// Run serves until ctx ends or the address fails. Links are cut then: the workers keep what is not taken, for a while.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- s.rpc.Serve(s.listen) })
	s.deps.Log.InfoContext(ctx, "waiting for workers", "address", s.Addr().String())
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve workers on %s: %w", s.Addr(), err)
	}
	s.rpc.Stop()
	serving.Wait()
	s.tails.Wait()
	return err
}

// Connect implements the protocol: it is the life of one link.
func (s *Server) Connect(stream linkpb.Link_ConnectServer) error {
	ctx, stop := context.WithCancelCause(stream.Context())
	defer stop(nil)
	from := caller(ctx)
	if err := s.admit(ctx); err != nil {
		s.refused(ctx, from, "", err)
		return err
	}
	if err := stream.SendHeader(nil); err != nil { // the worker says hello once it has it
		return err
	}
	hello, err := s.hello(ctx, stream)
	if err != nil {
		s.refused(ctx, from, hello.GetWorker(), err)
		return err
	}
	e := newSession(s, hello, from, stop)
	if err := s.enter(ctx, e); err != nil {
		s.refused(ctx, from, hello.Worker, err)
		return status.Error(codes.AlreadyExists, err.Error())
	}
	err = e.serve(ctx, stream)
	s.leave(e)
	s.deps.Log.InfoContext(ctx, "link to worker ended", "worker", hello.Worker, "peer", from, "reason", err)
	if ctx.Err() == nil || stream.Context().Err() != nil {
		return nil
	}
	return status.Error(codes.Unavailable, err.Error())
}

// refused tells the log who is not let in.
func (s *Server) refused(ctx context.Context, from, worker string, err error) {
	s.counts.refused.Add(1)
	s.deps.Log.WarnContext(ctx, "worker refused", "peer", from, "worker", worker, "reason", status.Convert(err).Message())
}

// caller is the address of the other end.
func caller(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}

// admit checks the secret.
func (s *Server) admit(ctx context.Context) error {
	if s.secret == nil {
		return nil
	}
	shown := metadata.ValueFromIncomingContext(ctx, metadataKey)
	if len(shown) != 1 {
		return status.Error(codes.Unauthenticated, "the secret of the gateway is needed: give the worker the same one")
	}
	if !s.secret.Is(shown[0]) {
		return status.Error(codes.Unauthenticated, "the secret is not the gateway's: give the worker the same one")
	}
	return nil
}

// hello waits for the worker to say who it is, and checks that.
func (s *Server) hello(ctx context.Context, stream linkpb.Link_ConnectServer) (*linkpb.Hello, error) {
	type first struct {
		m   *linkpb.FromWorker
		err error
	}
	got := make(chan first, 1)
	s.tails.Go(func() { // ends with the handler at the latest
		m, err := stream.Recv()
		got <- first{m, err}
	})
	late := time.NewTimer(s.cfg.Handshake)
	defer late.Stop()
	select {
	case f := <-got:
		if f.err != nil {
			return nil, f.err
		}
		return s.check(f.m.GetHello())
	case <-late.C:
		return nil, status.Error(codes.DeadlineExceeded, errHandshake.Error())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Server) check(h *linkpb.Hello) (*linkpb.Hello, error) {
	if h == nil {
		return nil, status.Error(codes.InvalidArgument, "the link began with another message than a hello")
	}
	if err := skew(s.own, side{"worker", h.Worker, h.Version, h.Schema}); err != nil {
		return h, status.Error(codes.FailedPrecondition, err.Error())
	}
	if !goodName(h.Worker) || h.Instance == "" {
		return h, status.Errorf(codes.InvalidArgument, "name of the worker is %.150q; it takes 1 to %d visible characters", h.Worker, maxNameBytes)
	}
	return h, nil
}

// errReplaced ends a stream whose worker is back on another.
var errReplaced = errors.New("the worker has connected again")

// enter makes e the stream of its worker. One before, of the same worker, is ended first: once nothing of it is delivered any more, what
// comes on the new one can't be overtaken by it.
func (s *Server) enter(ctx context.Context, e *session) error {
	for {
		old := s.place(e)
		if old == nil {
			return nil
		}
		if old.hello.Instance != e.hello.Instance {
			return fmt.Errorf("a worker %s is connected from %s already: give this one another name", e.hello.Worker, old.peer)
		}
		old.stop(errReplaced)
		select {
		case <-old.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// place puts e in its place, or returns who has it.
func (s *Server) place(e *session) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.workers[e.hello.Worker]; old != nil {
		return old
	}
	s.workers[e.hello.Worker] = e
	return nil
}

func (s *Server) leave(e *session) {
	s.mu.Lock()
	delete(s.workers, e.hello.Worker)
	s.tell()
	s.mu.Unlock()
	close(e.done)
}

// tell wakes those who wait for a worker. The mutex is held.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}
