// Package server hands out the bytes of one entropy source over gRPC, by the published protocol: blocks one by one or in a stream, numbers
// that it integrates itself, and the health service. It is what `qr-gateway entropy serve` runs, and a library for those who make devices:
// implement [entropy.Source], call [New] and Run. See the example.
//
// The server owns the source: Run closes it, after the last request has ended. Each request is served by the goroutine of its call or
// stream; requests of one stream are served one after the other. The source is called by many at once.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropypb"
	"qr-gateway/entropy/grpc/certs"
)

// Deps are what a server works with; all but Source may be nil.
type Deps struct {
	Source entropy.Source
	Log    *slog.Logger
	Now    func() time.Time
	Dice   func() float64 // uniform in [0, 1); for faults by probability
}

// Server serves one source. Make it with [New], then call Run once.
type Server struct {
	cfg       Config
	deps      Deps
	rpc       *grpc.Server
	health    *health.Server
	listeners []*listener
	gate      *gate
	faults    *faults
	outage    outage
}

// New checks the configuration, reads its files and binds its addresses, so that whoever it returns to may already call. On an error
// nothing stays bound, and the source is the caller's.
func New(cfg Config, deps Deps) (*Server, error) {
	if deps.Source == nil {
		return nil, errors.New("make entropy server: there is no source")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make entropy server: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Server{cfg: cfg, deps: deps, gate: newGate(), outage: outage{log: deps.Log, now: deps.Now}, faults: newFaults(cfg.Faults, deps.Dice), health: health.NewServer()}
	opts, err := s.options()
	if err != nil {
		return nil, fmt.Errorf("make entropy server: %w", err)
	}
	if s.listeners, err = listenAll(cfg); err != nil {
		return nil, fmt.Errorf("make entropy server: %w", err)
	}
	s.rpc = grpc.NewServer(opts...)
	s.register()
	return s, nil
}

func (s *Server) options() ([]grpc.ServerOption, error) {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(64 << 10), // requests are small
		grpc.MaxConcurrentStreams(1024),
		// Fixed windows: finding them out takes a ping with every request. A buffer that takes a reply in one piece.
		grpc.InitialWindowSize(64 << 10), grpc.InitialConnWindowSize(1 << 20), grpc.WriteBufferSize(64 << 10),
	}
	keys, err := s.cfg.keys()
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		k := newKeyring(s.cfg.APIKeyHeader, keys)
		opts = append(opts, grpc.UnaryInterceptor(k.unary), grpc.StreamInterceptor(k.stream))
	}
	if s.cfg.TLSCert != "" {
		tls, err := certs.Server(s.cfg.files(), s.deps.Now())
		if err != nil {
			return nil, err
		}
		opts = append(opts, grpc.Creds(credentials.NewTLS(tls)))
	}
	return opts, nil
}

func (s *Server) register() {
	entropypb.RegisterEntropyServiceServer(s.rpc, &blocks{server: s})
	entropypb.RegisterPurityServiceServer(s.rpc, &draws{server: s})
	grpc_health_v1.RegisterHealthServer(s.rpc, s.health)
	s.SetHealthy(true)
	if s.cfg.Reflection {
		reflection.Register(s.rpc)
	}
}

// Addrs are the bound addresses, in the form that clients take.
func (s *Server) Addrs() []string {
	var out []string
	for _, l := range s.listeners {
		out = append(out, l.String())
	}
	return out
}

// SetHealthy tells callers of the health service whether the source works. Failed draws alone don't: a caller that waits for health would
// never find out that the source is back.
func (s *Server) SetHealthy(ok bool) {
	status := grpc_health_v1.HealthCheckResponse_SERVING
	if !ok {
		status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	for _, name := range []string{"", entropypb.EntropyService_ServiceDesc.ServiceName, entropypb.PurityService_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, status)
	}
}

// Run serves until ctx ends or an address fails. It lets requests under way end within the grace period, then closes the source.
func (s *Server) Run(ctx context.Context) error {
	var group errgroup.Group
	failed := make(chan struct{}, len(s.listeners))
	for _, l := range s.listeners {
		s.deps.Log.Info("entropy server listens", "address", l.String())
		group.Go(func() error {
			err := s.rpc.Serve(l.Listener)
			if err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
				failed <- struct{}{}
				return fmt.Errorf("serve %s: %w", l, err)
			}
			return nil
		})
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	s.stop()
	err := group.Wait()
	for _, l := range s.listeners {
		err = errors.Join(err, l.remove())
	}
	if c, ok := s.deps.Source.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// flush is how long replies that are written may take to leave.
const flush = 50 * time.Millisecond

// stop ends requests under way in peace: new ones are refused, streams end after the reply they are at. Streams on which nobody asks are
// cut, once nothing is under way, as are requests that take longer than the grace period.
func (s *Server) stop() {
	s.health.Shutdown()
	idle := s.gate.close()
	ended := make(chan struct{})
	go func() {
		s.rpc.GracefulStop()
		close(ended)
	}()
	grace := time.NewTimer(s.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-idle:
		cut := time.NewTimer(flush)
		defer cut.Stop()
		select {
		case <-ended:
		case <-cut.C:
		}
	}
	s.rpc.Stop()
	<-ended
}

var _ net.Listener = (*listener)(nil)
