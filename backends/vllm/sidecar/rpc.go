package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/sidecarpb"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/secret"
)

const (
	maxMessage = wire.MaxBody + 4096 // bytes
	streamSize = 1 << 20             // bytes that a side may send ahead of the other's reading
	pulse      = 10 * time.Second    // between signs of life on a quiet connection
)

// service is the gRPC side of a server.
type service struct {
	sidecarpb.UnimplementedSidecarServer
	server *Server
	secret *secret.Digest // nil: none is asked for
}

// bindRPC makes the service and binds its address.
func (s *Server) bindRPC() error {
	text, err := secret.Read(s.cfg.Secret, s.cfg.SecretFile)
	if err != nil {
		return err
	}
	v := &service{server: s, secret: secret.DigestOf(text)}
	opts, err := s.cfg.options(time.Now())
	if err != nil {
		return err
	}
	if s.listen, err = listenRPC(s.cfg.Listen); err != nil {
		return err
	}
	s.rpc = grpc.NewServer(append(opts,
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(16<<10), grpc.WaitForHandlers(true),
		grpc.InitialWindowSize(streamSize), grpc.InitialConnWindowSize(streamSize), grpc.ConnectionTimeout(greeting),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pulse, Timeout: pulse}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pulse / 2, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(v.unary), grpc.StreamInterceptor(v.stream),
	)...)
	sidecarpb.RegisterSidecarServer(s.rpc, v)
	return nil
}

func listenRPC(text string) (net.Listener, error) {
	a, err := address.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if a.Network == "unix" && a.Path[0] != '@' {
		l, err := listenUnix(a.Path, 0o600)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), a.Network, a.Dial())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", text, err)
	}
	return l, nil
}

// serveRPC serves until ctx ends.
func (s *Server) serveRPC(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.rpc.Stop)()
	if err := s.rpc.Serve(s.listen); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// admit checks the secret.
func (v *service) admit(ctx context.Context) error {
	if v.secret == nil {
		return nil
	}
	shown := metadata.ValueFromIncomingContext(ctx, secretKey)
	if len(shown) == 1 && v.secret.Is(shown[0]) {
		return nil
	}
	v.server.counts.refusals.Add(1)
	return status.Error(codes.Unauthenticated, "the secret of the sidecar is needed: give both sides the same one")
}

func (v *service) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := v.admit(ctx); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (v *service) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := v.admit(s.Context()); err != nil {
		return err
	}
	return next(srv, s)
}

// framed is a plugin's connection over gRPC.
type framed struct {
	stream sidecarpb.Sidecar_SessionServer
}

func (f framed) next() (wire.Frame, error) {
	m, err := f.stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			err = io.EOF
		}
		return wire.Frame{}, err
	}
	return toFrame(m)
}

func (f framed) send(frame []byte) error { return f.stream.Send(fromFrame(frame)) }

// Session implements the service: it is the life of one plugin.
func (v *service) Session(stream sidecarpb.Sidecar_SessionServer) error {
	s, l, ctx := v.server, framed{stream}, stream.Context()
	hello, err := readHello(l.next())
	if err != nil {
		s.end(ctx, l, nil, err)
		return nil
	}
	c := newSession(s, hello)
	c.inline = true
	if err = s.welcome(l); err == nil {
		err = s.run(ctx, c, l)
	}
	s.end(ctx, l, c, err)
	return nil
}

// Follow implements the service.
func (v *service) Follow(req *sidecarpb.FollowRequest, stream sidecarpb.Sidecar_FollowServer) error {
	ctx := stream.Context()
	t, r, err := v.server.follow(req.Rid, int(req.From), time.Now())
	if err != nil {
		return v.refused(err)
	}
	defer t.leave(r)
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		c, err := t.next(ctx, r)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, ErrFollowed):
			return status.Error(codes.Aborted, err.Error())
		case err != nil:
			return status.FromContextError(err).Err()
		}
		if err := stream.Send(fromChoice(&c)); err != nil {
			return err
		}
	}
}

// refused puts an error of the server into gRPC's form.
func (v *service) refused(err error) error {
	code := codes.Internal
	if e, ok := errors.AsType[*backends.Error](err); ok {
		code = codes.InvalidArgument
		if e.Kind == backends.KindUnavailable {
			code = codes.ResourceExhausted
		}
	}
	return status.Error(code, err.Error())
}

// Finish implements the service.
func (v *service) Finish(_ context.Context, req *sidecarpb.FinishRequest) (*sidecarpb.FinishReply, error) {
	data, err := json.Marshal(v.server.finish(req.Rid, time.Now()))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &sidecarpb.FinishReply{Stats: data}, nil
}

// Engines implements the service.
func (v *service) Engines(_ *sidecarpb.EnginesRequest, stream sidecarpb.Sidecar_EnginesServer) error {
	for {
		all, changed := v.server.engines()
		if err := stream.Send(fromEngines(all)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}
