package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/hub/hubpb"
)

// ClientConfig is where a client connects, and how long it tries.
type ClientConfig struct {
	Socket     string        // path of the server's
	Wait       time.Duration // how long a draw waits for a connection that is being made again
	BackoffMin time.Duration // before the first try to connect again; doubles with each further one
	BackoffMax time.Duration
}

// DefaultClientConfig has the times; the socket is still to be named.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{Wait: time.Second, BackoffMin: 10 * time.Millisecond, BackoffMax: time.Second}
}

// Validate reports what can't be.
func (c *ClientConfig) Validate() error {
	switch {
	case c.Socket == "":
		return errors.New("check entropy client: no socket is named")
	case c.Wait < 0 || c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("check entropy client: wait %v, back-off %v to %v; they take 0 or more, and more than 0 in this order", c.Wait, c.BackoffMin, c.BackoffMax)
	}
	return nil
}

// Client reaches the sources of a [Server]. It is safe for concurrent use.
type Client struct {
	cfg  ClientConfig
	log  *slog.Logger
	conn *grpc.ClientConn
	api  hubpb.HubClient

	sending sync.Mutex // one Send at a time

	mu        sync.Mutex // guards all below
	stream    hubpb.Hub_DrawClient
	changed   chan struct{} // closed when stream changes, and replaced
	closed    bool
	sequence  uint64
	pending   map[uint64]*call
	described map[question]Description
}

// question is a Describe that was answered.
type question struct {
	source string
	ask    Blocks
}

// call is a draw that waits for its reply. The channel has room for the one that comes; it is closed when the stream breaks.
type call struct {
	sequence uint64
	stream   hubpb.Hub_DrawClient
	reply    chan *hubpb.DrawReply
}

// NewClient makes a client; nothing is sent before Run.
func NewClient(cfg ClientConfig, log *slog.Logger) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix:"+cfg.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<22), grpc.WithReadBufferSize(writeBuffer),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: cfg.BackoffMin, Multiplier: 2, Jitter: 0.2, MaxDelay: cfg.BackoffMax},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to entropy hub: %w", err)
	}
	return &Client{
		cfg: cfg, log: log, conn: conn, api: hubpb.NewHubClient(conn),
		changed: make(chan struct{}), pending: map[uint64]*call{}, described: map[question]Description{},
	}, nil
}

// Run keeps a stream open until ctx ends; draws fail with [entropy.KindClosed] afterwards.
func (c *Client) Run(ctx context.Context) error {
	defer func() { _ = c.conn.Close() }()
	defer c.close()
	wait := c.cfg.BackoffMin
	for ctx.Err() == nil {
		begun := time.Now()
		err := c.read(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(begun) > c.cfg.BackoffMax {
			wait = c.cfg.BackoffMin
		}
		c.log.Warn("connection to the entropy hub broke, connecting again", "reason", err)
		sleep(ctx, wait/2+time.Duration(rand.Int64N(int64(wait/2)+1)))
		wait = min(2*wait, c.cfg.BackoffMax)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read is the life of one stream: it hands each reply to the draw that waits for it. A reply nobody waits for is dropped.
func (c *Client) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.api.Draw(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	// Until the server has said something, gRPC may move the stream to another connection, and wait for one as long as it takes.
	if _, err := stream.Header(); err != nil {
		return err
	}
	c.set(stream)
	defer c.set(nil)
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if w := c.take(r.Sequence); w != nil {
			w.reply <- r
		}
	}
}

// set makes stream the one to draw on. The draws of the one before fail.
func (c *Client) set(stream hubpb.Hub_DrawClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.pending {
		close(w.reply)
	}
	clear(c.pending)
	c.stream = stream
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.set(nil)
}

// take gives up the place of a draw, and returns nil where it has been given up before.
func (c *Client) take(sequence uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pending[sequence]
	delete(c.pending, sequence)
	return w
}

// connected waits for a stream.
func (c *Client) connected(ctx context.Context, source string) error {
	timer := time.NewTimer(c.cfg.Wait)
	defer timer.Stop()
	for {
		c.mu.Lock()
		closed, up, changed := c.closed, c.stream != nil, c.changed
		c.mu.Unlock()
		switch {
		case closed:
			return &entropy.Error{Kind: entropy.KindClosed, Source: source, Message: "the connection to the gateway was closed"}
		case up:
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return broken(source)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func broken(source string) error {
	return &entropy.Error{
		Kind: entropy.KindTransport, Source: source, Message: "the connection to the gateway, which owns the source, broke",
		Hint: "it is made again by itself",
	}
}

// begin sends a request and returns the place where its reply will be; nil where there is no stream.
func (c *Client) begin(req *hubpb.DrawRequest) *call {
	c.mu.Lock()
	if c.stream == nil {
		c.mu.Unlock()
		return nil
	}
	c.sequence++
	req.Sequence = c.sequence
	w := &call{sequence: c.sequence, stream: c.stream, reply: make(chan *hubpb.DrawReply, 1)}
	c.pending[w.sequence] = w
	c.mu.Unlock()
	c.send(w.stream, req)
	return w
}

// send sends a request. Where that fails the stream has ended, and its reader fails the draws.
func (c *Client) send(stream hubpb.Hub_DrawClient, req *hubpb.DrawRequest) {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = stream.Send(req)
}

// wait returns the reply of w. When ctx ends first, the draw is given up on both sides.
func (c *Client) wait(ctx context.Context, w *call, source string) (*hubpb.DrawReply, error) {
	select {
	case r, ok := <-w.reply:
		switch {
		case !ok:
			return nil, broken(source)
		case r.Error != nil:
			return nil, unpackError(r.Error)
		}
		return r, nil
	case <-ctx.Done():
		c.drop(w)
		return nil, ctx.Err()
	}
}

func (c *Client) drop(w *call) {
	if c.take(w.sequence) != nil {
		c.send(w.stream, &hubpb.DrawRequest{Sequence: w.sequence, What: &hubpb.DrawRequest_Cancel{Cancel: true}})
	}
}

// Describe says what a source is. What it says is kept: a source is described, and calibrated, once.
func (c *Client) Describe(ctx context.Context, source string, ask Blocks) (Description, error) {
	q := question{source, ask}
	c.mu.Lock()
	d, ok := c.described[q]
	c.mu.Unlock()
	if ok {
		return d, nil
	}
	res, err := c.api.Describe(ctx, &hubpb.DescribeRequest{
		Source: source, Blocks: uint32(max(ask.Count, 0)), BlockBytes: uint32(max(ask.Bytes, 0)),
	}, grpc.WaitForReady(true))
	if err != nil {
		return Description{}, describeError(ctx, source, err)
	}
	if d, err = described(res); err != nil {
		return Description{}, &entropy.Error{Kind: entropy.KindProtocol, Source: source, Message: "describe source", Err: err}
	}
	c.mu.Lock()
	if !room(c.described, ask.Count) {
		clear(c.described) // the gateway says the same again
	}
	for _, known := range c.described {
		if d.Calibration != nil && known.Calibration != nil && known.Calibration.Hash == d.Calibration.Hash {
			d.Calibration = known.Calibration // a frozen one serves for many sizes
			break
		}
	}
	c.described[q] = d
	c.mu.Unlock()
	return d, nil
}

// describeError is the inverse of describeStatus.
func describeError(ctx context.Context, source string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if d, ok := d.(*hubpb.Error); ok {
			return unpackError(d)
		}
	}
	return &entropy.Error{Kind: entropy.KindTransport, Source: source, Message: "describe source: " + st.Message(), Err: err}
}
