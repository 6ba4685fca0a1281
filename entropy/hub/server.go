package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/hub/hubpb"
)

// maxSocketDir leaves room for the socket's name: systems allow paths of about 104 bytes.
const maxSocketDir = 90

// Config is where a server listens.
type Config struct {
	Dir string // an existing folder of this user's alone, e.g. one of os.MkdirTemp; the socket in it is removed at the end
}

// Validate checks the folder.
func (c *Config) Validate() error {
	info, err := os.Stat(c.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("check socket directory: %w", err)
	case !info.IsDir() || info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("check socket directory: %s must be a directory that nobody else can enter; its mode is %v, and 0700 is wanted", c.Dir, info.Mode())
	case len(c.Dir) > maxSocketDir:
		return fmt.Errorf("check socket directory: %s is too long for a socket's path; set TMPDIR to a shorter one", c.Dir)
	}
	return nil
}

// Deps is what a server works with.
type Deps struct {
	Sources Provider
	Log     *slog.Logger
}

// Server lends sources on a Unix socket.
type Server struct {
	hubpb.UnimplementedHubServer
	deps   Deps
	path   string
	listen net.Listener
}

// New opens the socket, for this user alone; engines may connect as soon as it returns, and are served once Run is called. A server that
// is never run is closed with Close.
func New(ctx context.Context, cfg Config, d Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.Dir, "entropy.sock")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), l.Close())
	}
	return &Server{deps: d, path: path, listen: l}, nil
}

// Path is the socket's.
func (s *Server) Path() string { return s.path }

// Close gives up the socket of a server that was not run.
func (s *Server) Close() error { return s.listen.Close() }

// Run serves until ctx ends. It returns when every draw under way has been told so and has ended.
func (s *Server) Run(ctx context.Context) error {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(1<<16), grpc.MaxSendMsgSize(maxMessage), // requests are small
		grpc.WriteBufferSize(writeBuffer), grpc.WaitForHandlers(true),
	)
	hubpb.RegisterHubServer(srv, s)
	defer context.AfterFunc(ctx, srv.Stop)()
	if err := srv.Serve(s.listen); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve entropy on %s: %w", s.path, err)
	}
	srv.Stop() // waits for the handlers
	return nil
}

// writeBuffer takes the usual draw of 20,480 bytes in one write.
const writeBuffer = 64 << 10

// Describe implements the protocol.
func (s *Server) Describe(ctx context.Context, req *hubpb.DescribeRequest) (*hubpb.DescribeResponse, error) {
	src, ok := s.deps.Sources.Source(req.Source)
	if !ok {
		return nil, describeStatus(req.Source, unknown(req.Source))
	}
	d, err := s.deps.Sources.Describe(ctx, req.Source, Blocks{Count: int(req.Blocks), Bytes: int(req.BlockBytes)})
	if err != nil {
		return nil, describeStatus(req.Source, err)
	}
	_, d.Ahead = src.(entropy.Ahead)
	return describe(d), nil
}

// describeStatus carries an error of a source through a status.
func describeStatus(source string, err error) error {
	st, bad := status.New(codes.FailedPrecondition, err.Error()).WithDetails(packError(source, err))
	if bad != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return st.Err()
}

func unknown(name string) *entropy.Error {
	return &entropy.Error{
		Kind: entropy.KindConfig, Source: name, Message: fmt.Sprintf("no source is called %q", name),
		Hint: "name a source of the configuration",
	}
}
