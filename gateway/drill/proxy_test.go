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
	p, err := drill.NewProxy("127.0.0.1:0", l.Addr().String())
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

func do(t *testing.T, p *drill.Proxy, kind drill.Kind) (mend func()) {
	t.Helper()
	m, err := p.Do(kind)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := m(); err != nil {
			t.Fatal(err)
		}
	}
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

// broken reports whether a connection has ended.
func broken(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(never))
	_, err := c.Read(make([]byte, 1))
	timeout, ok := err.(net.Error) //nolint:errorlint // a connection's own
	return err != nil && (!ok || !timeout.Timeout())
}

const (
	soon  = 50 * time.Millisecond // in which nothing comes
	never = 10 * time.Second      // in which everything does
)

func TestProxyPasses(t *testing.T) {
	p := echo(t)
	for n := range 2 {
		if !said(dial(t, p), never) || p.Conns() != n+1 {
			t.Errorf("nothing came back, or it counts %d connections", p.Conns())
		}
	}
}

// TestProxyHolds: nothing is lost, and what is new waits too.
func TestProxyHolds(t *testing.T) {
	for _, kind := range []drill.Kind{drill.HoldUp, drill.HoldIn} {
		p := echo(t)
		old := dial(t, p)
		if !said(old, never) {
			t.Fatal("nothing came back")
		}
		mend := do(t, p, kind)
		fresh := dial(t, p)
		for range 2 {
			if said(old, soon) || said(fresh, soon) {
				t.Errorf("%s: it came through", kind)
			}
		}
		mend()
		for range 2 {
			if !heard(old, never) || !heard(fresh, never) {
				t.Errorf("%s: it was lost", kind)
			}
		}
		if !said(old, never) || !said(dial(t, p), never) {
			t.Errorf("%s: it was not mended", kind)
		}
	}
}

// TestProxyIsAHole: what is sent is lost, also on the connections there are; they are broken in the end, so that no stream has a gap.
func TestProxyIsAHole(t *testing.T) {
	for _, kind := range []drill.Kind{drill.HoleUp, drill.HoleIn} {
		p := echo(t)
		old := dial(t, p)
		if !said(old, never) {
			t.Fatal("nothing came back")
		}
		mend := do(t, p, kind)
		fresh := dial(t, p)
		if said(old, soon) || said(fresh, soon) {
			t.Errorf("%s: it came through", kind)
		}
		mend()
		if !broken(old) || !broken(fresh) {
			t.Errorf("%s: a stream with a gap goes on", kind)
		}
		if !said(dial(t, p), never) {
			t.Errorf("%s: it was not mended", kind)
		}
	}
}

func TestProxyLoses(t *testing.T) {
	for _, kind := range []drill.Kind{drill.LoseUp, drill.LoseIn} {
		p := echo(t)
		c := dial(t, p)
		if !said(c, never) {
			t.Fatal("nothing came back")
		}
		mend := do(t, p, kind)
		if said(c, soon) {
			t.Errorf("%s: it came through", kind)
		}
		if !said(dial(t, p), never) {
			t.Errorf("%s: a new connection has the fault too", kind)
		}
		mend()
		if said(c, soon) {
			t.Errorf("%s: it came through later", kind)
		}
	}
}

// TestProxyBreaks: connections break, those there are and those to come, until the fault's end.
func TestProxyBreaks(t *testing.T) {
	for _, kind := range []drill.Kind{drill.Cut, drill.Reset} {
		p := echo(t)
		c := dial(t, p)
		if !said(c, never) {
			t.Fatal("nothing came back")
		}
		mend := do(t, p, kind)
		if said(c, never) || !broken(c) {
			t.Errorf("%s: a connection lasts", kind)
		}
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			if said(c, never) || !broken(c) {
				t.Errorf("%s: a new connection works", kind)
			}
			c.Close()
		}
		mend()
		if !said(dial(t, p), never) {
			t.Errorf("%s: it was not mended", kind)
		}
	}
}

func TestProxySlows(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	mend := do(t, p, drill.Slow)
	began := time.Now()
	if !said(c, never) || time.Since(began) < 40*time.Millisecond {
		t.Errorf("it came back after %s", time.Since(began))
	}
	mend()
}

// TestProxyIsNarrow: a piece takes its time.
func TestProxyIsNarrow(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	p.Narrow(soon)
	if began := time.Now(); !said(c, never) || time.Since(began) < soon {
		t.Errorf("it came back after %s", time.Since(began))
	}
}

// TestProxyClosesOnData: whatever is under way, nothing of a closed proxy goes on; the package's leak check holds it.
func TestProxyClosesOnData(t *testing.T) {
	for _, kind := range []drill.Kind{drill.HoldUp, drill.HoldIn, drill.LoseUp, drill.Cut} {
		p := echo(t)
		c := dial(t, p)
		do(t, p, kind)
		_ = c.SetDeadline(time.Now().Add(soon))
		for {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				break
			}
		}
		p.Close()
	}
}

func TestProxyHasNoSuchFault(t *testing.T) {
	if _, err := echo(t).Do(drill.Flush); err == nil {
		t.Error("a line was flushed")
	}
}
