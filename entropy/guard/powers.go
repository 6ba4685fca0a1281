package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"qr-gateway/entropy"
)

// Source is g with the optional powers of the source it guards, and no others: entropy.Numberer and entropy.Ahead can be asserted.
func (g *Guard) Source() entropy.Source {
	n, numbers := g.src.(entropy.Numberer)
	a, ahead := g.src.(entropy.Ahead)
	switch {
	case numbers && ahead:
		return struct {
			*Guard
			numberer
			begins
		}{g, numberer{g, n}, begins{g, a}}
	case numbers:
		return struct {
			*Guard
			numberer
		}{g, numberer{g, n}}
	case ahead:
		return struct {
			*Guard
			begins
		}{g, begins{g, a}}
	}
	return g
}

// standInBytes is the block a fallback gives when the request for a number names no size.
const standInBytes = 20480

type numberer struct {
	guard *Guard
	src   entropy.Numberer
}

// Number implements [entropy.Numberer]. Under the policy fallback a number that fails is made here, from bytes of the fallback, as the
// normal CDF of the z-score of their mean against the baseline of that source, else uniform bytes; its block has Fallback set.
func (n numberer) Number(ctx context.Context, req entropy.NumberRequest) (entropy.Number, error) {
	g := n.guard
	own, done := g.share(ctx)
	defer done()
	out, reason, err := n.number(own, req)
	reason, err = g.late(ctx, own, reason, err)
	if err == nil {
		g.counts.numbers.Add(1)
		if reason == ReasonNone {
			g.recovered(&g.numbers)
		}
		return out, nil
	}
	if reason == ReasonNone || reason == ReasonClosed {
		return entropy.Number{}, err
	}
	g.failing(&g.numbers, reason, err)
	if g.cfg.Policy != Fallback {
		return entropy.Number{}, err
	}
	return n.standIn(ctx, req, out.Block.Discarded, reason, err)
}

func (n numberer) number(ctx context.Context, req entropy.NumberRequest) (entropy.Number, Reason, error) {
	g := n.guard
	if reason, err := g.admit(ctx); err != nil {
		return entropy.Number{}, reason, err
	}
	asked := g.deps.Now()
	out, err := n.src.Number(ctx, req)
	if err != nil {
		if ctx.Err() != nil {
			return entropy.Number{}, ReasonNone, err
		}
		reason := reasonOfError(err)
		g.counts.errors[reason].Add(1) // no alarm: the start-up test is of bytes and could not end it
		return entropy.Number{}, reason, err
	}
	g.counts.latency.add(out.Block.Arrived.Sub(out.Block.Requested))
	reason, err := g.inspectNumber(asked, &out)
	switch {
	case err == nil:
		return out, ReasonNone, nil
	case g.observes(reason) && reason != ReasonProtocol:
		g.failing(&g.numbers, reason, err)
		return out, reason, nil
	}
	g.counts.discard(0)
	return entropy.Number{Block: entropy.Block{Discarded: 1}}, reason, err
}

func (g *Guard) inspectNumber(asked time.Time, n *entropy.Number) (Reason, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alarm.out() {
		return ReasonLatched, g.latched()
	}
	if !(n.U > 0 && n.U < 1) {
		return ReasonProtocol, &entropy.Error{Kind: entropy.KindProtocol, Source: g.name, Message: fmt.Sprintf("the server's number is %v, want one strictly between 0 and 1", n.U)}
	}
	b := &n.Block
	b.Flags |= g.flagsOfRecord(asked, n.Bytes, b)
	g.counts.flag(b.Flags)
	g.last = seen{b.Source, b.ServerTime, b.Arrived}
	reason := reasonOfFlags(b.Flags)
	if reason == ReasonNone {
		return ReasonNone, nil
	}
	return g.verdict(reason, "", asked, b)
}

func (n numberer) standIn(ctx context.Context, req entropy.NumberRequest, spent int, reason Reason, first error) (entropy.Number, error) {
	g := n.guard
	size := req.BlockBytes
	if size < 1 || size > MaxBlockBytes {
		size = standInBytes
	}
	buf := make([]byte, size)
	b, err := g.deps.Fallback.Draw(ctx, buf)
	if err != nil {
		return entropy.Number{}, g.bothFailed(ctx, first, err)
	}
	g.counts.fallbacks[reason].Add(1)
	b.Bytes, b.Fallback, b.Discarded = nil, true, b.Discarded+spent
	mean, std := g.secondBaseline(b.Source)
	z := (float64(sum(buf))/float64(size) - mean) / (std / math.Sqrt(float64(size)))
	u := min(max(0.5*math.Erfc(-z/math.Sqrt2), 1e-10), 1-1e-10)
	return entropy.Number{Block: b, U: u, Z: z, SourceID: b.Source, Bytes: size, Integrator: "zscore_mean"}, nil
}

// secondBaseline is the mean and the standard deviation of a byte of the second source, if it is the one that served, as it was calibrated.
func (g *Guard) secondBaseline(served string) (mean, std float64) {
	second, ok := g.deps.Fallback.(interface {
		Calibrated
		Name() string
	})
	if ok && second.Name() == served {
		if c := second.Calibration(); c != nil {
			return c.Mean, c.Std
		}
	}
	return uniformMean, uniformStd
}

type begins struct {
	guard *Guard
	src   entropy.Ahead
}

// Begin implements [entropy.Ahead]. A source that is kept out is not asked.
func (a begins) Begin(n int, nonce uint64) entropy.Ticket {
	g := a.guard
	g.mu.Lock()
	out := g.alarm.out()
	g.mu.Unlock()
	if out || g.closed.Load() {
		return nil
	}
	asked := g.deps.Now()
	if t := a.src.Begin(n, nonce); t != nil {
		return ticket{g, t, asked}
	}
	return nil
}

type ticket struct {
	guard *Guard
	entropy.Ticket
	asked time.Time
}

// Redeem implements [entropy.Ticket], under the guard's policy.
func (t ticket) Redeem(ctx context.Context, buf []byte) (entropy.Block, error) {
	g := t.guard
	own, done := g.share(ctx)
	defer done()
	b, err := t.Ticket.Redeem(own, buf)
	b, reason, err := g.settle(own, t.asked, buf, b, err)
	reason, err = g.late(ctx, own, reason, err)
	return g.conclude(ctx, buf, b, reason, err)
}
