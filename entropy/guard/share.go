package guard

import (
	"context"
	"time"

	"qr-gateway/entropy"
)

// The source itself has ownShare of wholeShare of the time for which its caller waits; the rest is for the second choice.
const (
	ownShare   = 2
	wholeShare = 3
)

// share is the context that the source is asked with. Where there is a second choice and the caller has a deadline, it ends before that one, so
// that a source that hangs is replaced in time.
func (g *Guard) share(ctx context.Context) (context.Context, context.CancelFunc) {
	until, limited := ctx.Deadline()
	if g.cfg.Policy != Fallback || !limited {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(until)*ownShare/wholeShare)
}

// mostLate is how often in a row a source may use up its share before it is kept out: each time costs its caller that much.
const mostLate = 3

// late makes a failure of a source that used up its share of the time, while its caller still waits. A start-up test that was cut off by it has
// failed, and a source that does so again and again is kept out until one passes.
func (g *Guard) late(ctx, own context.Context, reason Reason, err error) (Reason, error) {
	if err == nil {
		g.lates.Store(0)
	}
	if err == nil || reason != ReasonNone || ctx.Err() != nil || own.Err() == nil {
		return reason, err
	}
	err = &entropy.Error{
		Kind: entropy.KindTimeout, Source: g.name, Message: "gave nothing in its share of the time for which the caller waits",
		Hint: "see whether the source answers at all, or give the caller more time", Err: err,
	}
	g.counts.errors[ReasonTimeout].Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch n := g.lates.Add(1); {
	case g.alarm.out():
		g.latch(ReasonTimeout, err)
	case n >= mostLate:
		g.raiseLocked(ReasonTimeout, err)
	}
	return ReasonTimeout, err
}
