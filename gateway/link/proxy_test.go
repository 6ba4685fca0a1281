package link_test

import (
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between a worker and a gateway, and does to their connections what networks do.
type proxy struct {
	to     string
	listen net.Listener
	work   sync.WaitGroup

	mu    sync.Mutex // guards all below
	conns map[net.Conn]bool
	up    *way // from worker to gateway
	down  *way
	came  int  // connections
	shut  bool // no connection is let through
}

// way is one direction of all connections.
type way struct {
	mu   sync.Mutex // held: nothing passes
	drop bool       // what comes is lost; guarded by mu
	slow bool       // 16 KiB take 2 ms; guarded by mu
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listen: l, conns: map[net.Conn]bool{}, up: &way{}, down: &way{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listen.Addr().String() }

func (p *proxy) accept() {
	for {
		from, err := p.listen.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		if p.shut {
			_, _ = from.Close(), to.Close()
			p.mu.Unlock()
			continue
		}
		p.conns[from], p.conns[to] = true, true
		p.came++
		up, down := p.up, p.down
		p.mu.Unlock()
		p.work.Go(func() { p.copy(to, from, up) })
		p.work.Go(func() { p.copy(from, to, down) })
	}
}

func (p *proxy) copy(to, from net.Conn, w *way) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		drop, slow := w.drop, w.slow
		w.mu.Unlock()
		if slow {
			<-time.After(2 * time.Millisecond)
		}
		if err == nil && !drop {
			_, err = to.Write(buf[:n])
		}
		if err == nil {
			continue
		}
		_, _ = from.Close(), to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		delete(p.conns, to)
		p.mu.Unlock()
		return
	}
}

// slow makes a slow line of the way to the gateway, on the connections there are.
func (p *proxy) slow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up.mu.Lock()
	p.up.slow = true
	p.up.mu.Unlock()
}

// count is how many connections were let through.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.came
}

// cut breaks all connections. New ones work.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// lose makes one direction of all connections there are lose everything from now on. New ones work.
func (p *proxy) lose(upward bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.down
	if upward {
		w = p.up
	}
	w.mu.Lock()
	w.drop = true
	w.mu.Unlock()
	p.up, p.down = &way{}, &way{}
}

// stall lets nothing pass on the connections there are until what it returns is called.
func (p *proxy) stall() (on func()) {
	p.mu.Lock()
	up, down := p.up, p.down
	p.mu.Unlock()
	up.mu.Lock()
	down.mu.Lock()
	return sync.OnceFunc(func() {
		up.mu.Unlock()
		down.mu.Unlock()
	})
}

// close lets no connection through, from now on or no more.
func (p *proxy) close(shut bool) {
	p.mu.Lock()
	p.shut = shut
	p.mu.Unlock()
	if shut {
		p.cut()
	}
}
