package guard

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/entropy"
)

// Mode is the state of a source.
type Mode string

// The modes; design.md shows how one leads to another.
const (
	ModeOK         Mode = "ok"
	ModeAlarmed    Mode = "alarmed"    // kept out until the back-off has passed
	ModeRecovering Mode = "recovering" // one start-up test is running
	ModeClosed     Mode = "closed"
)

// alarm is the latch. The zero value is ok.
type alarm struct {
	mode   Mode // empty is ok
	reason Reason
	cause  error
	since  time.Time
	until  time.Time // no test before
	wait   time.Duration
	passed time.Time // the last start-up test that did
}

func (a *alarm) out() bool { return a.mode == ModeAlarmed || a.mode == ModeRecovering }

// admit lets a draw through to the source, or says why not. The first draw after the back-off runs the start-up test.
func (g *Guard) admit(ctx context.Context) (Reason, error) {
	if g.closed.Load() {
		return ReasonClosed, g.closedError()
	}
	if err := ctx.Err(); err != nil {
		return ReasonNone, fmt.Errorf("draw from entropy source %s: %w", g.name, err)
	}
	g.mu.Lock()
	if !g.alarm.out() {
		g.mu.Unlock()
		return ReasonNone, nil
	}
	if g.alarm.mode == ModeRecovering || g.cfg.HoldAlarm || g.deps.Now().Before(g.alarm.until) {
		defer g.mu.Unlock()
		return ReasonLatched, g.latched()
	}
	g.alarm.mode = ModeRecovering
	g.mu.Unlock()
	return g.recover(ctx)
}

func (g *Guard) closedError() error {
	return &entropy.Error{Kind: entropy.KindClosed, Source: g.name, Message: "the source is closed"}
}

// latched is the error of a source that is kept out; mu is held.
func (g *Guard) latched() error {
	hint := fmt.Sprintf("it is tested again after %s", g.alarm.until.Format(time.RFC3339))
	if g.cfg.HoldAlarm {
		hint = "hold_alarm is set: see to the source and start the gateway again, which tests it"
	}
	return &entropy.Error{
		Kind: entropy.KindHealth, Source: g.name, Hint: hint, Err: g.alarm.cause,
		Message: fmt.Sprintf("kept out since an alarm (%s) at %s", g.alarm.reason, g.alarm.since.Format(time.RFC3339)),
	}
}

// raise puts the source out. Under observe nothing ever does.
func (g *Guard) raise(reason Reason, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.raiseLocked(reason, cause)
}

func (g *Guard) raiseLocked(reason Reason, cause error) {
	g.counts.alarms[reason].Add(1)
	if g.cfg.Policy == Observe || g.alarm.out() {
		return
	}
	g.latch(reason, cause)
}

// latch starts or lengthens the back-off; mu is held.
func (g *Guard) latch(reason Reason, cause error) {
	a, now := &g.alarm, g.deps.Now()
	if a.wait == 0 || !a.out() && now.Sub(a.passed) > g.cfg.RecoverMax {
		a.wait = g.cfg.RecoverMin
	} else {
		a.wait = min(2*a.wait, g.cfg.RecoverMax)
	}
	if !a.out() {
		a.since = now
	}
	a.mode, a.reason, a.cause = ModeAlarmed, reason, cause
	a.until = now.Add(time.Duration(float64(a.wait) * (0.75 + 0.5*g.deps.Jitter())))
}

// recover runs the start-up test for a source in ModeRecovering and leaves it ok or alarmed.
func (g *Guard) recover(ctx context.Context) (Reason, error) {
	reason, err := g.startUp(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.alarm.mode, g.alarm.passed = ModeOK, g.deps.Now()
		g.monitor.Restart()
		return ReasonNone, nil
	case reason == ReasonNone: // the caller went away: the test did not fail, and the next draw may try
		g.alarm.mode = ModeAlarmed
		return ReasonNone, err
	}
	g.latch(reason, err)
	return reason, err
}
