package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"qr-gateway/gateway/link/linkpb"
)

// Why a stream is ended on purpose.
var (
	errSilent    = errors.New("the other side has sent nothing for too long")
	errHandshake = errors.New("the other side took too long to connect and say who it is")
	errProtocol  = errors.New("the other side does not keep to the protocol")
	errIdle      = errors.New("nobody needs the link")
	errBehind    = errors.New("the other side does not read what it is sent")
)

// logAgain is how often the log is told of a gateway that stays away.
const logAgain = 10 * time.Second

// run makes streams until ctx ends or nobody needs the link.
func (c *conn) run(ctx context.Context) {
	defer c.end()
	wait, logged := c.client.cfg.BackoffMin, time.Time{}
	for !c.client.drop(c) {
		begun := time.Now()
		err := c.live(ctx)
		if ctx.Err() != nil {
			return
		}
		wasUp := c.lower(err)
		if wasUp || time.Since(logged) > logAgain {
			logged = time.Now()
			c.report(ctx, err)
		}
		if time.Since(begun) > c.client.cfg.BackoffMax {
			wait = c.client.cfg.BackoffMin
		}
		pause(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, c.client.cfg.BackoffMax)
	}
}

// report tells the log why there is no stream.
func (c *conn) report(ctx context.Context, err error) {
	level := slog.LevelWarn
	if errors.Is(err, errIdle) {
		level = slog.LevelInfo
	}
	c.client.deps.Log.Log(ctx, level, "no link to gateway", "gateway", c.owner, "reason", err)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// life is one stream.
type life struct {
	*conn
	stream linkpb.Link_ConnectClient
	stop   context.CancelCauseFunc
	work   sync.WaitGroup // all goroutines of the stream
	joiner joiner

	asking sync.Mutex // guards asks
	asks   map[uint64]context.CancelFunc
}

// live is the whole life of one stream: its error tells why it ended.
func (c *conn) live(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cc, err := c.client.dial(c.addr)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer cc.Close()
	l := &life{conn: c, stop: stop, asks: map[uint64]context.CancelFunc{}, joiner: joiner{most: c.client.cfg.MaxMessage}}
	welcome, err := l.open(ctx, cc)
	if err != nil {
		return reason(ctx, err)
	}
	announced, err := c.client.announcement()
	if err != nil {
		return err
	}
	c.raise(welcome, announced)
	c.client.deps.Log.InfoContext(ctx, "linked to gateway", "gateway", c.owner, "name", welcome.Gateway, "version", welcome.Version)
	l.work.Go(func() { l.write(ctx) })
	l.work.Go(func() { l.pulse(ctx, announced) })
	err = reason(ctx, l.read(ctx))
	stop(err)
	l.work.Wait()
	return err
}

// reason is why a stream ended: what we ended it for, or what the other side says.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
	return err
}

// open makes the stream and has the gateway welcome it.
func (l *life) open(ctx context.Context, cc *grpc.ClientConn) (*linkpb.Welcome, error) {
	late := time.AfterFunc(l.client.cfg.Handshake, func() { l.stop(errHandshake) })
	defer late.Stop()
	if l.client.secret != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, metadataKey, l.client.secret)
	}
	var err error
	if l.stream, err = linkpb.NewLinkClient(cc).Connect(ctx); err != nil {
		return nil, err
	}
	// Until the gateway has said something, the stream may be gRPC's to move or to refuse.
	if _, err = l.stream.Header(); err != nil {
		return nil, err
	}
	own := side{"worker", l.client.cfg.Worker, l.client.cfg.Version, l.client.schema}
	hello := &linkpb.Hello{
		Worker: own.name, Version: own.version, Schema: own.schema, Instance: l.instance, MaxMessage: uint64(l.client.cfg.MaxMessage),
	}
	// Where sending fails the stream has ended, and receiving tells why.
	_ = l.stream.Send(&linkpb.FromWorker{What: &linkpb.FromWorker_Hello{Hello: hello}})
	m, err := l.stream.Recv()
	if err != nil {
		return nil, err
	}
	w := m.GetWelcome()
	if w == nil {
		return nil, fmt.Errorf("%w: it began with another message than a welcome", errProtocol)
	}
	return w, skew(own, side{"gateway", w.Gateway, w.Version, w.Schema})
}

// raise begins to send on a new stream: all that is not taken, once more.
func (c *conn) raise(w *linkpb.Welcome, announced *linkpb.Announce) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.gateway, c.up, c.since, c.last, c.expired, c.heard = w, true, now, nil, false, now
	c.expiry.Stop()
	c.most = limitOf(c.client.cfg.MaxMessage, w.MaxMessage)
	c.cut, c.beat, c.line = cutter{}, nil, nil
	c.control = []*linkpb.FromWorker{{What: &linkpb.FromWorker_Announce{Announce: announced}}}
	c.client.counts.links.Add(1)
	for _, box := range c.boxes {
		c.client.counts.resent.Add(uint64(box.sent))
		box.sent, box.listed = 0, false
		for _, m := range box.frames {
			if err := c.tooLarge(m); err != nil {
				box.fail(err, now)
				break
			}
		}
		if box.unsent() {
			c.list(box)
		}
	}
	nudge(c.wake)
}

// limitOf is the size of a message that both sides take.
func limitOf(own int, other uint64) int { return int(min(uint64(own), max(other, partSize))) }

// lower notes that there is no stream, and reports whether there was one.
func (c *conn) lower(err error) (wasUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, wasUp = err, c.up
	if wasUp {
		c.up, c.since = false, time.Now()
		c.expiry.Reset(c.client.cfg.Patience)
	}
	return wasUp
}

// next is the next message to send, or nil.
func (c *conn) next() (*linkpb.FromWorker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.beat; b != nil {
		c.beat, c.sent = nil, time.Now()
		return &linkpb.FromWorker{What: &linkpb.FromWorker_Beat{Beat: b}}, nil
	}
	if p := c.cut.next(); p != nil {
		return &linkpb.FromWorker{What: &linkpb.FromWorker_Part{Part: p}}, nil
	}
	m := c.whole()
	if m == nil {
		return nil, nil
	}
	if cut, err := c.cut.begin(m); err != nil || cut {
		return &linkpb.FromWorker{What: &linkpb.FromWorker_Part{Part: c.cut.next()}}, err
	}
	return m, nil
}

// whole takes a message from those that wait. The mutex is held.
func (c *conn) whole() *linkpb.FromWorker {
	if len(c.control) > 0 {
		m := c.control[0]
		c.control = c.control[1:]
		return m
	}
	for len(c.line) > 0 {
		box := c.line[0]
		c.line[0] = nil
		c.line = c.line[1:]
		box.listed = false
		if !box.unsent() {
			continue
		}
		m := &linkpb.FromWorker{What: &linkpb.FromWorker_Frame{Frame: box.next()}}
		if box.unsent() {
			c.list(box)
		}
		return m
	}
	return nil
}

// post has a message sent that is no frame.
func (c *conn) post(m *linkpb.FromWorker) {
	c.mu.Lock()
	c.control = append(c.control, m)
	c.mu.Unlock()
	nudge(c.wake)
}

// write sends what there is.
func (l *life) write(ctx context.Context) {
	for {
		m, err := l.next()
		switch {
		case err != nil:
			l.stop(err)
			return
		case m != nil:
			if l.stream.Send(m) != nil {
				return // the stream has ended, and its reader learns why
			}
			continue
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
	}
}

// pulse sends signs of life, and what has changed among the models. It ends a stream whose other side is silent, and one that nobody needs.
func (l *life) pulse(ctx context.Context, announced *linkpb.Announce) {
	t := time.NewTicker(l.client.cfg.Pulse)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if err := l.tick(now); err != nil {
				l.stop(err)
				return
			}
		}
		l.sweep(time.Now())
		if a, err := l.client.announcement(); err != nil {
			l.client.deps.Log.ErrorContext(ctx, "announce models", "error", err)
		} else if !proto.Equal(a, announced) {
			announced = a
			l.post(&linkpb.FromWorker{What: &linkpb.FromWorker_Announce{Announce: a}})
		}
	}
}

// tick makes the sign of life due now. Its error says why the stream is to end.
func (l *life) tick(now time.Time) error {
	kept := l.client.wants(l.owner)
	l.conn.mu.Lock()
	defer l.conn.mu.Unlock()
	switch {
	case now.Sub(l.heard) > l.client.cfg.Silence:
		return errSilent
	case !kept && l.idle():
		return errIdle
	}
	l.beats++
	l.beat = &linkpb.Beat{Number: l.beats}
	nudge(l.wake)
	return nil
}

// echo takes a sign of life that came back.
func (c *conn) echo(b *linkpb.Beat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if b.Number == c.beats && c.beat == nil {
		c.trip = c.heard.Sub(c.sent)
	}
}

// read takes what the gateway sends, until the stream ends. It never waits for anything else.
func (l *life) read(ctx context.Context) error {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if p := m.GetPart(); p != nil {
			data, err := l.joiner.add(p)
			if err != nil {
				return err
			}
			if data == nil {
				continue
			}
			m = new(linkpb.FromGateway)
			if err := proto.Unmarshal(data, m); err != nil {
				return fmt.Errorf("%w: %w", errProtocol, err)
			}
		}
		if err := l.take(ctx, m); err != nil {
			return err
		}
	}
}

func (l *life) take(ctx context.Context, m *linkpb.FromGateway) error {
	switch what := m.What.(type) {
	case *linkpb.FromGateway_Room:
		l.room(what.Room)
	case *linkpb.FromGateway_Gone:
		l.gone(what.Gone)
	case *linkpb.FromGateway_Beat:
		l.echo(what.Beat)
	case *linkpb.FromGateway_Prepare:
		return l.prepare(ctx, what.Prepare)
	case *linkpb.FromGateway_Drop:
		l.drop(what.Drop.Number)
	default:
		return fmt.Errorf("%w: message %T has no place here", errProtocol, what)
	}
	return nil
}
