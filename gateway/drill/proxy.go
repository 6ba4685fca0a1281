package drill

import (
	"fmt"
	"net"
	"sync"
)

// Proxy stands on a TCP line, and does to its connections what networks do.
type Proxy struct {
	to     string
	listen net.Listener
	work   sync.WaitGroup

	mu    sync.Mutex // guards all below
	conns map[net.Conn]bool
	ways  [2]*way // from the side that dialled, and to it
	shut  bool    // no connection is let through
}

// way is one direction of the connections that were made at a time.
type way struct {
	pass sync.Mutex // held: nothing passes
	mu   sync.Mutex // guards drop
	drop bool       // what comes is lost
}

// NewProxy listens on this machine, for connections to an address. It ends with Close.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it lasts as long as the proxy
	if err != nil {
		return nil, fmt.Errorf("make proxy to %s: %w", to, err)
	}
	p := &Proxy{to: to, listen: l, conns: map[net.Conn]bool{}, ways: [2]*way{{}, {}}}
	p.work.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Close ends all connections and gives the address up. Nothing may be held.
func (p *Proxy) Close() {
	_ = p.listen.Close()
	p.Shut(true)
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		from, err := p.listen.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to) //nolint:noctx // on this machine, where it fails at once
		if err != nil {
			_ = from.Close()
			continue
		}
		p.join(from, to)
	}
}

func (p *Proxy) join(from, to net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		_, _ = from.Close(), to.Close()
		return
	}
	p.conns[from], p.conns[to] = true, true
	ways := p.ways
	p.work.Go(func() { p.copy(to, from, ways[0]) })
	p.work.Go(func() { p.copy(from, to, ways[1]) })
}

func (p *Proxy) copy(to, from net.Conn, w *way) {
	defer p.part(from, to)
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if w.lets() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// lets waits while the way is held, and says whether it lets anything through.
func (w *way) lets() bool {
	w.pass.Lock()
	defer w.pass.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.drop
}

func (p *Proxy) part(a, b net.Conn) {
	_, _ = a.Close(), b.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, a)
	delete(p.conns, b)
}

// Shut breaks all connections and lets no more through, or lets them through again.
func (p *Proxy) Shut(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	if !shut {
		return
	}
	for c := range p.conns {
		_ = c.Close()
	}
}

// Hold keeps what is sent one way until what it returns is called. New connections are held too.
func (p *Proxy) Hold(back bool) (on func()) {
	w := p.way(back)
	w.pass.Lock()
	return sync.OnceFunc(w.pass.Unlock)
}

// Lose makes one way lose everything on the connections there are. New ones work.
func (p *Proxy) Lose(back bool) {
	w := p.way(back)
	w.mu.Lock()
	w.drop = true
	w.mu.Unlock()
	p.mu.Lock()
	p.ways = [2]*way{{}, {}}
	p.mu.Unlock()
}

func (p *Proxy) way(back bool) *way {
	p.mu.Lock()
	defer p.mu.Unlock()
	if back {
		return p.ways[1]
	}
	return p.ways[0]
}
