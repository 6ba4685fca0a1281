package drill

import (
	"errors"
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// Proxy stands on a TCP line, and does to its connections what networks do. It is Toxiproxy, in this process.
type Proxy struct {
	proxy *toxiproxy.Proxy
	addr  string
	up    *wire // from the side that dialled
	down  *wire // to it
}

// Toxiproxy's names of the ways.
const (
	up   = "upstream"
	down = "downstream"
)

// NewProxy listens at an address of this machine, for connections to another one. It ends with Close.
func NewProxy(listen, to string) (*Proxy, error) {
	toxics.Register("wire", new(wire))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{proxy: toxiproxy.NewProxy(server, to, listen, to)}
	if err := errors.Join(p.wire(up, &p.up), p.wire(down, &p.down), p.proxy.Start()); err != nil {
		return nil, fmt.Errorf("make proxy to %s: %w", to, err)
	}
	p.addr = p.proxy.Listen
	return p, nil
}

func (p *Proxy) wire(way string, into **wire) error {
	t, err := p.add(toxic{"wire", way, nil})
	if err != nil {
		return err
	}
	*into, _ = t.(*wire)
	(*into).open()
	return nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.addr }

// Conns is how many connections there have been.
func (p *Proxy) Conns() int { return p.up.count() }

// Close ends all connections and gives the address up.
func (p *Proxy) Close() {
	p.proxy.Stop()
	p.up.end()
	p.down.end()
}

// Narrow makes each piece of up to 32 KiB that the side that dialled sends take so long.
func (p *Proxy) Narrow(pace time.Duration) { p.up.slow(pace) }

// Do does a fault to the line. What it returns mends it.
func (p *Proxy) Do(kind Kind) (mend func() error, err error) {
	mended := func() error { return nil }
	switch all := toxicsOf(kind); {
	case kind == Cut:
		p.proxy.Stop()
		return p.proxy.Start, nil
	case all != nil:
		return func() error { return p.remove(all) }, p.addAll(all)
	case kind == HoldUp:
		return p.up.hold(), nil
	case kind == HoldIn:
		return p.down.hold(), nil
	case kind == LoseUp:
		p.up.lose()
		return mended, nil
	case kind == LoseIn:
		p.down.lose()
		return mended, nil
	default:
		return nil, fmt.Errorf("no line has a fault %q", kind)
	}
}
