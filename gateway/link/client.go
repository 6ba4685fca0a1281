package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"qr-gateway/backends"
	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/secret"
	"qr-gateway/gateway/dispatch"
)

// Models are what a worker hosts. Its methods must not block.
type Models interface {
	Backend(id string) (backends.Backend, bool)
	List() []backends.Info
}

// Caches is an optional power of [Models]: to know what the workers' caches hold.
type Caches interface {
	// Warm are hashes of the prompt prefixes in them, as in queue.Offer.
	Warm() []uint64
	// Free is the number of tokens that they have room for, by model.
	Free() map[string]int
}

// ClientDeps are what a client works with. Log may be nil, and so may Models be in a worker that prepares nothing.
type ClientDeps struct {
	Models Models
	Log    *slog.Logger
}

// Client is a worker's end of its links.
type Client struct {
	cfg    ClientConfig
	deps   ClientDeps
	secret string
	schema string
	dial   func(a address.Address) (*grpc.ClientConn, error)
	counts clientCounts
	fresh  chan struct{} // has a value when conns wait to be started

	mu     sync.Mutex // guards all below
	conns  map[string]*conn
	start  []*conn
	wanted map[string]bool // gateways that a link is kept to
	closed bool
}

// NewClient checks the configuration and reads its files; nothing is dialled before Run.
func NewClient(cfg ClientConfig, deps ClientDeps) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make link client: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, deps: deps, schema: Schema(), fresh: make(chan struct{}, 1),
		conns: map[string]*conn{}, wanted: map[string]bool{},
	}
	var err error
	if c.secret, err = secret.Read(cfg.Secret, cfg.SecretFile); err == nil {
		c.dial, err = dialer(&cfg, time.Now())
	}
	if err == nil {
		err = c.SetGateways(cfg.Gateways)
	}
	if err != nil {
		return nil, fmt.Errorf("make link client: %w", err)
	}
	return c, nil
}

// Run keeps the links until ctx ends. Frames are refused with ErrClosed afterwards, so let the node end first.
func (c *Client) Run(ctx context.Context) error {
	var links sync.WaitGroup
	defer links.Wait()
	defer c.close()
	for {
		for _, n := range c.starting() {
			links.Go(func() { n.run(ctx) })
		}
		select {
		case <-c.fresh:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Client) starting() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.start
	c.start = nil
	return out
}

func (c *Client) close() {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.conns))
	c.mu.Unlock()
	for _, n := range all {
		n.end()
	}
}

// SetGateways says which gateways a link is kept to, whether or not they have jobs here. Links to others end once they are idle.
func (c *Client) SetGateways(addresses []string) error {
	wanted := map[string]bool{}
	for _, a := range addresses {
		if _, err := c.cfg.reach(a); err != nil {
			return err
		}
		wanted[a] = true
	}
	c.mu.Lock()
	c.wanted = wanted
	c.mu.Unlock()
	for a := range wanted {
		if _, err := c.conn(a); err != nil {
			return err
		}
	}
	return nil
}

// conn returns the link to a gateway. It is made if there is none.
func (c *Client) conn(owner string) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if n := c.conns[owner]; n != nil {
		return n, nil
	}
	a, err := c.cfg.reach(owner)
	if err != nil {
		return nil, err
	}
	n := newConn(c, owner, a)
	c.conns[owner] = n
	c.start = append(c.start, n)
	nudge(c.fresh)
	return n, nil
}

// wants reports whether a link is to be kept, however idle.
func (c *Client) wants(owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted[owner]
}

// drop forgets a link that is idle, and reports whether it was.
func (c *Client) drop(n *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted[n.owner] || !n.retire() {
		return false
	}
	delete(c.conns, n.owner)
	return true
}

// errRetired is of a link that has ended because it was idle: there may be a new one.
var errRetired = errors.New("link was idle")

// Deliver sends a frame to a gateway. It returns once the frame is in the outbox of its run, for which it waits while 32 frames are not
// taken; a run's last frame (with Result or Err) must be taken. The frames of one run are to be delivered one after the other. Errors: dispatch.ErrGone, ErrNoLink, ErrTooLarge,
// ErrClosed, or ctx's; with ErrNoLink and ErrTooLarge comes a *backends.Error for the client.
func (c *Client) Deliver(ctx context.Context, owner string, frame dispatch.Frame) error {
	for {
		n, err := c.conn(owner)
		if err != nil {
			return fmt.Errorf("deliver frame to %s: %w", owner, err)
		}
		if err = n.deliver(ctx, frame); !errors.Is(err, errRetired) {
			return err
		}
	}
}

// Sink takes frames to one gateway. It is a node's FrameSink.
type Sink struct {
	client *Client
	owner  string
}

// For returns the way to the gateway that owns a job.
func (c *Client) For(owner string) Sink { return Sink{c, owner} }

// Deliver sends a frame: see [Client.Deliver].
func (s Sink) Deliver(ctx context.Context, frame dispatch.Frame) error {
	return s.client.Deliver(ctx, s.owner, frame)
}

// Gateway is how a worker sees a gateway.
type Gateway struct {
	Address string
	Name    string // as it says; empty before it was reached
	Version string
	Up      bool
	Since   time.Time     // of being up, or not
	Reason  string        // why it isn't up
	Trip    time.Duration // that a sign of life took to come back; 0 is not known
	Runs    int           // with frames that it has not taken
	Frames  int           // that it has not taken
}

// Gateways lists the links, by address.
func (c *Client) Gateways() []Gateway {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.conns))
	c.mu.Unlock()
	out := make([]Gateway, 0, len(all))
	for _, n := range all {
		out = append(out, n.describe())
	}
	slices.SortFunc(out, func(a, b Gateway) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

// nudge puts a value into a channel that has room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
