package link

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
)

// streamWindow is what a side may send ahead of the other's reading, in bytes. It is fixed: finding it out takes pings.
const streamWindow = 1 << 20

// dialer reads the TLS files and returns what makes a connection. gRPC makes none by itself later: each stream has a connection of its own,
// so that it is never moved to another one, and the reason why there is none is known.
func dialer(c *ClientConfig, now time.Time) (func(a address.Address) (*grpc.ClientConn, error), error) {
	transport := insecure.NewCredentials()
	if c.secure() {
		files, err := certs.Client(c.files(), c.TLSServerName, now)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(files)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: c.Handshake}),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(streamWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageLimit)),
		grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	}
	return func(a address.Address) (*grpc.ClientConn, error) {
		target := "passthrough:///" + a.Dial()
		if a.Network == "unix" {
			target = "passthrough:///localhost"
		}
		dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, a.Network, a.Dial())
		})
		return grpc.NewClient(target, append(opts[:len(opts):len(opts)], dial)...)
	}, nil
}
