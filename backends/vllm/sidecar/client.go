package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecarpb"
	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/secret"
)

// Client follows a sidecar elsewhere. It is safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	log     *slog.Logger
	secret  string
	conn    *grpc.ClientConn
	api     sidecarpb.SidecarClient
	engines atomic.Pointer[[]choice.Engine]
}

// NewClient checks the configuration and reads its files. Nothing is dialled before it is needed. log may be nil.
func NewClient(cfg ClientConfig, log *slog.Logger) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make client of sidecar: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, log: log}
	var err error
	if c.secret, err = secret.Read(cfg.Secret, cfg.SecretFile); err == nil {
		c.conn, err = cfg.dial(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("make client of sidecar: %w", err)
	}
	c.api = sidecarpb.NewSidecarClient(c.conn)
	return c, nil
}

// dial makes the connection, which comes to be when it is needed.
func (c *ClientConfig) dial(now time.Time) (*grpc.ClientConn, error) {
	transport, err := c.transport(now)
	if err != nil {
		return nil, err
	}
	a, err := address.Parse(c.Address)
	if err != nil {
		return nil, err
	}
	target := "passthrough:///" + a.Dial()
	if a.Network == "unix" {
		target = "passthrough:///localhost"
	}
	again := backoff.Config{BaseDelay: c.BackoffMin, Multiplier: 2, Jitter: 0.2, MaxDelay: c.BackoffMax}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(transport), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: c.Connect}),
		grpc.WithInitialWindowSize(streamSize), grpc.WithInitialConnWindowSize(streamSize),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pulse, Timeout: pulse / 2}), // a connection whose other end is gone shall not look well
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, a.Network, a.Dial())
		}))
}

// Run keeps the list of engines until ctx ends, and then closes the connection: trails that are still followed fail.
func (c *Client) Run(ctx context.Context) error {
	wait := c.cfg.BackoffMin
	for ctx.Err() == nil {
		heard, err := c.watch(ctx)
		if ctx.Err() != nil {
			break
		}
		c.engines.Store(nil)
		if heard {
			wait = c.cfg.BackoffMin
		}
		c.log.DebugContext(ctx, "sidecar can't be asked for its engines", "address", c.cfg.Address, "error", err)
		pause(ctx, wait)
		wait = min(2*wait, c.cfg.BackoffMax)
	}
	c.engines.Store(nil)
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("close client of sidecar: %w", err)
	}
	return nil
}

// watch takes lists of engines until there is none more.
func (c *Client) watch(ctx context.Context) (heard bool, err error) {
	stream, err := c.api.Engines(c.with(ctx), &sidecarpb.EnginesRequest{})
	if err != nil {
		return false, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		all := toEngines(m)
		c.engines.Store(&all)
	}
}

// with shows the secret.
func (c *Client) with(ctx context.Context) context.Context {
	if c.secret == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, secretKey, c.secret)
}

// Engines are the engine processes whose plugins are connected to the sidecar, as it said last. It never waits.
func (c *Client) Engines() []choice.Engine {
	if all := c.engines.Load(); all != nil {
		return *all
	}
	return nil
}

// Follow reads the choices of the answer to rid, from the step from on. Once it returns, nothing is missed. Errors are *[backends.Error].
func (c *Client) Follow(ctx context.Context, rid string, from int) (choice.Trail, error) {
	t := &remote{client: c, rid: rid, from: from}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Connect)
	defer cancel()
	if err := t.dial(ctx); err != nil {
		return nil, c.asError(err)
	}
	return t, nil
}

// asError says what a failed call means. Where the sidecar is and what the network said is not for everybody: that is in Err.
func (c *Client) asError(err error) *backends.Error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return invalid("invalid_value", "qr_rid", "", "%s", s.Message())
	case codes.ResourceExhausted:
		return &backends.Error{Kind: backends.KindUnavailable, Code: "sidecar_full", Message: s.Message(), Err: err}
	default:
	}
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "sidecar_unavailable", Message: "the sidecar of this model can't be reached",
		Hint: "start it at its address, and give both sides the same secret", Err: fmt.Errorf("call sidecar at %s: %w", c.cfg.Address, err),
	}
}

// remote is a trail that is followed over gRPC.
type remote struct {
	client *Client
	rid    string
	from   int // step of the next choice that is wanted
	last   choice.Choice
	read   bool // last was
	anew   bool // the stream is not the first: it begins with last
	stream sidecarpb.Sidecar_FollowClient
	stop   context.CancelFunc
	over   bool
}

// dial follows, and returns once the sidecar has said so. The stream outlives ctx.
func (t *remote) dial(ctx context.Context) error {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, stop)
	stream, err := t.client.api.Follow(t.client.with(own), &sidecarpb.FollowRequest{Rid: t.rid, From: int64(t.from)})
	if err == nil {
		var header metadata.MD
		if header, err = stream.Header(); err == nil && header == nil {
			_, err = stream.Recv() // the reason
		}
	}
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return err
	}
	t.stream, t.stop = stream, stop
	return nil
}

// Next implements [choice.Trail]. A connection that is lost is made again; choices of the time between may be missing where the sidecar was
// started anew.
func (t *remote) Next(ctx context.Context) (choice.Choice, error) {
	wait := t.client.cfg.BackoffMin
	for {
		c, err := t.recv(ctx)
		switch {
		case err == nil:
			if t.told(&c) {
				continue
			}
			return c, nil
		case errors.Is(err, io.EOF) || ctx.Err() != nil || t.over:
			return choice.Choice{}, t.ended(ctx, err)
		case status.Code(err) == codes.Aborted:
			return choice.Choice{}, ErrFollowed
		case status.Code(err) == codes.InvalidArgument, status.Code(err) == codes.Unauthenticated:
			return choice.Choice{}, t.client.asError(err)
		}
		pause(ctx, wait)
		wait = min(2*wait, t.client.cfg.BackoffMax)
	}
}

// told takes a choice in, and reports whether it was read on an earlier stream.
func (t *remote) told(c *choice.Choice) bool {
	l := &t.last
	again := t.anew && t.read && c.Step == l.Step && c.Token == l.Token && c.Status == l.Status && c.Void == l.Void
	t.anew, t.read, t.last, t.from = false, true, *c, c.Step
	return again
}

func (t *remote) ended(ctx context.Context, err error) error {
	if t.over || errors.Is(err, io.EOF) {
		t.over = true
		return io.EOF
	}
	return ctx.Err()
}

// recv reads one choice, on a new stream if there is none.
func (t *remote) recv(ctx context.Context) (choice.Choice, error) {
	if t.over {
		return choice.Choice{}, io.EOF
	}
	if t.stream == nil {
		if err := t.dial(ctx); err != nil {
			return choice.Choice{}, err
		}
	}
	release := context.AfterFunc(ctx, t.stop)
	m, err := t.stream.Recv()
	release()
	if err != nil {
		t.hangUp()
		return choice.Choice{}, err
	}
	return toChoice(m), nil
}

func (t *remote) hangUp() {
	if t.stop != nil {
		t.stop()
	}
	t.stream, t.stop, t.anew = nil, nil, true
}

// Finish implements [choice.Trail].
func (t *remote) Finish(ctx context.Context) (*backends.DecodeStats, error) {
	reply, err := t.client.api.Finish(t.client.with(ctx), &sidecarpb.FinishRequest{Rid: t.rid})
	if err != nil {
		t.over = true
		t.hangUp()
		return nil, t.client.asError(err)
	}
	var s backends.DecodeStats
	if err := json.Unmarshal(reply.Stats, &s); err != nil {
		return nil, fmt.Errorf("decode account of %s: %w", t.rid, err)
	}
	return &s, nil
}
