package link_test

import (
	"testing"
	"time"

	network "qr-gateway/gateway/drill"
)

// proxy stands between a worker and a gateway, and does to their connections what networks do.
type proxy struct {
	line *network.Proxy
	t    testing.TB
	open func() // lets connections through again
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	line, err := network.NewProxy("127.0.0.1:0", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	return &proxy{line: line, t: t}
}

func (p *proxy) addr() string { return p.line.Addr() }

// do does faults, and returns what mends them.
func (p *proxy) do(kinds ...network.Kind) (mend func()) {
	var all []func() error
	for _, kind := range kinds {
		m, err := p.line.Do(kind)
		if err != nil {
			p.t.Error(err)
			continue
		}
		all = append(all, m)
	}
	return func() {
		for _, m := range all {
			if err := m(); err != nil {
				p.t.Error(err)
			}
		}
	}
}

// slow makes a slow line of the way to the gateway: 32 KiB take 4 ms.
func (p *proxy) slow() { p.line.Narrow(4 * time.Millisecond) }

// count is how many connections were let through.
func (p *proxy) count() int { return p.line.Conns() }

// cut breaks all connections. New ones work.
func (p *proxy) cut() { p.do(network.Cut)() }

// lose makes one direction of all connections there are lose everything from now on. New ones work.
func (p *proxy) lose(upward bool) {
	if upward {
		p.do(network.LoseUp)
	} else {
		p.do(network.LoseIn)
	}
}

// stall lets nothing pass until what it returns is called.
func (p *proxy) stall() (on func()) { return p.do(network.HoldUp, network.HoldIn) }

// close lets no connection through, from now on or no more.
func (p *proxy) close(shut bool) {
	if shut {
		p.open = p.do(network.Cut)
		return
	}
	p.open()
}
