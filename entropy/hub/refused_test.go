package hub

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// refuseStream speaks as much HTTP/2 as it takes to refuse one stream as not begun, which gRPC answers by trying the next connection.
func refuseStream(c net.Conn) error {
	const headers, reset, refused = 1, 3, 7
	if _, err := c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil { // settings, none
		return err
	}
	if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return err
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:4])>>8)); err != nil {
			return err
		}
		if head[3] == headers {
			_, err := c.Write(append([]byte{0, 0, 4, reset, 0}, append(head[5:], 0, 0, 0, refused)...))
			return err
		}
	}
}

// TestStreamMovesOn: a stream that gRPC moves to a connection that never comes holds no draw.
func TestStreamMovesOn(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := dial(t, path)
	c.cfg.Wait = 100 * time.Millisecond
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := refuseStream(conn); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	src := &Source{client: c, name: "lent"}
	if _, err := src.Draw(ctx, make([]byte, 8)); entropy.KindOf(err) != entropy.KindTransport {
		t.Errorf("got %v", err)
	}
}
