package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"qr-gateway/entropy"
)

// errUnasked ends a program that answers before it is asked.
var errUnasked = errors.New("bytes came that nobody asked for")

// call is a draw, or a ping if it asks for nothing. The owner fills data and sends one result; a caller that has gone leaves both to it.
type call struct {
	data []byte
	done chan result // holds one
}

type result struct {
	answer answer
	hello  hello
	shots  int
	err    error // an *entropy.Error
}

// owner has the child. Its state is in design.md.
type owner struct {
	cfg    Config
	source string // its name
	log    *slog.Logger
	jitter func() float64 // in [0, 1)
	prog   program
	calls  <-chan *call

	child    *child        // nil: none runs
	sequence uint64        // of the last request
	frame    [askSize]byte // it was sent in
	device   string        // of the last reply
	lives    int           // that ended one after the other without a good reply
	again    time.Time
	reason   string // why the last one ended
}

// run serves calls until ctx ends, and then ends the child.
func (o *owner) run(ctx context.Context) {
	defer func() {
		if o.child != nil {
			o.child.end(true, o.cfg.Grace)
		}
	}()
	for ctx.Err() == nil {
		var died <-chan struct{}
		var due <-chan time.Time
		var timer *time.Timer
		if o.child != nil {
			died = o.child.done
		} else {
			timer = time.NewTimer(time.Until(o.again))
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case c := <-o.calls:
			c.done <- o.serve(ctx, c.data)
		case <-died:
			o.drop("it ended while nothing was asked: "+o.child.state, true)
		case <-due:
			if err := o.start(ctx); err != nil && ctx.Err() == nil {
				o.log.Warn("program did not start", "reason", err.Error(), "restart_in", time.Until(o.again).Round(time.Millisecond).String())
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// start starts a child and hears its hello.
func (o *owner) start(ctx context.Context) error {
	c, err := o.prog.start()
	if err != nil {
		o.failed(err.Error())
		return err
	}
	c.raw = o.cfg.Framing == FramingRaw
	stop := context.AfterFunc(ctx, c.interrupt)
	h, err := o.greet(ctx, c)
	if err != nil {
		stop()
		c.end(false, o.cfg.Grace)
		o.failed(err.Error())
		return err
	}
	c.hello, c.unhook = h, stop
	o.child = c
	o.log.Info("program started", "program", o.prog.path, "pid", c.pid, "says", h.Name)
	return nil
}

// greet waits for the hello. A raw program says none.
func (o *owner) greet(ctx context.Context, c *child) (hello, error) {
	if o.cfg.Framing == FramingRaw {
		return hello{Name: o.prog.path}, nil
	}
	if err := c.deadline(time.Now().Add(o.cfg.StartTimeout)); err != nil || ctx.Err() != nil {
		return hello{}, errors.Join(err, ctx.Err())
	}
	h, err := readHello(c.reader)
	switch {
	case ctx.Err() != nil:
		return hello{}, ctx.Err()
	case isEnd(err):
		return hello{}, fmt.Errorf("program %s ended before its hello: %s", o.prog.path, c.exited())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hello{}, fmt.Errorf("program %s has not said hello within %v; raise start_timeout, or set framing: raw if it only pours bytes out", o.prog.path, o.cfg.StartTimeout)
	case err != nil:
		return hello{}, fmt.Errorf("program %s does not speak the frames: %w", o.prog.path, err)
	}
	return h, nil
}

// drop ends the child and sets when the next one starts.
func (o *owner) drop(reason string, polite bool) {
	o.child.unhook()
	o.child.end(polite, o.cfg.Grace)
	o.child = nil
	o.failed(reason)
	o.log.Warn("program ended", "reason", reason, "restart_in", max(0, time.Until(o.again)).Round(time.Millisecond).String())
}

// failed sets the pause: none after the first end, then doubling, spread by half.
func (o *owner) failed(reason string) {
	o.reason = reason
	o.again = time.Now()
	if o.lives > 0 {
		pause := min(o.cfg.BackoffMin<<min(o.lives-1, 30), o.cfg.BackoffMax)
		o.again = o.again.Add(time.Duration(float64(pause) * (0.5 + o.jitter())))
	}
	o.lives++
}

// serve answers one call.
func (o *owner) serve(ctx context.Context, data []byte) result {
	if ctx.Err() != nil {
		return result{err: closedError(o.source)}
	}
	if o.child != nil {
		select {
		case <-o.child.done:
			o.drop("it ended while nothing was asked: "+o.child.state, true)
		default:
		}
	}
	if err := o.ready(ctx); err != nil {
		return result{err: err}
	}
	res := result{hello: o.child.hello}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), o.limit())
		a, err := o.ask(ctx, data[:n])
		if err != nil {
			return result{err: err}
		}
		data = data[n:]
		res.shots++
		res.merge(a, first)
	}
	return res
}

// merge takes the next reply of a draw in: the bytes are as old as the oldest of them.
func (r *result) merge(a answer, first bool) {
	if first {
		r.answer = a
		return
	}
	if a.made.Before(r.answer.made) {
		r.answer.made = a.made
	}
	if a.device != r.answer.device {
		r.answer.device += "+" + a.device
	}
}

// ready makes sure that there is a child, unless it is too early for one.
func (o *owner) ready(ctx context.Context) error {
	if o.child != nil {
		return nil
	}
	if wait := time.Until(o.again); wait > 0 {
		return &entropy.Error{
			Kind: entropy.KindOpen, Source: o.source,
			Message: fmt.Sprintf("its program is started again in %v, after: %s", wait.Round(time.Millisecond), o.reason),
			Hint:    "look at the program's lines in the log",
		}
	}
	if err := o.start(ctx); err != nil {
		if ctx.Err() != nil {
			return closedError(o.source)
		}
		return &entropy.Error{Kind: entropy.KindTransport, Source: o.source, Message: "start its program", Err: err, Hint: "look at the program's lines in the log"}
	}
	return nil
}

// limit is the most bytes of one request.
func (o *owner) limit() int { return maxDraw(o.cfg, o.child.hello) }

// maxDraw is the least of what the configuration, the program and the frames allow.
func maxDraw(cfg Config, h hello) int {
	limit := maxShot
	for _, n := range []int{cfg.MaxDraw, h.MaxDraw} {
		if n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// ask makes one request and hears its reply. A child that breaks the contract, or doesn't answer, is ended.
func (o *owner) ask(ctx context.Context, p []byte) (answer, error) {
	a, err := o.exchange(ctx, p)
	no, refused := errors.AsType[*replyError](err)
	switch {
	case err == nil:
		o.lives = 0
		o.device = a.device
		return a, nil
	case refused:
		o.lives = 0
		return answer{}, &entropy.Error{Kind: no.status.kind(), Source: o.source, Message: no.message}
	case ctx.Err() != nil:
		return answer{}, closedError(o.source)
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason := fmt.Sprintf("no reply to a request for %d bytes within %v", len(p), o.cfg.Timeout)
		o.drop(reason, false)
		return answer{}, &entropy.Error{Kind: entropy.KindTimeout, Source: o.source, Message: reason + "; its program was ended", Hint: "raise timeout, or ask for fewer bytes"}
	case isEnd(err):
		reason := "it ended in a request: " + o.child.exited()
		o.drop(reason, false)
		return answer{}, &entropy.Error{Kind: entropy.KindTransport, Source: o.source, Message: "its program ended in a request", Err: errors.New(reason)}
	default:
		o.drop(err.Error(), false)
		return answer{}, &entropy.Error{Kind: entropy.KindProtocol, Source: o.source, Message: "its program broke the contract and was ended", Err: err}
	}
}

func (o *owner) exchange(ctx context.Context, p []byte) (answer, error) {
	c := o.child
	if err := c.deadline(time.Now().Add(o.cfg.Timeout)); err != nil {
		return answer{}, fmt.Errorf("set deadline: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err // else the deadline would have undone the interrupt
	}
	if o.cfg.Framing == FramingRaw {
		_, err := io.ReadFull(c.reader, p)
		return answer{}, err
	}
	// Bytes that are there before they were asked for can't be a reply to this request.
	if ahead, err := c.ahead(); err != nil || ahead {
		return answer{}, errors.Join(err, errUnasked)
	}
	o.sequence++
	putAsk(&o.frame, o.sequence, len(p))
	if _, err := c.stdin.Write(o.frame[:]); err != nil {
		return answer{}, fmt.Errorf("send request: %w", err)
	}
	return readAnswer(c.reader, o.sequence, p, o.device)
}

func closedError(source string) error {
	return &entropy.Error{Kind: entropy.KindClosed, Source: source, Message: "it was closed"}
}
