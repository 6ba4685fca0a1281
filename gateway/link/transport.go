package link

import (
	"crypto/tls"
	"log/slog"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// told is a server's TLS that tells the log whom it refuses: the other side often can't read why.
type told struct {
	credentials.TransportCredentials
	log   *slog.Logger
	count *atomic.Uint64 // of those
}

func newTold(c *tls.Config, log *slog.Logger, count *atomic.Uint64) told {
	return told{credentials.NewTLS(c), log, count}
}

// ServerHandshake implements credentials.TransportCredentials.
func (t told) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	from := raw.RemoteAddr().String()
	c, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		t.count.Add(1)
		t.log.Warn("worker refused", "peer", from, "reason", "TLS: "+err.Error())
	}
	return c, info, err
}

// Clone implements credentials.TransportCredentials.
func (t told) Clone() credentials.TransportCredentials {
	return told{t.TransportCredentials.Clone(), t.log, t.count}
}
