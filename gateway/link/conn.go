package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/entropy/grpc/address"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link/linkpb"
)

// remember is how long a run is known that nothing is taken from any more. It may ask that long after it was told.
const remember = time.Minute

// conn is the link to one gateway: what is to be sent, whatever becomes of the streams. Its run makes one stream after the other.
type conn struct {
	client   *Client
	owner    string
	addr     address.Address
	instance string
	wake     chan struct{} // has a value when there may be something to send

	mu      sync.Mutex // guards all below
	boxes   map[run]*outbox
	line    []*outbox            // with something to send, in turn
	control []*linkpb.FromWorker // to be sent before frames
	beat    *linkpb.Beat         // to be sent before everything
	cut     cutter               // has the rest of what is being sent
	most    int                  // bytes that a message may have
	up      bool
	since   time.Time // of being up, or not
	last    error     // why it isn't up
	expired bool      // it isn't for so long that frames are refused
	ended   error     // there is no further stream
	expiry  *time.Timer
	used    time.Time // when a frame came last
	gateway *linkpb.Welcome
	beats   uint64        // sent
	sent    time.Time     // when the newest was
	heard   time.Time     // when one came back last
	trip    time.Duration // of the last one
}

func newConn(c *Client, owner string, a address.Address) *conn {
	now := time.Now()
	n := &conn{
		client: c, owner: owner, addr: a, instance: rand.Text(), wake: make(chan struct{}, 1),
		boxes: map[run]*outbox{}, most: c.cfg.MaxMessage, since: now, used: now, last: errors.New("it was not reached yet"),
	}
	n.expiry = time.AfterFunc(c.cfg.Patience, n.expire)
	return n
}

// deliver is [Client.Deliver].
func (c *conn) deliver(ctx context.Context, f dispatch.Frame) error {
	m, err := packFrame(f)
	if err != nil {
		return err
	}
	box, err := c.put(ctx, m)
	if err != nil || !final(m) {
		return err
	}
	return c.settled(ctx, box, m.Seq)
}

// put waits for room and puts the frame into its outbox.
func (c *conn) put(ctx context.Context, m *linkpb.Frame) (*outbox, error) {
	for {
		box, wait, err := c.tryPut(m)
		if err != nil || wait == nil {
			return box, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryPut puts the frame into its outbox, or returns what is closed when there may be room.
func (c *conn) tryPut(m *linkpb.Frame) (*outbox, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(m); err != nil {
		return nil, nil, err
	}
	c.used = time.Now()
	box := c.box(run{m.Job, m.Epoch})
	switch {
	case box.err != nil:
		return nil, nil, box.err
	case box.full():
		return nil, box.wait(), nil
	}
	box.frames = append(box.frames, m)
	c.client.counts.frames.Add(1)
	c.list(box)
	return box, nil, nil
}

// refusal says why no frame, or not this one, is taken. The mutex is held.
func (c *conn) refusal(m *linkpb.Frame) error {
	switch {
	case c.ended != nil:
		return c.ended
	case c.expired:
		return c.noLink()
	}
	return c.tooLarge(m)
}

func (c *conn) tooLarge(m *linkpb.Frame) error {
	err := checkSize(fmt.Sprintf("frame %d of job %s", m.Seq, m.Job), m, c.most)
	if err == nil {
		return nil
	}
	return &backends.Error{
		Kind: backends.KindInternal, Code: "answer_too_large", Message: "a piece of the answer is too large to be sent from the worker to the gateway",
		Hint: "raise max_message on both machines", Err: err,
	}
}

// box finds the outbox of a run, or makes it. The mutex is held.
func (c *conn) box(r run) *outbox {
	box := c.boxes[r]
	if box == nil {
		box = &outbox{run: r}
		c.boxes[r] = box
	}
	return box
}

// list gives an outbox its turn. The mutex is held.
func (c *conn) list(box *outbox) {
	if !box.listed {
		box.listed = true
		c.line = append(c.line, box)
	}
	nudge(c.wake)
}

// settled waits until the gateway has taken a frame.
func (c *conn) settled(ctx context.Context, box *outbox, seq int64) error {
	for {
		c.mu.Lock()
		taken, err, wait := box.taken >= seq, box.err, box.wait()
		c.mu.Unlock()
		switch {
		case taken:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// room takes note that the gateway has taken a run's frames up to seq.
func (c *conn) room(m *linkpb.Room) {
	c.mu.Lock()
	defer c.mu.Unlock()
	box := c.boxes[run{m.Job, m.Epoch}]
	if box == nil || box.err != nil {
		return
	}
	box.take(m.Seq)
	if len(box.frames) == 0 {
		delete(c.boxes, box.run)
	}
}

// gone takes note that nobody waits for a run.
func (c *conn) gone(m *linkpb.Gone) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if box := c.boxes[run{m.Job, m.Epoch}]; box != nil {
		box.fail(dispatch.ErrGone, time.Now())
	}
}

// sweep forgets the runs that have had time to learn that nothing is taken from them.
func (c *conn) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, box := range c.boxes {
		if box.err != nil && now.Sub(box.since) > remember {
			delete(c.boxes, r)
		}
	}
}

// noLink is the refusal of frames while the gateway can't be reached. The mutex is held.
func (c *conn) noLink() error {
	why := &backends.Error{
		Kind: backends.KindLost, Code: "gateway_unreachable", Message: "the worker that ran this request could not reach the gateway",
		Hint: "send the request again", Err: c.last,
	}
	down := time.Since(c.since).Round(100 * time.Millisecond)
	return fmt.Errorf("deliver frame to %s: %w for %v (%s): %w", c.owner, ErrNoLink, down, c.last.Error(), why)
}

// expire refuses frames, those that wait too.
func (c *conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up || c.ended != nil || c.expired {
		return
	}
	c.expired = true
	c.client.counts.expired.Add(1)
	c.failAll(c.noLink())
}

// failAll ends all runs. The mutex is held.
func (c *conn) failAll(err error) {
	now := time.Now()
	for _, box := range c.boxes {
		if box.err == nil {
			box.fail(err, now)
		}
	}
}

// end ends the link for good.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = fmt.Errorf("deliver frame to %s: %w", c.owner, ErrClosed)
		c.failAll(c.ended)
	}
	c.expiry.Stop()
}

// idle reports a link that nobody needs. The mutex is held.
func (c *conn) idle() bool {
	for _, box := range c.boxes {
		if box.err == nil {
			return false
		}
	}
	return time.Since(c.used) > c.client.cfg.Idle
}

// retire ends a link that is idle, and reports whether it was.
func (c *conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.idle() {
		return false
	}
	c.ended = errRetired
	return true
}

func (c *conn) describe() Gateway {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := Gateway{
		Address: c.owner, Name: c.gateway.GetGateway(), Version: c.gateway.GetVersion(), Up: c.up, Since: c.since, Trip: c.trip,
	}
	if !c.up && c.last != nil {
		g.Reason = c.last.Error()
	}
	for _, box := range c.boxes {
		if len(box.frames) > 0 {
			g.Runs++
			g.Frames += len(box.frames)
		}
	}
	return g
}
