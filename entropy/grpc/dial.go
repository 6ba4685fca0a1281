package grpc

import (
	"context"
	"net"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
)

// Sizes of a connection, in bytes.
const (
	window = 1 << 20 // what a server may send ahead in a stream
	buffer = 64 << 10
)

// dialer checks all that can be checked before there is a connection, and returns what makes one. key is the API key or empty. Keepalive pings stay off: a server
// with default settings ends the connection of whoever sends them.
func dialer(c Config, key string, now time.Time) (func() (*rpc.ClientConn, error), error) {
	a, err := address.Parse(c.Address)
	if err != nil {
		return nil, err
	}
	if err := a.CheckDial(); err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if c.secure() {
		files, err := certs.Client(certs.Files{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey}, c.TLSServerName, now)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(files)
	}
	opts := []rpc.DialOption{
		rpc.WithTransportCredentials(transport),
		rpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, a.Network, a.Dial())
		}),
		rpc.WithConnectParams(rpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: c.Breaker.Timeout,
		}),
		// Fixed windows: finding them out takes a ping with every answer. Buffers that take an answer in one piece.
		rpc.WithInitialWindowSize(window), rpc.WithInitialConnWindowSize(4 * window),
		rpc.WithReadBufferSize(buffer),
		rpc.WithIdleTimeout(0), rpc.WithDisableServiceConfig(), rpc.WithDisableRetry(),
	}
	if key != "" {
		opts = append(opts, rpc.WithPerRPCCredentials(keyCredentials{c.APIKeyHeader, key}))
	}
	target := "passthrough:///" + a.Dial()
	if a.Network == "unix" {
		target = "passthrough:///localhost"
	}
	return func() (*rpc.ClientConn, error) { return rpc.NewClient(target, opts...) }, nil
}

// keyCredentials sends the API key with each call.
type keyCredentials struct{ header, key string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (k keyCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{k.header: k.key}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: the configuration has been checked for that.
func (keyCredentials) RequireTransportSecurity() bool { return false }
