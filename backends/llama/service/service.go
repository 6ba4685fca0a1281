// Package service is the gRPC service of an engine process: one model, loaded once, and the pool of workers that runs
// requests on it. [Service.Run] owns the server, the model and the workers, and has ended all of them when it returns.
// The handlers run on gRPC's goroutines; what they share is the loaded model, set once.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/llama/engine"
	pb "qr-gateway/backends/llama/enginepb"
)

// Deps is what the service needs from its process.
type Deps struct {
	Entropy account.Supplier
	Log     *slog.Logger
	// Processors limits the threads that run Go at once; nil leaves that as it is. A CPU engine asks for one: what Go has to do between
	// two decodes is little, and the scheduler of one with an idle second wakes up dozens of times in every decode of over 10 ms
	// to look after it, each time on a core that llama.cpp's threads wait for each other on.
	Processors func(n int)
}

// Model is what requests need of a loaded model besides the workers.
type Model interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error)
	ApplyTemplate(engine.ChatInput) (engine.ChatPrompt, error)
}

// Service implements the engine's protocol.
type Service struct {
	pb.UnimplementedEngineServiceServer
	deps   Deps
	mu     sync.Mutex // guards loads
	loads  int
	loaded atomic.Pointer[loaded]
	handed chan *loaded // from Load to Run
	ended  chan struct{}
}

// New makes a service without a model.
func New(d Deps) *Service {
	return &Service{deps: d, handed: make(chan *loaded), ended: make(chan struct{})}
}

// Run serves on l until ctx ends, then cancels all requests and frees the model.
func (s *Service) Run(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(pb.MaxMessage), grpc.MaxSendMsgSize(pb.MaxMessage),
		grpc.UnaryInterceptor(s.guardUnary), grpc.StreamInterceptor(s.guardStream),
		grpc.WaitForHandlers(true),
	)
	alive := health.NewServer()
	healthpb.RegisterHealthServer(server, alive)
	pb.RegisterEngineServiceServer(server, s)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(l) })
	g.Go(func() error { return s.runWorkers(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		alive.Shutdown()
		server.Stop()
		return nil
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("serve engine: %w", err)
	}
	return nil
}

// runWorkers waits for the model and runs its workers. The model is freed at the end, when nothing uses it any more.
func (s *Service) runWorkers(ctx context.Context) error {
	defer close(s.ended)
	select {
	case <-ctx.Done():
		return nil
	case m := <-s.handed:
		err := m.pool.Run(ctx)
		m.close()
		return err
	}
}

// ready is the loaded model.
func (s *Service) ready() (*loaded, error) {
	if m := s.loaded.Load(); m != nil {
		return m, nil
	}
	return nil, &backends.Error{Kind: backends.KindUnavailable, Code: "model_not_loaded", Message: "no model is loaded yet"}
}

// Load implements the protocol.
func (s *Service) Load(ctx context.Context, req *pb.LoadRequest) (*pb.LoadResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads++; s.loads > 1 {
		return nil, pb.ToStatus(&backends.Error{
			Kind: backends.KindInvalid, Code: "already_loaded", Message: "a process loads one model once", Hint: "start another engine",
		})
	}
	m, res, err := s.load(ctx, req)
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	select {
	case s.handed <- m:
	case <-s.ended:
		m.close()
		return nil, pb.ToStatus(errors.New("load model: the engine is stopping"))
	}
	s.loaded.Store(m)
	return res, nil
}

// Stats implements the protocol.
func (s *Service) Stats(context.Context, *pb.StatsRequest) (*pb.StatsResponse, error) {
	m, err := s.ready()
	if err != nil {
		return nil, pb.ToStatus(err)
	}
	st := m.pool.Stats(time.Now())
	res := &pb.StatsResponse{
		Decodes: st.Decodes, Tokens: st.Tokens, Peeks: st.Peeks, Ready: st.Tokens > 0, IdleMs: st.Idle.Milliseconds(),
	}
	for i, w := range st.Workers {
		ws := &pb.WorkerStats{
			Worker: uint32(i), State: w.State, RequestId: w.Request, CellsUsed: uint32(w.Used), Cells: uint32(w.Cells),
		}
		if w.Request == "" {
			ws.Prefix = ws.CellsUsed
		}
		res.Workers = append(res.Workers, ws)
	}
	return res, nil
}

// guardUnary turns a panic of a handler into an error of that request alone.
func (s *Service) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() { s.guard(info.FullMethod, recover(), &err) }()
	return next(ctx, req)
}

// guardStream does the same for streams.
func (s *Service) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() { s.guard(info.FullMethod, recover(), &err) }()
	return next(srv, stream)
}

func (s *Service) guard(method string, panicked any, err *error) {
	if panicked == nil {
		return
	}
	s.deps.Log.Error("handler panicked", "method", method, "panic", panicked, "stack", string(debug.Stack()))
	*err = pb.ToStatus(fmt.Errorf("%s panicked: %v", method, panicked))
}
