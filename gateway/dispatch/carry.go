package dispatch

import (
	"context"
	"errors"
	"math"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// LogOwner begins the owner of jobs whose frames come through the log of the queue: their gateway can't be reached.
const LogOwner = "log:"

// lastFrames bounds how long the last frames of a job that has ended are waited for in its log.
const lastFrames = 5 * time.Second

// torn is the number of a frame that no run has sent: its own can't be read any more, though it goes on.
const torn = math.MaxInt64

// carrier hands on what nodes write for a job into its log. A nil one is for jobs whose frames come by links.
type carrier struct {
	hub  *Dispatcher
	id   string
	stop context.CancelFunc
	done chan struct{} // closed when nothing is read any more
	held *queue.Status // how the job ended, whose last frames come first; of the goroutine that follows the job
	late *time.Timer   // runs while there is held
}

// carry starts to read the log of a job, until ctx ends.
func (d *Dispatcher) carry(ctx context.Context, id string) *carrier {
	if !d.cfg.Carry {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	c := &carrier{hub: d, id: id, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.pump(ctx)
	}()
	return c
}

// end stops reading.
func (c *carrier) end() {
	if c == nil {
		return
	}
	if c.late != nil {
		c.late.Stop()
	}
	c.stop()
	<-c.done
}

// hold keeps how a job ended until its last frames are there. It reports false where they are.
func (c *carrier) hold(s queue.Status) bool {
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		c.held, c.late = &s, time.AfterFunc(lastFrames, c.stop)
		return true
	}
}

// whole is closed when all frames of a job that has ended are there; nil before the end is known.
func (c *carrier) whole() <-chan struct{} {
	if c == nil || c.held == nil {
		return nil
	}
	return c.done
}

func (c *carrier) release() queue.Status {
	s := *c.held
	c.held = nil
	return s
}

// pump reads the log until it ends or ctx does.
func (c *carrier) pump(ctx context.Context) {
	r := &reach{}
	for {
		entries, err := c.hub.deps.Log.Read(ctx, c.id, 1)
		switch {
		case errors.Is(err, queue.ErrClosed):
			return
		case errors.Is(err, queue.ErrTrimmed):
			c.lose(ctx, r, err)
			return
		case err == nil && c.drain(ctx, r, entries), wait(ctx, shortPause) != nil:
			return
		}
	}
}

// drain hands on what comes, and reports whether that was all.
func (c *carrier) drain(ctx context.Context, r *reach, entries <-chan queue.Entry) bool {
	for e := range entries {
		if e.End != nil {
			return true
		}
		all, only, err := ParseEntry(c.id, e.Epoch, e.Data)
		if err == nil && !only {
			continue // those frames have come another way
		}
		for _, l := range all {
			if err == nil {
				err = c.pass(ctx, r, l)
			}
		}
		if err != nil {
			c.lose(ctx, r, err)
			return true
		}
	}
	return false
}

// reach is how far a log was read.
type reach struct{ epoch, seq int64 }

// pass hands on a frame, if it is new.
func (c *carrier) pass(ctx context.Context, r *reach, l Logged) error {
	f := l.Frame
	if f.Epoch < r.epoch || f.Epoch == r.epoch && f.Seq <= r.seq || l.Said != nil {
		return nil
	}
	if f.Epoch > r.epoch {
		r.epoch, r.seq = f.Epoch, 0
	}
	if l.First != r.seq+1 {
		return errGap
	}
	r.seq = f.Seq
	return c.hub.Deliver(ctx, f)
}

// lose ends the answer: there would be a hole in it. Another worker may take it up.
func (c *carrier) lose(ctx context.Context, r *reach, why error) {
	f := Frame{Job: c.id, Epoch: max(1, r.epoch), Seq: torn}
	f.Err, _ = errors.AsType[*backends.Error](lost("its log: " + why.Error()))
	_ = c.hub.Deliver(ctx, f) // where it can't be, nobody waits
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
