package guard

import (
	"fmt"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// seen is what the block before was like.
type seen struct {
	source  string
	server  time.Time
	arrived time.Time
}

// inspect runs the checks on a block and sets its flags. An error is a finding; [Guard.observes] says whether the block can be used all the
// same.
func (g *Guard) inspect(asked time.Time, buf []byte, b *entropy.Block) (Reason, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alarm.out() { // an alarm was raised while these bytes were on their way
		return ReasonLatched, g.latched()
	}
	return g.judge(asked, g.monitor, buf, b)
}

// judge is inspect without the latch; mu is held.
func (g *Guard) judge(asked time.Time, m *health.Monitor, buf []byte, b *entropy.Block) (Reason, error) {
	if len(b.Bytes) != len(buf) || len(buf) > 0 && &b.Bytes[0] != &buf[0] {
		err := &entropy.Error{Kind: entropy.KindProtocol, Source: g.name, Message: fmt.Sprintf("asked for %d bytes, got %d", len(buf), len(b.Bytes))}
		g.raiseLocked(ReasonLength, err)
		return ReasonLength, err
	}
	b.Flags |= g.flagsOfRecord(asked, len(buf), b)
	if !b.Fallback {
		b.Flags |= g.againstBaseline(buf, b)
	}
	what := ""
	if g.cfg.Health {
		r := m.Test(buf)
		b.Flags |= r.Flags
		if r.Flags != 0 {
			what = m.Describe(r)
		}
	}
	g.counts.flag(b.Flags)
	g.last = seen{b.Source, b.ServerTime, b.Arrived}
	reason := reasonOfFlags(b.Flags)
	if reason == ReasonNone {
		return ReasonNone, nil
	}
	return g.verdict(reason, what, asked, b)
}

// observes says that a finding is only flagged. A block of another length can't be used whatever the policy.
func (g *Guard) observes(reason Reason) bool {
	return g.cfg.Policy == Observe && reason != ReasonLength
}

// verdict raises the alarm for a finding; mu is held.
func (g *Guard) verdict(reason Reason, what string, asked time.Time, b *entropy.Block) (Reason, error) {
	err := &entropy.Error{Kind: reason.kind(), Source: g.name, Message: what}
	if !g.observes(reason) {
		err.Hint = "the bytes are discarded and the source is kept out until a start-up test passes"
	}
	switch {
	case reason == ReasonOtherDevice && g.unexpected(b):
		err.Message = fmt.Sprintf("the bytes are of device %q, expect_device is %q", b.Device, g.cfg.ExpectDevice)
	case reason == ReasonOtherDevice:
		err.Message = "the bytes don't fit the baseline"
		err.Err = g.baseline.Load().fits(b.Device)
	case reason == ReasonTimeOrder:
		err.Message = fmt.Sprintf("the times are out of order: asked at %s, made at %s", asked.Format(time.RFC3339Nano), b.ServerTime.Format(time.RFC3339Nano))
	case reason == ReasonTooFast:
		err.Message = fmt.Sprintf("bytes came in %v, too fast for %.0f bytes per second: they were waiting", b.Arrived.Sub(b.Requested), g.cfg.DeclaredRate)
	}
	g.raiseLocked(reason, err)
	return reason, err
}

// flagsOfRecord checks what is said about the bytes; mu is held.
func (g *Guard) flagsOfRecord(asked time.Time, n int, b *entropy.Block) entropy.Flags {
	var f entropy.Flags
	if g.unexpected(b) {
		f |= entropy.FlagOtherDevice
	}
	if g.outOfOrder(asked, b) {
		f |= entropy.FlagTimeOrder
	}
	if g.tooFast(n, b.Arrived.Sub(b.Requested)) {
		f |= entropy.FlagTooFast
	}
	return f
}

func (g *Guard) unexpected(b *entropy.Block) bool {
	return g.cfg.ExpectDevice != "" && b.Device != g.cfg.ExpectDevice
}

func (g *Guard) outOfOrder(asked time.Time, b *entropy.Block) bool {
	skew := g.cfg.ClockSkew
	if b.Arrived.Before(b.Requested) || b.Requested.Before(asked.Add(-skew)) {
		return true
	}
	if b.ServerTime.IsZero() {
		return false
	}
	if b.ServerTime.Before(b.Requested.Add(-skew)) || b.ServerTime.After(b.Arrived.Add(skew)) {
		return true
	}
	// Draws that ran at the same time may be answered in any order.
	return b.Source == g.last.source && b.Requested.After(g.last.arrived) && b.ServerTime.Before(g.last.server)
}

func (g *Guard) tooFast(n int, took time.Duration) bool {
	if g.cfg.DeclaredRate == 0 || n <= g.cfg.ReadyBytes {
		return false
	}
	least := float64(n-g.cfg.ReadyBytes) / g.cfg.DeclaredRate / g.cfg.RateFactor
	return took.Seconds() < least
}
