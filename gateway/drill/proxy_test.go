package drill_test

import (
	"io"
	"net"
	"testing"
	"time"

	"qr-gateway/gateway/drill"
)

// echo is a server that sends everything back, behind a proxy.
func echo(t *testing.T) *drill.Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	p, err := drill.NewProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); l.Close() })
	return p
}

func dial(t *testing.T, p *drill.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// said sends a byte and reports whether it comes back in time.
func said(c net.Conn, within time.Duration) bool {
	if _, err := c.Write([]byte{1}); err != nil {
		return false
	}
	return heard(c, within)
}

func heard(c net.Conn, within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

const (
	soon  = 50 * time.Millisecond // in which nothing comes
	never = 10 * time.Second      // in which everything does
)

func TestProxyPasses(t *testing.T) {
	if !said(dial(t, echo(t)), never) {
		t.Error("nothing came back")
	}
}

func TestProxyHolds(t *testing.T) {
	for _, back := range []bool{false, true} {
		p := echo(t)
		c := dial(t, p)
		on := p.Hold(back)
		if said(c, soon) {
			t.Errorf("back %t: it came through", back)
		}
		on()
		if !heard(c, never) {
			t.Errorf("back %t: it was lost", back)
		}
	}
}

func TestProxyLoses(t *testing.T) {
	for _, back := range []bool{false, true} {
		p := echo(t)
		c := dial(t, p)
		if !said(c, never) {
			t.Fatal("nothing came back")
		}
		p.Lose(back)
		if said(c, soon) {
			t.Errorf("back %t: it came through", back)
		}
		if !said(dial(t, p), never) {
			t.Errorf("back %t: a new connection has the fault too", back)
		}
	}
}

func TestProxyShuts(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	if !said(c, never) {
		t.Fatal("nothing came back")
	}
	p.Shut(true)
	if said(c, never) || said(dial(t, p), never) {
		t.Error("it came through")
	}
	p.Shut(false)
	if !said(dial(t, p), never) {
		t.Error("nothing came back")
	}
}
